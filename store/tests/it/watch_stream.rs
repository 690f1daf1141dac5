//! The Watch service as a client sees it.

use std::time::Duration;

use holdfast_proto::etcd::rpc::{self, watch_request::RequestUnion};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::api_support::{PATIENCE, Store, revision};

/// One open watch stream.
struct Stream {
    requests: mpsc::Sender<rpc::WatchRequest>,
    responses: Streaming<rpc::WatchResponse>,
}

impl Stream {
    async fn open(store: &Store) -> Stream {
        let (requests, inbound) = mpsc::channel(16);
        let responses = store
            .watch()
            .watch(ReceiverStream::new(inbound))
            .await
            .unwrap();
        Stream {
            requests,
            responses: responses.into_inner(),
        }
    }

    async fn send(&self, request: RequestUnion) {
        let request = rpc::WatchRequest {
            request_union: Some(request),
        };
        self.requests.send(request).await.unwrap();
    }

    async fn create(&mut self, request: rpc::WatchCreateRequest) -> rpc::WatchResponse {
        self.send(RequestUnion::CreateRequest(request)).await;
        let created = self.next().await;
        assert!(created.created, "{created:?}");
        created
    }

    async fn next(&mut self) -> rpc::WatchResponse {
        let next = tokio::time::timeout(PATIENCE, self.responses.message());
        next.await
            .expect("a response in time")
            .unwrap()
            .expect("a response")
    }

    async fn is_silent(&mut self) -> bool {
        let next = tokio::time::timeout(Duration::from_millis(200), self.responses.message());
        next.await.is_err()
    }
}

fn watch(key: &str, end: &str) -> rpc::WatchCreateRequest {
    rpc::WatchCreateRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        ..rpc::WatchCreateRequest::default()
    }
}

fn revisions(response: &rpc::WatchResponse) -> Vec<i64> {
    response
        .events
        .iter()
        .map(|event| event.kv.as_ref().unwrap().mod_revision)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_watches_share_a_stream_and_see_their_own_keys() {
    let store = Store::start().await;
    let mut stream = Stream::open(&store).await;
    assert_eq!(stream.create(watch("a", "")).await.watch_id, 0);
    let chosen = rpc::WatchCreateRequest {
        watch_id: 42,
        prev_kv: true,
        ..watch("b", "d")
    };
    assert_eq!(stream.create(chosen).await.watch_id, 42);
    assert_eq!(stream.create(watch("x", "")).await.watch_id, 1);
    let first = store.put("a", "1").await;
    store.put("c", "1").await;
    store.put("c", "2").await;
    let deleted = store.delete("c").await;
    let response = stream.next().await;
    assert_eq!((response.watch_id, revisions(&response)), (0, vec![first]));
    assert_eq!(revision(response.header.as_ref()), first);
    let mut events = Vec::new();
    while events.len() < 3 {
        let response = stream.next().await;
        assert_eq!(response.watch_id, 42);
        events.extend(response.events);
    }
    assert!(events[0].prev_kv.is_none());
    assert_eq!(events[1].prev_kv.as_ref().unwrap().value, "1");
    assert_eq!(
        (
            events[2].r#type,
            events[2].kv.as_ref().unwrap().mod_revision
        ),
        (1, deleted)
    );
    assert_eq!(events[2].prev_kv.as_ref().unwrap().value, "2");
    let cancel = rpc::WatchCancelRequest { watch_id: 42 };
    stream.send(RequestUnion::CancelRequest(cancel)).await;
    assert!(stream.next().await.canceled);
    store.put("c", "3").await;
    assert!(stream.is_silent().await);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_resumes_from_any_revision_without_loss_or_repetition() {
    let store = Store::start().await;
    for value in 0..50 {
        store.put("k", &value.to_string()).await;
    }
    for start in [1, 2, 20, 51, 52] {
        let mut stream = Stream::open(&store).await;
        stream
            .create(rpc::WatchCreateRequest {
                start_revision: start,
                ..watch("k", "")
            })
            .await;
        let mut seen = Vec::new();
        let last = store.put("k", "live").await;
        while seen.last() != Some(&last) {
            seen.extend(revisions(&stream.next().await));
        }
        assert_eq!(seen, (start.max(2)..=last).collect::<Vec<_>>());
    }
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_before_a_compaction_is_ended_with_the_compact_revision() {
    let store = Store::start().await;
    for value in ["1", "2", "3"] {
        store.put("k", value).await;
    }
    store.compact(3, true).await.unwrap();
    let mut stream = Stream::open(&store).await;
    let start = rpc::WatchCreateRequest {
        start_revision: 2,
        ..watch("k", "")
    };
    assert!(!stream.create(start).await.canceled);
    let ended = stream.next().await;
    assert_eq!((ended.canceled, ended.compact_revision), (true, 3));
    let start = rpc::WatchCreateRequest {
        start_revision: 3,
        ..watch("k", "")
    };
    stream.create(start).await;
    assert_eq!(revisions(&stream.next().await), [3, 4]);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_revisions_are_cut_only_for_watches_that_accept_fragments() {
    let store = Store::start_with(|options| options.limits.request_bytes_max = 300_000).await;
    let mut whole = Stream::open(&store).await;
    whole.create(watch("k", "l")).await;
    let mut cut = Stream::open(&store).await;
    cut.create(rpc::WatchCreateRequest {
        fragment: true,
        ..watch("k", "l")
    })
    .await;
    for number in 0..10 {
        store
            .put_bytes(&format!("k{number}"), vec![b'v'; 200_000])
            .await;
    }
    let delete = rpc::DeleteRangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..rpc::DeleteRangeRequest::default()
    };
    let last = store.kv().delete_range(delete).await.unwrap().into_inner();
    let last = revision(last.header.as_ref());
    for (stream, limit) in [(&mut whole, usize::MAX), (&mut cut, 300_000 + 512 * 1024)] {
        let mut seen = Vec::new();
        while seen.iter().filter(|found| **found == last).count() < 10 {
            let response = stream.next().await;
            assert!(response.encoded_len() < limit);
            seen.extend(revisions(&response));
        }
        let wanted: Vec<i64> = (2..=11).chain([last; 10]).collect();
        assert_eq!(seen, wanted);
    }
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_loses_no_event_and_slows_nobody() {
    let store = Store::start().await;
    let mut slow = Stream::open(&store).await;
    slow.create(watch("k", "l")).await;
    let mut quick = Stream::open(&store).await;
    quick.create(watch("k", "l")).await;
    let mut seen = Vec::new();
    for number in 0..600 {
        let written = store
            .put_bytes(&format!("k{number}"), vec![b'v'; 10_000])
            .await;
        while seen.last() != Some(&written) {
            seen.extend(revisions(&quick.next().await));
        }
    }
    let wanted: Vec<i64> = (2..=601).collect();
    assert_eq!(seen, wanted);
    let mut seen = Vec::new();
    while seen.len() < wanted.len() {
        seen.extend(revisions(&slow.next().await));
    }
    assert_eq!(seen, wanted);
    store.put("k", "after").await;
    assert_eq!(revisions(&slow.next().await), [602]);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_on_request_and_on_schedule() {
    let store = Store::start_with(|options| {
        options.watch_progress_interval = Duration::from_millis(300);
    })
    .await;
    let mut stream = Stream::open(&store).await;
    stream.create(watch("k", "")).await;
    let last = store.put("other", "v").await;
    stream
        .send(RequestUnion::ProgressRequest(rpc::WatchProgressRequest {}))
        .await;
    let progress = stream.next().await;
    assert_eq!(
        (progress.watch_id, revision(progress.header.as_ref())),
        (-1, last)
    );
    assert!(stream.is_silent().await);
    let notified = rpc::WatchCreateRequest {
        progress_notify: true,
        ..watch("k", "")
    };
    let id = stream.create(notified).await.watch_id;
    let progress = stream.next().await;
    assert_eq!(
        (progress.watch_id, revision(progress.header.as_ref())),
        (id, last)
    );
    assert!(progress.events.is_empty());
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_dropped_takes_its_watches_along() {
    let store = Store::start().await;
    let mut stream = Stream::open(&store).await;
    for _watch in 0..100 {
        stream.create(watch("k", "")).await;
    }
    let count = || async { store.http("GET", "/metrics").await.1 };
    assert!(
        count()
            .await
            .contains("etcd_debugging_mvcc_watcher_total 100\n")
    );
    drop(stream);
    crate::api_support::eventually(|| async {
        count()
            .await
            .contains("etcd_debugging_mvcc_watcher_total 0\n")
    })
    .await;
    store.stop().await;
}
