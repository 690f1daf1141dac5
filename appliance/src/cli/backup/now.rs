//! `holdfast backup now`.

use holdfast_policies::Pool;
use holdfast_restore::source::SourceSpec;

use super::super::dispatch::Context;
use super::args::NowArgs;
use crate::config::{self, Settings};
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure};
use crate::jobs::backup::{self, BackupReport, Wishes};
use crate::jobs::control::{self, Answer, Ask};
use crate::progress::Meter;
use crate::{keys, sources};

/// Takes a backup of each source asked for: by the daemon where one is up, else here.
pub(super) async fn run(args: &NowArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    // Fail closed before anybody is asked for anything.
    settings.encryption()?;
    let mut reports = Vec::new();
    for source in settings.sources(args.source.as_deref())? {
        reports.push(take(&settings, source, args, context).await?);
    }
    context.output.show(&reports, |reports| {
        let texts: Vec<String> = reports.iter().map(text_of).collect();
        texts.join("\n")
    })?;
    let is_waiting = reports.iter().any(|report| report.is_waiting);
    Ok(if is_waiting {
        ExitCode::Unavailable
    } else {
        ExitCode::Done
    })
}

async fn take(
    settings: &Settings,
    source: &config::Source,
    args: &NowArgs,
    context: &Context,
) -> Result<BackupReport, Failure> {
    let ask = Ask::Backup {
        source: source.name.to_string(),
        accept_new_cluster: args.accept_new_cluster,
    };
    match control::ask(settings, ask).await? {
        Some(Answer::Backup(report)) => return Ok(*report),
        Some(Answer::Failed(failure)) => return Err(failure),
        Some(Answer::Drill(_) | Answer::Failing(_) | Answer::Turn(_)) => {
            return Err(Failure::new(
                ErrorName::Unexpected,
                "the daemon answered something else",
            ));
        }
        None if source.kind == SourceSpec::Bundled => {
            return Err(sources::not_running(source));
        }
        None => {}
    }
    keys::ensure(settings)?;
    let meter = Meter::new(context.output);
    let opened = sources::open(settings, source, None)?;
    let wishes = Wishes {
        accept_new_cluster: args.accept_new_cluster,
        pool: Pool::Manual,
        ..Wishes::default()
    };
    backup::run(
        settings,
        source,
        opened.as_ref(),
        &context.clock,
        &meter,
        wishes,
    )
    .await
}

pub(super) fn text_of(report: &BackupReport) -> String {
    let level = report.level.map_or("not proven".to_owned(), |level| {
        format!("{level} ({})", level.word())
    });
    let hash = report
        .hash_kv
        .map_or(String::new(), |hash| format!(", HashKV {hash}"));
    let sealing = if report.is_sealed {
        "sealed"
    } else {
        "in clear"
    };
    let mut lines = vec![
        format!("backup {}", report.id),
        format!("  source    {}", report.source),
        format!(
            "  content   revision {}, {} keys, {} bytes",
            report.revision, report.keys, report.bytes
        ),
        format!(
            "  vault     {} bytes {sealing}, place {} in the chain",
            report.stored_bytes, report.sequence
        ),
        format!("  proof     {level}{hash}"),
        format!("  took      {:.2} s", report.seconds),
    ];
    if report.is_waiting {
        lines.push("  WAITS     on this host: the vault cannot be reached".to_owned());
    }
    if !report.pruned.is_empty() {
        lines.push(format!(
            "  trash     {} older backups were put there",
            report.pruned.len()
        ));
    }
    lines.extend(
        report
            .notes
            .iter()
            .map(|note| format!("  note      {note}")),
    );
    lines.join("\n")
}
