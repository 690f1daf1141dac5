//! What watches read the past from.

use holdfast_proto::etcd::kv;

use crate::error::Error;
use crate::state::{EventBatch, State};

/// The past, as the state keeps it.
pub trait History: Send + Sync {
    /// The newest revision readers can see.
    fn revision(&self) -> i64;

    /// The last compaction; below 1 when there was none.
    fn compact_revision(&self) -> i64;

    /// Events of the revisions `from..=to`: whole revisions, about `bytes_max` bytes of them but
    /// at least one revision. [`Error::Compacted`] when `from` is before the last compaction.
    fn events(&self, from: i64, to: i64, bytes_max: usize) -> Result<EventBatch, Error>;

    /// The value a key had just before `revision`, if that is still known.
    fn previous(&self, key: &[u8], revision: i64) -> Result<Option<kv::KeyValue>, Error>;
}

impl History for State {
    fn revision(&self) -> i64 {
        State::revision(self)
    }

    fn compact_revision(&self) -> i64 {
        State::compact_revision(self)
    }

    fn events(&self, from: i64, to: i64, bytes_max: usize) -> Result<EventBatch, Error> {
        State::events(self, from, to, bytes_max)
    }

    fn previous(&self, key: &[u8], revision: i64) -> Result<Option<kv::KeyValue>, Error> {
        State::previous(self, key, revision)
    }
}

/// Whether an event makes a key that was not there before.
pub(super) fn is_creation(event: &kv::Event) -> bool {
    event.r#type() == kv::event::EventType::Put
        && event
            .kv
            .as_ref()
            .is_some_and(|kv| kv.create_revision == kv.mod_revision)
}

/// Fills in `prev_kv` as etcd does: for every event but a creation, and only while it is known.
pub(super) fn add_previous(history: &dyn History, event: &mut kv::Event) {
    if is_creation(event) || event.prev_kv.is_some() {
        return;
    }
    if let Some(kv) = &event.kv
        && let Ok(previous) = history.previous(&kv.key, kv.mod_revision)
    {
        event.prev_kv = previous;
    }
}
