//! What the apply thread does between its jobs: checkpoints, compactions, and room on the disk.

use std::time::Duration;

use tokio::time::Instant;

use super::apply_thread::{Worker, answer, describe};
use crate::apply::CompactionProgress;
use crate::error::Error;

/// How often what readers of an older state hold up is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Pages that a transaction frees can be used again once the one after it is durable and no reader
/// of the state before them is left.
const CHECKPOINTS_TO_FREE: usize = 2;

/// When free pages of the state's file go back to the disk.
#[derive(Debug, Default)]
pub(super) struct GivingBack {
    /// Whether the disk had little room at the last look.
    was_tight: bool,
    pub(super) due: Option<Instant>,
}

impl Worker {
    /// Makes the state durable, or puts it off while the disk has no room: the log has it all.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        self.note_undurable();
        self.is_put_off = !self.space.has_room_for_checkpoint();
        if self.is_put_off {
            self.dirty_since = Some(Instant::now());
            return Ok(());
        }
        self.space.begin_checkpoint();
        let start = Instant::now();
        self.applier.checkpoint()?;
        if let Some(observer) = &self.shared.observer {
            observer.checkpointed(start.elapsed());
        }
        self.dirty_since = None;
        self.transactions = 0;
        self.note_undurable();
        self.publish_position();
        Ok(())
    }

    pub(super) fn defragment(&mut self) -> Result<(), Error> {
        let checkpointed = self.checkpoint();
        self.check(&checkpointed);
        checkpointed?;
        if self.is_put_off {
            return Err(Error::NoSpace);
        }
        match self.space.rewrite(|| self.applier.defragment()) {
            // What it is for can be had without a second file.
            Err(error @ Error::NoSpaceToRewrite { .. }) => match self.give_back_now() {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(error),
            },
            result => {
                self.publish_position();
                result
            }
        }
    }

    pub(super) fn note_undurable(&self) {
        let dirty = self.applier.dirty_bytes();
        self.space
            .set_undurable(dirty, self.transactions, self.applier.in_use_bytes());
    }

    /// Checkpoints and compaction between jobs.
    pub(super) fn upkeep(&mut self) -> Result<(), Error> {
        if self.compacting && !self.is_put_off {
            self.compact_step()?;
        }
        if self.dirty_since.is_some() && self.is_checkpoint_due() {
            self.checkpoint()?;
        }
        self.give_back()
    }

    /// A step of a compaction. On a disk with little room each is followed by a checkpoint, so
    /// that the next one finds the pages that it freed.
    fn compact_step(&mut self) -> Result<(), Error> {
        let progress = self.applier.compact_step()?;
        if !matches!(progress, CompactionProgress::Idle) {
            self.transactions += 1;
            self.dirty_since.get_or_insert_with(Instant::now);
            self.note_undurable();
            if self.space.is_tight() {
                self.checkpoint()?;
            }
        }
        if matches!(progress, CompactionProgress::Finished { .. }) && self.space.is_tight() {
            self.giving_back.due = Some(Instant::now());
        }
        if !matches!(progress, CompactionProgress::Working) {
            self.compacting = false;
            for done in self.compacted.drain(..) {
                answer(done, Ok(()));
            }
        }
        Ok(())
    }

    /// On a disk with little room, gives the free pages of the state's file back to it: once when
    /// it gets tight, and after each compaction.
    fn give_back(&mut self) -> Result<(), Error> {
        let is_tight = self.space.is_tight();
        let was_tight = std::mem::replace(&mut self.giving_back.was_tight, is_tight);
        if is_tight && !was_tight {
            self.giving_back.due.get_or_insert_with(Instant::now);
        }
        if !is_tight {
            self.giving_back.due = None;
        }
        if self.giving_back.due.is_none_or(|due| Instant::now() < due) {
            return Ok(());
        }
        // Readers of an older state are waited for.
        self.giving_back.due = Some(Instant::now() + RETRY_INTERVAL);
        match self.give_back_now() {
            Ok(true) => self.giving_back.due = None,
            Ok(false) => {}
            Err(error) if self.applier.is_usable() => {
                self.giving_back.due = None;
                let reason = describe(&error);
                tracing::warn!(%reason, "cannot give free pages of the state back to the disk");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether free pages could be given back: no reader of an older state holds them.
    fn give_back_now(&mut self) -> Result<bool, Error> {
        for _ in 0..CHECKPOINTS_TO_FREE {
            self.checkpoint()?;
        }
        if self.is_put_off {
            return Ok(false);
        }
        let Some(live) = self.applier.live_pages()? else {
            return Ok(false);
        };
        let given = self.space.give_back(live);
        given.map_err(|source| Error::Io {
            doing: "give free pages back to the disk",
            source,
        })?;
        Ok(true)
    }
}
