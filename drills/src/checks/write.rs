//! A write is accepted, gets the next revision, is read back, and can be deleted.

use bytes::Bytes;
use holdfast_proto::etcd::rpc;

use super::{Finding, Subject, failed};
use crate::client::answer;

pub(super) async fn check(subject: &Subject) -> Finding {
    let key: Bytes = format!("holdfast-drill/{}", subject.facts.id).into();
    let value: Bytes = format!("written by drill {}", subject.facts.id).into();
    let mut kv = subject.client.kv();
    let put = rpc::PutRequest {
        key: key.clone(),
        value: value.clone(),
        prev_kv: true,
        ..rpc::PutRequest::default()
    };
    let put = answer(kv.put(put)).await?;
    if put.prev_kv.is_some() {
        return failed("the key of this drill is in the backup");
    }
    let revision = put.header.map_or(0, |header| header.revision);
    if revision <= subject.facts.revision_after {
        return failed(format!("a write is given revision {revision}"));
    }
    let range = rpc::RangeRequest {
        key: key.clone(),
        ..rpc::RangeRequest::default()
    };
    let read = answer(kv.range(range.clone())).await?;
    let is_back = read.kvs.first().is_some_and(|found| {
        found.key == key
            && found.value == value
            && found.version == 1
            && (found.create_revision, found.mod_revision) == (revision, revision)
    });
    if !is_back {
        return failed("a write is not read back as written");
    }
    let delete = rpc::DeleteRangeRequest {
        key,
        ..rpc::DeleteRangeRequest::default()
    };
    let deleted = answer(kv.delete_range(delete)).await?.deleted;
    if deleted != 1 || answer(kv.range(range)).await?.count != 0 {
        return failed("a deleted key is still there");
    }
    Ok(format!(
        "written at revision {revision}, read back and deleted"
    ))
}
