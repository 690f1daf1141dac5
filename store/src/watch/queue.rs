//! What the hub has ready for one stream: bounded, so that a reader that stalls costs little.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use holdfast_proto::etcd::kv;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::hub::WatcherId;

/// Most items waiting for one stream.
pub(super) const ITEMS_MAX: usize = 256;

/// Most bytes of keys and values waiting for one stream, unless a single item is larger.
pub(super) const BYTES_MAX: usize = 1024 * 1024;

/// Most bytes merged into one response, unless a single revision is larger.
const RESPONSE_BYTES_MAX: usize = 128 * 1024;

/// The events of one revision, or the news that there were none.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) to: Recipient,
    /// Everything up to this revision has been delivered with this item.
    pub(super) revision: i64,
    pub(super) events: Arc<[kv::Event]>,
    /// Which of `events`; `None` is all of them.
    pub(super) selected: Option<Box<[usize]>>,
    /// Keys and values selected, in bytes.
    pub(super) bytes: usize,
}

impl Item {
    /// The events selected.
    pub(super) fn iter(&self) -> impl Iterator<Item = &kv::Event> {
        let all = self
            .selected
            .is_none()
            .then(|| self.events.iter())
            .into_iter()
            .flatten();
        let some = self
            .selected
            .iter()
            .flat_map(|selected| selected.iter())
            .filter_map(|at| self.events.get(*at));
        all.chain(some)
    }
}

/// Whom an item is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipient {
    /// Events of one watcher.
    Watcher(WatcherId),
    /// Progress of one watcher.
    Progress(WatcherId),
    /// Progress of all watchers of the stream.
    ProgressOfAll,
}

/// The queue of one stream: the hub pushes, the stream's session pops.
#[derive(Debug, Default)]
pub(super) struct StreamQueue {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    popped: u64,
    pushed: u64,
    lagging: BTreeSet<WatcherId>,
}

impl StreamQueue {
    /// Adds an item; `false` when the queue is full.
    pub(super) fn push(&self, item: Item) -> bool {
        let mut state = self.state.lock();
        let is_full = state.items.len() >= ITEMS_MAX
            || (!state.items.is_empty() && state.bytes.saturating_add(item.bytes) > BYTES_MAX);
        if is_full {
            return false;
        }
        state.bytes += item.bytes;
        state.pushed += 1;
        state.items.push_back(item);
        drop(state);
        self.ready.notify_one();
        true
    }

    /// Notes that a watcher has to read the past; returns how many items must be popped before.
    pub(super) fn add_lagging(&self, watcher: WatcherId) -> u64 {
        let mut state = self.state.lock();
        state.lagging.insert(watcher);
        let after = state.pushed;
        drop(state);
        self.ready.notify_one();
        after
    }

    /// Notes that a watcher is up to date, or gone.
    pub(super) fn remove_lagging(&self, watcher: WatcherId) {
        self.state.lock().lagging.remove(&watcher);
    }

    /// Up to `max` lagging watchers after `cursor`, starting over at the end, and the number of
    /// items popped so far.
    pub(super) fn lagging(&self, cursor: WatcherId, max: usize) -> (Vec<WatcherId>, u64) {
        let state = self.state.lock();
        let later = state.lagging.iter().filter(|id| **id > cursor);
        let earlier = state.lagging.iter().filter(|id| **id <= cursor);
        (
            later.chain(earlier).take(max).copied().collect(),
            state.popped,
        )
    }

    /// Whether any watcher has to read the past.
    pub(super) fn has_lagging(&self) -> bool {
        !self.state.lock().lagging.is_empty()
    }

    /// Takes the next items that may go into one response: for one recipient, in order.
    pub(super) fn pop_run(&self) -> Vec<Item> {
        let mut state = self.state.lock();
        let mut run: Vec<Item> = Vec::new();
        let mut bytes = 0_usize;
        while let Some(item) = state.items.front() {
            if let Some(first) = run.first()
                && (first.to != item.to || bytes.saturating_add(item.bytes) > RESPONSE_BYTES_MAX)
            {
                break;
            }
            bytes = bytes.saturating_add(item.bytes);
            let Some(item) = state.items.pop_front() else {
                break;
            };
            state.bytes = state.bytes.saturating_sub(item.bytes);
            state.popped += 1;
            run.push(item);
        }
        run
    }

    /// Waits until something may be there: an item, or a watcher that lags.
    pub(super) async fn wait(&self) {
        self.ready.notified().await;
    }
}
