//! What is judged in the end, of a cluster at rest.

use std::fmt;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::member::Member;

use crate::history::{self, History, Summary, calls};
use crate::host;
use crate::invariants::{Place, Sight};
use crate::world::World;

/// The revision of a new store.
const BASE_REVISION: i64 = 1;

/// What a simulation without a violation did.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Simulated time.
    pub simulated: Duration,
    /// Crashes of members.
    pub crashes: u64,
    /// Members that came to the running cluster.
    pub joined: u64,
    /// Members that were removed and ended.
    pub removed: usize,
    /// Watches, and the changes they were given.
    pub watches: (usize, usize),
    /// The newest compaction.
    pub compacted: i64,
    /// What the clients' history held.
    pub history: Summary,
}

/// What must not be.
#[derive(Debug)]
pub struct Violation {
    /// The seed it was found with.
    pub seed: u64,
    /// What it is.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {0}: {1}\nagain, most likely: HOLDFAST_SEED={0} cargo test -p \
             holdfast-simulation --test it seeds",
            self.seed, self.what
        )
    }
}

impl std::error::Error for Violation {}

/// Shows the invariants what all members hold and all watches were given, and checks the history of
/// the clients.
///
/// # Errors
/// What must not be and was not seen by an invariant.
pub fn judge(world: &World) -> Result<Outcome, String> {
    let mut compacted = 0;
    for (place, member) in world.members() {
        host::look_at_state(world, place, member.state());
        look_at_content(world, place, &member)?;
        compacted = compacted.max(member.state().compact_revision());
    }
    let changes = world.observer.changes();
    let (operations, leases) = world.book.entries();
    let history = History {
        base: BASE_REVISION,
        operations,
        leases,
        events: changes
            .iter()
            .filter_map(|change| calls::event(change).ok())
            .collect(),
    };
    let watches = world.watches.all();
    let mut given = 0;
    for seen in &watches {
        let answers = seen.watch.answers.iter();
        given += answers.map(|answer| answer.events.len()).sum::<usize>();
        world.observer.see(&Sight::Watched {
            watch: &seen.watch,
            is_whole: seen.is_held && seen.is_open,
            base: BASE_REVISION,
            changes: &history.events,
        });
    }
    let summary = history::check(&history).map_err(|error| error.to_string())?;
    let seats = world.seats.iter();
    Ok(Outcome {
        simulated: Duration::from_nanos(world.observer.now()),
        crashes: 0,
        joined: 0,
        removed: seats.filter(|seat| seat.lock().has_ended).count(),
        watches: (watches.len(), given),
        compacted,
        history: summary,
    })
}

/// Shows what a member at rest holds.
fn look_at_content(world: &World, place: Place, member: &Member) -> Result<(), String> {
    let state = member.state();
    let failed = |error: holdfast_store::Error| format!("member {place} cannot be read: {error}");
    // Of the compacted revision itself only what is still there is kept.
    let from = state.compact_revision().max(BASE_REVISION) + 1;
    let events = state.events(from, state.revision(), usize::MAX);
    world.observer.see(&Sight::Finished {
        member: place,
        from,
        events: &events.map_err(failed)?.events,
    });
    let everything = rpc::RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..rpc::RangeRequest::default()
    };
    let held = state.range(&everything).map_err(failed)?;
    world.observer.see(&Sight::Content {
        member: place,
        pairs: &held.kvs,
    });
    Ok(())
}
