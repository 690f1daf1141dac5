//! Random operations into the state machine and into a simple model of history: every answer,
//! every old revision, every event and both hashes have to agree.
#![expect(
    clippy::unwrap_used,
    reason = "a test says what it expects and stops when it is not so"
)]

mod oracle;
mod storage;

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::etcd::rpc::request_op::Request as Op;
use holdfast_proto::etcd::{kv, rpc};
use holdfast_proto::store::v1::command::Request;
use holdfast_store::Error;
use holdfast_store::apply::{CompactionProgress, Response};
use proptest::prelude::*;

use self::oracle::Oracle;
use self::storage::Harness;
use crate::long::rounds;

fn key() -> impl Strategy<Value = Bytes> {
    (0..7_u8).prop_map(|index| Bytes::from(vec![b'a' + index; 1 + usize::from(index % 2)]))
}

fn span() -> impl Strategy<Value = (Bytes, Bytes)> {
    let end = prop_oneof![
        4 => Just(Bytes::new()),
        2 => key(),
        1 => Just(Bytes::from_static(b"\0")),
    ];
    (key(), end)
}

fn put() -> impl Strategy<Value = rpc::PutRequest> {
    (key(), 0..4_u8, 0..3_i64, any::<bool>(), 0..10_u8).prop_map(
        |(key, value, lease, prev_kv, flags)| {
            let (ignore_value, ignore_lease) = (flags == 0, flags == 1);
            rpc::PutRequest {
                key,
                value: if ignore_value {
                    Bytes::new()
                } else {
                    vec![value; 3].into()
                },
                lease: if ignore_lease { 0 } else { lease },
                prev_kv,
                ignore_value,
                ignore_lease,
            }
        },
    )
}

fn delete() -> impl Strategy<Value = rpc::DeleteRangeRequest> {
    (span(), any::<bool>()).prop_map(|((key, range_end), prev_kv)| rpc::DeleteRangeRequest {
        key,
        range_end,
        prev_kv,
    })
}

/// `revision` is a distance back from the newest one; negative is the future.
fn range() -> impl Strategy<Value = rpc::RangeRequest> {
    let order = (0..3_i32, 0..5_i32);
    let bounds = (0..30_i64, 0..30_i64, 0..30_i64, 0..30_i64, 0..4_u8);
    (span(), 0..4_i64, -1..12_i64, order, 0..6_u8, bounds).prop_map(
        |((key, range_end), limit, back, (sort_order, sort_target), kind, bounds)| {
            let (min_mod, max_mod, min_create, max_create, filtered) = bounds;
            let on = |bit: u8, value: i64| if filtered == bit { value } else { 0 };
            rpc::RangeRequest {
                key,
                range_end,
                limit,
                revision: back,
                sort_order,
                sort_target,
                keys_only: kind == 0,
                count_only: kind == 1,
                min_mod_revision: on(1, min_mod),
                max_mod_revision: on(1, max_mod),
                min_create_revision: on(2, min_create),
                max_create_revision: on(2, max_create),
                ..rpc::RangeRequest::default()
            }
        },
    )
}

fn compare() -> impl Strategy<Value = rpc::Compare> {
    use rpc::compare::TargetUnion;
    (span(), 0..4_i32, 0..5_i32, 0..8_i64).prop_map(|((key, range_end), result, target, number)| {
        let union = match target {
            0 => TargetUnion::Version(number),
            1 => TargetUnion::CreateRevision(number),
            2 => TargetUnion::ModRevision(number),
            3 => TargetUnion::Value(vec![u8::try_from(number).unwrap() % 4; 3].into()),
            _ => TargetUnion::Lease(number % 3),
        };
        rpc::Compare {
            result,
            target,
            key,
            range_end,
            target_union: Some(union),
        }
    })
}

fn txn() -> impl Strategy<Value = rpc::TxnRequest> {
    let leaf = prop_oneof![
        3 => put().prop_map(Op::RequestPut),
        1 => delete().prop_map(Op::RequestDeleteRange),
        1 => range().prop_map(Op::RequestRange),
    ];
    let build = |(compare, success, failure): (Vec<_>, Vec<Op>, Vec<Op>)| {
        let ops = |ops: Vec<Op>| {
            ops.into_iter()
                .map(|op| rpc::RequestOp { request: Some(op) })
                .collect()
        };
        rpc::TxnRequest {
            compare,
            success: ops(success),
            failure: ops(failure),
        }
    };
    let leaves = leaf.boxed();
    let flat = (
        prop::collection::vec(compare(), 0..2),
        prop::collection::vec(leaves.clone(), 0..3),
        prop::collection::vec(leaves.clone(), 0..3),
    )
        .prop_map(build);
    let op = prop_oneof![4 => leaves, 1 => flat.prop_map(Op::RequestTxn)].boxed();
    (
        prop::collection::vec(compare(), 0..3),
        prop::collection::vec(op.clone(), 0..4),
        prop::collection::vec(op, 0..4),
    )
        .prop_map(build)
}

#[derive(Debug, Clone)]
enum Action {
    Apply(Request),
    Range(rpc::RangeRequest),
    /// Distance back from the newest revision.
    Compact(i64),
    CompactSteps(u8),
    Checkpoint,
    Reopen,
    Defragment,
    Reinstall,
}

fn action() -> impl Strategy<Value = Action> {
    let lease = 1..3_i64;
    prop_oneof![
        12 => put().prop_map(|put| Action::Apply(Request::Put(put))),
        4 => delete().prop_map(|delete| Action::Apply(Request::DeleteRange(delete))),
        8 => txn().prop_map(|txn| Action::Apply(Request::Txn(txn))),
        8 => range().prop_map(Action::Range),
        2 => lease.clone().prop_map(|id| {
            Action::Apply(Request::LeaseGrant(rpc::LeaseGrantRequest { ttl: 10 + id, id }))
        }),
        1 => lease.prop_map(|id| {
            Action::Apply(Request::LeaseRevoke(rpc::LeaseRevokeRequest { id }))
        }),
        2 => (-1..9_i64).prop_map(Action::Compact),
        2 => (1..3_u8).prop_map(Action::CompactSteps),
        1 => Just(Action::Checkpoint),
        1 => Just(Action::Reopen),
        1 => Just(Action::Defragment),
        1 => Just(Action::Reinstall),
    ]
}

fn resolve(range: &rpc::RangeRequest, newest: i64) -> rpc::RangeRequest {
    rpc::RangeRequest {
        revision: (newest - range.revision).max(0),
        ..range.clone()
    }
}

fn resolve_txn(txn: &rpc::TxnRequest, newest: i64) -> rpc::TxnRequest {
    let ops = |ops: &[rpc::RequestOp]| {
        ops.iter()
            .map(|op| rpc::RequestOp {
                request: op.request.as_ref().map(|op| match op {
                    Op::RequestRange(range) => Op::RequestRange(resolve(range, newest)),
                    Op::RequestTxn(txn) => Op::RequestTxn(resolve_txn(txn, newest)),
                    other => other.clone(),
                }),
            })
            .collect()
    };
    rpc::TxnRequest {
        compare: txn.compare.clone(),
        success: ops(&txn.success),
        failure: ops(&txn.failure),
    }
}

/// What both sides answer, made comparable: errors by their name.
fn plain<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| format!("{error:?}"))
}

fn apply(harness: &mut Harness, oracle: &mut Oracle, request: Request) {
    let request = match request {
        Request::Txn(txn) => Request::Txn(resolve_txn(&txn, oracle.revision())),
        other => other,
    };
    let expected = plain(oracle.apply(&request));
    let found = plain(harness.apply(request.clone()));
    assert_eq!(found, expected, "{request:?}");
}

fn act(harness: &mut Harness, oracle: &mut Oracle, action: Action) {
    match action {
        Action::Apply(request) => apply(harness, oracle, request),
        Action::Range(request) => {
            let request = resolve(&request, oracle.revision());
            let expected = plain(oracle.range(&request));
            assert_eq!(
                plain(harness.state.range(&request)),
                expected,
                "{request:?}"
            );
        }
        Action::Compact(back) => {
            let revision = oracle.revision() - back;
            let physical = false;
            let request = rpc::CompactionRequest { revision, physical };
            apply(harness, oracle, Request::Compact(request));
        }
        Action::CompactSteps(steps) => {
            for _ in 0..steps {
                harness.applier.as_mut().unwrap().compact_step().unwrap();
            }
        }
        Action::Checkpoint => harness.applier.as_mut().unwrap().checkpoint().unwrap(),
        Action::Reopen => harness.reopen(),
        Action::Defragment => harness.applier.as_mut().unwrap().defragment().unwrap(),
        Action::Reinstall => harness.reinstall(),
    }
}

/// Everything that can be read has to be as the model has it.
fn compare_all(harness: &mut Harness, oracle: &Oracle) {
    let state = Arc::clone(&harness.state);
    assert_eq!(state.revision(), oracle.revision());
    assert_eq!(state.compact_revision(), oracle.compacted());
    for revision in oracle.compacted().max(1)..=oracle.revision() {
        let request = rpc::RangeRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            revision,
            ..rpc::RangeRequest::default()
        };
        assert_eq!(
            plain(state.range(&request)),
            plain(oracle.range(&request)),
            "at {revision}"
        );
    }
    for lost in [1, oracle.compacted() - 1] {
        if lost < oracle.compacted() {
            let events = state.events(lost, oracle.revision(), usize::MAX);
            assert!(matches!(events, Err(Error::Compacted)), "{events:?}");
        }
    }
    let from = (oracle.compacted() + 1).max(2);
    let mut events = Vec::new();
    let mut next = from;
    while next <= oracle.revision() {
        let batch = state.events(next, oracle.revision(), 1).unwrap();
        assert!(batch.next > next);
        events.extend(batch.events);
        next = batch.next;
    }
    assert_eq!(events, oracle.events(from));
    for event in &events {
        let kv = event.kv.as_ref().unwrap();
        let expected = oracle
            .at(kv.mod_revision - 1)
            .and_then(|keys| keys.get(&kv.key).cloned());
        if kv.mod_revision > oracle.compacted() {
            assert_eq!(state.previous(&kv.key, kv.mod_revision).unwrap(), expected);
        }
    }
    for id in state.leases() {
        assert_eq!(state.lease(id).unwrap().keys, oracle.lease_keys(id.0));
    }
}

/// The hashes of the state, and of the snapshot it makes, at each revision that can be hashed.
fn compare_hashes(harness: &mut Harness, oracle: &Oracle) {
    // Which superseded rows are gone already must not matter.
    let revisions = oracle.compacted().max(1) + 1..=oracle.revision();
    let file = harness.snapshot();
    let on_the_way: Vec<_> = revisions
        .map(|revision| {
            let ours = harness.state.hash_kv(revision).unwrap();
            // A file does not know of a compaction at 0 that is not done.
            let there = file.hash_kv(revision).unwrap().hash;
            assert_eq!(ours.hash, there, "at {revision}");
            ours
        })
        .collect();
    let mut steps = 0;
    while harness.applier.as_mut().unwrap().compact_step().unwrap() != CompactionProgress::Idle {
        steps += 1;
        assert!(steps < 1_000);
    }
    let file = harness.snapshot();
    for before in on_the_way {
        let revision = before.hash_revision;
        let ours = harness.state.hash_kv(revision).unwrap();
        assert_eq!(
            ours, before,
            "at {revision}, before the compaction was done"
        );
        assert_eq!(ours, file.hash_kv(revision).unwrap(), "at {revision}");
    }
    let surveyed = file.survey(|_| ()).content.unwrap().hash;
    assert_eq!(surveyed, file.hash_kv(0).unwrap());
    assert!(file.check().problems.is_empty(), "{:?}", file.check());
}

/// Puts, and deletes of everything, at the revisions given by their number.
fn store_of(history: &[Option<&'static str>]) -> Harness {
    let mut harness = Harness::new();
    for key in history {
        let request = match key {
            Some(key) => Request::Put(rpc::PutRequest {
                key: Bytes::from_static(key.as_bytes()),
                ..rpc::PutRequest::default()
            }),
            None => Request::DeleteRange(rpc::DeleteRangeRequest {
                key: Bytes::from_static(b"\0"),
                range_end: Bytes::from_static(b"\0"),
                ..rpc::DeleteRangeRequest::default()
            }),
        };
        harness.apply(request).unwrap();
    }
    harness
}

fn compact(harness: &mut Harness, revision: i64) {
    let physical = false;
    let request = rpc::CompactionRequest { revision, physical };
    harness.apply(Request::Compact(request)).unwrap();
    let applier = harness.applier.as_mut().unwrap();
    let mut steps = 0;
    while applier.compact_step().unwrap() != CompactionProgress::Idle {
        steps += 1;
        assert!(steps < 100);
    }
}

#[test]
fn a_compaction_finds_the_hash_that_a_member_computes_that_has_not_come_to_it() {
    // From revision 2 on.
    let history = [Some("a"), Some("b"), None, Some("a"), None, Some("b")];
    for first in 2..=6 {
        for second in first + 1..=7 {
            let mut harness = store_of(&history);
            compact(&mut harness, first);
            let computed = harness.state.hash_kv(second).unwrap();
            compact(&mut harness, second);
            let found = harness.state.compaction_hashes()[0];
            assert_eq!(
                (found.hash, found.compact_revision, found.hash_revision),
                (computed.hash, first, second)
            );
        }
    }
}

#[test]
fn without_a_live_key_the_hash_is_the_same_before_and_after_a_compaction_is_done() {
    // From revision 2 on.
    let history = [Some("a"), Some("a"), Some("b"), None, Some("a"), None];
    for at in 2..=7 {
        let mut harness = store_of(&history);
        let (revision, physical) = (at, false);
        let request = rpc::CompactionRequest { revision, physical };
        harness.apply(Request::Compact(request)).unwrap();
        let before = harness.state.hash_kv(0).unwrap();
        let file = harness.snapshot();
        assert_eq!(file.hash_kv(0).unwrap(), before, "compacted at {at}");
        let surveyed = file.survey(|_| ()).content.unwrap().hash;
        assert_eq!(surveyed, before, "compacted at {at}");
        let applier = harness.applier.as_mut().unwrap();
        let mut steps = 0;
        while applier.compact_step().unwrap() != CompactionProgress::Idle {
            steps += 1;
            assert!(steps < 100);
        }
        assert_eq!(
            harness.state.hash_kv(0).unwrap(),
            before,
            "compacted at {at}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(96, 5_000), ..ProptestConfig::default() })]

    #[test]
    fn the_state_machine_answers_as_a_simple_model_of_history(
        actions in prop::collection::vec(action(), 1..60)
    ) {
        let mut harness = Harness::new();
        let mut oracle = Oracle::new();
        for action in actions {
            act(&mut harness, &mut oracle, action);
        }
        compare_all(&mut harness, &oracle);
        compare_hashes(&mut harness, &oracle);
        compare_all(&mut harness, &oracle);
        harness.reopen();
        compare_all(&mut harness, &oracle);
    }
}

fn put_of(key: &'static [u8]) -> Request {
    Request::Put(rpc::PutRequest {
        key: Bytes::from_static(key),
        ..rpc::PutRequest::default()
    })
}

/// Puts and deletes `a`, does `after`, and compacts at the delete.
fn compacted_at_a_delete(after: Option<Request>) -> Harness {
    let mut harness = Harness::new();
    let delete = rpc::DeleteRangeRequest {
        key: Bytes::from_static(b"a"),
        ..rpc::DeleteRangeRequest::default()
    };
    let compaction = rpc::CompactionRequest {
        revision: 3,
        physical: true,
    };
    let first = [put_of(b"a"), Request::DeleteRange(delete)];
    for request in first.into_iter().chain(after) {
        harness.apply(request).unwrap();
    }
    harness.apply(Request::Compact(compaction)).unwrap();
    while harness.applier.as_mut().unwrap().compact_step().unwrap() != CompactionProgress::Idle {}
    harness
}

#[test]
fn a_delete_at_the_very_revision_of_a_compaction_is_still_told() {
    let mut harness = compacted_at_a_delete(Some(put_of(b"b")));
    let told = |harness: &Harness| {
        let events = harness.state.events(3, 4, usize::MAX).unwrap().events;
        let revision = |event: &kv::Event| event.kv.as_ref().unwrap().mod_revision;
        events.iter().map(revision).collect::<Vec<_>>()
    };
    assert_eq!(told(&harness), [3, 4]);
    harness.reopen();
    assert_eq!(told(&harness), [3, 4]);
}

#[test]
fn a_compaction_at_a_delete_that_is_the_newest_change_takes_no_revision_back() {
    let mut harness = compacted_at_a_delete(None);
    assert_eq!(harness.state.revision(), 3);
    harness.reopen();
    assert_eq!(harness.state.revision(), 3);
}

#[test]
fn a_request_that_fails_leaves_no_trace() {
    let mut harness = Harness::new();
    let put = |key: &'static [u8], ignore_value| {
        Op::RequestPut(rpc::PutRequest {
            key: Bytes::from_static(key),
            ignore_value,
            ..rpc::PutRequest::default()
        })
    };
    let ops = [
        put(b"a", false),
        Op::RequestDeleteRange(rpc::DeleteRangeRequest {
            key: Bytes::from_static(b"a"),
            ..rpc::DeleteRangeRequest::default()
        }),
        put(b"a", true),
    ];
    let success = ops
        .into_iter()
        .map(|op| rpc::RequestOp { request: Some(op) })
        .collect();
    let request = rpc::TxnRequest {
        success,
        ..rpc::TxnRequest::default()
    };
    let outcome = harness.apply(Request::Txn(request));
    assert!(matches!(outcome, Err(Error::KeyNotFound)), "{outcome:?}");
    assert_eq!(harness.state.revision(), 1);
    assert_eq!(harness.state.metrics().keys, 0);
    let grant = rpc::LeaseGrantRequest { ttl: 10, id: 5 };
    assert!(matches!(
        harness.apply(Request::LeaseGrant(grant)),
        Ok(Response::LeaseGrant(_))
    ));
}

#[test]
fn a_compaction_at_revision_zero_leaves_nothing_that_is_taken_for_the_newest_hash() {
    let mut harness = store_of(&[Some("a"), Some("b")]);
    compact(&mut harness, 0);
    assert_eq!(harness.state.compaction_hashes(), []);
    let newest = harness.state.hash_kv(0).unwrap();
    assert_eq!(newest.hash_revision, 3);
    harness
        .apply(Request::Put(rpc::PutRequest {
            key: "c".into(),
            ..rpc::PutRequest::default()
        }))
        .unwrap();
    let later = harness.state.hash_kv(0).unwrap();
    assert_eq!(later.hash_revision, 4);
    assert_ne!(later.hash, newest.hash);
}
