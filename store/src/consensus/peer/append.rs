//! The stream of log entries to one follower: many requests on their way, answers in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use openraft::base::BoxStream;
use openraft::errors::RPCError;
use openraft::network::RPCTypes;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use tonic::{Status, Streaming};

use super::super::types::TypeConfig;
use super::link::Link;
use super::network::{failure, late, malformed};
use super::wire;
use crate::failpoint::{self, Point};
use holdfast_proto::peer::v1 as proto;

/// Requests without an answer after which no more are sent.
const IN_FLIGHT_MAX: usize = 64;
/// A follower that owes an answer for so long is asked anew: its disk may be slow, not gone.
const STALL: Duration = Duration::from_secs(10);

type Answers<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>;

/// Sends `requests`; the answers come as the follower's disk has the entries.
pub(super) async fn stream(
    link: &Arc<Link>,
    requests: impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    patience: Duration,
) -> Result<Answers<'static>, RPCError<TypeConfig>> {
    let flight = Arc::new(Flight::default());
    let outbound = outbound(requests, Arc::clone(&flight));
    let mut client = link.appends();
    // The answer's head comes at once, before any entry is on the follower's disk.
    let patience = patience.max(Duration::from_secs(1));
    let opening = client.append(link.request(outbound));
    let inbound = match tokio::time::timeout(patience, opening).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => {
            return Err(failure(link, &status, RPCTypes::AppendEntries, patience));
        }
        Err(_elapsed) => return Err(late(link, RPCTypes::AppendEntries, patience)),
    };
    let answers = Inbound {
        link: Arc::clone(link),
        stream: inbound,
        flight,
    };
    let answers = futures::stream::unfold(Some(answers), |state| async move {
        let mut state = state?;
        match state.next().await? {
            Ok(answer) => Some((Ok(answer), Some(state))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(answers.boxed())
}

/// What is on its way.
#[derive(Debug)]
struct Flight {
    places: Arc<tokio::sync::Semaphore>,
    owed: AtomicUsize,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            places: Arc::new(tokio::sync::Semaphore::new(IN_FLIGHT_MAX)),
            owed: AtomicUsize::new(0),
        }
    }
}

fn outbound(
    requests: impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    flight: Arc<Flight>,
) -> impl Stream<Item = proto::AppendRequest> + Send + 'static {
    let state = (Box::pin(requests), flight);
    futures::stream::unfold(state, |(mut requests, flight)| async move {
        // A place is given back with the answer; the semaphore is never closed.
        let place = flight.places.acquire().await.ok()?;
        let request = requests.next().await?;
        place.forget();
        flight.owed.fetch_add(1, Ordering::AcqRel);
        failpoint::pause(Point::RaftBeforeLeaderSend).await;
        match wire::to_append(request) {
            Ok(message) => Some((message, (requests, flight))),
            Err(error) => {
                // The stream ends here; raft sees an unanswered request and asks anew.
                tracing::error!(%error, "a log entry cannot be sent");
                None
            }
        }
    })
}

struct Inbound {
    link: Arc<Link>,
    stream: Streaming<proto::AppendResponse>,
    flight: Arc<Flight>,
}

impl Inbound {
    async fn next(
        &mut self,
    ) -> Option<Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>> {
        let message = loop {
            match tokio::time::timeout(STALL, self.stream.message()).await {
                Ok(message) => break message,
                // Nothing was asked meanwhile.
                Err(_) if self.flight.owed.load(Ordering::Acquire) == 0 => {}
                Err(_elapsed) => {
                    return Some(Err(late(&self.link, RPCTypes::AppendEntries, STALL)));
                }
            }
        };
        Some(match message {
            Ok(Some(response)) => {
                self.link.traffic.answered();
                self.flight.owed.fetch_sub(1, Ordering::AcqRel);
                self.flight.places.add_permits(1);
                wire::from_append_response(response).map_err(|error| malformed(&self.link, &error))
            }
            Ok(None) if self.flight.owed.load(Ordering::Acquire) == 0 => return None,
            Ok(None) => {
                let cut = Status::unavailable("it ended the stream of entries");
                Err(failure(&self.link, &cut, RPCTypes::AppendEntries, STALL))
            }
            Err(status) => Err(failure(&self.link, &status, RPCTypes::AppendEntries, STALL)),
        })
    }
}
