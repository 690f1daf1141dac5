//! What the audience sees: scenes with a title, commands with their output, facts that were
//! checked.

use serde::Serialize;
use tokio::time::Instant;

use crate::failure::{ErrorName, Failure};
use crate::output::Output;

/// One scene as it went.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Scene {
    /// Its title.
    pub(super) title: String,
    /// What was checked in it and held.
    pub(super) facts: Vec<String>,
    /// How long it took.
    pub(super) seconds: f64,
}

/// Where the story is told.
#[derive(Debug)]
pub(super) struct Stage {
    output: Output,
    scenes: Vec<Scene>,
    began: Instant,
}

impl Stage {
    /// An empty stage.
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            scenes: Vec::new(),
            began: Instant::now(),
        }
    }

    /// A new scene begins.
    pub(super) fn scene(&mut self, title: &str) -> Result<(), Failure> {
        self.close();
        let number = self.scenes.len() + 1;
        self.output.say(format!("\n{number}. {title}"))?;
        self.scenes.push(Scene {
            title: title.to_owned(),
            facts: Vec::new(),
            seconds: 0.0,
        });
        self.began = Instant::now();
        Ok(())
    }

    /// A command is run.
    pub(super) fn command(&self, line: &str) -> Result<(), Failure> {
        self.output.say(format!("   $ {line}"))
    }

    /// What the command said, indented, at most `lines_max` lines of it.
    pub(super) fn quote(&self, text: &str, lines_max: usize) -> Result<(), Failure> {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        for line in lines.iter().take(lines_max) {
            self.output.say(format!("     {line}"))?;
        }
        if lines.len() > lines_max {
            self.output
                .say(format!("     ... {} more lines", lines.len() - lines_max))?;
        }
        Ok(())
    }

    /// Something worth saying that is no check.
    pub(super) fn remark(&self, text: &str) -> Result<(), Failure> {
        self.output.say(format!("   {text}"))
    }

    /// Checks `holds`; the demonstration fails when it does not.
    pub(super) fn check(&mut self, holds: bool, text: impl Into<String>) -> Result<(), Failure> {
        let text = text.into();
        if !holds {
            return Err(self.failed(format!("this does not hold: {text}")));
        }
        self.output.say(format!("   ok  {text}"))?;
        if let Some(scene) = self.scenes.last_mut() {
            scene.facts.push(text);
        }
        Ok(())
    }

    /// The demonstration fails here.
    pub(super) fn failed(&self, what: impl Into<String>) -> Failure {
        let scene = self
            .scenes
            .last()
            .map_or("before the first scene", |scene| scene.title.as_str());
        Failure::new(
            ErrorName::DrillFailed,
            format!("the demonstration failed: {}", what.into()),
        )
        .because_of(format!("in the scene `{scene}`"))
        .next("run `holdfast demo --keep` and look into the folder it names")
    }

    /// The curtain.
    pub(super) fn finish(mut self) -> Vec<Scene> {
        self.close();
        self.scenes
    }

    fn close(&mut self) {
        let took = self.began.elapsed().as_secs_f64();
        if let Some(scene) = self.scenes.last_mut() {
            scene.seconds = (took * 1000.0).round() / 1000.0;
        }
    }
}
