//! One simulated host: a member, its peer port, its clients, and who looks at it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::api::peer_routes;
use holdfast_store::consensus::Workers;
use holdfast_store::member::{Member, MemberOptions};
use holdfast_store::state::State;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clients::{self, Book};
use crate::disk::Disk;
use crate::invariants::{Place, Sight};
use crate::network::{self, PEER_PORT, SimulatedDialer};
use crate::observer::{Ears, Observer};

/// Bytes of a log segment: small, so that the log rolls over often.
const SEGMENT_BYTES: u64 = 64 << 10;
/// Looks at a member's status a millisecond apart; at its log every so many of these.
const LOG_TURN: u64 = 25;
/// At its whole state every so many.
const STATE_TURN: u64 = 500;

/// What outlives a crash of one host.
#[derive(Debug)]
pub struct Seat {
    /// The data directory of the present start.
    pub folder: PathBuf,
    /// Its disk.
    pub disk: Disk,
    /// Starts so far.
    pub starts: u64,
    /// The member, while it runs.
    pub member: Option<Member>,
    /// Whether it serves clients.
    pub is_ready: bool,
    /// Whether the host is up.
    pub is_up: bool,
}

/// What all hosts of one simulation share.
#[derive(Debug)]
pub struct World {
    /// Everything that is random follows from it.
    pub seed: u64,
    /// Clients of each member, beside the one with leases.
    pub clients: usize,
    /// Entries after which a log is purged, and how many are kept behind that.
    pub log_entries: (u64, u64),
    /// Who looks on.
    pub observer: Arc<Observer>,
    /// What clients asked and were told.
    pub book: Arc<Book>,
    /// The hosts.
    pub seats: Vec<Mutex<Seat>>,
}

/// The name of a host, of its member, and in its peer URL.
pub fn name(place: Place) -> String {
    format!("m{place}")
}

impl World {
    fn options(&self, place: Place) -> MemberOptions {
        let url = |place| vec![format!("http://{}:{PEER_PORT}", name(place))];
        let seat = self.seat(place).lock();
        let mut options = MemberOptions::new(name(place), seat.folder.clone());
        options.peer_urls = url(place);
        options.initial_cluster = (0..self.seats.len())
            .map(|place| (name(place), url(place)))
            .collect();
        options.log_segment_bytes = SEGMENT_BYTES;
        options.reserve_bytes = 0;
        (options.snapshot_count, options.catch_up_entries) = self.log_entries;
        options.log_io = Arc::new(seat.disk.clone());
        options.state_storage = Some(seat.disk.state_storage());
        options.workers = Workers::Tasks;
        options.peer_dialer = Arc::new(SimulatedDialer);
        options
    }

    /// The host at `place`.
    ///
    /// # Panics
    /// When there is none.
    #[expect(
        clippy::indexing_slicing,
        reason = "places come from the number of seats"
    )]
    pub fn seat(&self, place: Place) -> &Mutex<Seat> {
        &self.seats[place]
    }

    /// Accuses the member, unless its disk has no power: it is about to crash then.
    fn accuse(&self, place: Place, disk: &Disk, what: &str) {
        if !disk.is_off() {
            self.observer.accuse(format!("member {place} {what}"));
        }
    }
}

/// Runs the host from a start to the next crash.
///
/// # Errors
/// None: what goes wrong is shown to the observer.
pub async fn run(world: Arc<World>, place: Place) -> turmoil::Result {
    let disk = world.seat(place).lock().disk.clone();
    let mut options = world.options(place);
    let ears = Arc::new(Ears::new(place, Arc::clone(&world.observer)));
    let observer: Arc<Ears> = Arc::clone(&ears);
    options.log_observer = Some(observer);
    let member = match Member::start(options, Arc::<Ears>::clone(&ears)).await {
        Ok(member) => member,
        Err(error) => {
            world.accuse(place, &disk, &format!("does not start: {error:?}"));
            return std::future::pending().await;
        }
    };
    ears.attach(member.state());
    let starts = {
        let mut seat = world.seat(place).lock();
        seat.member = Some(member.clone());
        seat.starts
    };
    let routes = peer_routes(&member, CancellationToken::new());
    drop(tokio::spawn(network::serve(routes)));
    drop(tokio::spawn(watch(
        Arc::clone(&world),
        place,
        member.clone(),
    )));
    if let Err(error) = member.ready().await {
        world.accuse(place, &disk, &format!("does not get ready: {error:?}"));
        return std::future::pending().await;
    }
    world.observer.see(&Sight::Ready {
        member: place,
        revision: member.state().revision(),
    });
    world.seat(place).lock().is_ready = true;
    let seed = world.seed.wrapping_add(starts << 32);
    clients::spawn(&member, place, world.clients, seed, &world.book);
    let reason = member.failed().await;
    world.accuse(place, &disk, &format!("failed: {reason}"));
    std::future::pending().await
}

/// Looks at a member until its host goes down.
async fn watch(world: Arc<World>, place: Place, member: Member) {
    world.observer.see(&Sight::Started {
        member: place,
        revision: member.state().revision(),
    });
    let mut looked_to = 0;
    for turn in 0_u64.. {
        world.observer.see(&Sight::Status {
            member: place,
            term: member.term(),
            leader: member.leader().map(|leader| leader.0),
            revision: member.state().revision(),
        });
        if turn % LOG_TURN == 0 {
            looked_to = look_at_log(&world, place, &member, looked_to);
        }
        if turn % STATE_TURN == 0 {
            look_at_state(&world, place, member.state());
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Shows the entries after `looked_to`, and says up to where it need not look again.
fn look_at_log(world: &World, place: Place, member: &Member, looked_to: u64) -> u64 {
    // Only a log that holds what is applied last says what was applied before it: under a snapshot
    // that was just installed, entries that never were may stand until they are purged.
    let applied = member.state().applied().filter(|at| {
        let entry = member.log().fingerprint(at.index);
        entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.term == at.term))
    });
    let applied = applied.map_or(0, |at| at.index);
    let range = member.log().range();
    for index in range.start.max(looked_to + 1)..range.end {
        match member.log().fingerprint(index) {
            Ok(Some(entry)) => world.observer.see(&Sight::Logged {
                member: place,
                index,
                entry,
                is_committed: index <= applied,
            }),
            Ok(None) => break,
            Err(error) => {
                let what = format!("cannot read entry {index} of its log: {error}");
                world.observer.accuse(format!("member {place} {what}"));
                break;
            }
        }
    }
    applied.min(range.end.saturating_sub(1))
}

/// Shows a digest of the whole state.
pub fn look_at_state(world: &World, place: Place, state: &State) {
    let Some(applied) = state.applied() else {
        return;
    };
    match digest(state) {
        Ok(digest) => world.observer.see(&Sight::State {
            member: place,
            applied: applied.index,
            digest,
        }),
        Err(error) => {
            let what = format!("member {place} cannot read its state: {error}");
            world.observer.accuse(what);
        }
    }
}

/// A digest of all that is replicated.
fn digest(state: &State) -> Result<u64, holdfast_store::Error> {
    let hash = state.hash_kv(0)?;
    let mut hasher = DefaultHasher::new();
    (hash.hash, hash.compact_revision, hash.current_revision).hash(&mut hasher);
    let rest = (
        state.lease_infos(),
        state.members(),
        state.alarms(),
        state.cluster_version(),
    );
    format!("{rest:?}").hash(&mut hasher);
    Ok(hasher.finish())
}
