//! Shows the invariants what happens, and keeps the first thing that must not be.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_proto::etcd::kv;
use holdfast_store::apply::EventSink;
use holdfast_store::consensus::log::LogObserver;
use holdfast_store::lease::LeaseChange;
use holdfast_store::state::State;
use holdfast_store::watch::WatchHub;
use parking_lot::Mutex;

use crate::history::Nanos;
use crate::invariants::{self, Invariant, Place, Sight};

/// Sees what the members and the clients of one simulation do.
#[derive(Debug)]
pub struct Observer {
    invariants: Mutex<Vec<Box<dyn Invariant>>>,
    violation: Mutex<Option<String>>,
    /// The simulated time.
    now: AtomicU64,
    /// Every change, by revision: members may have compacted some.
    changes: Mutex<BTreeMap<i64, Vec<kv::Event>>>,
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            invariants: Mutex::new(invariants::all()),
            violation: Mutex::default(),
            now: AtomicU64::new(0),
            changes: Mutex::default(),
        }
    }
}

impl Observer {
    /// The simulated time: that of no host's own clock, and the same for all.
    pub fn now(&self) -> Nanos {
        self.now.load(Ordering::Relaxed)
    }

    /// Time goes on.
    pub fn set_now(&self, now: Nanos) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Every change that was seen on any member, in the order of revisions.
    pub fn changes(&self) -> Vec<kv::Event> {
        self.changes.lock().values().flatten().cloned().collect()
    }

    /// Shows `sight` to all invariants.
    pub fn see(&self, sight: &Sight<'_>) {
        if let Sight::Published {
            revision, events, ..
        } = sight
        {
            let mut changes = self.changes.lock();
            changes.entry(*revision).or_insert_with(|| events.to_vec());
        }
        for invariant in self.invariants.lock().iter_mut() {
            if let Err(what) = invariant.see(sight) {
                self.accuse(format!("{}: {what}", invariant.name()));
            }
        }
    }

    /// Something must not be; the first such thing is kept.
    pub fn accuse(&self, what: String) {
        tracing::error!(what, "a violation");
        self.violation.lock().get_or_insert(what);
    }

    /// What must not be and was, if anything.
    pub fn violation(&self) -> Option<String> {
        self.violation.lock().clone()
    }
}

/// The ears of one member, and of those who watch it.
pub struct Ears {
    member: Place,
    observer: Arc<Observer>,
    hub: WatchHub,
    /// Known once the member has started.
    state: OnceLock<Arc<State>>,
}

impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ears")
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}

impl Ears {
    /// Those of `member`.
    pub fn new(member: Place, observer: Arc<Observer>) -> Self {
        Self {
            member,
            observer,
            hub: WatchHub::new(),
            state: OnceLock::new(),
        }
    }

    /// Hears of `state` from now on.
    pub fn attach(&self, state: &Arc<State>) {
        self.state.get_or_init(|| Arc::clone(state));
        self.hub.attach(Arc::<State>::clone(state));
    }

    /// Where watches of the member are made.
    pub fn hub(&self) -> &WatchHub {
        &self.hub
    }
}

impl EventSink for Ears {
    fn publish(&self, revision: i64, events: &[kv::Event]) {
        self.observer.see(&Sight::Published {
            member: self.member,
            revision,
            events,
        });
        self.hub.publish(revision, events);
    }

    fn compacted(&self, revision: i64) {
        self.hub.compacted(revision);
    }

    fn lease_changed(&self, change: LeaseChange) {
        if let LeaseChange::Revoked { id } = change {
            self.observer.see(&Sight::Revoked {
                member: self.member,
                lease: id.0,
                at: self.observer.now(),
            });
        }
        self.hub.lease_changed(change);
    }

    fn replaced(&self, revision: i64) {
        self.hub.replaced(revision);
    }
}

impl LogObserver for Ears {
    fn synced(&self, _elapsed: Duration, _bytes: usize) {}

    fn checkpointed(&self, _elapsed: Duration) {
        if let Some(state) = self.state.get() {
            self.observer.see(&Sight::Checkpointed {
                member: self.member,
                revision: state.revision(),
            });
        }
    }
}
