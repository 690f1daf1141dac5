//! The store's own calls to the leader: what a follower cannot decide.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::peer::v1 as proto;
use tonic::{Code, ConnectError, Status};

use super::super::machine::to_position;
use super::super::reconfigure::Change;
use super::answer::Answer;
use super::change::to_request;
use super::link::Link;
use super::{Peers, wire};
use crate::apply::LogPosition;
use crate::error::Error;

/// What became of a call to the leader.
#[derive(Debug)]
pub(crate) enum Forwarded<T> {
    /// The leader's answer.
    Answered(T),
    /// It did not reach the leader, or not one that takes it: it may be sent again.
    NotTaken(Error),
    /// It may have reached the leader.
    Unknown,
}

impl<T> Forwarded<T> {
    /// The answer, where a call that got lost may simply count as late.
    pub(crate) fn or_late(self) -> Result<T, Error> {
        match self {
            Self::Answered(answer) => Ok(answer),
            Self::NotTaken(error) => Err(error),
            Self::Unknown => Err(Error::TimeoutDueToConnectionLost),
        }
    }
}

/// The leader, as a follower calls it.
#[derive(Debug, Clone)]
pub(crate) struct LeaderCalls {
    link: Arc<Link>,
}

impl Peers {
    /// The way to the leader `id`, which is reached at `urls`.
    pub(in crate::consensus) fn leader(&self, id: u64, urls: &[String]) -> LeaderCalls {
        LeaderCalls {
            link: self.reach(id, urls),
        }
    }
}

impl LeaderCalls {
    /// Hands `commands` to the leader; one answer to each, in their order.
    pub(crate) async fn propose(
        &self,
        commands: Vec<Bytes>,
        patience: Duration,
    ) -> Forwarded<Vec<Result<LogPosition, Error>>> {
        let count = commands.len();
        let request = proto::ProposeRequest { commands };
        let request = self.link.request_within(request, patience);
        match call(&self.link, self.link.appends().propose(request)).await {
            Forwarded::Answered(response) if response.proposed.len() == count => {
                let answers = response.proposed.into_iter().map(|proposed| {
                    let position = read(proposed)?;
                    Ok(to_position(&wire::from_log_id(position)))
                });
                Forwarded::Answered(answers.collect())
            }
            Forwarded::Answered(_) | Forwarded::Unknown => Forwarded::Unknown,
            Forwarded::NotTaken(error) => Forwarded::NotTaken(error),
        }
    }

    /// Up to where a reader must have applied the log.
    pub(crate) async fn read_index(&self, patience: Duration) -> Result<u64, Error> {
        let request = proto::ReadIndexRequest {};
        let request = self.link.request_within(request, patience);
        let at = self.ask(self.link.calls().read_index(request)).await?;
        Ok(at.index)
    }

    /// Changes the membership on the leader.
    pub(crate) async fn reconfigure(
        &self,
        change: &Change,
        patience: Duration,
    ) -> Forwarded<Result<LogPosition, Error>> {
        let request = self.link.request_within(to_request(change), patience);
        match call(&self.link, self.link.calls().reconfigure(request)).await {
            Forwarded::Answered(response) => match response.read() {
                Some(Ok(at)) => Forwarded::Answered(Ok(to_position(&wire::from_log_id(at)))),
                Some(Err(error)) => Forwarded::Answered(Err(error)),
                None => Forwarded::Unknown,
            },
            Forwarded::NotTaken(error) => Forwarded::NotTaken(error),
            Forwarded::Unknown => Forwarded::Unknown,
        }
    }

    /// Renews a lease on the leader: its granted time to live, in seconds.
    pub(crate) async fn renew_lease(&self, id: i64, patience: Duration) -> Result<i64, Error> {
        let request = proto::LeaseRenewRequest { id };
        let request = self.link.request_within(request, patience);
        self.ask(self.link.calls().lease_renew(request)).await
    }

    /// The time left of a lease, from the leader's clock.
    pub(crate) async fn lease_time(
        &self,
        id: i64,
        keys: bool,
        patience: Duration,
    ) -> Result<proto::LeaseTime, Error> {
        let request = proto::LeaseTimeToLiveRequest { id, keys };
        let request = self.link.request_within(request, patience);
        self.ask(self.link.calls().lease_time_to_live(request))
            .await
    }

    /// Whether the peer knows this member as one that has served clients.
    pub(crate) async fn introduce(&self, patience: Duration) -> Result<bool, Error> {
        let request = proto::IntroduceRequest {};
        let request = self.link.request_within(request, patience);
        let response = call(&self.link, self.link.calls().introduce(request)).await;
        Ok(response.or_late()?.has_served)
    }

    /// The hash of the peer's key-value history at `revision`.
    pub(crate) async fn hash_kv(
        &self,
        revision: i64,
        patience: Duration,
    ) -> Result<proto::HashKv, Error> {
        let request = proto::HashKvRequest { revision };
        let request = self.link.request_within(request, patience);
        self.ask(self.link.calls().hash_kv(request)).await
    }

    /// What the peer answers; a call that got lost counts as late.
    async fn ask<A: Answer>(
        &self,
        asked: impl Future<Output = Result<tonic::Response<A>, Status>>,
    ) -> Result<A::Value, Error> {
        read(call(&self.link, asked).await.or_late()?)
    }
}

fn read<A: Answer>(answer: A) -> Result<A::Value, Error> {
    answer.read().unwrap_or(Err(Error::Timeout))
}

async fn call<T>(
    link: &Link,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Forwarded<T> {
    let answer = call.await.inspect_err(|status| link.note(status));
    match answer {
        Ok(response) => {
            link.traffic.answered();
            Forwarded::Answered(response.into_inner())
        }
        Err(status) if is_unsent(&status) => {
            tracing::debug!(%status, "a call did not reach the leader");
            Forwarded::NotTaken(Error::NoLeader)
        }
        Err(status) => {
            tracing::debug!(%status, "a call to the leader was lost");
            Forwarded::Unknown
        }
    }
}

/// Whether the request was surely not acted on: no connection, or refused at the door.
fn is_unsent(status: &Status) -> bool {
    if status.code() == Code::FailedPrecondition {
        return true;
    }
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
