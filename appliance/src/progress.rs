//! Progress for people at a terminal: one bar for what is being done, nothing anywhere else.

use std::time::Duration;

use holdfast_restore::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::output::Output;

/// A bar on standard error, drawn from the first second on.
#[derive(Debug)]
pub(crate) struct Meter {
    bar: Option<Mutex<Shown>>,
}

#[derive(Debug)]
struct Shown {
    bar: ProgressBar,
    phase: Option<Phase>,
}

impl Meter {
    /// Shows progress where a person is looking.
    pub(crate) fn new(output: Output) -> Self {
        if !output.is_interactive() {
            return Self::silent();
        }
        let bar = ProgressBar::no_length();
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            bar: Some(Mutex::new(Shown { bar, phase: None })),
        }
    }

    /// Shows nothing.
    pub(crate) const fn silent() -> Self {
        Self { bar: None }
    }

    /// What to hand to a long operation.
    pub(crate) fn sink(&self) -> impl Fn(Progress) + Send + Sync + '_ {
        move |progress| {
            if let Some(shown) = &self.bar {
                shown.lock().update(progress);
            }
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(shown) = &self.bar {
            shown.lock().bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shown {
    fn update(&mut self, progress: Progress) {
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            self.bar.reset();
            self.bar.set_message(words(progress.phase));
        }
        match progress.total {
            Some(total) => {
                self.bar.set_style(style(
                    "{spinner} {msg:20} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                ));
                self.bar.set_length(total.max(progress.done));
            }
            None => self
                .bar
                .set_style(style("{spinner} {msg:20} {bytes} {bytes_per_sec}")),
        }
        self.bar.set_position(progress.done);
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates above are constant and valid.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

const fn words(phase: Phase) -> &'static str {
    match phase {
        Phase::Connecting => "choosing a member",
        Phase::Capturing => "reading and storing",
        Phase::Inspecting => "inspecting the copy",
        Phase::ReadingBack => "reading back",
        Phase::Fetching => "fetching",
        Phase::Checking => "checking",
        Phase::Building => "building",
        Phase::Copying => "copying",
        Phase::Comparing => "comparing",
    }
}
