//! Who waits for a command that another member put into the log.
//!
//! A follower hands its command to the leader and takes the outcome from its own apply thread, so
//! that its client reads its own writes here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::apply::{Entry, EntryPayload, LogPosition, Outcome};
use crate::error::Error;

type Sender = oneshot::Sender<(Outcome, LogPosition)>;

/// Those who wait, by the id of their command.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<BTreeMap<u64, Sender>>,
    /// How many: looked at without the lock for every batch.
    count: AtomicUsize,
}

/// A place among the waiters; given up when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    id: u64,
    waiters: Arc<Waiters>,
    outcome: oneshot::Receiver<(Outcome, LogPosition)>,
}

impl Waiters {
    /// Waits for the command `id` from now on.
    pub(crate) fn register(self: &Arc<Self>, id: u64) -> Waiting {
        let (sender, outcome) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        waiting.insert(id, sender);
        self.count.store(waiting.len(), Ordering::Release);
        drop(waiting);
        Waiting {
            id,
            waiters: Arc::clone(self),
            outcome,
        }
    }

    /// Takes those who wait for one of `entries`; each stands at its entry's place.
    pub(super) fn take(&self, entries: &[Entry]) -> Vec<Option<(Sender, LogPosition)>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock();
        let taken = entries.iter().map(|entry| match &entry.payload {
            EntryPayload::Command(command) => {
                let sender = waiting.remove(&command.id)?;
                Some((sender, entry.position))
            }
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        });
        let taken = taken.collect();
        self.count.store(waiting.len(), Ordering::Release);
        taken
    }
}

impl Waiting {
    /// The outcome, once the command is applied here.
    pub(crate) async fn outcome(&mut self) -> Result<(Outcome, LogPosition), Error> {
        (&mut self.outcome).await.or(Err(Error::Stopped))
    }

    /// The outcome, if the command is applied here already.
    pub(crate) fn outcome_now(&mut self) -> Option<(Outcome, LogPosition)> {
        self.outcome.try_recv().ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting.lock();
        waiting.remove(&self.id);
        self.waiters.count.store(waiting.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::store::v1::Command;

    use super::*;
    use crate::apply::Response;

    fn entry(id: u64, index: u64) -> Entry {
        Entry {
            position: LogPosition {
                term: 1,
                node: 0,
                index,
            },
            payload: EntryPayload::Command(Command { id, request: None }),
        }
    }

    #[tokio::test]
    async fn a_waiter_gets_the_outcome_of_its_own_command_once() {
        let waiters = Arc::new(Waiters::default());
        assert!(waiters.take(&[entry(1, 1)]).is_empty(), "nobody waits");
        let mut waiting = waiters.register(2);
        let mut taken = waiters.take(&[entry(1, 5), entry(2, 6)]);
        assert!(taken[0].is_none());
        let (sender, position) = taken[1].take().unwrap();
        sender.send((Ok(Response::Empty), position)).unwrap();
        let (_, position) = waiting.outcome().await.unwrap();
        assert_eq!(position.index, 6);
        assert!(waiters.take(&[entry(2, 6)]).is_empty());
    }

    #[tokio::test]
    async fn one_who_gave_up_is_forgotten() {
        let waiters = Arc::new(Waiters::default());
        drop(waiters.register(2));
        assert!(waiters.take(&[entry(2, 1)]).is_empty());
    }
}
