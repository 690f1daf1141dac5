//! A read at the old revision is told that it is gone, and not served other data.

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use tonic::Code;

use super::{Finding, Subject, failed};
use crate::client::answer;

pub(super) async fn check(subject: &Subject) -> Finding {
    let revision = subject.facts.revision;
    let request = rpc::RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        revision,
        limit: 1,
        ..rpc::RangeRequest::default()
    };
    match answer(subject.client.kv().range(request)).await {
        Ok(_) => failed(format!("revision {revision} can still be read")),
        Err(status) if is_compacted(&status) => Ok(format!(
            "a read at revision {revision} is told that it is compacted"
        )),
        Err(status) => Err(status.into()),
    }
}

fn is_compacted(status: &tonic::Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("has been compacted")
}
