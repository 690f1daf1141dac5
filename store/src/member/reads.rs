//! Linearizable reads, in batches: everyone who asks while a round is under way shares the next.
//!
//! A round never serves a reader who came after it began, and a failed round is not retried under
//! the same index: a process that was paused in between must not answer from before the pause.

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::consensus::Group;
use crate::error::Error;

/// Readers served by one round.
const ROUND_MAX: usize = 4096;

pub(super) type ReadWaiter = oneshot::Sender<Result<(), Error>>;

/// Serves rounds until the member stops.
pub(super) async fn serve(
    group: Group,
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
            result = group.read_index() => result,
        };
        for reader in round.drain(..) {
            let answer = match &result {
                Ok(()) => Ok(()),
                Err(Error::NoLeader) => Err(Error::NoLeader),
                Err(Error::Stopped) => Err(Error::Stopped),
                Err(_) => Err(Error::Timeout),
            };
            // A reader that gave up is no error.
            drop(reader.send(answer));
        }
    }
}
