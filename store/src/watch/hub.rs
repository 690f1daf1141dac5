//! Where the writer's events meet the watchers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use holdfast_proto::etcd::kv;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::history::History;
use super::queue::{Item, Recipient, StreamQueue};
use super::range::{KeyRange, RangeIndex};
use super::session::{SessionOptions, WatchSession};
use crate::apply::EventSink;
use crate::error::Error;
use crate::failpoint::{self, Point};
use crate::lease::LeaseChange;

/// Newest revisions kept so that a watcher that has caught up can rejoin without a gap.
const RECENT_REVISIONS_MAX: usize = 128;

/// Reads of the history running at the same time, over all streams.
const READS_MAX: usize = 4;

/// A watcher, unique in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct WatcherId(pub(super) u64);

/// What watches there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchCounts {
    /// Watches.
    pub watchers: usize,
    /// Watches that do not keep up and read the history.
    pub lagging: usize,
    /// Streams.
    pub streams: usize,
}

/// Kinds of events a watch does not want.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filter {
    pub(super) no_put: bool,
    pub(super) no_delete: bool,
}

impl Filter {
    pub(super) fn drops(self, event: &kv::Event) -> bool {
        match event.r#type() {
            kv::event::EventType::Put => self.no_put,
            kv::event::EventType::Delete => self.no_delete,
        }
    }
}

/// One watch, as the hub knows it.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) range: KeyRange,
    pub(super) filter: Filter,
    /// The revision the client asked for; 0: from now on.
    pub(super) start: i64,
    /// The first revision the watcher has not been given; for one that is not lagging a lower
    /// bound that matters only until the hub's revision reaches it.
    pub(super) next: i64,
    /// Set while the watcher reads the history.
    pub(super) lag: Option<Lag>,
    pub(super) queue: Arc<StreamQueue>,
}

/// The state of a lagging watcher.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lag {
    /// Items of the stream's queue that come before what is read from the history.
    pub(super) after: u64,
}

/// Everything behind the hub's lock.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The newest revision given to the watchers.
    pub(super) revision: i64,
    pub(super) watchers: HashMap<WatcherId, Watcher>,
    pub(super) recent: VecDeque<(i64, Arc<[kv::Event]>)>,
    index: RangeIndex,
    last_id: u64,
    matches: Vec<(WatcherId, usize)>,
}

/// What sessions and the hub share.
pub(super) struct Shared {
    pub(super) groups: Mutex<Groups>,
    pub(super) reads: Arc<Semaphore>,
    pub(super) streams: AtomicUsize,
    history: OnceLock<Arc<dyn History>>,
}

/// Takes events from the writer and gives them to the watchers.
#[derive(Clone)]
pub struct WatchHub {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for WatchHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchHub")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Default for WatchHub {
    fn default() -> WatchHub {
        WatchHub::new()
    }
}

impl WatchHub {
    /// A hub without a history; hand it to the writer, then call [`WatchHub::attach`].
    pub fn new() -> WatchHub {
        WatchHub {
            shared: Arc::new(Shared {
                groups: Mutex::default(),
                reads: Arc::new(Semaphore::new(READS_MAX)),
                streams: AtomicUsize::new(0),
                history: OnceLock::new(),
            }),
        }
    }

    /// Gives the hub the history to read from. Only the first call counts.
    pub fn attach(&self, history: Arc<dyn History>) {
        let revision = history.revision();
        if self.shared.history.set(history).is_ok() {
            let mut groups = self.shared.groups.lock();
            groups.revision = groups.revision.max(revision);
        }
    }

    /// A session for one stream of a client.
    ///
    /// # Errors
    /// [`Error::Stopped`] before [`WatchHub::attach`].
    pub fn session(&self, options: SessionOptions) -> Result<WatchSession, Error> {
        let history = self.shared.history.get().ok_or(Error::Stopped)?;
        Ok(WatchSession::new(
            Arc::clone(&self.shared),
            Arc::clone(history),
            options,
        ))
    }

    /// What watches there are now.
    pub fn counts(&self) -> WatchCounts {
        let groups = self.shared.groups.lock();
        WatchCounts {
            watchers: groups.watchers.len(),
            lagging: groups
                .watchers
                .values()
                .filter(|watcher| watcher.lag.is_some())
                .count(),
            streams: self.shared.streams.load(Ordering::Relaxed),
        }
    }
}

impl EventSink for WatchHub {
    fn publish(&self, revision: i64, events: &[kv::Event]) {
        self.shared.groups.lock().publish(revision, events);
    }

    fn compacted(&self, _revision: i64) {
        // A lagging watcher learns of it when it reads the history; the others need none of it.
    }

    fn lease_changed(&self, _change: LeaseChange) {}

    fn replaced(&self, revision: i64) {
        let mut groups = self.shared.groups.lock();
        groups.fall_behind();
        groups.revision = groups.revision.max(revision);
    }
}

impl Groups {
    /// Adds a watcher; it starts to lag at once when it wants the past.
    pub(super) fn add(&mut self, mut watcher: Watcher, visible: i64) -> WatcherId {
        self.last_id += 1;
        let id = WatcherId(self.last_id);
        let now = self.revision.max(visible);
        if watcher.start > now || watcher.start == 0 {
            watcher.next = watcher.start.max(now + 1);
        } else {
            watcher.next = watcher.start;
            watcher.lag = Some(Lag {
                after: watcher.queue.add_lagging(id),
            });
        }
        self.index.insert(&watcher.range, id);
        self.watchers.insert(id, watcher);
        id
    }

    pub(super) fn remove(&mut self, id: WatcherId) {
        if let Some(watcher) = self.watchers.remove(&id) {
            self.index.remove(&watcher.range, id);
            watcher.queue.remove_lagging(id);
        }
    }

    fn publish(&mut self, revision: i64, events: &[kv::Event]) {
        if revision <= self.revision {
            return;
        }
        if self.watchers.is_empty() {
            self.recent.clear();
            self.revision = revision;
            return;
        }
        if revision != self.revision + 1 {
            self.fall_behind();
        }
        self.revision = revision;
        let events: Arc<[kv::Event]> = events.into();
        self.deliver(revision, &events);
        if self.recent.len() >= RECENT_REVISIONS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((revision, events));
    }

    /// Queues the events for every watcher they concern that is up to date.
    fn deliver(&mut self, revision: i64, events: &Arc<[kv::Event]>) {
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        for (at, event) in events.iter().enumerate() {
            if let Some(kv) = &event.kv {
                self.index
                    .each_watcher(&kv.key, |id| matches.push((id, at)));
            }
        }
        if events.len() > 1 {
            matches.sort_unstable();
        }
        for found in matches.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(id, _)) = found.first() else {
                continue;
            };
            let Some(watcher) = self.watchers.get_mut(&id) else {
                continue;
            };
            let is_early = revision < watcher.next && !failpoint::is_on(Point::BugWatchBeforeStart);
            if watcher.lag.is_some() || is_early {
                continue;
            }
            let found = found.iter().map(|(_, at)| *at);
            let Some(item) = select(id, watcher.filter, revision, events, found) else {
                continue;
            };
            if failpoint::is_on(Point::BugWatchDropsEvent) {
                continue;
            }
            if failpoint::is_on(Point::BugWatchRepeatsEvent) {
                watcher.queue.push(item.clone());
            }
            if !watcher.queue.push(item) {
                watcher.next = revision;
                watcher.lag = Some(Lag {
                    after: watcher.queue.add_lagging(id),
                });
            }
        }
        self.matches = matches;
    }

    /// Makes every watcher read the history from the hub's revision on: events may have been
    /// missed, because the state was replaced.
    fn fall_behind(&mut self) {
        self.recent.clear();
        let next = self.revision + 1;
        // The order in which watchers are marked does not matter.
        self.watchers
            .iter_mut()
            .filter(|(_, watcher)| watcher.lag.is_none())
            .for_each(|(id, watcher)| {
                watcher.next = if failpoint::is_on(Point::BugWatchBackAfterSnapshot) {
                    watcher.start.max(1)
                } else {
                    watcher.next.max(next)
                };
                watcher.lag = Some(Lag {
                    after: watcher.queue.add_lagging(*id),
                });
            });
    }

    /// Lets a lagging watcher rejoin when all it lacks is among the recent revisions. `false` when
    /// it has to read the history.
    pub(super) fn rejoin(&mut self, id: WatcherId) -> bool {
        let Some(watcher) = self.watchers.get_mut(&id) else {
            return true;
        };
        if watcher.next <= self.revision {
            let oldest = self
                .recent
                .front()
                .map_or(i64::MAX, |(revision, _)| *revision);
            if watcher.next < oldest {
                return false;
            }
        }
        for (revision, events) in &self.recent {
            if *revision < watcher.next {
                continue;
            }
            let found = events.iter().enumerate().filter_map(|(at, event)| {
                event
                    .kv
                    .as_ref()
                    .is_some_and(|kv| watcher.range.contains(&kv.key))
                    .then_some(at)
            });
            if let Some(item) = select(id, watcher.filter, *revision, events, found)
                && !watcher.queue.push(item)
            {
                watcher.next = *revision;
                watcher.lag = Some(Lag {
                    after: watcher.queue.add_lagging(id),
                });
                return true;
            }
        }
        watcher.lag = None;
        watcher.queue.remove_lagging(id);
        true
    }
}

/// The item for a watcher, when any event is left after its filter.
fn select(
    id: WatcherId,
    filter: Filter,
    revision: i64,
    events: &Arc<[kv::Event]>,
    found: impl Iterator<Item = usize>,
) -> Option<Item> {
    let mut bytes = 0;
    let selected: Vec<usize> = found
        .filter(|at| {
            events.get(*at).is_some_and(|event| {
                let keep = !filter.drops(event);
                if keep && let Some(kv) = &event.kv {
                    bytes += kv.key.len() + kv.value.len();
                }
                keep
            })
        })
        .collect();
    if selected.is_empty() {
        return None;
    }
    let selected = (selected.len() != events.len()).then(|| selected.into_boxed_slice());
    Some(Item {
        to: Recipient::Watcher(id),
        revision,
        events: Arc::clone(events),
        selected,
        bytes,
    })
}
