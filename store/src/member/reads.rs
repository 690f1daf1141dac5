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
    mut waiting: mpsc::Receiver<ReadWaiter>,
    patience: Duration,
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
            result = confirm(&group, patience) => result,
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
