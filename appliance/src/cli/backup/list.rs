//! `holdfast backup list` and `show`.

use chrono::{DateTime, Utc};
use comfy_table::{Table, TableStyle};
use holdfast_policies::{ByteSize, Level, Pool, SnapshotId};
use holdfast_restore::delta::run::{Following, Runs};
use holdfast_restore::release::Release;
use holdfast_restore::{Backup, Manifest, Proof};
use serde::Serialize;

use super::super::dispatch::Context;
use super::args::{ListArgs, ShowArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::health::moment;
use crate::vaults;

/// One backup of the list.
#[derive(Debug, Clone, Serialize)]
struct BackupLine {
    source: String,
    id: SnapshotId,
    sequence: u64,
    time: DateTime<Utc>,
    revision: i64,
    keys: u64,
    bytes: u64,
    stored_bytes: u64,
    level: Option<Level>,
    proven_at: Option<DateTime<Utc>>,
    is_damaged: bool,
    is_pinned: bool,
    pool: Pool,
    /// Set where an object lock does not let it go before.
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until: Option<DateTime<Utc>>,
    /// The changes captured after it, that a restore replays.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Following>,
    /// Set for one in the trash: until when it can be brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    trash_until: Option<DateTime<Utc>>,
}

#[derive(Serialize)]
struct Listed {
    backups: Vec<BackupLine>,
    /// In the trash: whole, and brought back by `backup undelete`.
    trash: Vec<BackupLine>,
    problems: Vec<String>,
}

/// Lists the backups of each source asked for, newest first.
pub(super) async fn list(args: &ListArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?.at_vault(args.vault.as_deref())?;
    let mut shape = Listed {
        backups: Vec::new(),
        trash: Vec::new(),
        problems: Vec::new(),
    };
    let grace = settings.policies()?.retention.trash_grace.as_delta();
    for source in settings.sources(args.source.as_deref())? {
        let (catalog, runs) = vaults::history(&settings, &source.name).await?;
        let name = source.name.as_str();
        let newest_first = catalog.backups.iter().rev();
        let lines = newest_first.map(|one| line_of(name, one, &runs));
        shape.backups.extend(lines);
        let trashed = catalog.trash.iter().rev().map(|one| BackupLine {
            trash_until: Some(one.release.until(grace)),
            ..line_of(name, &one.backup, &runs)
        });
        shape.trash.extend(trashed);
        let problems = vaults::problems(&catalog).chain(&runs.flaws);
        let problems = problems.map(|flaw| format!("{name}: {flaw}"));
        shape.problems.extend(problems);
    }
    context.output.show(&shape, table_of)?;
    let is_damaged = shape.backups.iter().any(|one| one.is_damaged);
    Ok(if is_damaged || !shape.problems.is_empty() {
        ExitCode::Corrupt
    } else {
        ExitCode::Done
    })
}

/// What a list says of a backup.
fn line_of(source: &str, backup: &Backup, runs: &Runs) -> BackupLine {
    let manifest = &backup.manifest;
    let level = backup.level();
    let proven = backup.proofs.iter().rfind(|proof| proof.level == level);
    BackupLine {
        source: source.to_owned(),
        id: manifest.id,
        sequence: manifest.sequence.0,
        time: manifest.started,
        revision: manifest.content.revision,
        keys: manifest.content.keys,
        bytes: manifest.content.bytes,
        stored_bytes: manifest.stored_bytes(),
        level,
        proven_at: proven.map(|proof| proof.at),
        is_damaged: backup.is_damaged(),
        is_pinned: backup.is_pinned,
        pool: manifest.pool,
        locked_until: backup.locked_until,
        changes: runs.following(backup),
        trash_until: None,
    }
}

/// How far one comes from a backup.
fn changes_of(following: Option<Following>) -> String {
    following.map_or(String::new(), |changes| {
        format!(
            "{} to {}, {}",
            changes.deltas,
            changes.to,
            moment(changes.until)
        )
    })
}

fn table_of(listed: &Listed) -> String {
    if listed.backups.is_empty() && listed.trash.is_empty() && listed.problems.is_empty() {
        return "no backups yet; `holdfast backup now` takes one".to_owned();
    }
    let mut table = Table::new();
    table.load_style(TableStyle::new());
    table.set_header([
        "ID",
        "SOURCE",
        "TAKEN",
        "REVISION",
        "KEYS",
        "STORED",
        "PROOF",
        "CHANGES TO",
        "",
    ]);
    for one in listed.backups.iter().chain(&listed.trash) {
        let level = match (one.level, one.is_damaged) {
            (_, true) => "DAMAGED".to_owned(),
            (Some(level), false) => format!("{level} {}", level.word()),
            (None, false) => "none".to_owned(),
        };
        table.add_row([
            one.id.to_string(),
            one.source.clone(),
            moment(one.time),
            one.revision.to_string(),
            one.keys.to_string(),
            ByteSize::new(one.stored_bytes).rounded(),
            level,
            changes_of(one.changes),
            remark_of(one),
        ]);
    }
    let rows: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    let problems = listed
        .problems
        .iter()
        .map(|problem| format!("problem: {problem}"));
    let all: Vec<String> = rows.into_iter().chain(problems).collect();
    all.join("\n")
}

/// What else there is to know in a word or two.
fn remark_of(one: &BackupLine) -> String {
    let trash = one
        .trash_until
        .map(|until| format!("trash until {}", moment(until)));
    let pinned = one.is_pinned.then(|| "pinned".to_owned());
    let manual = (one.pool == Pool::Manual).then(|| "manual".to_owned());
    let locked = one
        .locked_until
        .map(|until| format!("locked until {}", moment(until)));
    let remarks = manual.into_iter().chain(pinned).chain(trash).chain(locked);
    let remarks: Vec<String> = remarks.collect();
    remarks.join(", ")
}

#[derive(Serialize)]
struct Shown<'a> {
    /// Set for one in the trash.
    #[serde(skip_serializing_if = "Option::is_none")]
    trash: Option<&'a Release>,
    level: Option<Level>,
    is_damaged: bool,
    is_pinned: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until: Option<DateTime<Utc>>,
    observed: DateTime<Utc>,
    /// The changes captured after it.
    changes: Option<Following>,
    manifest: &'a Manifest,
    proofs: &'a [Proof],
    flaws: Vec<String>,
}

/// Shows one backup.
pub(super) async fn show(args: &ShowArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?.at_vault(args.vault.as_deref())?;
    let source = settings.source(args.source.as_deref())?;
    let (catalog, runs) = vaults::history(&settings, &source.name).await?;
    let backup = vaults::pick(&catalog, args.id.as_deref())?;
    let trashed = catalog.trashed(backup.id()).ok();
    let shape = Shown {
        trash: trashed.map(|one| &one.release),
        level: backup.level(),
        is_damaged: backup.is_damaged(),
        is_pinned: backup.is_pinned,
        locked_until: backup.locked_until,
        observed: backup.observed,
        changes: runs.following(backup),
        manifest: &backup.manifest,
        proofs: &backup.proofs,
        flaws: backup.flaws.iter().map(ToString::to_string).collect(),
    };
    context.output.show(&shape, text_of)?;
    Ok(if shape.is_damaged {
        ExitCode::Corrupt
    } else {
        ExitCode::Done
    })
}

fn text_of(shape: &Shown<'_>) -> String {
    let level = match (shape.level, shape.is_damaged) {
        (_, true) => "DAMAGED".to_owned(),
        (Some(level), false) => format!("{level} ({})", level.word()),
        (None, false) => "none".to_owned(),
    };
    let mut rows = manifest_rows(shape.manifest);
    if let Some(changes) = shape.changes {
        let (deltas, to, until) = (changes.deltas, changes.to, moment(changes.until));
        let text = format!("{deltas} deltas after it, to revision {to}, until {until}");
        rows.push(("changes", text));
    }
    rows.push(("proof", level));
    rows.extend(shape.proofs.iter().map(|proof| {
        let level = proof
            .level
            .map_or("none".to_owned(), |level| level.to_string());
        ("", format!("{level} at {}", moment(proof.at)))
    }));
    rows.extend(shape.flaws.iter().map(|flaw| ("flaw", flaw.clone())));
    if let Some(release) = shape.trash {
        let (at, why) = (moment(release.at), release.why());
        rows.push(("trash", format!("since {at}: {why}")));
    }
    if let Some(until) = shape.locked_until {
        rows.push(("locked", format!("until {}", moment(until))));
    }
    if shape.is_pinned {
        rows.push(("pinned", "stays whatever the rules say".to_owned()));
    }
    let lines: Vec<String> = rows
        .into_iter()
        .map(|(name, value)| format!("{name:9} {value}"))
        .collect();
    lines.join("\n")
}

/// What a backup was taken for, in words.
fn occasion(pool: Pool) -> &'static str {
    match pool {
        Pool::Scheduled => "by its schedule",
        Pool::Manual => "asked for",
    }
}

fn manifest_rows(manifest: &Manifest) -> Vec<(&'static str, String)> {
    let (source, content) = (&manifest.source, &manifest.content);
    let (began, ended) = (moment(manifest.started), moment(manifest.finished));
    let (sequence, generation) = (manifest.sequence, manifest.generation);
    let (revision, compacted) = (content.revision, content.compact_revision);
    let (bytes, stored) = (content.bytes, manifest.stored_bytes());
    let recipients = manifest.encryption.recipients();
    let sealing = match recipients {
        [] => "in clear".to_owned(),
        _ => format!("sealed for {}", recipients.join(", ")),
    };
    vec![
        ("backup", manifest.id.to_string()),
        (
            "source",
            format!("{} ({} {})", manifest.cluster, source.kind, source.endpoint),
        ),
        (
            "taken",
            format!("{began} to {ended}, {}", occasion(manifest.pool)),
        ),
        ("place", format!("{sequence} of generation {generation}")),
        (
            "revision",
            match compacted {
                ..=0 => format!("{revision}, never compacted"),
                1.. => format!("{revision}, compacted at {compacted}"),
            },
        ),
        (
            "content",
            format!("{} keys, {} leases", content.keys, content.leases),
        ),
        ("hash", format!("HashKV {}", content.hash_kv)),
        ("size", format!("{bytes} bytes, {stored} stored")),
        ("sealing", sealing),
    ]
}
