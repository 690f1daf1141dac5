//! The snapshot that is being sent, kept so that a transfer that broke off can go on, and so that
//! several members get the same one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::log::RaftLogReader;
use super::snapshot::Made;
use super::types::LogId;

/// How long a snapshot is kept that nobody sends.
const KEPT: Duration = Duration::from_secs(30);

/// What this member sends to others.
#[derive(Debug)]
pub(crate) struct Outbox {
    log: RaftLogReader,
    kept: Mutex<Option<Arc<Made>>>,
    /// Snapshots that are being made.
    making: AtomicUsize,
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
            making: AtomicUsize::new(0),
            is_forced: AtomicBool::new(false),
            keeping: Mutex::default(),
        }
    }

    /// A snapshot after which the log here still goes on.
    pub(super) fn usable(&self) -> Option<Arc<Made>> {
        let mut kept = self.kept.lock();
        if !self.reaches_back(&kept.as_ref()?.meta.last_log_id?) {
            *kept = None;
        }
        kept.clone()
    }

    /// Whether the log here goes on right after `position`.
    pub(super) fn reaches_back(&self, position: &LogId) -> bool {
        self.log.range().start <= position.index + 1
    }

    /// Holds the log while a snapshot is made. It takes as long as the state is large: without
    /// this the log would be gone beyond it when it is made, and whoever gets it would need
    /// another one, made no faster.
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        self.making.fetch_add(1, Ordering::AcqRel);
        Hold(Arc::clone(self))
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
        let is_needed = self.making.load(Ordering::Acquire) > 0 || self.kept.lock().is_some();
        !self.is_forced.swap(false, Ordering::AcqRel) && is_needed
    }

    /// The next purge is not held up.
    pub(super) fn force(&self) {
        self.is_forced.store(true, Ordering::Release);
    }
}

/// As long as it lives the log is not purged.
#[derive(Debug)]
pub(super) struct Hold(Arc<Outbox>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.making.fetch_sub(1, Ordering::AcqRel);
    }
}
