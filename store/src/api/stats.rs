//! The log line of a request that took long, in etcd's words. Values are never part of it.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use prost::Message;
use tokio::time::Instant;
use tonic::Request;

use super::context::Context;
use super::words::TxnWords;

/// Where a connection comes from; carried by each of its requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remote(pub(super) SocketAddr);

/// What a request and its answer were; -1: not counted for this call.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) request_count: i64,
    pub(super) request_size: i64,
    pub(super) response_count: i64,
    pub(super) response_size: i64,
    /// The request in words, without values.
    pub(super) content: String,
}

impl Stats {
    /// Of a call whose content is not looked at.
    pub(super) const UNKNOWN: Stats = Stats {
        request_count: -1,
        request_size: -1,
        response_count: -1,
        response_size: -1,
        content: String::new(),
    };
}

/// Times one request.
#[derive(Debug)]
pub(super) struct Timer {
    start: Instant,
    limit: Duration,
    method: &'static str,
    remote: Option<Remote>,
}

impl Timer {
    pub(super) fn start<T>(context: &Context, request: &Request<T>, method: &'static str) -> Timer {
        Timer {
            start: Instant::now(),
            limit: context.options().limits.slow_request,
            method,
            remote: request.extensions().get().copied(),
        }
    }

    /// Logs the request when it took longer than the limit.
    pub(super) fn end(self, stats: impl FnOnce() -> Stats) {
        let spent = self.start.elapsed();
        if spent > self.limit {
            log(self.method, spent, self.remote, &stats());
        }
    }
}

/// Writes the line.
pub(super) fn log(method: &str, spent: Duration, remote: Option<Remote>, stats: &Stats) {
    let remote = remote.map_or_else(
        || "No remote client info.".to_owned(),
        |Remote(address)| address.to_string(),
    );
    tracing::warn!(
        "time spent" = ?spent,
        remote,
        "response type" = method,
        "request count" = stats.request_count,
        "request size" = stats.request_size,
        "response count" = stats.response_count,
        "response size" = stats.response_size,
        "request content" = stats.content,
        "request stats"
    );
}

/// The size of a message on the wire.
pub(super) fn size<M: Message>(message: &M) -> i64 {
    i64::try_from(message.encoded_len()).unwrap_or(i64::MAX)
}

/// How large a transaction is, and its words.
#[derive(Debug)]
pub(super) struct TxnSize {
    words: TxnWords,
    success: (usize, i64),
    failure: (usize, i64),
}

impl TxnSize {
    pub(super) fn of(request: &rpc::TxnRequest) -> TxnSize {
        let branch = |operations: &[rpc::RequestOp]| {
            let bytes = operations.iter().map(size).fold(0, i64::saturating_add);
            (operations.len(), bytes)
        };
        TxnSize {
            words: TxnWords::of(request),
            success: branch(&request.success),
            failure: branch(&request.failure),
        }
    }

    /// Counts and sizes of the branch that was taken.
    pub(super) fn stats(&self, response: &rpc::TxnResponse) -> Stats {
        let (count, bytes) = if response.succeeded {
            self.success
        } else {
            self.failure
        };
        Stats {
            request_count: i64::try_from(count).unwrap_or(i64::MAX),
            request_size: bytes,
            response_count: 0,
            response_size: size(response),
            content: self.words.text(),
        }
    }
}
