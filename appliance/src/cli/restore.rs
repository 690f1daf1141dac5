//! `holdfast restore`: pick a backup, print the plan, rebuild a cluster from it.

mod hints;
mod origin;
mod point;

use std::path::{Path, PathBuf};

use clap::Args;
use holdfast_restore::UniqueId;
use holdfast_restore::in_use::Reader;
use holdfast_restore::ledger;
use holdfast_restore::plan::NewMember;
use holdfast_restore::rebuild::{check_restore, refuse_target};
use holdfast_restore::{
    Error, Pick, Replayed, RestoreOptions, RestorePlan, Restored, Upto, Verifier, plan_replay,
    rebuild,
};
use serde::Serialize;

use point::{History, PointArgs};

use super::args::Global;
use super::dispatch::Context;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::acceptance;
use crate::progress::Meter;
use crate::{keys, vaults};

/// Where a member's peers find it when nothing is said; etcdutl's default.
const DEFAULT_PEER_URL: &str = "http://localhost:2380";

/// Where several members are written when nothing is said.
const MEMBERS_DIR: &str = "restored";

const EXAMPLES: &str = "\
Examples:
  holdfast restore --data-dir new.holdfast
      the newest backup that a drill has proven, with every change captured after it (it says how
      much newer an unproven one is), as a data directory for
      `holdfast store --data-dir new.holdfast`
  holdfast restore --latest --data-dir new.holdfast --dry-run
      print the plan for the newest backup, proven or not, and stop
  holdfast restore --at 2026-11-30T08:00:00Z --data-dir new.holdfast
      the newest state at that time; --at 10m: ten minutes ago
  holdfast restore --revision 120000 --data-dir new.holdfast
      exactly that revision
  holdfast restore --before-delete /registry/deployments/shop/web --data-dir new.holdfast
      the state just before that key was last deleted
  holdfast restore --vault offsite --data-dir new.holdfast
      from a copy (`restore.copies`), where the first vault is lost or cannot be reached
  holdfast restore --target etcd --data-dir m1.etcd --name m1 \\
      --initial-cluster m1=http://10.0.0.1:2380
      a data directory that a real etcd 3.5 to 3.7 starts from
  holdfast restore --members \\
      m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380,m3=http://10.0.0.3:2380
      restored/m1, restored/m2 and restored/m3, for one cluster; carry each to its host and start it
      there with the command printed for it. With --target etcd they are for a real etcd. Where
      every host is to restore for itself, ask for one member (--name, --initial-cluster) with
      --dry-run: it prints one command for each host, with the same backup, token and revision

An existing directory is never touched. Clients of the old cluster are safe: revisions are bumped
beyond anything they may have seen and everything older is compacted, so that an old watcher is
told to start anew instead of missing changes in silence.";

/// Rebuild a cluster from a backup.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(super) point: PointArgs,
    /// The source whose backups are meant, where there are several; one in the vault need not be
    /// in the configuration
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// The vault to restore from: `first`, which is `restore.vault`, or one of `restore.copies`
    #[arg(long, value_name = "NAME")]
    pub(super) vault: Option<String>,
    /// The age identity that opens the backup, instead of `restore.identity_file`
    #[arg(long, value_name = "FILE")]
    pub(super) identity: Option<PathBuf>,

    /// The data directory to make; must not exist. With --members it is the folder of all of them,
    /// `restored` unless given
    #[arg(
        long,
        value_name = "DIR",
        help_heading = "Target",
        required_unless_present = "members",
        default_value_if("members", clap::builder::ArgPredicate::IsPresent, MEMBERS_DIR)
    )]
    pub(super) data_dir: Option<PathBuf>,
    /// What will run from it
    #[arg(long, value_enum, default_value_t = Target::Holdfast, value_name = "KIND",
        help_heading = "Target")]
    pub(super) target: Target,
    /// The member's name
    #[arg(
        long,
        default_value = "default",
        value_name = "NAME",
        help_heading = "Target"
    )]
    pub(super) name: String,
    /// Write all members of a new cluster, given as name=peer-url pairs, each into a folder of its
    /// name below --data-dir (one alone is that folder): --initial-cluster and --all-members in one
    #[arg(long, value_name = "MEMBERS", help_heading = "Target",
        conflicts_with_all = ["name", "all_members", "initial_cluster",
            "initial_advertise_peer_urls"])]
    pub(super) members: Option<String>,
    /// Write every member of --initial-cluster, each into a folder of its name below --data-dir
    #[arg(long, requires = "initial_cluster", help_heading = "Target",
        conflicts_with_all = ["name", "initial_advertise_peer_urls"])]
    pub(super) all_members: bool,
    /// The members of the new cluster, as name=peer-url pairs
    #[arg(long, value_name = "MEMBERS", help_heading = "Target")]
    pub(super) initial_cluster: Option<String>,
    /// A name for the new cluster; a new one is made each time unless given, and all members of
    /// one cluster need the same
    #[arg(long, value_name = "TOKEN", help_heading = "Target")]
    pub(super) initial_cluster_token: Option<String>,
    /// The member's peer URLs, where they are not those of --initial-cluster
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URLS",
        help_heading = "Target"
    )]
    pub(super) initial_advertise_peer_urls: Vec<String>,

    /// How far revisions jump: `auto` (beyond anything the ledger has seen), a number, or 0
    #[arg(long, default_value = "auto", value_name = "N", value_parser = Bump::parse,
        help_heading = "Safety of old clients")]
    pub(super) bump_revision: Bump,
    /// Compact everything before the bump, so that old watchers are told
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true",
        action = clap::ArgAction::Set, value_name = "BOOL",
        help_heading = "Safety of old clients")]
    pub(super) mark_compacted: bool,
    /// Drop alarms: a NOSPACE alarm in the backup would make the new cluster refuse writes
    #[arg(long, help_heading = "Safety of old clients")]
    pub(super) clear_alarms: bool,

    /// Print the plan and stop
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl RestoreArgs {
    /// The folder to make.
    fn dir(&self) -> PathBuf {
        let given = self.data_dir.clone();
        given.unwrap_or_else(|| PathBuf::from(MEMBERS_DIR))
    }

    /// Whether every member of the new cluster is written here.
    fn is_of_all(&self) -> bool {
        self.all_members || self.members.is_some()
    }
}

/// Prints the plan and carries it out.
pub(crate) async fn run(args: &RestoreArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?.at_vault(args.vault.as_deref())?;
    let keys = keys::restoring_with(&settings, args.identity.as_deref())?;
    let vault = vaults::read(&settings).await?;
    let cluster = origin::cluster(args.source.as_deref(), &settings, &vault).await?;
    let catalog = vaults::catalog_in(&vault, &settings, &cluster, &keys.trust).await?;
    origin::refuse_strangers(&settings, &catalog)?;
    let runs = vaults::runs_in(&vault, &settings, &catalog, &keys.trust).await?;
    let history = History {
        vault: &vault,
        catalog: &catalog,
        runs: &runs,
        keys: &keys,
        now: context.clock.now(),
    };
    let plan = plan(args, &history).await?;
    let mut shape = Shape {
        is_dry_run: args.dry_run,
        plan,
        outcome: None,
        notes: Vec::new(),
    };
    if args.dry_run {
        let of = (args, context.global());
        context.output.show(&shape, |shape| dry_text(of, shape))?;
        return Ok(ExitCode::Done);
    }
    context.output.say(shape.plan.to_string())?;
    refuse_existing(&shape.plan)?;
    refuse_unpinned((args, context.global()), &shape.plan)?;
    let id = shape.plan.id;
    let (mark, unmarked) = vaults::mark(&settings, &cluster, id, Reader::Restore).await?;
    shape.notes.extend(unmarked);
    let meter = Meter::new(context.output);
    let sink = meter.sink();
    let work = async {
        let what = format!("the backup {id} was not restored");
        // What cannot succeed costs nobody a revision.
        check_restore(&vault, &shape.plan, &keys)
            .await
            .or_fail(what.clone())?;
        let by = catalog.get(id).map(|one| one.by.clone()).ok();
        let notes = observe(&settings, &shape.plan, by.as_ref(), context).await?;
        let restored = rebuild(&vault, &shape.plan, &keys, &sink)
            .await
            .or_fail(what)?;
        Ok::<_, Failure>((notes, restored))
    };
    let (notes, restored) = Box::pin(vaults::during(mark, work)).await?;
    shape.notes.extend(notes);
    meter.finish();
    acceptance::accept(&settings, &cluster, restored.cluster_id)?;
    shape.outcome = Some(restored);
    let of = (args, context.global());
    context
        .output
        .show(&shape, |shape| text_of(of, &settings, shape))?;
    Ok(ExitCode::Done)
}

async fn plan(args: &RestoreArgs, history: &History<'_>) -> Result<RestorePlan, Failure> {
    let (upto, wanted) = args.point.find(history).await?;
    let options = options(args)?;
    let catalog = history.catalog;
    let planned = plan_replay(catalog, history.runs, upto, &options).or_fail(format!(
        "no restore of `{}` can be planned",
        catalog.cluster
    ));
    let planned = planned.map(|plan| plan.answering(wanted));
    match upto {
        Upto::Newest(Pick::LatestProven) | Upto::Backup(Pick::LatestProven) => {
            planned.map_err(|failure| {
                failure.next(
                    "`holdfast restore --latest` takes the newest undamaged backup although no \
                     drill has proven it; `holdfast drill run` proves it",
                )
            })
        }
        _ => planned,
    }
}

fn options(args: &RestoreArgs) -> Result<RestoreOptions, Failure> {
    Ok(RestoreOptions {
        target: match args.target {
            Target::Holdfast => holdfast_restore::Target::Holdfast,
            Target::Etcd => holdfast_restore::Target::Etcd,
        },
        data_dir: args.dir(),
        write: if args.is_of_all() {
            Vec::new()
        } else {
            vec![args.name.clone()]
        },
        members: members(args)?,
        bump: match args.bump_revision {
            Bump::Auto => holdfast_restore::Bump::Auto,
            Bump::By(0) => holdfast_restore::Bump::None,
            Bump::By(by) => holdfast_restore::Bump::By(by),
        },
        mark_compacted: args.mark_compacted,
        token: args.initial_cluster_token.clone(),
        clear_alarms: args.clear_alarms,
        restore_id: UniqueId::generate(),
        work_dir: None,
    })
}

/// The members of the new cluster: `name=url` pairs, a name may come several times.
fn members(args: &RestoreArgs) -> Result<Vec<NewMember>, Failure> {
    let own = format!("{}={DEFAULT_PEER_URL}", args.name);
    let (flag, text) = match (&args.members, &args.initial_cluster) {
        (Some(all), _) => ("--members", all),
        (None, Some(all)) => ("--initial-cluster", all),
        (None, None) => ("--name", &own),
    };
    let mut members: Vec<NewMember> = Vec::new();
    for pair in text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (name, url) = pair.split_once('=').ok_or_else(|| {
            Failure::usage(
                format!("`{pair}` in {flag} has no `=`"),
                "write name=peer-url pairs: m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380",
            )
        })?;
        match members.iter_mut().find(|member| member.name == name) {
            Some(member) => member.peer_urls.push(url.to_owned()),
            None => members.push(NewMember {
                name: name.to_owned(),
                peer_urls: vec![url.to_owned()],
            }),
        }
    }
    if args.is_of_all() {
        return Ok(members);
    }
    let count = members.len();
    let Some(own) = members.iter_mut().find(|member| member.name == args.name) else {
        return Err(Failure::usage(
            format!("the member `{}` is not in --initial-cluster", args.name),
            "give --name one of its names, or write all of them with --all-members",
        ));
    };
    let advertised = &args.initial_advertise_peer_urls;
    if !advertised.is_empty() && own.peer_urls != *advertised {
        if count > 1 {
            return Err(Failure::usage(
                format!(
                    "--initial-cluster and --initial-advertise-peer-urls differ for `{}`",
                    args.name
                ),
                "give the same URLs in both: the other members know this one by --initial-cluster",
            ));
        }
        own.peer_urls.clone_from(advertised);
    }
    Ok(members)
}

/// One of several members alone: each run would choose a token and a revision of its own, and the
/// members would be a cluster that disagrees with itself. All that differs must be said.
fn refuse_unpinned(of: (&RestoreArgs, &Global), plan: &RestorePlan) -> Result<(), Failure> {
    let (args, _) = of;
    let is_pinned = args.point.is_pinned()
        && args.initial_cluster_token.is_some()
        && args.bump_revision != Bump::Auto;
    if is_pinned || hints::others(plan).next().is_none() {
        return Ok(());
    }
    let commands = hints::restores(of, plan, plan.members.iter());
    Err(Failure::usage(
        format!(
            "`{}` is one of {} members, and nothing says that the others get the same backup, \
             token and revision",
            args.name,
            plan.members.len()
        ),
        format!(
            "write all of them here with --all-members instead of --name, or restore each on its \
             host with what is the same for all:\n    {}",
            commands.join("\n    ")
        ),
    ))
}

fn refuse_existing(plan: &RestorePlan) -> Result<(), Failure> {
    let dir = plan.data_dir.display();
    refuse_target(&plan.data_dir).map_err(|error| match error {
        Error::TargetExists { .. } => Failure::new(
            ErrorName::TargetExists,
            format!("the data directory {dir} exists and was not touched"),
        )
        .next(
            "name another --data-dir, or move the existing one away (and keep it until you are \
             sure)",
        ),
        other => Failure::unexpected(format!("the data directory {dir} cannot be made"), &other),
    })
}

/// Writes down which revision clients will see, before they can: here, and in the vault where this
/// host may write. Returns what a person should know.
async fn observe(
    settings: &Settings,
    plan: &RestorePlan,
    by: Option<&Verifier>,
    context: &Context,
) -> Result<Vec<String>, Failure> {
    let now = context.clock.now();
    let observation = plan.observation(now);
    let file = vaults::ledger_file(settings, &plan.cluster);
    if let Some(dir) = file.parent() {
        keys::make_private_dir(dir)?;
    }
    ledger::record_local(&file, &observation)
        .or_fail(format!("the ledger {} was not written", file.display()))?;
    if !settings.signing_key_file().exists() {
        return Ok(vec![
            "the new revision is in this host's ledger only: there is no signing key here to \
             write it into the vault"
                .to_owned(),
        ]);
    }
    let signer = keys::signer(settings)?;
    let recorded = match vaults::write(settings, &signer, now).await {
        Ok(vault) => ledger::record(&vault, &observation, &signer)
            .await
            .or_fail("the vault's ledger was not written"),
        Err(failure) => Err(failure),
    };
    Ok(match recorded {
        Ok(()) if by.is_some_and(|key| *key != signer.verifier()) => vec![format!(
            "the new revision is in the vault's ledger signed by this host's key: the appliance \
             that took the backup reports the record and does not count it until its \
             `restore.trusted_signers` has {}",
            signer.verifier().to_text()
        )],
        Ok(()) => Vec::new(),
        // In a disaster a vault that can only be read must do.
        Err(failure) => vec![format!(
            "the new revision is in this host's ledger only: {}",
            failure.line()
        )],
    })
}

fn dry_text(of: (&RestoreArgs, &Global), shape: &Shape) -> String {
    let mut lines = vec![shape.plan.to_string()];
    if hints::others(&shape.plan).next().is_some() {
        lines.push("one cluster, each member on its host:".to_owned());
        let commands = hints::restores(of, &shape.plan, shape.plan.members.iter());
        lines.extend(commands.iter().map(|command| format!("  {command}")));
    }
    lines.push("nothing was written (--dry-run)".to_owned());
    lines.join("\n")
}

fn text_of(of: (&RestoreArgs, &Global), settings: &Settings, shape: &Shape) -> String {
    let Some(outcome) = &shape.outcome else {
        return String::new();
    };
    let plan = &shape.plan;
    let keys = match outcome.keys {
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    };
    let mut lines = vec![format!(
        "restored: {keys}, revision {} (HashKV {} at {} before the bump), cluster {:x}",
        outcome.revision, outcome.hash_kv, plan.revision, outcome.cluster_id
    )];
    lines.extend(outcome.replayed.map(replayed));
    lines.extend(shape.notes.iter().map(|note| format!("note: {note}")));
    let others = hints::restores(of, plan, hints::others(plan));
    let run = hints::run(of.1);
    lines.extend(others.iter().map(|one| format!("on its host: {one}")));
    let store = settings.store_dir();
    let is_store = |dir: &Path| std::path::absolute(dir).ok() == std::path::absolute(&store).ok();
    let is_served = settings.config.store.enabled
        && plan.target == holdfast_restore::Target::Holdfast
        && outcome.written.len() == 1;
    for member in &outcome.written {
        let start = hints::start(plan, member);
        lines.push(match is_served {
            true if is_store(&member.data_dir) => format!("start it: {run}"),
            true => format!(
                "start it: {start}\nor move it to {} (where nothing may be) and start it: {run}",
                store.display()
            ),
            false => format!("start it: {start}"),
        });
    }
    lines.join("\n")
}

/// What vouches for the changes that were replayed.
fn replayed(replayed: Replayed) -> String {
    let deltas = match replayed.deltas {
        1 => "1 delta".to_owned(),
        count => format!("{count} deltas"),
    };
    match replayed.compared {
        Some(told) => format!(
            "replayed: {deltas}; HashKV {} at revision {} is what the source told then",
            told.hash, told.revision
        ),
        None => format!(
            "replayed: {deltas}; the source was not asked for its hash in them, so their digests \
             and signatures alone vouch for them"
        ),
    }
}

#[derive(Serialize)]
struct Shape {
    is_dry_run: bool,
    plan: RestorePlan,
    outcome: Option<Restored>,
    notes: Vec<String>,
}

/// What will run from the new data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// The bundled store.
    Holdfast,
    /// A real etcd.
    Etcd,
}

/// How far revisions jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bump {
    /// Beyond anything the ledger has seen.
    Auto,
    /// By this much.
    By(i64),
}

impl Bump {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            number => match number.parse() {
                Ok(by) if by >= 0 => Ok(Self::By(by)),
                _ => Err("give `auto` or a number that is not negative".to_owned()),
            },
        }
    }
}
