//! The watches of one stream: takes requests, yields responses in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_proto::etcd::{kv, rpc};
use tokio::task::JoinSet;

use super::catch_up::{self, Found, READERS_MAX, Reader, Reading};
use super::fragment;
use super::history::{History, add_previous};
use super::hub::{Filter, Shared, Watcher, WatcherId};
use super::progress::ProgressTimer;
use super::queue::{Item, Recipient, StreamQueue};
use super::range::KeyRange;
use crate::failpoint::{self, Point};

/// The id of a response that belongs to no watch, or to all.
const NO_WATCH: i64 = -1;

/// Most watches on one stream.
const WATCHES_MAX: usize = 100_000;

/// What a session is told.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Size in bytes above which a response is cut for watches that accept fragments.
    pub fragment_bytes: usize,
}

/// The watches of one stream. Responses carry a header with the revision only. Dropping the
/// session ends its watches.
pub struct WatchSession {
    shared: Arc<Shared>,
    history: Arc<dyn History>,
    options: SessionOptions,
    queue: Arc<StreamQueue>,
    ready: VecDeque<rpc::WatchResponse>,
    watches: BTreeMap<i64, Watch>,
    ids: HashMap<WatcherId, i64>,
    next_auto_id: i64,
    progress: ProgressTimer,
    /// A client asked for progress while a watch lagged; answered when none does.
    is_progress_wanted: bool,
    /// At most one read of the history; ends with the session.
    reading: JoinSet<Vec<Reading>>,
    read_revision: i64,
    read_cursor: WatcherId,
    is_reading_due: bool,
}

/// One watch, as its stream knows it.
#[derive(Debug, Clone, Copy)]
struct Watch {
    id: WatcherId,
    wants_previous: bool,
    accepts_fragments: bool,
}

impl std::fmt::Debug for WatchSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchSession")
            .field("watches", &self.watches.len())
            .finish_non_exhaustive()
    }
}

impl Drop for WatchSession {
    fn drop(&mut self) {
        let mut groups = self.shared.groups.lock();
        for watch in self.watches.values() {
            groups.remove(watch.id);
        }
        drop(groups);
        self.shared.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WatchSession {
    pub(super) fn new(
        shared: Arc<Shared>,
        history: Arc<dyn History>,
        options: SessionOptions,
    ) -> WatchSession {
        shared.streams.fetch_add(1, Ordering::Relaxed);
        WatchSession {
            shared,
            history,
            options,
            queue: Arc::default(),
            ready: VecDeque::new(),
            watches: BTreeMap::new(),
            ids: HashMap::new(),
            next_auto_id: 0,
            progress: ProgressTimer::default(),
            is_progress_wanted: false,
            reading: JoinSet::new(),
            read_revision: 0,
            read_cursor: WatcherId(0),
            is_reading_due: false,
        }
    }

    /// Starts a watch, or queues the response that says why not.
    pub fn create(&mut self, request: rpc::WatchCreateRequest) {
        let (watch_id, reason) = match self.start(request) {
            Ok(watch_id) => (watch_id, String::new()),
            Err(reason) => (NO_WATCH, reason.to_owned()),
        };
        let response = rpc::WatchResponse {
            watch_id,
            created: true,
            canceled: !reason.is_empty(),
            cancel_reason: reason,
            ..response(self.revision())
        };
        self.ready.push_back(response);
    }

    /// Answers a creation with a refusal and starts nothing.
    pub fn refuse(&mut self, reason: String) {
        let response = rpc::WatchResponse {
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            cancel_reason: reason,
            ..response(self.revision())
        };
        self.ready.push_back(response);
    }

    /// Ends a watch; one that is not there is not answered.
    pub fn cancel(&mut self, watch_id: i64) {
        if self.forget(watch_id) {
            let canceled = rpc::WatchResponse {
                watch_id,
                canceled: true,
                ..response(self.revision())
            };
            self.ready.push_back(canceled);
        }
    }

    /// Announces, once every watch of the stream is up to date, how far they are.
    pub fn request_progress(&mut self) {
        self.is_progress_wanted = !self.announce(Recipient::ProgressOfAll);
    }

    /// Announces progress of the watches that asked for it and were quiet since the last call.
    pub fn tick_progress(&mut self) {
        for watch_id in self.progress.tick() {
            if let Some(watch) = self.watches.get(&watch_id) {
                self.announce(Recipient::Progress(watch.id));
            }
        }
    }

    /// The next response. Dropping the future loses nothing.
    pub async fn next(&mut self) -> rpc::WatchResponse {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return response;
            }
            if let Some(readings) = self.reading.join_next().await {
                // A read that panicked is tried again by the watchers that still lag.
                self.finish_reading(readings.unwrap_or_default());
                continue;
            }
            // Live events and history take turns, so that neither starves the other.
            let has_lagging = self.queue.has_lagging();
            if has_lagging && self.is_reading_due {
                self.is_reading_due = false;
                self.start_reading();
                continue;
            }
            let run = self.queue.pop_run();
            self.is_reading_due = has_lagging;
            if !run.is_empty() {
                self.respond(&run);
            } else if !has_lagging {
                if self.is_progress_wanted && self.announce(Recipient::ProgressOfAll) {
                    self.is_progress_wanted = false;
                } else {
                    self.queue.wait().await;
                }
            }
        }
    }

    fn start(&mut self, request: rpc::WatchCreateRequest) -> Result<i64, &'static str> {
        if request.start_revision < 0 {
            return Err("etcdserver: mvcc: required revision has been compacted");
        }
        let mut filter = Filter::default();
        for kind in request.filters() {
            match kind {
                rpc::watch_create_request::FilterType::Noput => filter.no_put = true,
                rpc::watch_create_request::FilterType::Nodelete => filter.no_delete = true,
            }
        }
        let Some(range) = KeyRange::new(request.key, request.range_end) else {
            return Err("mvcc: watcher range is empty");
        };
        if self.watches.len() >= WATCHES_MAX {
            return Err("etcdserver: too many watches on one stream");
        }
        let watch_id = if request.watch_id == 0 {
            while self.watches.contains_key(&self.next_auto_id) {
                self.next_auto_id += 1;
            }
            self.next_auto_id += 1;
            self.next_auto_id - 1
        } else if self.watches.contains_key(&request.watch_id) {
            return Err("mvcc: duplicate watch ID provided on the WatchStream");
        } else {
            request.watch_id
        };
        let watcher = Watcher {
            range,
            filter,
            start: request.start_revision,
            next: 0,
            lag: None,
            queue: Arc::clone(&self.queue),
        };
        let id = self
            .shared
            .groups
            .lock()
            .add(watcher, self.history.revision());
        let watch = Watch {
            id,
            wants_previous: request.prev_kv,
            accepts_fragments: request.fragment,
        };
        self.watches.insert(watch_id, watch);
        self.ids.insert(id, watch_id);
        if request.progress_notify {
            self.progress.add(watch_id);
        }
        Ok(watch_id)
    }

    fn forget(&mut self, watch_id: i64) -> bool {
        let Some(watch) = self.watches.remove(&watch_id) else {
            return false;
        };
        self.ids.remove(&watch.id);
        self.progress.remove(watch_id);
        self.shared.groups.lock().remove(watch.id);
        true
    }

    /// Queues a progress response when all it speaks for are up to date. `false` when not.
    fn announce(&self, to: Recipient) -> bool {
        let groups = self.shared.groups.lock();
        let revision = groups.revision;
        let is_current = |id: &WatcherId| {
            groups
                .watchers
                .get(id)
                .is_none_or(|watcher| watcher.lag.is_none() && watcher.start <= revision)
        };
        let all_current = match to {
            Recipient::Watcher(id) | Recipient::Progress(id) => is_current(&id),
            Recipient::ProgressOfAll => self.ids.keys().all(is_current),
        };
        if !all_current && !failpoint::is_on(Point::BugWatchProgressAhead) {
            return false;
        }
        // A stream without watches has nothing to announce.
        self.ids.is_empty()
            || self.queue.push(Item {
                to,
                revision,
                events: Arc::new([]),
                selected: None,
                bytes: 0,
            })
    }

    /// Turns items for one recipient into a response.
    fn respond(&mut self, run: &[Item]) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return;
        };
        let id = match first.to {
            Recipient::Watcher(id) | Recipient::Progress(id) => id,
            Recipient::ProgressOfAll => {
                let response = rpc::WatchResponse {
                    watch_id: NO_WATCH,
                    ..response(last.revision)
                };
                self.ready.push_back(response);
                return;
            }
        };
        // Items of a watch that has been cancelled meanwhile.
        let Some(&watch_id) = self.ids.get(&id) else {
            return;
        };
        let wants_previous = self
            .watches
            .get(&watch_id)
            .is_some_and(|watch| watch.wants_previous);
        let mut events: Vec<kv::Event> = run.iter().flat_map(Item::iter).cloned().collect();
        for event in &mut events {
            if wants_previous {
                add_previous(self.history.as_ref(), event);
            } else {
                event.prev_kv = None;
            }
        }
        self.push_events(watch_id, last.revision, events);
    }

    fn push_events(&mut self, watch_id: i64, revision: i64, events: Vec<kv::Event>) {
        let Some(watch) = self.watches.get(&watch_id).copied() else {
            return;
        };
        if !events.is_empty() {
            self.progress.saw_events(watch_id);
        }
        let response = rpc::WatchResponse {
            watch_id,
            events,
            ..response(revision)
        };
        if watch.accepts_fragments {
            fragment::push(&mut self.ready, response, self.options.fragment_bytes);
        } else {
            self.ready.push_back(response);
        }
    }

    /// Lets watchers that lack only the newest revisions rejoin, and starts a read of the history
    /// for the others.
    fn start_reading(&mut self) {
        let (chosen, popped) = self.queue.lagging(self.read_cursor, READERS_MAX);
        let mut readers = Vec::new();
        let mut groups = self.shared.groups.lock();
        for id in chosen {
            self.read_cursor = id;
            let is_due = groups
                .watchers
                .get(&id)
                .and_then(|watcher| watcher.lag)
                .is_some_and(|lag| lag.after <= popped);
            if !is_due || groups.rejoin(id) {
                continue;
            }
            let watch = self
                .ids
                .get(&id)
                .and_then(|watch_id| self.watches.get(watch_id));
            if let Some(watcher) = groups.watchers.get(&id) {
                readers.push(Reader {
                    id,
                    range: watcher.range.clone(),
                    filter: watcher.filter,
                    next: watcher.next,
                    wants_previous: watch.is_some_and(|watch| watch.wants_previous),
                });
            }
        }
        let target = groups.revision;
        drop(groups);
        if readers.is_empty() {
            return;
        }
        self.read_revision = target;
        let history = Arc::clone(&self.history);
        let reads = Arc::clone(&self.shared.reads);
        self.reading.spawn(async move {
            let Ok(_permit) = reads.acquire_owned().await else {
                return Vec::new();
            };
            tokio::task::spawn_blocking(move || catch_up::read(&history, &readers, target))
                .await
                .unwrap_or_default()
        });
    }

    fn finish_reading(&mut self, readings: Vec<Reading>) {
        for reading in readings {
            let Some(&watch_id) = self.ids.get(&reading.id) else {
                continue;
            };
            let canceled = rpc::WatchResponse {
                watch_id,
                canceled: true,
                ..response(0)
            };
            match reading.result {
                Found::Events { events, next } => {
                    if let Some(watcher) = self.shared.groups.lock().watchers.get_mut(&reading.id) {
                        watcher.next = watcher.next.max(next);
                    }
                    if !events.is_empty() {
                        self.push_events(watch_id, self.read_revision, events);
                    }
                }
                Found::Compacted { compact_revision } => {
                    self.forget(watch_id);
                    self.ready.push_back(rpc::WatchResponse {
                        compact_revision,
                        ..canceled
                    });
                }
                Found::Failed { reason } => {
                    self.forget(watch_id);
                    self.ready.push_back(rpc::WatchResponse {
                        cancel_reason: reason,
                        ..canceled
                    });
                }
            }
        }
    }

    fn revision(&self) -> i64 {
        self.history.revision()
    }
}

/// A response at a revision.
fn response(revision: i64) -> rpc::WatchResponse {
    rpc::WatchResponse {
        header: Some(rpc::ResponseHeader {
            revision,
            ..rpc::ResponseHeader::default()
        }),
        ..rpc::WatchResponse::default()
    }
}

#[cfg(test)]
mod tests;
