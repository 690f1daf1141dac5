//! What the member knows about its disk being full.
//!
//! A full disk is not a failure: writes are refused with NOSPACE, everything else goes on, and
//! writing resumes when space returns. Three things can say that space is short: the log (no
//! spare segment), the state file (a write met a full disk and waits), and a look at the free
//! bytes that comes before both.
//!
//! What is in the state and not yet in its file will need space too: it counts as taken, and a
//! checkpoint that would not fit is put off rather than begun.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use crate::datadir::{Layout, durable};

/// How often a waiting write tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Free bytes are looked at again after this long, or after [`LOOK_BYTES`] of proposals.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const LOOK_BYTES: u64 = 1 << 20;
/// What one transaction may take in the state file beside its rows: copied pages of its trees.
const TRANSACTION_BYTES: u64 = 32 << 10;
/// What a checkpoint adds to the state file beside the pages that are in it: its own trees.
const CHECKPOINT_GROWTH_BYTES: u64 = 1 << 20;
/// The unit in which a file system counts what a file takes.
const DISK_BLOCK_BYTES: u64 = 512;
const RESERVE_FILE: &str = "reserve";

/// Whether an error says that the disk, or a quota on it, is full.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The state of the disk under one data directory.
#[derive(Debug)]
pub(crate) struct Space {
    dir: PathBuf,
    reserve_bytes: u64,
    log_short: AtomicBool,
    state_short: AtomicBool,
    disk_low: AtomicBool,
    has_reserve: AtomicBool,
    /// Bytes that the next checkpoint may write.
    undurable: AtomicU64,
    /// Bytes proposed since the last look.
    unseen: AtomicU64,
    looked: Mutex<Instant>,
    stopped: Mutex<bool>,
    stop: Condvar,
}

impl Space {
    /// Watches the disk that holds `dir`; `reserve_bytes` are set aside by [`Self::check`].
    pub(crate) fn new(dir: &Path, reserve_bytes: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve_bytes,
            log_short: AtomicBool::new(false),
            state_short: AtomicBool::new(false),
            disk_low: AtomicBool::new(false),
            has_reserve: AtomicBool::new(dir.join(RESERVE_FILE).exists()),
            undurable: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            looked: Mutex::new(Instant::now()),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        }
    }

    /// Whether writes must be refused now.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.log_short.load(Ordering::Relaxed)
            || self.state_short.load(Ordering::Relaxed)
            || self.disk_low.load(Ordering::Relaxed)
    }

    /// Whether the state's file cannot be written: what is proposed now would not be durable in
    /// it for long.
    pub(crate) fn is_state_short(&self) -> bool {
        self.state_short.load(Ordering::Relaxed)
    }

    /// Says what the next checkpoint has to write: rows of `bytes` in so many transactions.
    pub(crate) fn set_undurable(&self, bytes: u64, transactions: u64) {
        let copied = transactions.saturating_mul(TRANSACTION_BYTES);
        self.undurable.store(
            bytes.saturating_mul(2).saturating_add(copied),
            Ordering::Relaxed,
        );
    }

    /// Notes that `bytes` are proposed, and looks at the disk when it is time.
    pub(crate) fn propose(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let unseen = self
            .unseen
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        let Some(mut looked) = self.looked.try_lock() else {
            return;
        };
        if unseen < LOOK_BYTES && looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        *looked = Instant::now();
        drop(looked);
        if let Err(error) = self.look() {
            tracing::debug!(%error, "cannot look at the free space");
        }
    }

    /// Whether a checkpoint would fit; gives up the reserve file when it takes that.
    pub(crate) fn has_room_for_checkpoint(&self) -> bool {
        let Ok(free) = self.free_bytes() else {
            return true;
        };
        let needed = self.undurable.load(Ordering::Relaxed);
        // A page has its place in the file since it was changed in memory: a checkpoint fills the
        // file's holes and adds little. Where that is less, a disk full of history can be left.
        let needed = self.holes().map_or(needed, |holes| {
            needed.min(holes.saturating_add(CHECKPOINT_GROWTH_BYTES))
        });
        let fits = free >= needed || {
            let with_reserve = free.saturating_add(self.reserve_bytes) >= needed;
            with_reserve && self.give_up_reserve()
        };
        self.set_state_short(!fits);
        fits
    }

    /// Bytes of the state file that have no space on the disk yet.
    fn holes(&self) -> Option<u64> {
        let found = std::fs::metadata(Layout::new(&self.dir).state()).ok()?;
        let taken = found.blocks().saturating_mul(DISK_BLOCK_BYTES);
        Some(found.len().saturating_sub(taken))
    }

    fn give_up_reserve(&self) -> bool {
        self.has_reserve.swap(false, Ordering::Relaxed)
            && durable::remove_file(&self.dir.join(RESERVE_FILE)).is_ok()
    }

    pub(crate) fn set_log_short(&self, short: bool) {
        if self.log_short.swap(short, Ordering::Relaxed) != short {
            self.report("raft log", short);
        }
    }

    fn set_state_short(&self, short: bool) {
        if self.state_short.swap(short, Ordering::Relaxed) != short {
            self.report("state file", short);
        }
    }

    fn report(&self, what: &str, short: bool) {
        if short {
            tracing::warn!(what, dir = %self.dir.display(), "the disk is full; writes are refused");
        } else {
            tracing::info!(what, dir = %self.dir.display(), "the disk has space again");
        }
    }

    /// Bytes that may still be written to the disk.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.dir)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Looks at the disk and keeps the reserve file. Called about twice a second.
    pub(crate) fn check(&self) -> io::Result<()> {
        let free = self.look()?;
        let is_missing = !self.has_reserve.load(Ordering::Relaxed);
        if is_missing && !self.is_exhausted() && free > self.reserve_bytes.saturating_mul(3) {
            self.restore_reserve()?;
        }
        Ok(())
    }

    /// Refuses writes before the disk is full; the free bytes.
    fn look(&self) -> io::Result<u64> {
        let free = self.free_bytes()?;
        let unseen = self.unseen.swap(0, Ordering::Relaxed);
        let low = self.disk_low.load(Ordering::Relaxed);
        // The way back needs more than the way in, so that the edge does not flap.
        let floor = if low {
            self.reserve_bytes.saturating_mul(2)
        } else {
            self.reserve_bytes
        };
        let undurable = self
            .undurable
            .load(Ordering::Relaxed)
            .saturating_add(unseen);
        let is_low = free < floor.saturating_add(undurable);
        if self.disk_low.swap(is_low, Ordering::Relaxed) != is_low {
            self.report("disk", is_low);
        }
        Ok(free)
    }

    fn restore_reserve(&self) -> io::Result<()> {
        let path = self.dir.join(RESERVE_FILE);
        durable::remove_file(&path)?;
        match durable::create_zeroed(&path, self.reserve_bytes) {
            Ok(_file) => {
                self.has_reserve.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) if is_no_space(&error) => durable::remove_file(&path),
            Err(error) => Err(error),
        }
    }

    /// Runs a write of the state file until it does not meet a full disk. The first time it
    /// does, the reserve file is given up, so that what was admitted finishes.
    ///
    /// Waiting rather than failing keeps the state handle alive: an error would poison it.
    pub(crate) fn until_it_fits<T>(
        &self,
        mut write: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match write() {
                Ok(value) => {
                    self.set_state_short(false);
                    return Ok(value);
                }
                Err(error) if is_no_space(&error) => {
                    self.set_state_short(true);
                    if self.give_up_reserve() {
                        continue;
                    }
                    let mut stopped = self.stopped.lock();
                    if *stopped {
                        return Err(error);
                    }
                    self.stop.wait_for(&mut stopped, RETRY_INTERVAL);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends all waiting: the member stops.
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.stop.notify_all();
    }
}
