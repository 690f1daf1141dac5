//! Shows the invariants what happens, and keeps the first thing that must not be.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_proto::etcd::kv;
use holdfast_store::apply::EventSink;
use holdfast_store::consensus::log::LogObserver;
use holdfast_store::lease::LeaseChange;
use holdfast_store::state::State;
use parking_lot::Mutex;

use crate::history::Nanos;
use crate::invariants::{self, Invariant, Place, Sight};

/// Sees what the members and the clients of one simulation do.
#[derive(Debug)]
pub struct Observer {
    invariants: Mutex<Vec<Box<dyn Invariant>>>,
    violation: Mutex<Option<String>>,
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            invariants: Mutex::new(invariants::all()),
            violation: Mutex::default(),
        }
    }
}

impl Observer {
    /// Shows `sight` to all invariants.
    pub fn see(&self, sight: &Sight<'_>) {
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

/// The simulated time; the same on every member.
pub fn now() -> Nanos {
    let elapsed = turmoil::sim_elapsed().unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(Nanos::MAX)
}

/// The ears of one member.
pub struct Ears {
    member: Place,
    observer: Arc<Observer>,
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
            state: OnceLock::new(),
        }
    }

    /// Hears of `state` from now on.
    pub fn attach(&self, state: &Arc<State>) {
        self.state.get_or_init(|| Arc::clone(state));
    }
}

impl EventSink for Ears {
    fn publish(&self, revision: i64, events: &[kv::Event]) {
        self.observer.see(&Sight::Published {
            member: self.member,
            revision,
            events,
        });
    }

    fn compacted(&self, _revision: i64) {}

    fn lease_changed(&self, change: LeaseChange) {
        if let LeaseChange::Revoked { id } = change {
            self.observer.see(&Sight::Revoked {
                member: self.member,
                lease: id.0,
                at: now(),
            });
        }
    }

    fn replaced(&self, _revision: i64) {}
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
