//! `holdfast backup verify`.

use std::collections::BTreeSet;

use holdfast_policies::{Level, SnapshotId};
use holdfast_restore::delta::Head;
use holdfast_restore::delta::run::{self, Runs};
use holdfast_restore::in_use::Reader;
use holdfast_restore::{
    Backup, FlawKind, Keys, Proof, ReadOnly, Vault, VerifyOptions, proof, verify,
};
use serde::Serialize;

use super::super::dispatch::Context;
use super::args::VerifyArgs;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::backup::work_dir;
use crate::progress::Meter;
use crate::{keys, vaults};

#[derive(Serialize)]
struct Verified {
    wanted: Level,
    backups: Vec<VerifiedOne>,
    deltas: Deltas,
    problems: Vec<String>,
}

/// The changes after the backups that were verified.
#[derive(Default, Serialize)]
struct Deltas {
    /// Those read back, with every row in them where an identity is here.
    read: usize,
    flaws: Vec<String>,
    #[serde(skip)]
    is_only_locked: bool,
}

#[derive(Serialize)]
struct VerifiedOne {
    id: SnapshotId,
    level: Option<Level>,
    flaws: Vec<String>,
    /// All that is wrong is that the identity here does not open it.
    #[serde(skip)]
    is_only_locked: bool,
    notes: Vec<String>,
    hash_kv: Option<u32>,
    parts_read: u64,
    bytes: u64,
}

/// Verifies what was asked for, records the proofs, and says what was found.
pub(super) async fn run(args: &VerifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    if args.level > Level::L2 {
        return Err(Failure::usage(
            format!("{} is not proven by reading", args.level),
            "`holdfast drill run` proves L3; here L0, L1 and L2 are possible",
        ));
    }
    let settings = context.settings()?.at_vault(args.vault.as_deref())?;
    let source = settings.source(args.source.as_deref())?;
    let keys = keys::reading_with(&settings, args.identity.as_deref())?;
    let vault = vaults::read(&settings).await?;
    let catalog = vaults::catalog_in(&vault, &settings, &source.name, &keys.trust).await?;
    let ids: Vec<SnapshotId> = if args.all {
        catalog.backups.iter().map(Backup::id).collect()
    } else {
        vec![vaults::pick(&catalog, args.id.as_deref())?.id()]
    };
    if ids.is_empty() && catalog.flaws.is_empty() {
        let what = format!("there is no backup of `{}` yet", source.name);
        return Err(Failure::new(ErrorName::NoBackup, what));
    }
    let meter = Meter::new(context.output);
    let mut shape = Verified {
        wanted: args.level,
        backups: Vec::new(),
        deltas: Deltas::default(),
        problems: Vec::new(),
    };
    let wanted: BTreeSet<SnapshotId> = ids.iter().copied().collect();
    for id in ids {
        let now = context.clock.now();
        let options = VerifyOptions {
            upto: args.level,
            now,
            work_dir: work_dir(&settings)?,
        };
        let (mark, _unmarked) =
            vaults::mark(&settings, &source.name, id, Reader::Verification).await?;
        let sink = meter.sink();
        let work = verify(&vault, &catalog, id, &keys, &options, &sink);
        let proof = vaults::during(mark, work)
            .await
            .or_fail(format!("the backup {id} was not verified"))?;
        record(&settings, &vault, &proof, context).await?;
        shape.backups.push(one_of(proof));
    }
    meter.finish();
    let runs = vaults::runs_in(&vault, &settings, &catalog, &keys.trust).await?;
    if args.level > Level::L0 {
        let verified = catalog.backups.iter();
        let verified: Vec<&Backup> = verified.filter(|one| wanted.contains(&one.id())).collect();
        shape.deltas = deltas(&vault, (&runs, &verified), &keys).await?;
    }
    let problems = vaults::problems(&catalog).chain(&runs.flaws);
    shape.problems = problems.map(ToString::to_string).collect();
    context.output.show(&shape, text_of)?;
    Ok(code_of(&shape))
}

/// Reads back whatever can be replayed onto one of these backups.
async fn deltas(
    vault: &Vault<ReadOnly>,
    (runs, backups): (&Runs, &[&Backup]),
    keys: &Keys,
) -> Result<Deltas, Failure> {
    let is_needed = |head: &&Head| {
        let record = &head.record;
        backups.iter().any(|backup| {
            let manifest = &backup.manifest;
            manifest.generation == record.generation && manifest.content.revision < record.to
        })
    };
    let heads: Vec<&Head> = runs
        .runs
        .iter()
        .flat_map(|run| &run.deltas)
        .filter(is_needed)
        .collect();
    let flaws = run::verify_each(vault, heads.iter().copied(), keys)
        .await
        .or_fail("the changes after the backups were not verified")?;
    Ok(Deltas {
        read: heads.len(),
        is_only_locked: flaws
            .iter()
            .all(|flaw| flaw.kind == FlawKind::WrongIdentity),
        flaws: flaws.iter().map(ToString::to_string).collect(),
    })
}

/// Keeps the proof in the vault, where this host may write into it.
async fn record(
    settings: &Settings,
    vault: &Vault<ReadOnly>,
    proof: &Proof,
    context: &Context,
) -> Result<(), Failure> {
    if let Some(doubt) = vault.doubt() {
        context
            .output
            .note(format!("the proof is not stored: {doubt}"));
        return Ok(());
    }
    if !settings.signing_key_file().exists() {
        context
            .output
            .note("the proof is not stored: there is no signing key on this host");
        return Ok(());
    }
    let signer = keys::signer(settings)?;
    let vault = vaults::write(settings, &signer, context.clock.now()).await?;
    proof::record(&vault, proof, &signer)
        .await
        .or_fail(format!("the proof of {} was not stored", proof.id))
}

fn one_of(proof: Proof) -> VerifiedOne {
    VerifiedOne {
        id: proof.id,
        level: proof.level,
        is_only_locked: proof
            .flaws
            .iter()
            .all(|flaw| flaw.kind == FlawKind::WrongIdentity),
        flaws: proof.flaws.iter().map(ToString::to_string).collect(),
        hash_kv: proof.evidence.hash_kv,
        parts_read: proof.evidence.parts_read,
        bytes: proof.evidence.plain_bytes,
        notes: proof.evidence.notes,
    }
}

fn code_of(shape: &Verified) -> ExitCode {
    let deltas = &shape.deltas;
    let is_flawed = shape.backups.iter().any(|one| !one.is_only_locked)
        || !(deltas.flaws.is_empty() || deltas.is_only_locked);
    if is_flawed || !shape.problems.is_empty() {
        return ExitCode::Corrupt;
    }
    let falls_short = shape
        .backups
        .iter()
        .any(|one| one.level < Some(shape.wanted));
    if falls_short || !deltas.flaws.is_empty() {
        ExitCode::Denied
    } else {
        ExitCode::Done
    }
}

fn text_of(shape: &Verified) -> String {
    let mut lines = Vec::new();
    for one in &shape.backups {
        let level = one.level.map_or("not even L0".to_owned(), |level| {
            format!("{level} ({})", level.word())
        });
        let hash = one
            .hash_kv
            .map_or(String::new(), |hash| format!(", HashKV {hash}"));
        lines.push(format!("{}  {level}{hash}", one.id));
        lines.extend(one.flaws.iter().map(|flaw| format!("  flaw: {flaw}")));
        if one.level < Some(shape.wanted) {
            lines.extend(one.notes.iter().map(|note| format!("  note: {note}")));
        }
    }
    if shape.deltas.read > 0 {
        let (read, flaws) = (shape.deltas.read, &shape.deltas.flaws);
        let verdict = match flaws.len() {
            0 => "every one is whole".to_owned(),
            count => format!("{count} are not whole"),
        };
        lines.push(format!("deltas: {read} read back, {verdict}"));
        lines.extend(flaws.iter().map(|flaw| format!("  flaw: {flaw}")));
    }
    lines.extend(
        shape
            .problems
            .iter()
            .map(|problem| format!("problem: {problem}")),
    );
    lines.join("\n")
}
