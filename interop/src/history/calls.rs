//! Calls as requests to a store, its answers as outcomes, and the drawing of calls: the same for
//! clients over a network and for those of the simulation.

use holdfast_proto::etcd::kv;
use holdfast_proto::etcd::rpc::{self, compare, request_op, response_op};
use rand::{Rng, RngExt as _};

use super::{Call, Event, Key, Outcome, Shown, Value};

/// Keys that drawn calls are about; those above are for leases.
pub const KEYS: Key = 6;

/// When each drawn key was last seen modified, to compare with.
#[derive(Debug, Clone, Default)]
pub struct Seen([i64; 6]);

impl Seen {
    /// Notes what the answer to a call showed.
    pub fn note(&mut self, call: Call, outcome: Outcome) {
        let Outcome::Done {
            revision, shown, ..
        } = outcome
        else {
            return;
        };
        let modified = shown.map_or(revision, |shown| shown.modified);
        let keys = match call {
            Call::PutBoth { keys, .. } => keys,
            Call::Get { key }
            | Call::Put { key, .. }
            | Call::Delete { key }
            | Call::Swap { key, .. } => [key, key],
        };
        for key in keys {
            if let Some(slot) = self.0.get_mut(usize::from(key)) {
                *slot = modified;
            }
        }
    }

    fn of(&self, key: Key) -> i64 {
        self.0.get(usize::from(key)).copied().unwrap_or(0)
    }
}

/// Draws a call; `value` gives one that nobody has written yet.
pub fn draw(rng: &mut impl Rng, seen: &Seen, value: impl FnOnce() -> Value) -> Call {
    let key = rng.random_range(0..KEYS);
    match rng.random_range(0..100) {
        0..35 => Call::Get { key },
        35..60 => Call::Put {
            key,
            value: value(),
            lease: 0,
        },
        60..70 => Call::Delete { key },
        70..80 => Call::PutBoth {
            keys: [key, (key + 1) % KEYS],
            value: value(),
        },
        _ => Call::Swap {
            key,
            expected: seen.of(key),
            value: value(),
        },
    }
}

/// `k7`.
pub fn key_name(key: Key) -> String {
    format!("k{key}")
}

/// `v7`.
pub fn value_name(value: Value) -> String {
    format!("v{value}")
}

fn number<N: std::str::FromStr>(prefix: &str, name: &[u8]) -> Result<N, String> {
    let text = std::str::from_utf8(name).ok();
    let digits = text.and_then(|text| text.strip_prefix(prefix));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("{} was written by nobody", name.escape_ascii()))
}

/// A key-value as the history names it.
fn shown(pair: &kv::KeyValue) -> Result<Shown, String> {
    Ok(Shown {
        value: number("v", &pair.value)?,
        created: pair.create_revision,
        modified: pair.mod_revision,
        version: pair.version,
        lease: pair.lease,
    })
}

/// A change as the history names it.
///
/// # Errors
/// For a key or a value that no call writes.
pub fn event(event: &kv::Event) -> Result<Event, String> {
    let pair = event.kv.as_ref().ok_or("an event without a key")?;
    let is_put = event.r#type == i32::from(kv::event::EventType::Put);
    Ok(Event {
        revision: pair.mod_revision,
        key: number("k", &pair.key)?,
        shown: is_put.then(|| shown(pair)).transpose()?,
    })
}

/// What an answer came to.
///
/// # Errors
/// Without a header, or when it shows a value that no call writes.
pub fn done(
    header: Option<&rpc::ResponseHeader>,
    has_written: bool,
    found: Option<&kv::KeyValue>,
) -> Result<Outcome, String> {
    Ok(Outcome::Done {
        revision: header.ok_or("an answer without a header")?.revision,
        has_written,
        shown: found.map(shown).transpose()?,
    })
}

/// What the answer to a transaction came to: it has written, or read one key instead.
///
/// # Errors
/// As [`done`].
pub fn txn_done(answer: &rpc::TxnResponse) -> Result<Outcome, String> {
    let first = answer.responses.first();
    let found = first.and_then(|first| match first.response.as_ref()? {
        response_op::Response::ResponseRange(range) => range.kvs.first(),
        _ => None,
    });
    done(answer.header.as_ref(), answer.succeeded, found)
}

/// A read of one key.
pub fn get(key: Key) -> rpc::RangeRequest {
    rpc::RangeRequest {
        key: key_name(key).into(),
        ..rpc::RangeRequest::default()
    }
}

/// A write of one key.
pub fn put(key: Key, value: Value, lease: i64) -> rpc::PutRequest {
    rpc::PutRequest {
        key: key_name(key).into(),
        value: value_name(value).into(),
        lease,
        ..rpc::PutRequest::default()
    }
}

/// A removal of one key.
pub fn delete(key: Key) -> rpc::DeleteRangeRequest {
    rpc::DeleteRangeRequest {
        key: key_name(key).into(),
        ..rpc::DeleteRangeRequest::default()
    }
}

/// One transaction that writes two keys.
pub fn put_both(keys: [Key; 2], value: Value) -> rpc::TxnRequest {
    rpc::TxnRequest {
        success: keys.map(|key| put_operation(key, value)).to_vec(),
        ..rpc::TxnRequest::default()
    }
}

/// A write if the key was last modified at `expected`, else a read.
pub fn swap(key: Key, expected: i64, value: Value) -> rpc::TxnRequest {
    let mut comparison = rpc::Compare {
        key: key_name(key).into(),
        target_union: Some(compare::TargetUnion::ModRevision(expected)),
        ..rpc::Compare::default()
    };
    comparison.set_target(compare::CompareTarget::Mod);
    comparison.set_result(compare::CompareResult::Equal);
    rpc::TxnRequest {
        compare: vec![comparison],
        success: vec![put_operation(key, value)],
        failure: vec![rpc::RequestOp {
            request: Some(request_op::Request::RequestRange(get(key))),
        }],
    }
}

fn put_operation(key: Key, value: Value) -> rpc::RequestOp {
    rpc::RequestOp {
        request: Some(request_op::Request::RequestPut(put(key, value, 0))),
    }
}
