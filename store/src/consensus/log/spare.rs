//! The next segment, prepared ahead of need on a thread of its own, or left by an earlier process.
//!
//! It is also the log's reserve: as long as it exists, what was admitted fits. When it cannot be
//! made for want of space, the member refuses writes before the log itself runs out.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::segment::{Prepared, SEGMENT_BYTES_MIN};
use crate::consensus::space::{Space, is_no_space};
use crate::consensus::workers::Workers;

/// How often a full disk is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Wanted,
    Ready(Prepared),
    /// Taken, and still under the spare's name.
    Taken,
    Failed(io::Error),
    Stopped,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    size: u64,
    space: Arc<Space>,
    slot: Mutex<Slot>,
    changed: Condvar,
}

/// Prepares spare segments.
#[derive(Debug)]
pub(super) struct Spares {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Spares {
    /// Starts the thread that keeps one spare of `size` bytes in `dir`, unless there are to be no
    /// threads: each is made when it is taken then.
    pub(super) fn start(
        dir: &Path,
        size: u64,
        space: Arc<Space>,
        workers: Workers,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            size,
            space,
            slot: Mutex::default(),
            changed: Condvar::new(),
        });
        if workers == Workers::Tasks {
            return Ok(Self {
                shared,
                thread: None,
            });
        }
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("holdfast-spare".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Takes the spare, which has room for `needed` bytes, and asks for the next one. Waits for
    /// it: on a full disk until there is space.
    pub(super) fn take(&self, needed: u64) -> io::Result<Prepared> {
        let mut slot = self.shared.slot.lock();
        if self.thread.is_none() && matches!(*slot, Slot::Wanted) {
            let size = self.shared.affordable_size().max(needed);
            return Prepared::create(&self.shared.dir, size);
        }
        let prepared = loop {
            match std::mem::replace(&mut *slot, Slot::Taken) {
                Slot::Ready(prepared) => break prepared,
                Slot::Failed(error) => return Err(error),
                Slot::Stopped => {
                    *slot = Slot::Stopped;
                    return Err(io::Error::other("the raft log is closed"));
                }
                Slot::Wanted | Slot::Taken => {
                    *slot = Slot::Wanted;
                    self.shared.changed.wait(&mut slot);
                }
            }
        };
        drop(slot);
        if prepared.size >= needed {
            return Ok(prepared);
        }
        drop(prepared);
        self.shared.create(needed)
    }

    /// Says that the taken spare has got its name, so that the next one can be made.
    pub(super) fn taken(&self) {
        let mut slot = self.shared.slot.lock();
        if matches!(*slot, Slot::Taken) {
            *slot = Slot::Wanted;
        }
        self.shared.changed.notify_all();
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        *self.shared.slot.lock() = Slot::Stopped;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that prepares log segments panicked");
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        let mut left = Prepared::reopen(&self.dir, self.affordable_size());
        loop {
            let made = match std::mem::replace(&mut left, Ok(None)) {
                Ok(Some(left)) => Ok(left),
                Ok(None) => Prepared::create(&self.dir, self.affordable_size()),
                Err(error) => Err(error),
            };
            let mut slot = self.slot.lock();
            if matches!(*slot, Slot::Stopped) {
                return;
            }
            match made {
                Ok(prepared) => {
                    self.space.set_log_short(false);
                    *slot = Slot::Ready(prepared);
                    self.changed.notify_all();
                    self.changed.wait_while(&mut slot, |slot| {
                        matches!(slot, Slot::Ready(_) | Slot::Taken)
                    });
                }
                Err(error) if is_no_space(&error) => {
                    self.space.set_log_short(true);
                    if !self.space.give_up_reserve() {
                        self.changed.wait_for(&mut slot, RETRY_INTERVAL);
                    }
                }
                Err(error) => {
                    *slot = Slot::Failed(error);
                    self.changed.notify_all();
                    return;
                }
            }
            if matches!(*slot, Slot::Stopped) {
                return;
            }
        }
    }

    /// Makes a spare of `size` bytes; waits for space on a full disk.
    fn create(&self, size: u64) -> io::Result<Prepared> {
        loop {
            match Prepared::create(&self.dir, size) {
                Err(error) if is_no_space(&error) => {
                    self.space.set_log_short(true);
                    if self.space.give_up_reserve() {
                        continue;
                    }
                    let mut slot = self.slot.lock();
                    self.changed.wait_for(&mut slot, RETRY_INTERVAL);
                    if matches!(*slot, Slot::Stopped) {
                        return Err(error);
                    }
                }
                made => {
                    self.space.set_log_short(false);
                    return made;
                }
            }
        }
    }

    /// A full segment, or less on a small disk: an eighth of what is free.
    fn affordable_size(&self) -> u64 {
        let free = self.space.free_bytes().unwrap_or(u64::MAX);
        self.size.min((free / 8).max(SEGMENT_BYTES_MIN))
    }
}
