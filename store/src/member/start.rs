//! How a member starts: take the directory, found or open it, lead, publish.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handle::{Inner, Member, Owned, Tallies};
use super::sink::LeaseSink;
use super::{ClusterState, MemberOptions, admission, discover, join, removed, srv, tasks};
use crate::apply::{Applier, EventSink, LogPosition, StateOptions};
use crate::consensus::log::{LogIdentity, LogOptions, RaftLog};
use crate::consensus::peer::Identity;
use crate::consensus::{self, Group, GroupOptions, Machine, Space, StateFile};
use crate::datadir::bootstrap::{ClusterIds, NewCluster};
use crate::datadir::identity::MemberId;
use crate::datadir::{DirLock, DirState, Layout, Marker, durable};
use crate::error::{Error, ErrorKind};
use crate::lease::LeaseClock;
use crate::state::State;

/// How long a start may take to lead; a disk under load is slow.
const LEAD_PATIENCE: Duration = Duration::from_mins(2);

/// How long another founder may take to say whether it knows this member.
const INTRODUCTION_PATIENCE: Duration = Duration::from_secs(1);

/// Pause before a member that is not ready looks again; most of what it waits for takes longer.
const READY_PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn start(
    options: MemberOptions,
    events: Arc<dyn EventSink>,
) -> Result<Member, Error> {
    let Home {
        layout,
        lock,
        ids,
        founding,
        joining,
    } = Home::take(&options).await?;
    let space = space(&layout, &options);
    let leases = Arc::new(LeaseClock::new(options.leases.clone()));
    let (applier, state) = open_state(&layout, &options, &space, &leases, events).await?;
    refuse_removed(&state, &options, &ids)?;
    let fatal = watch::Sender::new(None);
    let (apply, apply_thread) = consensus::spawn_apply(
        applier,
        Arc::clone(&space),
        fatal.clone(),
        options.log_observer.clone(),
        options.workers,
    )?;
    let mut log = open_log(&layout, &options, &ids, &space).await?;
    if options.is_forced_alone && !founding {
        let applied = apply.position().applied;
        leave_alone(&mut log, applied, &ids, &options).await?;
    }
    if founding {
        // Before the first message leaves: a member that has voted must never be founded again.
        apply.checkpoint().await?;
        finish_founding(&layout, &options, &ids, joining)?;
    }
    let log_reader = log.reader();
    let (reader, snapshots) = (log.reader(), layout.snapshots());
    let machine = Machine::new(apply.clone(), Arc::clone(&state), snapshots, reader);
    let group = Group::start(identity_of(&ids), &group_options(&options), log, machine).await?;
    let (reads, for_leader, queues) = tasks::queues();
    let inner = Inner {
        member_id: ids.member,
        cluster_id: ids.cluster,
        state,
        leases,
        leadership: group.leadership(),
        log: log_reader,
        group,
        space,
        admission: admission::Admission::default(),
        waiting: admission::Admission::default(),
        reads,
        for_leader,
        waiters: Arc::clone(apply.waiters()),
        fatal,
        next_id: AtomicU64::new(first_command_id(ids.member)),
        reconfiguring: tokio::sync::Mutex::default(),
        tallies: Tallies::default(),
        stopping: CancellationToken::new(),
        tasks: TaskTracker::new(),
        owned: Mutex::new(Some(Owned {
            apply,
            apply_thread,
            lock,
        })),
        options,
    };
    let member = Member {
        inner: Arc::new(inner),
    };
    let begun = begin(&member, &ids, joining, queues);
    stop_unless(member.clone(), begun.await).await
}

fn refuse_removed(state: &State, options: &MemberOptions, ids: &ClusterIds) -> Result<(), Error> {
    if state.is_removed(ids.member.0) {
        return Err(removed::refusal(options, ids.member, ids.cluster));
    }
    Ok(())
}

/// Who the member is to its peers.
fn identity_of(ids: &ClusterIds) -> Identity {
    Identity {
        member: ids.member,
        cluster: ids.cluster,
    }
}

/// The member, unless it did not get as far as it had to.
async fn stop_unless(member: Member, begun: Result<(), Error>) -> Result<Member, Error> {
    let Err(error) = begun else {
        return Ok(member);
    };
    if let Err(stop) = member.stop().await {
        tracing::warn!(error = %stop, "cannot stop a member that did not start");
    }
    Err(error)
}

/// Whether another member that the options name answers as one of a running cluster.
pub(super) async fn is_cluster_running(options: &MemberOptions) -> bool {
    join::is_running(&cluster_of(options), &options.dialers()).await
}

/// The members of the running cluster, as those say that the options name.
pub(super) async fn members_elsewhere(options: &MemberOptions) -> Vec<(u64, Vec<String>)> {
    join::members_elsewhere(&cluster_of(options), &options.dialers()).await
}

/// The data directory, and whose it is.
struct Home {
    layout: Layout,
    lock: DirLock,
    ids: ClusterIds,
    /// Whether it is made now.
    founding: bool,
    /// Whether the member comes to a running cluster, which it must not found.
    joining: bool,
}

impl Home {
    async fn take(options: &MemberOptions) -> Result<Self, Error> {
        let layout = Layout::new(&options.data_dir);
        let mut cluster = cluster_of(options);
        let (lock, state) = take_dir(&layout)?;
        let founding = state != DirState::Complete;
        let (ids, joining) = if founding {
            let is_new = options.cluster_state == ClusterState::New;
            let ids = if is_new {
                if let Some(discovery) = &options.discovery {
                    cluster = discover::discover(&cluster, discovery).await?;
                } else if let Some(named) = &options.srv {
                    cluster = srv::discover(&cluster, named).await?;
                }
                let ids = cluster.ids()?;
                join::check_new(&cluster, &ids, &options.dialers()).await?;
                ids
            } else {
                join::join(&cluster, &options.dialers()).await?
            };
            begin_founding(&layout)?;
            (ids, !is_new)
        } else {
            identify(&layout, options, &cluster)?
        };
        consensus::remove_leftovers(&layout.snapshots()).map_err(|source| Error::Io {
            doing: "remove unfinished raft snapshots",
            source,
        })?;
        Ok(Self {
            layout,
            lock,
            ids,
            founding,
            joining,
        })
    }
}

/// The ids of a member's commands: no two members' meet, and no two starts' but by chance.
fn first_command_id(member: MemberId) -> u64 {
    // The low half of the counter's range stays free for counting.
    (member.0 << 48) | (rand::random::<u64>() >> 17)
}

fn group_options(options: &MemberOptions) -> GroupOptions {
    GroupOptions {
        heartbeat: options.heartbeat,
        election_timeout: options.election_timeout,
        snapshot_count: options.snapshot_count,
        catch_up_entries: options.catch_up_entries,
        pre_vote: options.pre_vote,
        dialers: options.dialers(),
        snapshot_bytes_per_s: options.snapshot_bytes_per_s,
    }
}

/// The cluster that the options describe.
fn cluster_of(options: &MemberOptions) -> NewCluster {
    let mut initial_cluster = options.initial_cluster.clone();
    if initial_cluster.is_empty() {
        initial_cluster.push((options.name.clone(), options.peer_urls.clone()));
    }
    NewCluster {
        name: options.name.clone(),
        initial_cluster,
        token: options.cluster_token.clone(),
    }
}

fn take_dir(layout: &Layout) -> Result<(DirLock, DirState), Error> {
    let failed = |source| Error::Io {
        doing: "make the data directory",
        source,
    };
    // A foreign directory is refused before a lock file is put into it.
    layout.inspect()?;
    if !layout.root().exists() {
        durable::private_dir_all(layout.root()).map_err(failed)?;
        durable::sync_dir(durable::parent_of(layout.root())).map_err(failed)?;
    }
    warn_of_onlookers(layout.root());
    let lock = DirLock::take(layout)?;
    let state = layout.inspect()?;
    if state == DirState::Complete && !RaftLog::exists(&layout.log()).map_err(failed)? {
        // Made before the directory counts as complete. Without it, writes that were acknowledged
        // since the last checkpoint may be gone, and their revisions would be given out again.
        return Err(Error::Format {
            what: "the data directory",
            reason: format!("its raft log, {}, is gone", layout.log().display()),
        });
    }
    Ok((lock, state))
}

/// Says when others than the owner may look into the directory.
fn warn_of_onlookers(root: &Path) {
    let mode = std::fs::metadata(root).map(|found| found.permissions().mode() & 0o777);
    if let Ok(mode) = mode
        && mode & 0o077 != 0
    {
        tracing::warn!(
            path = %root.display(),
            mode = format!("{mode:03o}"),
            "others may look into the data directory: chmod 700 it"
        );
    }
}

/// Whose data it is, and whether it joined its cluster. The marker alone says so, as in etcd.
fn identify(
    layout: &Layout,
    options: &MemberOptions,
    cluster: &NewCluster,
) -> Result<(ClusterIds, bool), Error> {
    let marker = Marker::read(layout)?;
    if marker.name != options.name {
        // As etcd: the id says whose data it is, and a name can change.
        tracing::warn!(
            path = %layout.root().display(),
            founded_as = marker.name,
            name = options.name,
            member_id = marker.member_id,
            "the data directory was founded under another name; the member takes the new one"
        );
    }
    if marker.removed {
        return Err(removed::refusal(
            options,
            marker.member()?,
            marker.cluster()?,
        ));
    }
    let mut ids = ClusterIds {
        member: marker.member()?,
        cluster: marker.cluster()?,
        members: Vec::new(),
    };
    let Ok(described) = cluster.ids() else {
        return Ok((ids, marker.joined));
    };
    if described.cluster == ids.cluster && described.member == ids.member {
        // Needed again when the member stopped before it was in the group.
        ids.members = described.members;
    } else if described.cluster != ids.cluster {
        tracing::info!(
            cluster_id = %ids.cluster,
            described_cluster_id = %described.cluster,
            "the data directory's cluster is kept; the initial-cluster options describe another"
        );
    }
    Ok((ids, marker.joined))
}

fn begin_founding(layout: &Layout) -> Result<(), Error> {
    let failed = |source| Error::Io {
        doing: "found the data directory",
        source,
    };
    durable::write_file(&layout.incomplete(), b"").map_err(failed)?;
    layout.remove_unfinished()
}

fn space(layout: &Layout, options: &MemberOptions) -> Arc<Space> {
    let space = Space::new(layout.root(), options.reserve_bytes);
    if let Err(error) = space.check() {
        tracing::warn!(%error, "cannot look at the free space of the data directory");
    }
    Arc::new(space)
}

async fn open_state(
    layout: &Layout,
    options: &MemberOptions,
    space: &Arc<Space>,
    leases: &Arc<LeaseClock>,
    events: Arc<dyn EventSink>,
) -> Result<(Applier, Arc<State>), Error> {
    let sink = Arc::new(LeaseSink {
        leases: Arc::clone(leases),
        events,
    });
    let state_options = StateOptions {
        quota_bytes: options.quota_bytes,
        cache_bytes: options.cache_bytes,
        ..StateOptions::default()
    };
    let (path, space) = (layout.state(), Arc::clone(space));
    let own = move |path: &Path| -> Result<Box<dyn redb::StorageBackend>, Error> {
        Ok(Box::new(StateFile::open(path, Arc::clone(&space))?))
    };
    let storage = options.state_storage.clone().map(|given| given.0);
    let storage = storage.unwrap_or_else(|| Arc::new(own));
    blocking("open the state", move || {
        Applier::open_with(&path, &storage, &state_options, sink)
    })
    .await
}

async fn open_log(
    layout: &Layout,
    options: &MemberOptions,
    ids: &ClusterIds,
    space: &Arc<Space>,
) -> Result<RaftLog, Error> {
    let identity = LogIdentity {
        cluster: ids.cluster.0,
        member: ids.member.0,
    };
    let log_options = LogOptions {
        segment_bytes: options.log_segment_bytes,
        observer: options.log_observer.clone(),
        io: Arc::clone(&options.log_io),
        workers: options.workers,
        space: Arc::clone(space),
        ..LogOptions::new(layout.log(), identity)
    };
    blocking("open the raft log", move || {
        RaftLog::open(&log_options).map_err(Error::from)
    })
    .await
}

/// `--force-new-cluster`: the data stays, the other members are gone.
async fn leave_alone(
    log: &mut RaftLog,
    applied: Option<LogPosition>,
    ids: &ClusterIds,
    options: &MemberOptions,
) -> Result<(), Error> {
    tracing::warn!(
        member_id = %ids.member,
        "every other member is dropped from the cluster, as --force-new-cluster says; start again \
         without it"
    );
    consensus::found::leave_alone(log, applied, ids.member, &options.peer_urls)
        .await
        .map_err(|source| Error::Io {
            doing: "drop the other members",
            source,
        })
}

async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Io {
        doing,
        source: io::Error::other(error),
    })?
}

fn finish_founding(
    layout: &Layout,
    options: &MemberOptions,
    ids: &ClusterIds,
    joined: bool,
) -> Result<(), Error> {
    let failed = |source| Error::Io {
        doing: "found the data directory",
        source,
    };
    let marker = Marker {
        joined,
        ..Marker::new(&options.name, ids.member, ids.cluster, &options.peer_urls)
    };
    marker.write(layout)?;
    durable::remove_file(&layout.incomplete()).map_err(failed)
}

/// From a running group to a member that leads when it votes alone, or that waits for the others.
async fn begin(
    member: &Member,
    ids: &ClusterIds,
    joining: bool,
    queues: tasks::Queues,
) -> Result<(), Error> {
    let inner = &member.inner;
    let is_begun = inner.group.is_begun().await?;
    if !is_begun && joining {
        // The leader knows where this member is and sends the log.
        tasks::spawn(member, queues);
        return Ok(());
    }
    if !is_begun && ids.members.is_empty() {
        return Err(Error::Option {
            option: "initial-cluster",
            reason: format!(
                "member {} has not been in cluster {} yet, and the options describe another one: \
                 start it with the --initial-cluster and --initial-cluster-token it was founded \
                 with",
                ids.member, ids.cluster
            ),
        });
    }
    if !is_begun
        && inner
            .group
            .has_served(&ids.members, INTRODUCTION_PATIENCE)
            .await
    {
        // It may have voted and acknowledged writes: without that it would do harm.
        return Err(Error::Option {
            option: "initial-cluster-state",
            reason: format!(
                "member {} has already been bootstrapped, and its data is gone from {}: remove \
                 the member from the cluster, add it again, and start it with \
                 --initial-cluster-state existing",
                ids.member,
                inner.options.data_dir.display()
            ),
        });
    }
    if is_begun || ids.members.len() == 1 {
        if !is_begun {
            inner.group.found(&ids.members).await?;
        }
        if inner.group.voters().await? == [ids.member.0] {
            return lead(member, is_begun, queues).await;
        }
    }
    tasks::spawn(member, queues);
    if !is_begun {
        tasks::found(member, ids.members.clone());
    }
    Ok(())
}

/// From a running group of one voter to a member that serves.
async fn lead(member: &Member, is_begun: bool, queues: tasks::Queues) -> Result<(), Error> {
    let inner = &member.inner;
    if is_begun {
        inner.group.elect_now().await?;
    }
    inner.group.recovered(LEAD_PATIENCE).await?;
    tasks::spawn(member, queues);
    member.linearizable().await?;
    member.promote_leases(member.term());
    tasks::publish(member).await
}

/// From a running member to one that serves clients.
pub(super) async fn ready(member: &Member) -> Result<(), Error> {
    let mut is_told = false;
    loop {
        member.check_alive()?;
        let result = match member.linearizable().await {
            Ok(()) => introduce(member).await,
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::info!(%error, "waiting for the cluster to have a leader");
                }
                sleep(READY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Everything acknowledged is applied: the member is compared with the others and made known.
async fn introduce(member: &Member) -> Result<(), Error> {
    if member.options().integrity.at_start {
        member.compare_at_start().await?;
    }
    tasks::publish(member).await
}
