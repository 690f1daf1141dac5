//! Requests in words, for the log: keys, numbers and sizes as etcd writes them, and never a value.
//! What would be long is cut.

use holdfast_proto::etcd::rpc::{self, compare::TargetUnion, request_op};

/// Bytes of a key that are shown.
const KEY_LEN_MAX: usize = 128;
/// Comparisons of a transaction, and operations of each of its branches, that are shown.
const SHOWN_MAX: usize = 8;
/// Bytes of a transaction's words.
const TXN_LEN_MAX: usize = 2048;

fn key(key: &[u8]) -> String {
    let shown = key.get(..KEY_LEN_MAX).unwrap_or(key);
    let more = if shown.len() < key.len() { "..." } else { "" };
    format!("\"{}{more}\"", shown.escape_ascii())
}

fn keys(first: &[u8], end: &[u8]) -> Vec<String> {
    let mut parts = vec![format!("key:{}", key(first))];
    if !end.is_empty() {
        parts.push(format!("range_end:{}", key(end)));
    }
    parts
}

/// A range.
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

/// A put.
pub(super) fn put(name: &[u8], value_len: usize, lease: i64) -> String {
    let lease = if lease == 0 {
        String::new()
    } else {
        format!(" lease:{lease}")
    };
    format!("key:{} value_size:{value_len}{lease}", key(name))
}

/// A deletion.
pub(super) fn delete(request: &rpc::DeleteRangeRequest) -> String {
    keys(&request.key, &request.range_end).join(" ")
}

/// What is kept of a transaction until it is known whether it was slow: the part that is shown,
/// and how much there is.
#[derive(Debug)]
pub(super) struct TxnWords {
    /// Cut to what is shown.
    shown: rpc::TxnRequest,
    counts: [usize; 3],
}

impl TxnWords {
    pub(super) fn of(request: &rpc::TxnRequest) -> TxnWords {
        fn first<T: Clone>(all: &[T]) -> Vec<T> {
            all.get(..SHOWN_MAX).unwrap_or(all).to_vec()
        }
        TxnWords {
            shown: rpc::TxnRequest {
                compare: first(&request.compare),
                success: first(&request.success),
                failure: first(&request.failure),
            },
            counts: counts(request),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = txn(&self.shown, self.counts);
        // All of it is ASCII.
        if text.len() > TXN_LEN_MAX {
            text.truncate(TXN_LEN_MAX);
            text.push_str("...");
        }
        text
    }
}

fn counts(request: &rpc::TxnRequest) -> [usize; 3] {
    [
        request.compare.len(),
        request.success.len(),
        request.failure.len(),
    ]
}

fn txn(shown: &rpc::TxnRequest, [compares, successes, failures]: [usize; 3]) -> String {
    format!(
        "compare:<{}> success:<{}> failure:<{}>",
        list(&shown.compare, compares, compare),
        list(&shown.success, successes, operation),
        list(&shown.failure, failures, operation)
    )
}

/// The first of `count` items, and how many more there are.
fn list<T>(items: &[T], count: usize, words: impl Fn(&T) -> String) -> String {
    let shown = items.iter().take(SHOWN_MAX);
    let text = shown.map(words).collect::<Vec<_>>().join(" ");
    let more = count.saturating_sub(SHOWN_MAX);
    if more > 0 {
        return format!("{text} and {more} more");
    }
    text
}

/// A comparison; what is the default is left out, as etcd does.
fn compare(request: &rpc::Compare) -> String {
    let mut parts = Vec::new();
    if request.result() != rpc::compare::CompareResult::Equal {
        parts.push(format!("result:{}", request.result().as_str_name()));
    }
    if request.target() != rpc::compare::CompareTarget::Version {
        parts.push(format!("target:{}", request.target().as_str_name()));
    }
    parts.push(format!("key:{}", key(&request.key)));
    parts.extend(request.target_union.as_ref().map(|union| match union {
        TargetUnion::Version(number) => format!("version:{number}"),
        TargetUnion::CreateRevision(number) => format!("create_revision:{number}"),
        TargetUnion::ModRevision(number) => format!("mod_revision:{number}"),
        TargetUnion::Value(value) => format!("value_size:{}", value.len()),
        TargetUnion::Lease(number) => format!("lease:{number}"),
    }));
    if !request.range_end.is_empty() {
        parts.push(format!("range_end:{}", key(&request.range_end)));
    }
    parts.join(" ")
}

fn operation(request: &rpc::RequestOp) -> String {
    match &request.request {
        None => "none".to_owned(),
        Some(request_op::Request::RequestRange(request)) => {
            format!("request_range:<{}>", range(request))
        }
        Some(request_op::Request::RequestPut(request)) => format!(
            "request_put:<{}>",
            put(&request.key, request.value.len(), request.lease)
        ),
        Some(request_op::Request::RequestDeleteRange(request)) => {
            format!("request_delete_range:<{}>", delete(request))
        }
        // What is within it is told by numbers: it may hold transactions itself.
        Some(request_op::Request::RequestTxn(request)) => {
            let [compares, successes, failures] = counts(request);
            format!("request_txn:<compares:{compares} success:{successes} failure:{failures}>")
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

    fn op(request: request_op::Request) -> rpc::RequestOp {
        rpc::RequestOp {
            request: Some(request),
        }
    }

    fn put_op(key: &str, value: &str) -> rpc::RequestOp {
        op(request_op::Request::RequestPut(rpc::PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..rpc::PutRequest::default()
        }))
    }

    #[test]
    fn a_transaction_is_described_by_its_comparisons_and_operations_without_values() {
        let compare = |target_union, result, target: rpc::compare::CompareTarget| rpc::Compare {
            result,
            target: target.into(),
            key: "k".into(),
            target_union: Some(target_union),
            ..rpc::Compare::default()
        };
        let range = rpc::RangeRequest {
            key: "k".into(),
            ..rpc::RangeRequest::default()
        };
        let delete = rpc::DeleteRangeRequest {
            key: "a".into(),
            range_end: "b".into(),
            ..rpc::DeleteRangeRequest::default()
        };
        let nested = rpc::TxnRequest {
            success: vec![put_op("x", "secret")],
            ..rpc::TxnRequest::default()
        };
        let request = rpc::TxnRequest {
            compare: vec![
                compare(
                    TargetUnion::ModRevision(7),
                    0,
                    rpc::compare::CompareTarget::Mod,
                ),
                compare(
                    TargetUnion::Value("secret".into()),
                    3,
                    rpc::compare::CompareTarget::Value,
                ),
            ],
            success: vec![
                put_op("k", "secret"),
                op(request_op::Request::RequestTxn(nested)),
            ],
            failure: vec![
                op(request_op::Request::RequestRange(range)),
                op(request_op::Request::RequestDeleteRange(delete)),
            ],
        };
        assert_eq!(
            TxnWords::of(&request).text(),
            concat!(
                r#"compare:<target:MOD key:"k" mod_revision:7 "#,
                r#"result:NOT_EQUAL target:VALUE key:"k" value_size:6> "#,
                r#"success:<request_put:<key:"k" value_size:6> "#,
                "request_txn:<compares:0 success:1 failure:0>> ",
                r#"failure:<request_range:<key:"k"> "#,
                r#"request_delete_range:<key:"a" range_end:"b">>"#,
            )
        );
    }

    #[test]
    fn the_words_of_a_large_transaction_are_cut() {
        let request = rpc::TxnRequest {
            success: (0..128).map(|at| put_op(&format!("k{at}"), "v")).collect(),
            ..rpc::TxnRequest::default()
        };
        let text = TxnWords::of(&request).text();
        assert!(
            text.ends_with(r#"request_put:<key:"k7" value_size:1> and 120 more> failure:<>"#),
            "{text}"
        );
        let long = "\u{1}".repeat(1000);
        let request = rpc::TxnRequest {
            success: (0..128).map(|_| put_op(&long, "v")).collect(),
            ..rpc::TxnRequest::default()
        };
        assert_eq!(TxnWords::of(&request).text().len(), TXN_LEN_MAX + 3);
    }
}
