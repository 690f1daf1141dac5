//! The story: its order, its folder, its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::commands::Holdfast;
use super::peer::{Etcd, free_port};
use super::scenes::Tale;
use super::stage::{Scene, Stage};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, OrFail as _};
use crate::output::Output;

/// Longest wait for the folder's removal and the like.
const OVERALL_TIMEOUT: Duration = Duration::from_mins(10);

/// What the audience asked for.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Leave the folder.
    pub(crate) keep: bool,
    /// Play the scene with a real etcd.
    pub(crate) with_etcd: bool,
    /// The `etcd` program.
    pub(crate) etcd_binary: Option<PathBuf>,
}

#[derive(Serialize)]
struct Told {
    holds: bool,
    folder: Option<PathBuf>,
    seconds: f64,
    rto: Option<String>,
    rpo: Option<String>,
    skipped: Vec<String>,
    scenes: Vec<Scene>,
}

/// Tells the story; a step that does not hold is a failure.
pub(crate) async fn tell(options: &Options, output: Output) -> Result<ExitCode, Failure> {
    let began = tokio::time::Instant::now();
    let folder = tempfile::Builder::new()
        .prefix("holdfast-demo-")
        .tempdir()
        .or_fail("no temporary folder was made")?;
    let place = folder.path().to_owned();
    let kept = if options.keep {
        Some(folder.keep())
    } else {
        None
    };
    let etcd = if options.with_etcd {
        Etcd::look_for(options.etcd_binary.as_deref())
    } else {
        Etcd::Missing("not asked for (--no-etcd)".to_owned())
    };
    output
        .say("Holdfast, the whole story. Every command below is real and checked from outside.")?;
    if let Some(kept) = &kept {
        output.say(format!("The folder stays: {}", kept.display()))?;
    }
    let mut tale = prepare(&place, output)?;
    let telling = tokio::time::timeout(OVERALL_TIMEOUT, tale.play(etcd)).await;
    telling.map_err(|_elapsed| tale.stage.failed("it takes more than ten minutes"))??;
    let told = Told {
        holds: true,
        folder: kept,
        seconds: (began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        rto: tale.rto.take(),
        rpo: tale.rpo.take(),
        skipped: std::mem::take(&mut tale.skipped),
        scenes: tale.stage.finish(),
    };
    output.show(&told, text_of)?;
    Ok(ExitCode::Done)
}

fn text_of(told: &Told) -> String {
    let unknown = || "unknown".to_owned();
    let facts: usize = told.scenes.iter().map(|scene| scene.facts.len()).sum();
    let mut lines = vec![format!(
        "\nThe end: {facts} facts checked in {} s. Back in {} (RTO), would have lost {} (RPO).",
        told.seconds,
        told.rto.clone().unwrap_or_else(unknown),
        told.rpo.clone().unwrap_or_else(unknown),
    )];
    lines.extend(
        told.skipped
            .iter()
            .map(|skipped| format!("Skipped: {skipped}")),
    );
    lines.push("Next: `holdfast init`, read holdfast.yaml, `holdfast run`.".to_owned());
    lines.join("\n")
}

/// The folder as `holdfast init` makes it, with ports of its own.
fn prepare(place: &Path, output: Output) -> Result<Tale, Failure> {
    let config = place.join("holdfast.yaml");
    let endpoint = format!("http://127.0.0.1:{}", free_port()?);
    let holdfast = Holdfast::new(place, &config)?;
    Ok(Tale {
        stage: Stage::new(output),
        holdfast,
        folder: place.to_owned(),
        endpoint,
        rto: None,
        rpo: None,
        skipped: Vec::new(),
    })
}
