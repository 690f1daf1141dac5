//! Linearizable reads, in batches: everyone who asks while a round is under way shares the next.
//!
//! A follower asks the leader for the position to read at and waits until it has applied it. A
//! round never serves a reader who came after it began, and a failed round is not retried under
//! the same index: a process that was paused in between must not answer from before the pause.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::consensus::Group;
use crate::error::Error;
use crate::failpoint::{self, Point};

/// Readers waiting for a round.
pub(super) const READERS_MAX: usize = 16_384;
/// Readers served by one round.
const ROUND_MAX: usize = 4096;
/// How long to wait for another leader before looking again.
const LEADER_PAUSE: Duration = Duration::from_millis(20);

pub(super) type ReadWaiter = oneshot::Sender<Result<(), Error>>;

/// Serves rounds until the member stops.
pub(super) async fn serve(
    group: Group,
    waiting: mpsc::Receiver<ReadWaiter>,
    patience: Duration,
    stopping: CancellationToken,
) {
    rounds(|| confirm(&group, patience), waiting, stopping).await;
}

/// One confirmation a round, for all who asked before it began.
async fn rounds<C: Future<Output = Result<(), Error>>>(
    confirm: impl Fn() -> C,
    mut waiting: mpsc::Receiver<ReadWaiter>,
    stopping: CancellationToken,
) {
    let mut round = Vec::new();
    loop {
        tokio::select! {
            () = stopping.cancelled() => break,
            count = waiting.recv_many(&mut round, ROUND_MAX) => if count == 0 { break },
        }
        let result = tokio::select! {
            () = stopping.cancelled() => Err(Error::Stopped),
            result = confirm() => result,
            // Nobody waits for it any more, here or at the leader.
            () = abandoned(&mut round) => Err(Error::Timeout),
        };
        if failpoint::pause(Point::BugReadJoinsOldRound).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
            while let Ok(reader) = waiting.try_recv() {
                round.push(reader);
            }
        }
        for reader in round.drain(..) {
            let answer = match &result {
                Ok(()) => Ok(()),
                Err(Error::NoLeader) => Err(Error::NoLeader),
                Err(Error::Stopped) => Err(Error::Stopped),
                Err(Error::TimeoutWaitApplied) => Err(Error::TimeoutWaitApplied),
                Err(_) => Err(Error::Timeout),
            };
            // A reader that gave up is no error.
            drop(reader.send(answer));
        }
    }
}

/// Returns once all readers have given up.
async fn abandoned(round: &mut [ReadWaiter]) {
    for reader in round {
        reader.closed().await;
    }
}

/// Confirms a read, with another leader when the first one is lost: each attempt is a new round.
async fn confirm(group: &Group, patience: Duration) -> Result<(), Error> {
    let mut leadership = group.leadership();
    let attempts = async {
        loop {
            match group.read_index(patience).await {
                Err(
                    Error::NoLeader
                    | Error::NotLeader
                    | Error::LeaderChanged
                    | Error::Timeout
                    | Error::TimeoutDueToConnectionLost,
                ) => {}
                result => return result,
            }
            let changed = timeout(LEADER_PAUSE, leadership.changed()).await;
            if changed == Ok(false) {
                return Err(Error::Stopped);
            }
        }
    };
    timeout(patience, attempts)
        .await
        .unwrap_or(Err(Error::Timeout))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::sync::{Notify, Semaphore};
    use tokio::task::JoinSet;

    use super::*;

    const READERS: usize = 1000;

    /// Rounds of which each waits for a permit; how many began, and the way to ask.
    struct Rounds {
        begun: Arc<AtomicUsize>,
        permits: Arc<Semaphore>,
        next: Arc<Notify>,
        ask: mpsc::Sender<ReadWaiter>,
        serving: JoinSet<()>,
    }

    impl Rounds {
        fn start() -> Rounds {
            let (ask, waiting) = mpsc::channel(READERS_MAX);
            let (begun, next) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
            let permits = Arc::new(Semaphore::new(0));
            let seen = (Arc::clone(&begun), Arc::clone(&permits), Arc::clone(&next));
            let confirm = move || {
                let (begun, permits, next) = seen.clone();
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    next.notify_one();
                    permits.acquire().await.unwrap().forget();
                    Ok(())
                }
            };
            let mut serving = JoinSet::new();
            serving.spawn(rounds(confirm, waiting, CancellationToken::new()));
            Rounds {
                begun,
                permits,
                next,
                ask,
                serving,
            }
        }

        async fn ask(&self) -> oneshot::Receiver<Result<(), Error>> {
            let (done, answer) = oneshot::channel();
            self.ask.send(done).await.unwrap();
            answer
        }

        async fn end(mut self) {
            drop(self.ask);
            self.serving.join_next().await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn all_readers_that_come_during_a_round_share_the_next_confirmation() {
        let rounds = Rounds::start();
        let first = rounds.ask().await;
        rounds.next.notified().await;
        let readers = join_all((0..READERS).map(|_| rounds.ask())).await;
        assert_eq!(rounds.begun.load(Ordering::SeqCst), 1);
        rounds.permits.add_permits(1);
        first.await.unwrap().unwrap();
        rounds.next.notified().await;
        let mut readers = readers.into_iter();
        let mut early = readers.next().unwrap();
        assert!(early.try_recv().is_err(), "not served by the round before");
        rounds.permits.add_permits(1);
        early.await.unwrap().unwrap();
        for served in join_all(readers).await {
            served.unwrap().unwrap();
        }
        let begun = rounds.begun.load(Ordering::SeqCst);
        assert_eq!(begun, 2, "{READERS} readers share one confirmation");
        rounds.end().await;
    }

    #[tokio::test]
    async fn a_round_that_nobody_waits_for_any_more_is_given_up() {
        let rounds = Rounds::start();
        let given_up = [rounds.ask().await, rounds.ask().await];
        rounds.next.notified().await;
        drop(given_up);
        // Without a permit for the one before.
        let reader = rounds.ask().await;
        rounds.next.notified().await;
        rounds.permits.add_permits(1);
        reader.await.unwrap().unwrap();
        rounds.end().await;
    }
}
