//! `holdfast backup undelete`.

use chrono::{DateTime, Utc};
use holdfast_policies::SnapshotId;
use holdfast_restore::pin::{self, Pin};
use holdfast_restore::release;
use serde::Serialize;

use super::super::dispatch::Context;
use super::args::UndeleteArgs;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, OrFail as _};
use crate::{keys, vaults};

#[derive(Serialize)]
struct Returned {
    id: SnapshotId,
    is_pinned: bool,
    trashed_at: DateTime<Utc>,
    why_trashed: String,
}

/// Brings a backup back. The pin comes first: a run that ends between the two leaves a backup in
/// the trash that no prune removes.
pub(super) async fn undelete(args: &UndeleteArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let catalog = vaults::catalog(&settings, &source.name).await?;
    let in_trash = catalog.trash.iter().map(|one| &one.backup);
    let id = vaults::one_called(in_trash, &source.name, &args.id)
        .map_err(|failure| failure.next("`holdfast backup list` shows what is in the trash"))?
        .id();
    let what = format!("the backup {id} was not brought back");
    let trashed = catalog.trashed(id).or_fail(what.clone())?;
    let (signer, now) = (keys::signer(&settings)?, context.clock.now());
    let vault = vaults::write(&settings, &signer, now).await?;
    let wish = Pin {
        id,
        cluster: source.name.clone(),
        number: 0,
        is_pinned: true,
        reason: args.reason.clone(),
        at: now,
    };
    pin::set(&vault, wish, &signer)
        .await
        .or_fail(what.clone())?;
    let wish = (args.reason.clone(), now, &signer);
    release::bring_back(&vault, &catalog, id, wish)
        .await
        .or_fail(what)?;
    let shape = Returned {
        id,
        is_pinned: true,
        trashed_at: trashed.release.at,
        why_trashed: trashed.release.why().to_owned(),
    };
    context.output.show(&shape, |_| {
        format!(
            "{id} is back, and pinned: the rules alone would let it go again (`holdfast backup \
             pin {id} --remove` lets them decide)"
        )
    })?;
    Ok(ExitCode::Done)
}
