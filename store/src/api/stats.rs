//! The log line of a request that took long, in etcd's words. Values are never part of it.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use prost::Message;
use tokio::time::Instant;
use tonic::Request;

use super::context::Context;

/// Bytes of a key that are shown.
const KEY_LEN_MAX: usize = 128;

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

fn key(key: &[u8]) -> String {
    let shown = key.get(..KEY_LEN_MAX).unwrap_or(key);
    let more = if shown.len() < key.len() { "..." } else { "" };
    format!("\"{}{more}\"", shown.escape_ascii())
}

/// A range as it is logged.
pub(super) fn range(request: &rpc::RangeRequest) -> String {
    let numbers = [
        ("limit", request.limit),
        ("revision", request.revision),
        ("sort_order", request.sort_order.into()),
        ("sort_target", request.sort_target.into()),
    ];
    let flags = [
        ("serializable", request.serializable),
        ("keys_only", request.keys_only),
        ("count_only", request.count_only),
    ];
    let mut parts = keys(&request.key, &request.range_end);
    let numbers = numbers.into_iter().filter(|(_, number)| *number != 0);
    parts.extend(numbers.map(|(name, number)| format!("{name}:{number}")));
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    parts.extend(flags.map(|(name, _)| format!("{name}:true")));
    parts.join(" ")
}

/// A put as it is logged.
pub(super) fn put(name: &[u8], value_len: usize, lease: i64) -> String {
    let lease = if lease == 0 {
        String::new()
    } else {
        format!(" lease:{lease}")
    };
    format!("key:{} value_size:{value_len}{lease}", key(name))
}

/// A deletion as it is logged.
pub(super) fn delete(request: &rpc::DeleteRangeRequest) -> String {
    keys(&request.key, &request.range_end).join(" ")
}

fn keys(first: &[u8], end: &[u8]) -> Vec<String> {
    let mut parts = vec![format!("key:{}", key(first))];
    if !end.is_empty() {
        parts.push(format!("range_end:{}", key(end)));
    }
    parts
}

/// How large a transaction is; its content is not looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxnSize {
    compares: usize,
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
            compares: request.compare.len(),
            success: branch(&request.success),
            failure: branch(&request.failure),
        }
    }

    /// Counts and sizes of the branch that was taken.
    pub(super) fn stats(self, response: &rpc::TxnResponse) -> Stats {
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
            content: format!(
                "compares:{} success:{} failure:{}",
                self.compares, self.success.0, self.failure.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_described_without_values_and_with_long_keys_cut() {
        let request = rpc::RangeRequest {
            key: "a\n".into(),
            range_end: "b".into(),
            limit: 7,
            serializable: true,
            ..rpc::RangeRequest::default()
        };
        assert_eq!(
            range(&request),
            r#"key:"a\n" range_end:"b" limit:7 serializable:true"#
        );
        assert_eq!(put(b"k", 1024, 9), r#"key:"k" value_size:1024 lease:9"#);
        assert_eq!(
            put(&[b'k'; 500], 0, 0).len(),
            128 + 3 + 6 + " value_size:0".len()
        );
        let delete_one = rpc::DeleteRangeRequest {
            key: "k".into(),
            ..rpc::DeleteRangeRequest::default()
        };
        assert_eq!(delete(&delete_one), r#"key:"k""#);
    }
}
