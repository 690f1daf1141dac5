//! One simulated host: a member, its peer port, its clients, and who looks at it.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::Error;
use holdfast_store::api::peer_routes;
use holdfast_store::member::Member;
use holdfast_store::state::State;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::invariants::{Place, Sight};
use crate::observer::Ears;
use crate::world::{Role, World};
use crate::{clients, clock, network, operator, upkeep, watchers};

/// Looks at a member's status a millisecond apart; at its log every so many of these.
const LOG_TURN: u64 = 25;
/// At its whole state every so many.
const STATE_TURN: u64 = 500;
/// Looks at the log for which entries may stand under a snapshot that was just installed.
const TAIL_LOOKS_MAX: u64 = 400;
/// Pause before a member that cannot join yet is started again.
const JOIN_PAUSE: Duration = Duration::from_millis(300);

/// Runs the host from a start to the next crash.
///
/// # Errors
/// None: what goes wrong is shown to the observer.
pub async fn run(world: Arc<World>, place: Place) -> turmoil::Result {
    let (disk, starts, role) = {
        let seat = world.seat(place).lock();
        (seat.disk.clone(), seat.starts, seat.role)
    };
    if role == Role::Spare {
        return std::future::pending().await;
    }
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    if world.settings.is_skewed {
        let gain = clock::gain(world.settings.seed, place, starts);
        spawn(&stop, clock::run_fast(Arc::clone(&world.observer), gain));
    }
    let ears = Arc::new(Ears::new(place, Arc::clone(&world.observer)));
    match start(&world, place, &ears).await {
        Ok(Some(member)) => serve(&world, place, &member, &ears, &stop).await,
        Ok(None) => world.seat(place).lock().has_ended = true,
        Err(error) => world.accuse(place, &disk, &format!("does not start: {error:?}")),
    }
    // The process ends; the host goes on.
    drop(guard);
    std::future::pending().await
}

/// Runs `work` on this host until the member ends.
fn spawn(stop: &CancellationToken, work: impl Future + Send + 'static) {
    let stop = stop.clone();
    drop(tokio::spawn(async move {
        drop(stop.run_until_cancelled(work).await);
    }));
}

/// Starts the member, as often as it takes one that joins. None when it is none any more.
async fn start(
    world: &Arc<World>,
    place: Place,
    ears: &Arc<Ears>,
) -> Result<Option<Member>, Error> {
    loop {
        let mut options = world.options(place);
        let observer: Arc<Ears> = Arc::clone(ears);
        options.log_observer = Some(observer);
        let (role, id) = {
            let seat = world.seat(place).lock();
            (seat.role, seat.id)
        };
        let error = match Member::start(options, Arc::<Ears>::clone(ears)).await {
            Ok(member) => return Ok(Some(member)),
            Err(error) => error,
        };
        let (is_unwanted, is_removed) = {
            let roster = world.roster.lock();
            let id = id.unwrap_or(0);
            (roster.unwanted.contains(&id), roster.is_removed(id))
        };
        match error {
            Error::MemberRemoved { .. } if is_unwanted => return Ok(None),
            // Who is in the cluster changes while it asks, and who is asked may be down.
            Error::Option { .. } if role == Role::Joiner => {
                if is_removed {
                    return Ok(None);
                }
                tracing::info!(place, %error, "a member cannot join yet");
                sleep(JOIN_PAUSE).await;
            }
            error => return Err(error),
        }
    }
}

/// From a started member to its end.
async fn serve(
    world: &Arc<World>,
    place: Place,
    member: &Member,
    ears: &Arc<Ears>,
    stop: &CancellationToken,
) {
    ears.attach(member.state());
    let (starts, disk) = {
        let mut seat = world.seat(place).lock();
        seat.member = Some(member.clone());
        let id = *seat.id.get_or_insert(member.id().0);
        if id != member.id().0 {
            let what = format!("is {} with the data of {id:x}", member.id());
            world.accuse(place, &seat.disk, &what);
        }
        (seat.starts, seat.disk.clone())
    };
    let routes = peer_routes(member, stop.clone());
    spawn(stop, network::serve(routes));
    spawn(stop, watch(Arc::clone(world), place, member.clone()));
    let seed = world.settings.seed.wrapping_add(starts << 32);
    let working = async {
        match member.ready().await {
            Ok(()) => {
                world.observer.see(&Sight::Ready {
                    member: place,
                    revision: member.state().revision(),
                });
                world.seat(place).lock().is_ready = true;
                work(world, place, member, ears, (seed, stop));
            }
            Err(Error::Stopped) => {}
            Err(error) => world.accuse(place, &disk, &format!("does not get ready: {error:?}")),
        }
        member.failed().await
    };
    let reason = working.await;
    if !may_be_removed(world, member) {
        world.accuse(place, &disk, &format!("failed: {reason}"));
        return;
    }
    stop.cancel();
    {
        let mut seat = world.seat(place).lock();
        seat.member = None;
        seat.is_ready = false;
    }
    let ended = member.clone().stop().await;
    tracing::info!(place, ?ended, "a removed member has ended");
    world.seat(place).lock().has_ended = true;
}

/// Whether the member says that it was removed, and somebody asked for that.
fn may_be_removed(world: &World, member: &Member) -> bool {
    let is_unwanted = world.roster.lock().unwanted.contains(&member.id().0);
    member.is_removed() && is_unwanted
}

/// Starts everybody who uses a member that is ready.
fn work(
    world: &Arc<World>,
    place: Place,
    member: &Member,
    ears: &Arc<Ears>,
    (seed, stop): (u64, &CancellationToken),
) {
    let count = (world.settings.clients, seed);
    clients::spawn(member, place, count, &world.book, stop);
    let seed = seed ^ (u64::try_from(place).unwrap_or(0) << 24);
    let shared = (&world.watches, &world.book, &world.observer);
    for watcher in watchers::spawn(member, ears.hub(), seed, shared) {
        spawn(stop, watcher);
    }
    if world.settings.has_upkeep {
        let book = Arc::clone(&world.book);
        spawn(stop, upkeep::work(member.clone(), seed, book));
    }
    if world.settings.spares > 0 {
        let world = Arc::clone(world);
        spawn(stop, operator::work(world, place, member.clone(), seed));
    }
}

/// Looks at a member until its host goes down.
async fn watch(world: Arc<World>, place: Place, member: Member) {
    world.observer.see(&Sight::Started {
        member: place,
        revision: member.state().revision(),
    });
    let mut looks = LogLooks::default();
    for turn in 0_u64.. {
        world.observer.see(&Sight::Status {
            member: place,
            term: member.term(),
            leader: member.leader().map(|leader| leader.0),
            revision: member.state().revision(),
        });
        if turn % LOG_TURN == 0 {
            looks.look(&world, place, &member);
            look_at_decisions(&world, place, member.state());
        }
        if turn % STATE_TURN == 0 {
            look_at_state(&world, place, member.state());
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// How far a log was looked at.
#[derive(Debug, Default)]
struct LogLooks {
    looked_to: u64,
    /// Looks in a row at entries that stand under a snapshot.
    with_tail: u64,
}

impl LogLooks {
    /// Shows the entries after those that were shown as applied.
    fn look(&mut self, world: &World, place: Place, member: &Member) {
        let accuse = |what: String| {
            world.observer.accuse(format!("member {place} {what}"));
        };
        let range = member.log().range();
        // Only a log that holds what is applied last says what was applied before it: under a
        // snapshot that was just installed a shorter tail stands until it is purged
        // (store/src/consensus/group_tests.rs).
        let applied = member.state().applied();
        let is_held = applied.is_none_or(|at| {
            let entry = member.log().fingerprint(at.index);
            entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.term == at.term))
        });
        self.with_tail = if is_held || range.is_empty() {
            0
        } else {
            self.with_tail + 1
        };
        if self.with_tail > TAIL_LOOKS_MAX {
            accuse(format!("keeps {range:?} in its log under {applied:?}"));
        }
        let applied = applied.filter(|_| is_held).map_or(0, |at| at.index);
        for index in range.start.max(self.looked_to + 1)..range.end {
            match member.log().fingerprint(index) {
                Ok(Some(entry)) => world.observer.see(&Sight::Logged {
                    member: place,
                    index,
                    entry,
                    is_committed: index <= applied,
                }),
                Ok(None) => break,
                Err(error) => {
                    accuse(format!("cannot read entry {index} of its log: {error}"));
                    break;
                }
            }
        }
        self.looked_to = applied.min(range.end.saturating_sub(1));
    }
}

/// Shows what is decided and small: who the members are, what is compacted, which alarms there are.
fn look_at_decisions(world: &World, place: Place, state: &State) {
    let Some(applied) = state.applied() else {
        return;
    };
    let mut alarms = state.alarms().into_iter();
    if let Some(alarm) = alarms.find(|alarm| alarm.alarm() == rpc::AlarmType::Corrupt) {
        let divergent = alarm.member_id;
        let what = format!("the members found that the data of {divergent:x} differ");
        world.observer.accuse(what);
    }
    let listed: Vec<u64> = state.members().into_iter().map(|known| known.id).collect();
    world.observer.see(&Sight::Members {
        member: place,
        applied: (applied.term, applied.index),
        listed: &listed,
        removed: &state.removed_members(),
    });
    world.observer.see(&Sight::Compacted {
        member: place,
        applied: applied.index,
        revision: state.compact_revision(),
    });
}

/// Shows the whole state.
pub fn look_at_state(world: &World, place: Place, state: &State) {
    let Some(applied) = state.applied() else {
        return;
    };
    match content(state) {
        Ok(content) => world.observer.see(&Sight::State {
            member: place,
            applied: applied.index,
            content: &content,
        }),
        Err(error) => {
            let what = format!("member {place} cannot read its state: {error}");
            world.observer.accuse(what);
        }
    }
}

/// All that is replicated, the keys and their history as their hash.
fn content(state: &State) -> Result<String, Error> {
    let hash = state.hash_kv(0)?;
    let rest = (
        state.lease_infos(),
        state.members(),
        state.alarms(),
        state.cluster_version(),
        state.removed_members(),
    );
    Ok(format!("{hash:?}, {rest:?}"))
}
