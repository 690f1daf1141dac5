//! `holdfast backup consolidate`.

use serde::Serialize;

use super::super::dispatch::Context;
use super::args::ConsolidateArgs;
use super::now::text_of;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::jobs::backup::BackupReport;
use crate::jobs::consolidation::{self, Prospect};
use crate::keys;
use crate::progress::Meter;

#[derive(Serialize)]
struct Shape {
    is_dry_run: bool,
    /// What can be merged; nothing where no delta with a hash of the source follows a backup.
    prospect: Option<Prospect>,
    /// The new backup, where one was made.
    backup: Option<BackupReport>,
}

/// Merges the changes after the newest backup into a new one.
pub(super) async fn run(args: &ConsolidateArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    // Fail closed, as for any backup.
    settings.encryption()?;
    let source = settings.source(args.source.as_deref())?;
    let mut shape = Shape {
        is_dry_run: args.dry_run,
        prospect: consolidation::look(&settings, source).await?,
        backup: None,
    };
    let is_wanted = |one: &&Prospect| !args.dry_run && (!args.if_due || one.verdict.is_due);
    if let Some(prospect) = shape.prospect.as_ref().filter(is_wanted) {
        keys::ensure(&settings)?;
        let meter = Meter::new(context.output);
        let by = (&context.clock, &meter);
        shape.backup = Some(consolidation::run(&settings, source, prospect, by).await?);
        meter.finish();
    }
    context.output.show(&shape, words)?;
    Ok(ExitCode::Done)
}

fn words(shape: &Shape) -> String {
    let Some(prospect) = &shape.prospect else {
        return "nothing to merge: no delta at which the source told its hash follows the newest \
                backup"
            .to_owned();
    };
    let verdict = prospect.verdict;
    let limit = verdict
        .objective
        .map_or(String::new(), |limit| format!(", the objective is {limit}"));
    let mut lines = vec![
        format!(
            "merge {} deltas into {}, to revision {}",
            prospect.deltas, prospect.base, prospect.revision
        ),
        format!(
            "  a restore takes about {} with them and {} without{limit}",
            verdict.now, verdict.then
        ),
    ];
    match &shape.backup {
        Some(report) => lines.push(text_of(report)),
        None if shape.is_dry_run => lines.push("nothing was written (--dry-run)".to_owned()),
        None => lines.push("not due: nothing was written".to_owned()),
    }
    lines.join("\n")
}
