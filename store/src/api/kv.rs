//! The KV service.

use std::pin::Pin;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::Stream;
use holdfast_proto::etcd::rpc::{self, kv_server::Kv};
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::context::{Context, blocking};
use super::quota;
use super::stats::{self, Stats, Timer, TxnSize};
use super::status::status;
use super::{validate, words};
use crate::apply;
use crate::command::Request as Command;
use crate::error::Error;
use crate::failpoint::{self, Point};

/// Ranges of at most so many pairs are read where they arrive; larger ones elsewhere.
const INLINE_PAIRS_MAX: i64 = 64;

/// Pairs of the first piece of a streamed range.
const FIRST_PIECE_PAIRS: i64 = 10;

/// Answers the KV service.
#[derive(Debug, Clone)]
pub(super) struct KvService {
    context: Context,
}

impl KvService {
    pub(super) fn new(context: Context) -> KvService {
        KvService { context }
    }

    /// Puts a command through the log.
    async fn propose(&self, command: Command) -> Result<apply::Response, Status> {
        let applied = self.context.member().propose(command).await;
        applied
            .map(|applied| applied.response)
            .map_err(|error| status(&error))
    }

    fn check_size(&self, request: &impl prost::Message) -> Result<(), Error> {
        validate::size(request, self.context.options().limits.request_bytes_max)
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(
        &self,
        request: Request<rpc::RangeRequest>,
    ) -> Result<Response<rpc::RangeResponse>, Status> {
        let timer = Timer::start(&self.context, &request, "/etcdserverpb.KV/Range");
        if !request.get_ref().serializable {
            self.context.check_voter().map_err(|error| status(&error))?;
        }
        self.context.admit_on_learner(request.metadata())?;
        let request = request.into_inner();
        validate::range(&request).map_err(|error| status(&error))?;
        if !request.serializable {
            linearizable(&self.context).await?;
        }
        let is_small = request.range_end.is_empty()
            || (1..=INLINE_PAIRS_MAX).contains(&request.limit) && request.sort_order == 0;
        let state = self.context.state();
        let start = Instant::now();
        let read = if is_small {
            state.range(&request).map_err(|error| status(&error))
        } else {
            let (state, request) = (state.clone(), request.clone());
            blocking(move || state.range(&request)).await
        };
        let seconds = &self.context.metrics().range_seconds;
        seconds.observe(read.is_ok(), start.elapsed());
        let mut response = read?;
        response.header = Some(self.context.complete(response.header));
        timer.end(|| Stats {
            request_count: 0,
            request_size: stats::size(&request),
            response_count: response.count,
            response_size: stats::size(&response),
            content: words::range(&request),
        });
        Ok(Response::new(response))
    }

    type RangeStreamStream =
        Pin<Box<dyn Stream<Item = Result<rpc::RangeStreamResponse, Status>> + Send>>;

    async fn range_stream(
        &self,
        request: Request<rpc::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        validate::range_stream(&request)?;
        if !request.serializable {
            linearizable(&self.context).await?;
        }
        let pieces = Pieces::new(self.context.clone(), request);
        let stream = futures::stream::try_unfold(pieces, |mut pieces| async move {
            failpoint::pause(Point::BeforeRangeStreamChunk).await;
            let piece = pieces.next().await?;
            Ok(piece.map(|piece| {
                (
                    rpc::RangeStreamResponse {
                        range_response: Some(piece),
                    },
                    pieces,
                )
            }))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn put(
        &self,
        request: Request<rpc::PutRequest>,
    ) -> Result<Response<rpc::PutResponse>, Status> {
        let timer = Timer::start(&self.context, &request, "/etcdserverpb.KV/Put");
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        validate::put(&request)
            .and_then(|()| self.check_size(&request))
            .map_err(|error| status(&error))?;
        quota::check(&self.context, quota::put_bytes(&request))
            .await
            .map_err(|error| status(&error))?;
        let (key, lease) = (request.key.clone(), request.lease);
        let (value_len, request_size) = (request.value.len(), stats::size(&request));
        let apply::Response::Put(mut response) = self.propose(Command::Put(request)).await? else {
            return Err(wrong_answer());
        };
        response.header = Some(self.context.complete(response.header));
        timer.end(|| Stats {
            request_count: 1,
            request_size,
            response_count: 0,
            response_size: stats::size(&response),
            content: words::put(&key, value_len, lease),
        });
        Ok(Response::new(response))
    }

    async fn delete_range(
        &self,
        request: Request<rpc::DeleteRangeRequest>,
    ) -> Result<Response<rpc::DeleteRangeResponse>, Status> {
        let timer = Timer::start(&self.context, &request, "/etcdserverpb.KV/DeleteRange");
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        validate::delete_range(&request)
            .and_then(|()| self.check_size(&request))
            .map_err(|error| status(&error))?;
        let response = self.propose(Command::DeleteRange(request.clone())).await?;
        let apply::Response::DeleteRange(mut response) = response else {
            return Err(wrong_answer());
        };
        response.header = Some(self.context.complete(response.header));
        timer.end(|| Stats {
            request_count: 0,
            request_size: stats::size(&request),
            response_count: response.deleted,
            response_size: stats::size(&response),
            content: words::delete(&request),
        });
        Ok(Response::new(response))
    }

    async fn txn(
        &self,
        request: Request<rpc::TxnRequest>,
    ) -> Result<Response<rpc::TxnResponse>, Status> {
        let timer = Timer::start(&self.context, &request, "/etcdserverpb.KV/Txn");
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        let size = TxnSize::of(&request);
        validate::txn(&request, self.context.options().limits.txn_ops_max)
            .map_err(|error| status(&error))?;
        let mut response = if validate::is_read_only(&request) {
            if !validate::is_serializable(&request) {
                linearizable(&self.context).await?;
            }
            let state = self.context.state().clone();
            blocking(move || state.txn(&request)).await?
        } else {
            self.check_size(&request).map_err(|error| status(&error))?;
            let bytes = quota::txn_bytes(&request);
            quota::check(&self.context, bytes)
                .await
                .map_err(|error| status(&error))?;
            match self.propose(Command::Txn(request)).await? {
                apply::Response::Txn(response) => response,
                _ => return Err(wrong_answer()),
            }
        };
        response.header = Some(self.context.complete(response.header));
        timer.end(|| size.stats(&response));
        Ok(Response::new(response))
    }

    async fn compact(
        &self,
        request: Request<rpc::CompactionRequest>,
    ) -> Result<Response<rpc::CompactionResponse>, Status> {
        self.context.admit(request.metadata())?;
        let request = request.into_inner();
        let is_physical = request.physical;
        let response = self.propose(Command::Compact(request)).await?;
        let apply::Response::Compact(mut response) = response else {
            return Err(wrong_answer());
        };
        if is_physical {
            let finished = self.context.member().compaction_finished().await;
            finished.map_err(|error| status(&error))?;
        }
        response.header = Some(self.context.header());
        Ok(Response::new(response))
    }
}

/// Waits until everything acknowledged before can be read.
async fn linearizable(context: &Context) -> Result<(), Status> {
    context
        .member()
        .linearizable()
        .await
        .map_err(|error| status(&error))
}

/// A command was answered as if it were another one.
fn wrong_answer() -> Status {
    Status::internal("etcdserver: the command was answered with another command's response")
}

/// A range, read piece by piece at one revision.
#[derive(Debug)]
struct Pieces {
    context: Context,
    request: rpc::RangeRequest,
    /// Pairs still wanted; `None` is no limit.
    left: Option<i64>,
    limit: i64,
    count: i64,
    revision: i64,
    is_done: bool,
}

impl Pieces {
    fn new(context: Context, request: rpc::RangeRequest) -> Pieces {
        let left = (request.limit > 0).then_some(request.limit);
        Pieces {
            context,
            request,
            left,
            limit: FIRST_PIECE_PAIRS,
            count: 0,
            revision: 0,
            is_done: false,
        }
    }

    async fn next(&mut self) -> Result<Option<rpc::RangeResponse>, Status> {
        if self.is_done {
            return Ok(None);
        }
        if self.request.count_only {
            self.is_done = true;
            let response = self.read(self.request.clone(), false).await?;
            let header = response
                .header
                .map(|header| self.context.header_at(header.revision));
            return Ok(Some(rpc::RangeResponse {
                header,
                count: response.count,
                ..Default::default()
            }));
        }
        let limit = self.left.map_or(self.limit, |left| left.min(self.limit));
        let request = rpc::RangeRequest {
            limit,
            ..self.request.clone()
        };
        let response = self.read(request, true).await?;
        if self.revision == 0 {
            self.revision = response.header.map_or(0, |header| header.revision);
            if self.request.revision == 0 {
                self.request.revision = self.revision;
            }
        }
        let pairs = i64::try_from(response.kvs.len()).unwrap_or(i64::MAX);
        self.count += pairs;
        self.left = self.left.map(|left| left.saturating_sub(pairs));
        self.adjust(response.encoded_len());
        let last = response.kvs.last().map(|kv| kv.key.clone());
        let mut piece = rpc::RangeResponse {
            kvs: response.kvs,
            ..Default::default()
        };
        match last {
            Some(last) if response.more => {
                self.request.key = successor(&last);
                self.is_done = self.left == Some(0);
                if self.is_done {
                    piece.more = true;
                    self.count += self.count_rest().await?;
                }
            }
            _ => self.is_done = true,
        }
        if self.is_done {
            piece.header = Some(self.context.header_at(self.revision));
            piece.count = self.count;
        }
        Ok(Some(piece))
    }

    async fn count_rest(&self) -> Result<i64, Status> {
        let rest = rpc::RangeRequest {
            count_only: true,
            limit: 0,
            ..self.request.clone()
        };
        Ok(self.read(rest, false).await?.count)
    }

    async fn read(
        &self,
        request: rpc::RangeRequest,
        is_page: bool,
    ) -> Result<rpc::RangeResponse, Status> {
        let state = self.context.state().clone();
        blocking(move || {
            if is_page {
                state.range_page(&request)
            } else {
                state.range(&request)
            }
        })
        .await
    }

    /// Aims the next piece at the size of a request.
    fn adjust(&mut self, bytes: usize) {
        let target = self.context.options().limits.request_bytes_max;
        if bytes < target / 2 {
            self.limit = self.limit.saturating_mul(2);
        } else if bytes > target.saturating_mul(2) {
            self.limit = (self.limit / 2).max(1);
        }
    }
}

/// The smallest key after `key`.
fn successor(key: &Bytes) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.put_u8(0);
    next.freeze()
}
