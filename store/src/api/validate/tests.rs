use bytes::Bytes;
use holdfast_proto::etcd::rpc::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    request_op::Request,
};

use super::Spans;
use crate::error::Error;

fn put(key: &'static str) -> RequestOp {
    let put = PutRequest {
        key: key.into(),
        ..PutRequest::default()
    };
    RequestOp {
        request: Some(Request::RequestPut(put)),
    }
}

fn delete(key: &'static str, end: &'static str) -> RequestOp {
    let delete = DeleteRangeRequest {
        key: key.into(),
        range_end: end.into(),
        ..Default::default()
    };
    RequestOp {
        request: Some(Request::RequestDeleteRange(delete)),
    }
}

fn get(key: &'static str, serializable: bool) -> RequestOp {
    let range = RangeRequest {
        key: key.into(),
        serializable,
        ..RangeRequest::default()
    };
    RequestOp {
        request: Some(Request::RequestRange(range)),
    }
}

fn nested(success: Vec<RequestOp>, failure: Vec<RequestOp>) -> RequestOp {
    let txn = TxnRequest {
        success,
        failure,
        ..TxnRequest::default()
    };
    RequestOp {
        request: Some(Request::RequestTxn(txn)),
    }
}

fn check(success: Vec<RequestOp>) -> Result<(), Error> {
    super::txn(
        &TxnRequest {
            success,
            ..TxnRequest::default()
        },
        128,
    )
}

#[test]
fn a_transaction_may_not_write_a_key_twice() {
    for ops in [
        vec![put("a"), put("a")],
        vec![put("a"), delete("a", "")],
        vec![delete("a", "c"), put("b")],
        vec![put("a"), nested(vec![put("a")], vec![])],
        vec![put("a"), nested(vec![], vec![put("a")])],
        vec![
            nested(vec![put("a")], vec![]),
            nested(vec![], vec![put("a")]),
        ],
        vec![delete("a", "z"), nested(vec![put("m")], vec![])],
        vec![nested(vec![delete("a", "z")], vec![]), put("m")],
        vec![
            nested(vec![delete("a", "z")], vec![]),
            nested(vec![put("m")], vec![]),
        ],
        vec![
            nested(vec![nested(vec![put("a")], vec![])], vec![]),
            put("a"),
        ],
    ] {
        assert!(
            matches!(check(ops.clone()), Err(Error::DuplicateKey)),
            "{ops:?}"
        );
    }
}

#[test]
fn a_transaction_may_write_what_does_not_overlap() {
    for ops in [
        vec![put("a"), put("b")],
        vec![delete("a", ""), delete("a", "c")],
        vec![delete("a", "c"), put("c")],
        vec![delete("b", "c"), delete("a", "b"), put("c")],
        vec![nested(vec![put("a")], vec![put("a")])],
        vec![get("a", false), put("a")],
    ] {
        assert!(check(ops.clone()).is_ok(), "{ops:?}");
    }
}

#[test]
fn operations_are_counted_with_those_above_them() {
    let many = |count: usize| vec![get("k", false); count];
    assert!(check(many(128)).is_ok());
    assert!(matches!(check(many(129)), Err(Error::TooManyOps)));
    assert!(check(vec![nested(many(127), vec![])]).is_ok());
    assert!(matches!(
        check(vec![nested(many(128), vec![])]),
        Err(Error::TooManyOps)
    ));
    let compares = TxnRequest {
        compare: vec![
            Compare {
                key: "k".into(),
                ..Compare::default()
            };
            129
        ],
        ..TxnRequest::default()
    };
    assert!(matches!(super::txn(&compares, 128), Err(Error::TooManyOps)));
}

#[test]
fn keys_values_and_leases_are_checked_in_every_operation() {
    let mut with_value = PutRequest {
        key: "a".into(),
        ignore_value: true,
        ..Default::default()
    };
    with_value.value = "v".into();
    assert!(matches!(super::put(&with_value), Err(Error::ValueProvided)));
    let with_lease = PutRequest {
        key: "a".into(),
        ignore_lease: true,
        lease: 7,
        ..Default::default()
    };
    assert!(matches!(super::put(&with_lease), Err(Error::LeaseProvided)));
    assert!(matches!(check(vec![put("")]), Err(Error::EmptyKey)));
    assert!(matches!(check(vec![delete("", "z")]), Err(Error::EmptyKey)));
    assert!(matches!(check(vec![get("", true)]), Err(Error::EmptyKey)));
    assert!(matches!(
        check(vec![RequestOp { request: None }]),
        Err(Error::KeyNotFound)
    ));
    let compare = TxnRequest {
        compare: vec![Compare::default()],
        ..TxnRequest::default()
    };
    assert!(matches!(super::txn(&compare, 128), Err(Error::EmptyKey)));
    let sort = RangeRequest {
        key: "a".into(),
        sort_order: 9,
        ..RangeRequest::default()
    };
    assert!(matches!(super::range(&sort), Err(Error::InvalidSortOption)));
    let target = RangeRequest {
        key: "a".into(),
        sort_target: -1,
        ..RangeRequest::default()
    };
    assert!(matches!(
        super::range(&target),
        Err(Error::InvalidSortOption)
    ));
}

#[test]
fn streamed_ranges_refuse_orders_and_filters() {
    let base = RangeRequest {
        key: "a".into(),
        ..RangeRequest::default()
    };
    assert!(super::range_stream(&base).is_ok());
    let ascending = RangeRequest {
        sort_order: 1,
        ..base.clone()
    };
    assert!(super::range_stream(&ascending).is_ok());
    for wrong in [
        RangeRequest {
            sort_order: 2,
            ..base.clone()
        },
        RangeRequest {
            sort_order: 1,
            sort_target: 3,
            ..base.clone()
        },
        RangeRequest {
            max_mod_revision: 3,
            ..base
        },
    ] {
        let code = super::range_stream(&wrong).unwrap_err().code();
        assert_eq!(code, tonic::Code::Unimplemented);
    }
}

#[test]
fn reading_transactions_are_recognised() {
    let txn = |success| TxnRequest {
        success,
        ..TxnRequest::default()
    };
    assert!(super::is_read_only(&txn(vec![get("a", false)])));
    assert!(super::is_serializable(&txn(vec![get("a", true)])));
    assert!(!super::is_serializable(&txn(vec![
        get("a", true),
        get("b", false)
    ])));
    assert!(!super::is_read_only(&txn(vec![get("a", false), put("b")])));
    assert!(!super::is_read_only(&txn(vec![nested(vec![], vec![])])));
}

#[test]
fn spans_merge_and_find() {
    let mut spans = Spans::default();
    for (start, end) in [("m", "p"), ("a", "c"), ("x", "b"), ("b", "n"), ("t", "v")] {
        spans.add(
            Bytes::from_static(start.as_bytes()),
            Bytes::from_static(end.as_bytes()),
        );
    }
    assert_eq!(spans.0.len(), 2);
    for (key, inside) in [
        ("a", true),
        ("o", true),
        ("p", false),
        ("s", false),
        ("u", true),
    ] {
        assert_eq!(
            spans.contains(&Bytes::from_static(key.as_bytes())),
            inside,
            "{key}"
        );
    }
}
