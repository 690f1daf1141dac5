//! A watcher from before the disaster is told that its revision is gone.
//!
//! Without that it would wait, and miss everything that differs: silent divergence.

use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::watch_request::RequestUnion;

use super::{Finding, Subject, failed};
use crate::client::answer;

/// A watcher that hears nothing for so long is left hanging.
const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(super) async fn check(subject: &Subject) -> Finding {
    let facts = &subject.facts;
    let create = rpc::WatchCreateRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        start_revision: facts.revision,
        ..rpc::WatchCreateRequest::default()
    };
    let request = rpc::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    // The sender is kept: a stream whose client has hung up is no test of anything.
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let is_sent = sender.send(request).await.is_ok();
    debug_assert!(is_sent, "the receiver is alive");
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut watch = subject.client.watch();
    let mut answers = answer(watch.watch(requests)).await?;
    for _ in 0..4 {
        let heard = match tokio::time::timeout(SILENCE_MAX, answers.message()).await {
            Err(_silence) => return failed("an old watcher hears nothing"),
            Ok(message) => message?,
        };
        let Some(heard) = heard else {
            return failed("an old watcher is hung up on");
        };
        if !heard.events.is_empty() {
            return failed("an old watcher is sent events");
        }
        if heard.canceled || heard.compact_revision != 0 {
            return judge(&heard, facts.revision_after);
        }
    }
    failed("an old watcher is never cancelled")
}

fn judge(heard: &rpc::WatchResponse, revision_after: i64) -> Finding {
    if !heard.canceled {
        return failed("an old watcher is told of a compaction and not cancelled");
    }
    if heard.compact_revision != revision_after {
        return failed(format!(
            "an old watcher is cancelled with compact_revision {} instead of {revision_after}",
            heard.compact_revision
        ));
    }
    Ok(format!(
        "an old watcher is cancelled with compact_revision {revision_after}"
    ))
}
