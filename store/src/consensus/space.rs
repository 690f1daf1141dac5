//! What the member knows about its disk being full.
//!
//! A full disk is not a failure: writes are refused with NOSPACE, everything else goes on, and
//! writing resumes when space returns. Three things can say that space is short: the log (no
//! spare segment), the state file (a write met a full disk and waits), and a look at the free
//! bytes that comes before both.
//!
//! What is in the state and not yet in its file will need space too: it counts as taken, at the
//! most that it can take. The less room there is, the less may wait for a checkpoint, so that as
//! long as nobody else takes the space, a checkpoint fits and a compaction makes its way. One that
//! others left no room for is put off rather than begun: the log has it all.
//!
//! See [`super::room`] for who is let in. Space that runs short is often made within a moment: old
//! log segments go, and free pages of the state's file. So what would be refused waits for that
//! first ([`super::room::PATIENCE`]), and a refusal is one that lasts.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::room::{Facts, Shortage};
use crate::backend::LivePages;
use crate::datadir::{Layout, durable};
use crate::error::{Error, ErrorKind};

/// How often a waiting write tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Free bytes are looked at again after this long, or after [`LOOK_BYTES`] of proposals.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const LOOK_BYTES: u64 = 1 << 20;
/// What one transaction may take in the state file beside its rows: copied pages of its trees.
const TRANSACTION_BYTES: u64 = 32 << 10;
/// What a row may take in the state file, in units of its size: its page is a power of two.
const ROW_SHARE: u64 = 2;
/// What a proposal may take, in units of its size: its row, and its entry in the log.
const PROPOSAL_SHARE: u64 = ROW_SHARE + 1;
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
    /// Whether what is not needed any more has to go at once.
    tight: AtomicBool,
    has_reserve: AtomicBool,
    /// Whether the state's file is being rewritten: what does not fit is an error then.
    rewriting: AtomicBool,
    /// Bytes that the next checkpoint may take.
    undurable: AtomicU64,
    /// A checkpoint is due when it may take more.
    undurable_max: AtomicU64,
    /// Bytes of data in the state.
    in_use: AtomicU64,
    /// Where the state's file was written since the last checkpoint began: offset and length.
    written: Mutex<Vec<(u64, u64)>>,
    /// Bytes proposed since the last look.
    unseen: AtomicU64,
    looked: Mutex<Instant>,
    shortage: Mutex<Shortage>,
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
            tight: AtomicBool::new(false),
            has_reserve: AtomicBool::new(dir.join(RESERVE_FILE).exists()),
            rewriting: AtomicBool::new(false),
            undurable: AtomicU64::new(0),
            undurable_max: AtomicU64::new(u64::MAX),
            in_use: AtomicU64::new(0),
            written: Mutex::default(),
            unseen: AtomicU64::new(0),
            looked: Mutex::new(Instant::now()),
            shortage: Mutex::default(),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        }
    }

    /// Whether writes must not be let in now.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.log_short.load(Ordering::Relaxed)
            || self.state_short.load(Ordering::Relaxed)
            || self.disk_low.load(Ordering::Relaxed)
    }

    /// Whether space is short for so long that it does not come back by itself.
    pub(crate) fn is_exhausted_for_long(&self) -> bool {
        self.shortage.lock().is_long(Instant::now())
    }

    /// Whether the state's file cannot be written: what is proposed now would not be durable in
    /// it for long.
    pub(crate) fn is_state_short(&self) -> bool {
        self.state_short.load(Ordering::Relaxed)
    }

    /// Whether there is so little room that what is not needed any more has to go at once.
    pub(crate) fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Says what the next checkpoint has to write, rows of `bytes` in so many transactions, and
    /// how much data the state holds.
    pub(crate) fn set_undurable(&self, bytes: u64, transactions: u64, in_use: u64) {
        let copied = transactions.saturating_mul(TRANSACTION_BYTES);
        let rows = bytes.saturating_mul(ROW_SHARE);
        self.undurable
            .store(rows.saturating_add(copied), Ordering::Relaxed);
        self.in_use.store(in_use, Ordering::Relaxed);
    }

    /// Whether as much waits for a checkpoint as the room allows.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.undurable.load(Ordering::Relaxed) > self.undurable_max.load(Ordering::Relaxed)
    }

    /// Notes that `bytes` are proposed while `pending` are on their way, and looks at the disk
    /// when it is time.
    pub(crate) fn propose(&self, bytes: usize, pending: u64) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let unseen = self
            .unseen
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        let is_urgent = unseen >= LOOK_BYTES || self.is_tight();
        self.look_when_due(is_urgent, pending.saturating_add(bytes));
    }

    /// Looks at the disk for those that wait for space, `pending` being on their way.
    pub(crate) fn look_again(&self, pending: u64) {
        self.look_when_due(false, pending);
    }

    /// Looks at the disk unless somebody does, or did a moment ago and it is not urgent.
    fn look_when_due(&self, is_urgent: bool, proposed: u64) {
        let Some(mut looked) = self.looked.try_lock() else {
            return;
        };
        if !is_urgent && looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        *looked = Instant::now();
        drop(looked);
        if let Err(error) = self.look(proposed) {
            tracing::debug!(%error, "cannot look at the free space");
        }
    }

    /// Notes that a checkpoint begins: what was written before is part of it.
    pub(crate) fn begin_checkpoint(&self) {
        self.written.lock().clear();
    }

    /// Runs a write of the state's file.
    pub(super) fn write(
        &self,
        (offset, len): (u64, usize),
        write: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let len = u64::try_from(len).map_err(io::Error::other)?;
        self.written.lock().push((offset, len));
        self.until_it_fits(write)
    }

    /// Gives what the state's file holds outside of `live` back to the disk. All that is written
    /// of it since the last checkpoint began stays.
    pub(crate) fn give_back(&self, mut live: LivePages) -> io::Result<()> {
        // Held, so that nothing is written meanwhile.
        let written = self.written.lock();
        for (offset, len) in written.iter() {
            live.add(*offset, *len);
        }
        let file = OpenOptions::new()
            .write(true)
            .open(Layout::new(&self.dir).state())?;
        let len = file.metadata()?.len();
        for (offset, len) in live.gaps(len) {
            durable::punch_hole(&file, offset, len)?;
        }
        durable::sync_data(&file)
    }

    /// Runs a rewrite of the state's file with its data beside it, which may take the reserve.
    /// `NoSpaceToRewrite` when it does not fit; nothing is changed then.
    pub(crate) fn rewrite(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let failed = |source| Error::Io {
            doing: "look at the free space",
            source,
        };
        let room = self.room_bytes().map_err(failed)?;
        let in_use = self.in_use.load(Ordering::Relaxed);
        let too_small = Error::NoSpaceToRewrite {
            needed_bytes: in_use.saturating_mul(ROW_SHARE),
            free_bytes: room,
        };
        // It may take more, which only the attempt can tell.
        if room < in_use {
            return Err(too_small);
        }
        if self.free_bytes().map_err(failed)? < in_use.saturating_mul(ROW_SHARE) {
            self.give_up_reserve();
        }
        self.rewriting.store(true, Ordering::Relaxed);
        let result = work();
        self.rewriting.store(false, Ordering::Relaxed);
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Exhausted => Err(too_small),
            Err(error) => Err(error),
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

    /// Removes the reserve file; whether it was there.
    pub(crate) fn give_up_reserve(&self) -> bool {
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
        let mut shortage = self.shortage.lock();
        shortage.note(self.is_exhausted(), Instant::now());
        drop(shortage);
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

    /// Bytes that may be taken of the disk, the reserve file's among them.
    pub(crate) fn room_bytes(&self) -> io::Result<u64> {
        let is_there = self.has_reserve.load(Ordering::Relaxed);
        let reserve = if is_there { self.reserve_bytes } else { 0 };
        Ok(self.free_bytes()?.saturating_add(reserve))
    }

    /// Looks at the disk and keeps the reserve file. Called about twice a second.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.look(0)?;
        let is_missing = !self.has_reserve.load(Ordering::Relaxed);
        if is_missing && self.free_bytes()? >= self.reserve_bytes.saturating_mul(2) {
            self.restore_reserve()?;
        }
        Ok(())
    }

    /// Refuses writes before the disk is full.
    fn look(&self, proposed: u64) -> io::Result<()> {
        self.unseen.store(0, Ordering::Relaxed);
        let undurable = self.undurable.load(Ordering::Relaxed);
        let facts = Facts {
            room: self.room_bytes()?,
            reserve: self.reserve_bytes,
            needed: undurable.saturating_add(proposed.saturating_mul(PROPOSAL_SHARE)),
            is_low: self.disk_low.load(Ordering::Relaxed),
        };
        self.undurable_max
            .store(facts.undurable_max(), Ordering::Relaxed);
        self.tight.store(facts.is_tight(), Ordering::Relaxed);
        let is_low = facts.refuses();
        if self.disk_low.swap(is_low, Ordering::Relaxed) != is_low {
            self.report("disk", is_low);
        }
        Ok(())
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
                Err(error) if is_no_space(&error) && !self.rewriting.load(Ordering::Relaxed) => {
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
