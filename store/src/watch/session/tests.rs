use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::etcd::{kv, rpc};
use parking_lot::Mutex;
use proptest::prelude::{ProptestConfig, Strategy, prop, prop_oneof, proptest};

use super::{SessionOptions, WatchSession};
use crate::apply::EventSink as _;
use crate::error::Error;
use crate::state::EventBatch;
use crate::watch::queue::ITEMS_MAX;
use crate::watch::{History, WatchHub};

/// A history in memory: the events of revision `n` at index `n - 1`.
#[derive(Debug, Default)]
struct Past {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    revisions: Vec<Vec<kv::Event>>,
    compacted: i64,
}

impl Past {
    fn all(&self) -> Vec<kv::Event> {
        self.inner.lock().revisions.concat()
    }
}

impl History for Past {
    fn revision(&self) -> i64 {
        i64::try_from(self.inner.lock().revisions.len()).unwrap()
    }

    fn compact_revision(&self) -> i64 {
        self.inner.lock().compacted
    }

    fn events(&self, from: i64, to: i64, bytes_max: usize) -> Result<EventBatch, Error> {
        let inner = self.inner.lock();
        if from < inner.compacted {
            return Err(Error::Compacted);
        }
        let mut events = Vec::new();
        let mut next = from;
        let mut bytes = 0;
        while next <= to && (events.is_empty() || bytes < bytes_max) {
            for event in &inner.revisions[usize::try_from(next - 1).unwrap()] {
                bytes += event.kv.as_ref().unwrap().value.len();
                events.push(event.clone());
            }
            next += 1;
        }
        Ok(EventBatch { events, next })
    }

    fn previous(&self, key: &[u8], revision: i64) -> Result<Option<kv::KeyValue>, Error> {
        let inner = self.inner.lock();
        let until = usize::try_from(revision - 1).unwrap();
        let last = inner.revisions[..until]
            .iter()
            .flatten()
            .rfind(|event| event.kv.as_ref().unwrap().key == key);
        Ok(last
            .filter(|event| event.r#type == 0)
            .and_then(|event| event.kv.clone()))
    }
}

/// A hub over a history, with a writer for both.
struct Store {
    past: Arc<Past>,
    hub: WatchHub,
}

impl Store {
    fn new() -> Store {
        let past = Arc::new(Past::default());
        let hub = WatchHub::new();
        let history: Arc<dyn History> = past.clone();
        hub.attach(history);
        Store { past, hub }
    }

    fn session(&self) -> WatchSession {
        self.hub
            .session(SessionOptions {
                fragment_bytes: 1 << 20,
            })
            .unwrap()
    }

    /// Writes one revision: each key put, or deleted when its value is empty.
    fn write(&self, changes: &[(&str, &str)]) {
        let (revision, events) = self.write_quietly(changes);
        self.hub.publish(revision, &events);
    }

    /// As a write whose event has not reached the hub yet.
    fn write_quietly(&self, changes: &[(&str, &str)]) -> (i64, Vec<kv::Event>) {
        let mut inner = self.past.inner.lock();
        let revision = i64::try_from(inner.revisions.len()).unwrap() + 1;
        let event = |(key, value): &(&str, &str)| kv::Event {
            r#type: i32::from(value.is_empty()),
            kv: Some(kv::KeyValue {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: Bytes::copy_from_slice(value.as_bytes()),
                mod_revision: revision,
                ..kv::KeyValue::default()
            }),
            prev_kv: None,
        };
        let events: Vec<kv::Event> = changes.iter().map(event).collect();
        inner.revisions.push(events.clone());
        (revision, events)
    }

    fn compact(&self, revision: i64) {
        self.past.inner.lock().compacted = revision;
        self.hub.compacted(revision);
    }
}

fn watch(key: &str, end: &str, start_revision: i64) -> rpc::WatchCreateRequest {
    rpc::WatchCreateRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        start_revision,
        ..rpc::WatchCreateRequest::default()
    }
}

async fn next(session: &mut WatchSession) -> rpc::WatchResponse {
    tokio::time::timeout(Duration::from_secs(10), session.next())
        .await
        .expect("a response")
}

async fn is_silent(session: &mut WatchSession) -> bool {
    tokio::time::timeout(Duration::from_millis(30), session.next())
        .await
        .is_err()
}

fn revisions(response: &rpc::WatchResponse) -> Vec<i64> {
    response
        .events
        .iter()
        .map(|event| event.kv.as_ref().unwrap().mod_revision)
        .collect()
}

#[tokio::test]
async fn a_watch_sees_every_change_of_its_keys_from_now_on() {
    let store = Store::new();
    store.write(&[("a", "0")]);
    let mut session = store.session();
    session.create(watch("a", "c", 0));
    let created = next(&mut session).await;
    assert!(created.created && created.watch_id == 0 && created.header.unwrap().revision == 1);
    store.write(&[("a", "1"), ("b", "1"), ("c", "1")]);
    store.write(&[("z", "1")]);
    store.write(&[("b", "")]);
    let response = next(&mut session).await;
    assert_eq!(revisions(&response), [2, 2, 4]);
    assert_eq!(response.header.unwrap().revision, 4);
    assert!(is_silent(&mut session).await);
}

#[tokio::test]
async fn a_watch_from_the_past_is_given_the_past_then_the_present() {
    let store = Store::new();
    for value in ["1", "2", "3"] {
        store.write(&[("k", value)]);
    }
    let mut session = store.session();
    session.create(watch("k", "", 2));
    assert!(next(&mut session).await.created);
    assert_eq!(revisions(&next(&mut session).await), [2, 3]);
    store.write(&[("k", "4")]);
    assert_eq!(revisions(&next(&mut session).await), [4]);
    assert_eq!(store.hub.counts().lagging, 0);
}

#[tokio::test]
async fn a_watch_of_the_future_is_given_nothing_earlier() {
    let store = Store::new();
    let mut session = store.session();
    session.create(watch("k", "", 3));
    assert!(next(&mut session).await.created);
    session.request_progress();
    for value in ["1", "2"] {
        store.write(&[("k", value)]);
    }
    assert!(is_silent(&mut session).await);
    store.write(&[("k", "3")]);
    assert_eq!(revisions(&next(&mut session).await), [3]);
}

#[tokio::test]
async fn a_watch_created_after_a_write_was_answered_does_not_see_it() {
    let store = Store::new();
    let (revision, events) = store.write_quietly(&[("k", "1")]);
    let mut session = store.session();
    session.create(watch("k", "", 0));
    assert_eq!(next(&mut session).await.header.unwrap().revision, 1);
    store.hub.publish(revision, &events);
    store.write(&[("k", "2")]);
    assert_eq!(revisions(&next(&mut session).await), [2]);
}

#[tokio::test]
async fn requests_that_make_no_watch_are_answered_as_etcd_answers() {
    let store = Store::new();
    let mut session = store.session();
    session.create(watch("b", "a", 0));
    let range = next(&mut session).await;
    assert_eq!(
        (range.watch_id, range.created, range.canceled),
        (-1, true, true)
    );
    assert_eq!(range.cancel_reason, "mvcc: watcher range is empty");
    session.create(watch("a", "", -1));
    let negative = next(&mut session).await;
    assert_eq!(
        negative.cancel_reason,
        "etcdserver: mvcc: required revision has been compacted"
    );
    session.create(rpc::WatchCreateRequest {
        watch_id: 7,
        ..watch("a", "", 0)
    });
    assert_eq!(next(&mut session).await.watch_id, 7);
    session.create(rpc::WatchCreateRequest {
        watch_id: 7,
        ..watch("a", "", 0)
    });
    let twice = next(&mut session).await;
    assert_eq!(
        twice.cancel_reason,
        "mvcc: duplicate watch ID provided on the WatchStream"
    );
    session.cancel(3);
    assert!(is_silent(&mut session).await);
    session.cancel(7);
    let canceled = next(&mut session).await;
    assert_eq!(
        (canceled.watch_id, canceled.created, canceled.canceled),
        (7, false, true)
    );
    assert_eq!(store.hub.counts().watchers, 0);
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_told_where_history_begins() {
    let store = Store::new();
    for value in ["1", "2", "3", "4"] {
        store.write(&[("k", value)]);
    }
    store.compact(3);
    let mut session = store.session();
    session.create(watch("k", "", 2));
    let created = next(&mut session).await;
    assert!(created.created && !created.canceled);
    let canceled = next(&mut session).await;
    assert!(canceled.canceled && canceled.compact_revision == 3);
    session.create(watch("k", "", 3));
    assert!(next(&mut session).await.created);
    assert_eq!(revisions(&next(&mut session).await), [3, 4]);
}

#[tokio::test]
async fn a_reader_that_stalls_loses_nothing_and_holds_up_nobody() {
    let store = Store::new();
    let mut slow = store.session();
    let mut fast = store.session();
    for session in [&mut slow, &mut fast] {
        session.create(watch("k", "", 0));
        assert!(next(session).await.created);
    }
    let total = 10 * i64::try_from(ITEMS_MAX).unwrap();
    let mut seen = Vec::new();
    for value in 1..=total {
        store.write(&[("k", &value.to_string()), ("other", "x")]);
        seen.extend(revisions(&next(&mut fast).await));
    }
    assert_eq!(seen, (1..=total).collect::<Vec<_>>());
    assert_eq!(store.hub.counts().lagging, 1);
    let mut seen = Vec::new();
    while seen.len() < usize::try_from(total).unwrap() {
        seen.extend(revisions(&next(&mut slow).await));
    }
    assert_eq!(seen, (1..=total).collect::<Vec<_>>());
    store.write(&[("k", "last")]);
    assert_eq!(revisions(&next(&mut slow).await), [total + 1]);
    assert_eq!(store.hub.counts().lagging, 0);
}

#[tokio::test]
async fn a_reader_that_stalls_past_a_compaction_is_told_and_never_skips() {
    let store = Store::new();
    let mut session = store.session();
    session.create(watch("k", "", 0));
    assert!(next(&mut session).await.created);
    let total = 3 * i64::try_from(ITEMS_MAX).unwrap();
    for value in 1..=total {
        store.write(&[("k", &value.to_string())]);
    }
    store.compact(total - 1);
    let mut last = 0;
    loop {
        let response = next(&mut session).await;
        if response.canceled {
            assert_eq!(response.compact_revision, total - 1);
            break;
        }
        for revision in revisions(&response) {
            assert_eq!(revision, last + 1);
            last = revision;
        }
    }
    assert!(last < total - 1);
}

#[tokio::test]
async fn a_state_that_was_replaced_is_read_again_from_where_each_watch_was() {
    let store = Store::new();
    let mut session = store.session();
    session.create(watch("k", "", 0));
    assert!(next(&mut session).await.created);
    store.write(&[("k", "1")]);
    assert_eq!(revisions(&next(&mut session).await), [1]);
    for value in ["2", "3"] {
        store.write_quietly(&[("k", value)]);
    }
    store.hub.replaced(3);
    assert_eq!(revisions(&next(&mut session).await), [2, 3]);
    store.write_quietly(&[("k", "4")]);
    store.write(&[("k", "5")]);
    assert_eq!(revisions(&next(&mut session).await), [4, 5]);
}

#[tokio::test]
async fn filters_and_previous_values_are_per_watch() {
    let store = Store::new();
    let mut session = store.session();
    let no_put = rpc::watch_create_request::FilterType::Noput.into();
    let no_delete = rpc::watch_create_request::FilterType::Nodelete.into();
    session.create(rpc::WatchCreateRequest {
        filters: vec![no_put],
        ..watch("k", "", 1)
    });
    session.create(rpc::WatchCreateRequest {
        filters: vec![no_delete],
        prev_kv: true,
        ..watch("k", "", 1)
    });
    for _created in 0..2 {
        assert!(next(&mut session).await.created);
    }
    store.write(&[("k", "1")]);
    store.write(&[("k", "2")]);
    store.write(&[("k", "")]);
    let mut by_watch = [Vec::new(), Vec::new()];
    while by_watch.iter().map(Vec::len).sum::<usize>() < 3 {
        let response = next(&mut session).await;
        by_watch[usize::try_from(response.watch_id).unwrap()].extend(response.events);
    }
    let [deletes, puts] = by_watch;
    assert!(deletes.len() == 1 && deletes[0].r#type == 1 && deletes[0].prev_kv.is_none());
    assert_eq!(puts[1].prev_kv.as_ref().unwrap().value, "1");
}

#[tokio::test]
async fn progress_is_told_after_every_event_before_it() {
    let store = Store::new();
    let mut session = store.session();
    session.request_progress();
    assert!(is_silent(&mut session).await);
    session.create(rpc::WatchCreateRequest {
        progress_notify: true,
        ..watch("k", "", 0)
    });
    assert!(next(&mut session).await.created);
    store.write(&[("k", "1")]);
    store.write(&[("other", "1")]);
    session.request_progress();
    assert_eq!(revisions(&next(&mut session).await), [1]);
    let progress = next(&mut session).await;
    assert_eq!(
        (progress.watch_id, progress.header.unwrap().revision),
        (-1, 2)
    );
    assert!(progress.events.is_empty() && !progress.canceled);
    session.tick_progress();
    assert!(is_silent(&mut session).await);
    session.tick_progress();
    let progress = next(&mut session).await;
    assert_eq!(
        (progress.watch_id, progress.header.unwrap().revision),
        (0, 2)
    );
}

#[tokio::test]
async fn progress_of_a_watch_of_the_past_is_told_after_the_past() {
    let store = Store::new();
    for _ in 0..300 {
        store.write(&[("k", "v")]);
    }
    let mut session = store.session();
    session.create(watch("k", "", 1));
    assert!(next(&mut session).await.created);
    session.request_progress();
    let mut seen = Vec::new();
    loop {
        let response = next(&mut session).await;
        if response.watch_id < 0 {
            break;
        }
        seen.extend(revisions(&response));
    }
    assert_eq!(seen, (1..=300).collect::<Vec<_>>());
}

#[tokio::test]
async fn ten_thousand_watches_are_cheap() {
    let store = Store::new();
    let mut session = store.session();
    for number in 0..10_000 {
        session.create(watch(&format!("key/{number:05}"), "", 0));
        assert!(next(&mut session).await.created);
    }
    let start = tokio::time::Instant::now();
    for number in 0..10_000 {
        store.write(&[(&format!("key/{number:05}"), "v")]);
        assert_eq!(next(&mut session).await.watch_id, number);
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    drop(session);
    assert_eq!(store.hub.counts(), crate::watch::WatchCounts::default());
}

/// What may happen to a store with two streams of three watches each.
#[derive(Debug, Clone)]
enum Action {
    Write(Vec<(u8, bool)>),
    Burst(u16),
    Read {
        stream: usize,
        responses: u8,
    },
    Watch {
        stream: usize,
        key: u8,
        span: u8,
        back: i64,
    },
    Replace,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => prop::collection::vec((0_u8..4, prop::bool::ANY), 1..4).prop_map(Action::Write),
        1 => (1_u16..600).prop_map(Action::Burst),
        3 => (0_usize..2, 1_u8..20).prop_map(|(stream, responses)| Action::Read { stream, responses }),
        2 => (0_usize..2, 0_u8..4, 0_u8..3, -3_i64..30)
            .prop_map(|(stream, key, span, back)| Action::Watch { stream, key, span, back }),
        1 => prop::bool::ANY.prop_map(|_| Action::Replace),
    ]
}

/// What a watch must see, and has seen.
#[derive(Debug)]
struct Expected {
    key: String,
    end: String,
    from: i64,
    seen: Vec<(i64, Bytes)>,
}

impl Expected {
    fn covers(&self, key: &[u8]) -> bool {
        if self.end.is_empty() {
            key == self.key.as_bytes()
        } else {
            self.key.as_bytes() <= key && key < self.end.as_bytes()
        }
    }

    fn wanted(&self, events: &[kv::Event]) -> Vec<(i64, Bytes)> {
        events
            .iter()
            .map(|event| event.kv.as_ref().unwrap())
            .filter(|kv| kv.mod_revision >= self.from && self.covers(&kv.key))
            .map(|kv| (kv.mod_revision, kv.key.clone()))
            .collect()
    }
}

async fn read(session: &mut WatchSession, expected: &mut [Expected], patience: Duration) -> bool {
    let Ok(response) = tokio::time::timeout(patience, session.next()).await else {
        return false;
    };
    assert!(!response.canceled);
    let watch = &mut expected[usize::try_from(response.watch_id).unwrap()];
    for event in response.events {
        let kv = event.kv.unwrap();
        watch.seen.push((kv.mod_revision, kv.key));
    }
    true
}

fn name(key: u8) -> String {
    format!("k{key}")
}

async fn run(actions: Vec<Action>) {
    let store = Store::new();
    let mut sessions = [store.session(), store.session()];
    let mut expected: [Vec<Expected>; 2] = [Vec::new(), Vec::new()];
    for action in actions {
        match action {
            Action::Write(changes) => {
                let changes: Vec<(String, &str)> = changes
                    .iter()
                    .map(|(key, is_put)| (name(*key), if *is_put { "v" } else { "" }))
                    .collect();
                let changes: Vec<(&str, &str)> = changes
                    .iter()
                    .map(|(key, value)| (key.as_str(), *value))
                    .collect();
                store.write(&changes);
            }
            Action::Burst(count) => (0..count).for_each(|_| store.write(&[("k1", "burst")])),
            Action::Read { stream, responses } => {
                for _response in 0..responses {
                    let patience = Duration::from_millis(2);
                    if !read(&mut sessions[stream], &mut expected[stream], patience).await {
                        break;
                    }
                }
            }
            Action::Watch {
                stream,
                key,
                span,
                back,
            } => {
                let now = store.past.revision();
                let start = if back < 0 { 0 } else { (now - back).max(1) };
                let end = if span == 0 {
                    String::new()
                } else {
                    name(key + span)
                };
                sessions[stream].create(watch(&name(key), &end, start));
                let from = if start == 0 { now + 1 } else { start };
                expected[stream].push(Expected {
                    key: name(key),
                    end,
                    from,
                    seen: Vec::new(),
                });
            }
            Action::Replace => store.hub.replaced(store.past.revision()),
        }
    }
    for (session, expected) in sessions.iter_mut().zip(&mut expected) {
        finish(&store, session, expected).await;
    }
}

/// Reads until every watch has as many events as it must see, and compares them.
async fn finish(store: &Store, session: &mut WatchSession, expected: &mut [Expected]) {
    let events = store.past.all();
    let wanted: Vec<Vec<(i64, Bytes)>> =
        expected.iter().map(|watch| watch.wanted(&events)).collect();
    let is_missing = |expected: &[Expected]| {
        expected
            .iter()
            .zip(&wanted)
            .any(|(watch, wanted)| watch.seen.len() < wanted.len())
    };
    while is_missing(expected) {
        assert!(
            read(session, expected, Duration::from_secs(20)).await,
            "{expected:?}"
        );
    }
    for (watch, wanted) in expected.iter().zip(&wanted) {
        assert_eq!(&watch.seen, wanted);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn every_watch_sees_every_event_once_in_order(
        actions in prop::collection::vec(action(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(actions));
    }
}
