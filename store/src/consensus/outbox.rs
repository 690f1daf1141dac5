//! The snapshot that is being sent, kept so that a transfer that broke off can go on, and so that
//! several members get the same one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::log::RaftLogReader;
use super::snapshot::Made;

/// How long a snapshot is kept that nobody sends.
const KEPT: Duration = Duration::from_secs(30);

/// What this member sends to others.
#[derive(Debug)]
pub(crate) struct Outbox {
    log: RaftLogReader,
    kept: Mutex<Option<Arc<Made>>>,
    /// The log is too long: it is purged whatever is sent.
    is_forced: AtomicBool,
    /// What lets go of a snapshot in time; ends with the outbox.
    keeping: Mutex<JoinSet<()>>,
}

impl Outbox {
    pub(crate) fn new(log: RaftLogReader) -> Self {
        Self {
            log,
            kept: Mutex::default(),
            is_forced: AtomicBool::new(false),
            keeping: Mutex::default(),
        }
    }

    /// A snapshot after which the log here still goes on.
    pub(super) fn usable(&self) -> Option<Arc<Made>> {
        let mut kept = self.kept.lock();
        let next = kept.as_ref()?.meta.last_log_id?.index + 1;
        if next < self.log.range().start {
            *kept = None;
        }
        kept.clone()
    }

    /// Keeps `made` while it is sent and a while longer.
    pub(super) fn keep(self: &Arc<Self>, made: &Arc<Made>) {
        *self.kept.lock() = Some(Arc::clone(made));
        let (outbox, id) = (Arc::downgrade(self), made.id);
        let mut keeping = self.keeping.lock();
        while keeping.try_join_next().is_some() {}
        keeping.spawn(async move {
            loop {
                tokio::time::sleep(KEPT).await;
                let Some(outbox) = outbox.upgrade() else {
                    break;
                };
                let mut kept = outbox.kept.lock();
                match kept.as_ref() {
                    Some(made) if made.id == id && Arc::strong_count(made) > 1 => {}
                    Some(made) if made.id == id => {
                        *kept = None;
                        break;
                    }
                    _ => break,
                }
            }
        });
    }

    /// Whether the log must not be purged: who gets the snapshot needs what follows it.
    pub(super) fn holds_log(&self) -> bool {
        !self.is_forced.swap(false, Ordering::AcqRel) && self.kept.lock().is_some()
    }

    /// The next purge is not held up.
    pub(super) fn force(&self) {
        self.is_forced.store(true, Ordering::Release);
    }
}
