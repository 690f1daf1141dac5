//! `holdfast vault copy` and `holdfast vault verify`: two vaults, made the same and compared.

use clap::Args;
use holdfast_policies::{ByteSize, ClusterName};
use holdfast_restore::copy::{CompareOptions, Compared, Copied, compare, copy_cluster};
use holdfast_restore::{ReadOnly, ReadWrite, Vault};
use serde::Serialize;

use crate::cli::dispatch::Context;
use crate::config::{FIRST, Settings};
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::progress::Meter;
use crate::{keys, vaults};

const COPY_EXAMPLES: &str = "\
Examples:
  holdfast vault copy first offsite          what `offsite` lacks; the daemon does it by itself
  holdfast vault copy offsite first --new    a new first vault, from a copy, after the first is lost
  holdfast vault copy first offsite -w json

`first` is the vault of `restore.vault`, the others are those of `restore.copies`. Nothing is written
over: run it again after an error, it goes on where it stopped. Parts come before their manifest, so a
backup in the copy is whole at every moment. Every object is checked on the way, without the identity.

Exit codes: 0 when the copy holds everything, 12 when something was left out (it is named).";

const VERIFY_EXAMPLES: &str = "\
Examples:
  holdfast vault verify first offsite           read every byte on both sides
  holdfast vault verify first offsite --quick   names and sizes only
  holdfast vault verify first offsite -w json | jq '.clusters[].compared.differences'

What was let go by retention need not be on both sides, and is counted apart.

Exit codes: 0 both hold the same, 10 something is missing on a side, 12 bytes differ.";

/// Bring a vault to what another one holds.
#[derive(Debug, Args)]
#[command(after_help = COPY_EXAMPLES)]
pub(crate) struct CopyArgs {
    /// The vault to read: `first`, or one of `restore.copies`
    from: String,
    /// The vault to write
    to: String,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Make the vault to write where it is gone, or take another one in its place
    #[arg(long)]
    new: bool,
}

/// Compare two vaults, byte by byte.
#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// A vault: `first`, or one of `restore.copies`
    from: String,
    /// Another one
    to: String,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Compare names and sizes, and read nothing
    #[arg(long)]
    quick: bool,
}

#[derive(Serialize)]
struct CopyShape {
    from: String,
    to: String,
    clusters: Vec<CopiedCluster>,
}

#[derive(Serialize)]
struct CopiedCluster {
    source: String,
    copied: Copied,
}

#[derive(Serialize)]
struct VerifyShape {
    from: String,
    to: String,
    clusters: Vec<ComparedCluster>,
}

#[derive(Serialize)]
struct ComparedCluster {
    source: String,
    compared: Compared,
}

/// Copies what `to` lacks.
pub(super) async fn copy(args: &CopyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    refuse_same(&args.from, &args.to)?;
    let trust = keys::trust(&settings)?;
    let from = read(&settings, &args.from).await?;
    let clusters = clusters(args.source.as_deref(), &from).await?;
    let to = write(&settings, args, context).await?;
    let meter = Meter::new(context.output);
    let mut shape = CopyShape {
        from: args.from.clone(),
        to: args.to.clone(),
        clusters: Vec::new(),
    };
    for cluster in clusters {
        let sink = meter.sink();
        let copied = copy_cluster(&from, &to, &cluster, &trust, &sink)
            .await
            .or_fail(format!("`{cluster}` was not copied to `{}`", args.to))?;
        shape.clusters.push(CopiedCluster {
            source: cluster.to_string(),
            copied,
        });
    }
    meter.finish();
    context.output.show(&shape, copy_text)?;
    let mut copied = shape.clusters.iter().map(|one| &one.copied);
    Ok(if copied.all(|one| one.refused.is_empty()) {
        ExitCode::Done
    } else {
        ExitCode::Corrupt
    })
}

fn copy_text(shape: &CopyShape) -> String {
    let mut lines = vec![format!("{} -> {}", shape.from, shape.to)];
    for one in &shape.clusters {
        let (source, copied) = (&one.source, &one.copied);
        lines.push(match copied.objects {
            0 => format!("  {source}: nothing was lacking"),
            objects => format!(
                "  {source}: {} backups and {} deltas copied, {objects} objects, {}",
                copied.backups.len(),
                copied.deltas,
                ByteSize::new(copied.bytes).rounded()
            ),
        });
        let refused = copied.refused.iter();
        lines.extend(refused.map(|one| format!("  NOT COPIED  {}: {}", one.object, one.reason)));
        let left = copied.left_out.iter();
        lines.extend(left.map(|one| format!("  left out    {}: {}", one.object, one.reason)));
    }
    lines.join("\n")
}

/// Compares two vaults.
pub(super) async fn verify(args: &VerifyArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    refuse_same(&args.from, &args.to)?;
    let trust = keys::trust(&settings)?;
    let from = read(&settings, &args.from).await?;
    let to = read(&settings, &args.to).await?;
    let options = CompareOptions {
        reads_bytes: !args.quick,
    };
    let mut all = clusters(args.source.as_deref(), &from).await?;
    if args.source.is_none() {
        all.extend(clusters(None, &to).await?);
        all.sort();
        all.dedup();
    }
    let meter = Meter::new(context.output);
    let mut shape = VerifyShape {
        from: args.from.clone(),
        to: args.to.clone(),
        clusters: Vec::new(),
    };
    for cluster in all {
        let sink = meter.sink();
        let compared = compare((&from, &to), &cluster, &trust, options, &sink)
            .await
            .or_fail(format!("`{cluster}` was not compared"))?;
        shape.clusters.push(ComparedCluster {
            source: cluster.to_string(),
            compared,
        });
    }
    meter.finish();
    context.output.show(&shape, verify_text)?;
    let differences = shape.clusters.iter();
    let differences = differences.flat_map(|one| &one.compared.differences);
    let is_damaged = differences.clone().any(|one| one.kind.is_damage());
    Ok(match (is_damaged, differences.count()) {
        (_, 0) => ExitCode::Done,
        (true, _) => ExitCode::Corrupt,
        (false, _) => ExitCode::NotFound,
    })
}

fn verify_text(shape: &VerifyShape) -> String {
    let mut lines = vec![format!("{} and {}", shape.from, shape.to)];
    for one in &shape.clusters {
        let (source, compared) = (&one.source, &one.compared);
        lines.push(format!(
            "  {source}: {} objects are the same ({}), {} differ; {} were let go, {} are of one vault \
             alone",
            compared.same,
            ByteSize::new(compared.bytes).rounded(),
            compared.differences.len(),
            compared.let_go,
            compared.own
        ));
        for difference in &compared.differences {
            let words = difference.kind.words(&shape.from, &shape.to);
            lines.push(format!(
                "  {words}: {} ({})",
                difference.object, difference.detail
            ));
        }
    }
    lines.join("\n")
}

fn refuse_same(from: &str, to: &str) -> Result<(), Failure> {
    if from != to {
        return Ok(());
    }
    Err(Failure::usage(
        format!("`{from}` is named twice"),
        "name two vaults: `first`, or those of `restore.copies`",
    ))
}

async fn read(settings: &Settings, name: &str) -> Result<Vault<ReadOnly>, Failure> {
    vaults::read(&settings.clone().at_vault(Some(name))?).await
}

async fn write(
    settings: &Settings,
    args: &CopyArgs,
    context: &Context,
) -> Result<Vault<ReadWrite>, Failure> {
    keys::ensure(settings)?;
    let (signer, now) = (keys::signer(settings)?, context.clock.now());
    match args.to.as_str() {
        FIRST if args.new => vaults::renew(settings, &signer, now).await,
        FIRST => vaults::write(settings, &signer, now).await,
        name => {
            let copy = settings.copy(name)?;
            vaults::copies::write(settings, copy, (&signer, now), args.new).await
        }
    }
}

/// The clusters that are meant: the one that is named, or all that the vault holds.
async fn clusters(
    named: Option<&str>,
    vault: &Vault<ReadOnly>,
) -> Result<Vec<ClusterName>, Failure> {
    let stored = vault.clusters().await;
    let stored = stored.or_fail(format!(
        "the clusters in {} cannot be listed",
        vault.location()
    ))?;
    let Some(name) = named else {
        return Ok(stored);
    };
    let found = stored.into_iter().find(|one| one.as_str() == name);
    found.map(|one| vec![one]).ok_or_else(|| {
        let what = format!("{} holds nothing of `{name}`", vault.location());
        Failure::new(ErrorName::NotFound, what)
    })
}
