//! The KV service as a client sees it.

use holdfast_proto::etcd::rpc::range_request::{SortOrder, SortTarget};
use holdfast_proto::etcd::rpc::{self, request_op::Request};
use tonic::Code;

use crate::api_support::{Store, keys, range, revision};

async fn five_keys() -> Store {
    let store = Store::start().await;
    for (key, value) in [("a", "5"), ("b", "4"), ("c", "3"), ("d", "2"), ("e", "1")] {
        store.put(key, value).await;
    }
    store.put("c", "3").await;
    store
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
async fn ranges_select_sort_limit_and_count_as_etcd() {
    let store = five_keys().await;
    let all = range("a", "f");
    let sorted = |order: SortOrder, target: SortTarget| rpc::RangeRequest {
        sort_order: order.into(),
        sort_target: target.into(),
        ..all.clone()
    };
    let cases: Vec<(rpc::RangeRequest, &[&str], i64, bool)> = vec![
        (range("c", ""), &["c"], 1, false),
        (range("x", ""), &[], 0, false),
        (all.clone(), &["a", "b", "c", "d", "e"], 5, false),
        (range("d", "\0"), &["d", "e"], 2, false),
        (
            rpc::RangeRequest {
                limit: 2,
                ..all.clone()
            },
            &["a", "b"],
            5,
            true,
        ),
        (
            rpc::RangeRequest {
                limit: 5,
                ..all.clone()
            },
            &["a", "b", "c", "d", "e"],
            5,
            false,
        ),
        (
            rpc::RangeRequest {
                count_only: true,
                ..all.clone()
            },
            &[],
            5,
            false,
        ),
        (
            rpc::RangeRequest {
                revision: 3,
                ..all.clone()
            },
            &["a", "b"],
            2,
            false,
        ),
        (
            rpc::RangeRequest {
                min_mod_revision: 5,
                ..all.clone()
            },
            &["c", "d", "e"],
            5,
            false,
        ),
        (
            rpc::RangeRequest {
                max_mod_revision: 5,
                ..all.clone()
            },
            &["a", "b", "d"],
            5,
            false,
        ),
        (
            rpc::RangeRequest {
                min_create_revision: 5,
                ..all.clone()
            },
            &["d", "e"],
            5,
            false,
        ),
        (
            rpc::RangeRequest {
                max_create_revision: 3,
                ..all.clone()
            },
            &["a", "b"],
            5,
            false,
        ),
        (
            sorted(SortOrder::Descend, SortTarget::Key),
            &["e", "d", "c", "b", "a"],
            5,
            false,
        ),
        (
            sorted(SortOrder::Ascend, SortTarget::Value),
            &["e", "d", "c", "b", "a"],
            5,
            false,
        ),
        (
            sorted(SortOrder::Descend, SortTarget::Version),
            &["c", "a", "b", "d", "e"],
            5,
            false,
        ),
        (
            sorted(SortOrder::Ascend, SortTarget::Mod),
            &["a", "b", "d", "e", "c"],
            5,
            false,
        ),
        (
            rpc::RangeRequest {
                limit: 2,
                ..sorted(SortOrder::Descend, SortTarget::Create)
            },
            &["e", "d"],
            5,
            true,
        ),
    ];
    for (request, wanted, count, more) in cases {
        for serializable in [false, true] {
            let request = rpc::RangeRequest {
                serializable,
                ..request.clone()
            };
            let response = store.range(request.clone()).await;
            assert_eq!(keys(&response), wanted, "{request:?}");
            assert_eq!(
                (response.count, response.more),
                (count, more),
                "{request:?}"
            );
            assert_eq!(revision(response.header.as_ref()), 7);
        }
    }
    let names = store
        .range(rpc::RangeRequest {
            keys_only: true,
            ..all
        })
        .await;
    assert!(
        names
            .kvs
            .iter()
            .all(|kv| kv.value.is_empty() && kv.mod_revision > 0)
    );
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_keep_versions_revisions_and_previous_values() {
    let store = Store::start().await;
    assert_eq!(store.put("k", "1").await, 2);
    assert_eq!(store.put("k", "2").await, 3);
    let put = rpc::PutRequest {
        key: "k".into(),
        value: "3".into(),
        prev_kv: true,
        ..rpc::PutRequest::default()
    };
    let response = store.kv().put(put).await.unwrap().into_inner();
    assert_eq!(response.prev_kv.unwrap().value, "2");
    let kept = rpc::PutRequest {
        key: "k".into(),
        ignore_value: true,
        ..Default::default()
    };
    store.kv().put(kept).await.unwrap();
    let kv = store.get("k").await.unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 5, 4));
    assert_eq!(kv.value, "3");
    let header = store.range(range("k", "")).await.header.unwrap();
    let status = store.server.member().status();
    assert_eq!(
        (header.member_id, header.cluster_id),
        (status.member_id.0, status.cluster_id.0)
    );
    assert!(header.raft_term > 0);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_answer_what_they_removed() {
    let store = five_keys().await;
    let delete = rpc::DeleteRangeRequest {
        key: "b".into(),
        range_end: "d".into(),
        prev_kv: true,
    };
    let response = store
        .kv()
        .delete_range(delete.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((response.deleted, response.prev_kvs.len()), (2, 2));
    assert_eq!(revision(response.header.as_ref()), 8);
    let again = store.kv().delete_range(delete).await.unwrap().into_inner();
    assert_eq!((again.deleted, revision(again.header.as_ref())), (0, 8));
    assert_eq!(keys(&store.range(range("a", "z")).await), ["a", "d", "e"]);
    store.stop().await;
}

fn put_op(key: &str, value: &str) -> rpc::RequestOp {
    let put = rpc::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..rpc::PutRequest::default()
    };
    rpc::RequestOp {
        request: Some(Request::RequestPut(put)),
    }
}

fn range_op(key: &str, end: &str) -> rpc::RequestOp {
    rpc::RequestOp {
        request: Some(Request::RequestRange(range(key, end))),
    }
}

fn compare(
    key: &str,
    target: rpc::compare::TargetUnion,
    kind: rpc::compare::CompareTarget,
    result: rpc::compare::CompareResult,
) -> rpc::Compare {
    rpc::Compare {
        key: key.to_owned().into(),
        target: kind.into(),
        result: result.into(),
        target_union: Some(target),
        ..rpc::Compare::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
async fn transactions_compare_branch_and_nest() {
    use rpc::compare::{CompareResult, CompareTarget, TargetUnion};
    let store = Store::start().await;
    store.put("k", "v").await;
    let holds = |target, kind, result| rpc::TxnRequest {
        compare: vec![compare("k", target, kind, result)],
        success: vec![put_op("yes", "1")],
        failure: vec![range_op("k", "")],
    };
    let cases = [
        (
            TargetUnion::Version(1),
            CompareTarget::Version,
            CompareResult::Equal,
            true,
        ),
        (
            TargetUnion::Version(1),
            CompareTarget::Version,
            CompareResult::Greater,
            false,
        ),
        (
            TargetUnion::CreateRevision(2),
            CompareTarget::Create,
            CompareResult::NotEqual,
            false,
        ),
        (
            TargetUnion::ModRevision(3),
            CompareTarget::Mod,
            CompareResult::Less,
            true,
        ),
        (
            TargetUnion::Value("v".into()),
            CompareTarget::Value,
            CompareResult::Equal,
            true,
        ),
        (
            TargetUnion::Lease(0),
            CompareTarget::Lease,
            CompareResult::Equal,
            true,
        ),
    ];
    for (target, kind, result, succeeds) in cases {
        let request = holds(target, kind, result);
        let response = store.kv().txn(request.clone()).await.unwrap().into_inner();
        assert_eq!(response.succeeded, succeeds, "{request:?}");
        assert_eq!(response.responses.len(), 1);
    }
    let before = store.put("a", "0").await;
    let nested = rpc::TxnRequest {
        success: vec![put_op("b", "1"), range_op("a", "z")],
        ..rpc::TxnRequest::default()
    };
    let outer = rpc::TxnRequest {
        success: vec![
            put_op("a", "1"),
            rpc::RequestOp {
                request: Some(Request::RequestTxn(nested)),
            },
        ],
        ..rpc::TxnRequest::default()
    };
    let response = store.kv().txn(outer).await.unwrap().into_inner();
    assert_eq!(revision(response.header.as_ref()), before + 1);
    let (a, b) = (store.get("a").await.unwrap(), store.get("b").await.unwrap());
    assert_eq!((a.mod_revision, b.mod_revision), (before + 1, before + 1));
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_transaction_is_one_view_and_writes_nothing() {
    let store = five_keys().await;
    let txn = rpc::TxnRequest {
        success: vec![range_op("a", ""), range_op("b", "d")],
        ..rpc::TxnRequest::default()
    };
    let response = store.kv().txn(txn).await.unwrap().into_inner();
    assert!(response.succeeded);
    assert_eq!(
        (response.responses.len(), revision(response.header.as_ref())),
        (2, 7)
    );
    assert_eq!(store.server.member().state().revision(), 7);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_ends_history_and_keeps_the_present() {
    let store = five_keys().await;
    assert_eq!(store.compact(6, true).await.unwrap(), 7);
    let old = rpc::RangeRequest {
        revision: 5,
        ..range("a", "z")
    };
    let error = store.kv().range(old).await.unwrap_err();
    assert_eq!(
        error.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
    assert_eq!(error.code(), Code::OutOfRange);
    let at = rpc::RangeRequest {
        revision: 6,
        ..range("a", "z")
    };
    assert_eq!(store.range(at).await.count, 5);
    let twice = store.compact(6, false).await.unwrap_err();
    assert_eq!(
        twice.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
    let future = store.compact(70, false).await.unwrap_err();
    assert_eq!(
        future.message(),
        "etcdserver: mvcc: required revision is a future revision"
    );
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_range_is_the_range_in_pieces() {
    let store = Store::start().await;
    for number in 0..300 {
        store
            .put_bytes(&format!("k{number:03}"), vec![b'v'; 100])
            .await;
    }
    for limit in [0, 7, 123, 1000] {
        let request = rpc::RangeRequest {
            limit,
            ..range("k", "l")
        };
        let whole = store.range(request.clone()).await;
        let mut stream = store.kv().range_stream(request).await.unwrap().into_inner();
        let mut pieces = Vec::new();
        while let Some(piece) = stream.message().await.unwrap() {
            pieces.push(piece.range_response.unwrap());
        }
        let joined: Vec<_> = pieces.iter().flat_map(|piece| piece.kvs.clone()).collect();
        assert_eq!(joined, whole.kvs);
        let (last, others) = pieces.split_last().unwrap();
        assert!(
            others
                .iter()
                .all(|piece| piece.header.is_none() && piece.count == 0)
        );
        assert_eq!(
            (last.count, last.more),
            (whole.count, whole.more),
            "limit {limit}"
        );
        assert_eq!(revision(last.header.as_ref()), 301);
    }
    let counting = rpc::RangeRequest {
        count_only: true,
        ..range("k", "l")
    };
    let mut stream = store
        .kv()
        .range_stream(counting)
        .await
        .unwrap()
        .into_inner();
    let piece = stream
        .message()
        .await
        .unwrap()
        .unwrap()
        .range_response
        .unwrap();
    assert_eq!((piece.count, piece.kvs.len()), (300, 0));
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_are_refused_with_etcds_words() {
    let store = Store::start_with(|options| options.limits.request_bytes_max = 4096).await;
    let empty = store
        .kv()
        .put(rpc::PutRequest::default())
        .await
        .unwrap_err();
    assert_eq!(empty.message(), "etcdserver: key is not provided");
    let large = rpc::PutRequest {
        key: "k".into(),
        value: vec![0; 5000].into(),
        ..rpc::PutRequest::default()
    };
    let large = store.kv().put(large).await.unwrap_err();
    assert_eq!(large.message(), "etcdserver: request is too large");
    let huge = rpc::PutRequest {
        key: "k".into(),
        value: vec![0; 1 << 20].into(),
        ..rpc::PutRequest::default()
    };
    let huge = store.kv().put(huge).await.unwrap_err();
    assert_eq!(huge.code(), Code::ResourceExhausted);
    assert!(
        huge.message()
            .starts_with("grpc: received message larger than max"),
        "{huge:?}"
    );
    let twice = rpc::TxnRequest {
        success: vec![put_op("a", "1"), put_op("a", "2")],
        ..rpc::TxnRequest::default()
    };
    let twice = store.kv().txn(twice).await.unwrap_err();
    assert_eq!(
        twice.message(),
        "etcdserver: duplicate key given in txn request"
    );
    let missing = rpc::PutRequest {
        key: "none".into(),
        ignore_value: true,
        ..Default::default()
    };
    let missing = store.kv().put(missing).await.unwrap_err();
    assert_eq!(missing.message(), "etcdserver: key not found");
    let lease = rpc::PutRequest {
        key: "k".into(),
        lease: 99,
        ..rpc::PutRequest::default()
    };
    let lease = store.kv().put(lease).await.unwrap_err();
    assert_eq!(lease.message(), "etcdserver: requested lease not found");
    let future = rpc::RangeRequest {
        revision: 100,
        ..range("k", "")
    };
    let future = store.kv().range(future).await.unwrap_err();
    assert_eq!(
        future.message(),
        "etcdserver: mvcc: required revision is a future revision"
    );
    assert_eq!(store.server.member().state().revision(), 1);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_other_services_are_not_implemented() {
    use holdfast_proto::etcd::rpc::auth_client::AuthClient;
    let store = Store::start().await;
    let mut auth = AuthClient::new(store.channel.clone());
    let enable = auth
        .auth_enable(rpc::AuthEnableRequest {})
        .await
        .unwrap_err();
    assert_eq!(enable.code(), Code::Unimplemented);
    assert_eq!(enable.message(), "unknown service etcdserverpb.Auth");
    let request = rpc::DowngradeRequest::default();
    let downgrade = store.maintenance().downgrade(request).await.unwrap_err();
    assert_eq!(downgrade.code(), Code::Unimplemented);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_serializable_is_read_only_after_the_member_confirmed_that_it_leads() {
    let store = Store::start().await;
    store.put("k", "v").await;
    // It serves what it has, and can confirm nothing any more.
    store.server.member().clone().stop().await.unwrap();
    for serializable in [true, false] {
        let range = rpc::RangeRequest {
            serializable,
            ..range("k", "")
        };
        let txn = rpc::TxnRequest {
            success: vec![rpc::RequestOp {
                request: Some(Request::RequestRange(range.clone())),
            }],
            ..rpc::TxnRequest::default()
        };
        let members = rpc::MemberListRequest {
            linearizable: !serializable,
        };
        let streamed = async {
            let mut pieces = store.kv().range_stream(range.clone()).await?.into_inner();
            pieces.message().await
        };
        let codes = [
            store.kv().range(range.clone()).await.map(drop),
            streamed.await.map(drop),
            store.kv().txn(txn).await.map(drop),
            store.cluster().member_list(members).await.map(drop),
        ]
        .map(|result| result.map_err(|refused| refused.code()));
        let expected = if serializable {
            Ok(())
        } else {
            Err(Code::Unavailable)
        };
        assert_eq!(codes, [expected; 4], "serializable: {serializable}");
    }
}
