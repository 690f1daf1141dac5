//! `holdfast key rewrap`: the backups in the vault for the recipients configured now.

use holdfast_policies::SnapshotId;
use holdfast_restore::in_use::Reader;
use holdfast_restore::rewrap::{Rewrapped, rewrap};
use holdfast_restore::{Backup, Sealer};
use serde::Serialize;

use super::dispatch::Context;
use super::key::RewrapArgs;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::{keys, vaults};

#[derive(Serialize)]
struct Shown {
    backups: Vec<One>,
    failed: Vec<String>,
}

#[derive(Serialize)]
struct One {
    id: SnapshotId,
    before: Vec<String>,
    after: Vec<String>,
    /// Not asked for any more, and able to open it until the backup goes.
    still: Vec<String>,
    is_new: bool,
}

/// Rewraps every sealed backup of a source, and says of each who opens it before and after.
pub(super) async fn run(args: &RewrapArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let recipients = keys::recipients(&settings)?.ok_or_else(|| {
        Failure::new(
            ErrorName::EncryptionNotConfigured,
            "there is nobody to rewrap to",
        )
        .because_of("the configuration says `encryption: none`")
    })?;
    // As at a start: nothing is given to a recipient that cannot open it.
    keys::prove(&settings)?;
    let sealer = Sealer::to_recipients(recipients).or_fail("backups cannot be sealed")?;
    let signer = keys::signer(&settings)?;
    let reading = keys::reading_with(&settings, args.identity.as_deref())?;
    let vault = vaults::write(&settings, &signer, context.clock.now()).await?;
    let catalog = vaults::catalog_in(&vault, &settings, &source.name, &reading.trust).await?;
    let is_sealed = |one: &&Backup| !one.manifest.encryption.recipients().is_empty();
    let mut shape = Shown {
        backups: Vec::new(),
        failed: Vec::new(),
    };
    for backup in catalog.backups.iter().filter(is_sealed) {
        let id = backup.id();
        // A prune that lets it go meanwhile waits for us.
        let marked = vaults::mark(&settings, &source.name, id, Reader::Verification).await;
        let (mark, _unmarked) = marked?;
        let work = rewrap(
            &vault,
            backup,
            &reading,
            (&sealer, &signer),
            context.clock.now(),
        );
        let done = vaults::during(mark, work).await;
        match done.or_fail(format!("the backup {id} was not rewrapped")) {
            Ok(rewrapped) => shape.backups.push(one_of(id, rewrapped)),
            Err(failure) => shape.failed.push(failure.line()),
        }
    }
    context.output.show(&shape, text_of)?;
    Ok(if shape.failed.is_empty() {
        ExitCode::Done
    } else {
        ExitCode::Denied
    })
}

fn one_of(id: SnapshotId, rewrapped: Rewrapped) -> One {
    One {
        id,
        before: rewrapped.before,
        after: rewrapped.after,
        still: rewrapped.still,
        is_new: rewrapped.is_new,
    }
}

fn text_of(shape: &Shown) -> String {
    let mut lines = Vec::new();
    for one in &shape.backups {
        let (before, after) = (one.before.join(", "), one.after.join(", "));
        if one.is_new {
            lines.push(format!("{}  {before} -> {after}", one.id));
        } else {
            lines.push(format!("{}  {after}, as before", one.id));
        }
        if !one.still.is_empty() {
            lines.push(format!(
                "  still opened by {}: the manifest's own envelope is signed and goes with the backup",
                one.still.join(", ")
            ));
        }
    }
    lines.extend(shape.failed.iter().map(|line| format!("failed: {line}")));
    lines.join("\n")
}
