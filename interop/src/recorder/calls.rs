//! One client's operations.

use holdfast_proto::etcd::kv;
use holdfast_proto::etcd::rpc::{self, compare, request_op, response_op};
use rand::RngExt as _;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{Actor, CALL_MAX, KEYS, key_name, shown};
use crate::client::Client;
use crate::history::{Call, Key, Operation, Outcome};

/// Operates until the recording ends.
pub(super) async fn act(mut actor: Actor) -> Vec<Operation> {
    let mut operations = Vec::new();
    // What was last seen of each key, to compare with.
    let mut modified = vec![0_i64; usize::from(KEYS)];
    while !actor.is_stopped() && operations.len() < actor.load.operations_max {
        let call = draw(&mut actor, &modified);
        let Some(client) = actor.client().await else {
            continue;
        };
        let operation = run(&mut actor, client, call).await;
        if let Outcome::Done {
            revision, shown, ..
        } = operation.outcome
        {
            let seen = shown.map_or(revision, |shown| shown.modified);
            for key in keys_of(call) {
                if let Some(slot) = modified.get_mut(usize::from(key)) {
                    *slot = seen;
                }
            }
            operations.push(operation);
            tokio::time::sleep(actor.load.pause).await;
        } else {
            // A read without an answer says nothing.
            if !matches!(call, Call::Get { .. }) {
                operations.push(operation);
            }
            actor.failed().await;
        }
    }
    operations
}

fn keys_of(call: Call) -> Vec<Key> {
    match call {
        Call::PutBoth { keys, .. } => keys.to_vec(),
        Call::Get { key }
        | Call::Put { key, .. }
        | Call::Delete { key }
        | Call::Swap { key, .. } => {
            vec![key]
        }
    }
}

fn draw(actor: &mut Actor, modified: &[i64]) -> Call {
    let key = actor.rng.random_range(0..KEYS);
    match actor.rng.random_range(0..100) {
        0..35 => Call::Get { key },
        35..60 => Call::Put {
            key,
            value: actor.shared.value(),
            lease: 0,
        },
        60..70 => Call::Delete { key },
        70..80 => Call::PutBoth {
            keys: [key, (key + 1) % KEYS],
            value: actor.shared.value(),
        },
        _ => Call::Swap {
            key,
            expected: modified.get(usize::from(key)).copied().unwrap_or(0),
            value: actor.shared.value(),
        },
    }
}

/// Runs one operation and notes when and what came of it.
pub(super) async fn run(actor: &mut Actor, client: Client, call: Call) -> Operation {
    let start = actor.shared.now();
    let answered = timeout(CALL_MAX, send(client, call)).await;
    let end = actor.shared.now();
    let outcome = match answered {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(status)) if is_refused(&status) => Outcome::Refused,
        Ok(Err(_)) | Err(_) => Outcome::Unknown,
    };
    if matches!(outcome, Outcome::Done { .. }) {
        actor
            .shared
            .answered
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    Operation {
        client: actor.number,
        start,
        end,
        call,
        outcome,
    }
}

/// Only what a store says before it does anything is a refusal; a lost connection is none.
fn is_refused(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::ResourceExhausted | Code::InvalidArgument | Code::NotFound
    )
}

async fn send(mut client: Client, call: Call) -> Result<Outcome, Status> {
    match call {
        Call::Get { key } => {
            let answer = client.kv.range(get(key)).await?.into_inner();
            done(answer.header, false, answer.kvs.first())
        }
        Call::Put { key, value, lease } => {
            let request = rpc::PutRequest {
                lease,
                ..put(key, value)
            };
            let answer = client.kv.put(request).await?.into_inner();
            done(answer.header, true, None)
        }
        Call::Delete { key } => {
            let request = rpc::DeleteRangeRequest {
                key: key_name(key).into(),
                ..rpc::DeleteRangeRequest::default()
            };
            let answer = client.kv.delete_range(request).await?.into_inner();
            done(answer.header, answer.deleted > 0, None)
        }
        Call::PutBoth { keys, value } => {
            let request = rpc::TxnRequest {
                success: keys.iter().map(|key| put_operation(*key, value)).collect(),
                ..rpc::TxnRequest::default()
            };
            let answer = client.kv.txn(request).await?.into_inner();
            done(answer.header, true, None)
        }
        Call::Swap {
            key,
            expected,
            value,
        } => {
            let answer = client
                .kv
                .txn(swap(key, expected, value))
                .await?
                .into_inner();
            let found =
                answer
                    .responses
                    .first()
                    .and_then(|response| match response.response.as_ref()? {
                        response_op::Response::ResponseRange(range) => range.kvs.first(),
                        _ => None,
                    });
            done(answer.header, answer.succeeded, found)
        }
    }
}

fn done(
    header: Option<rpc::ResponseHeader>,
    has_written: bool,
    found: Option<&kv::KeyValue>,
) -> Result<Outcome, Status> {
    let wrong = |what: String| Status::internal(what);
    let revision = header
        .ok_or_else(|| wrong("no header".to_owned()))?
        .revision;
    let shown = found
        .map(shown)
        .transpose()
        .map_err(|error| wrong(error.to_string()))?;
    Ok(Outcome::Done {
        revision,
        has_written,
        shown,
    })
}

fn get(key: Key) -> rpc::RangeRequest {
    rpc::RangeRequest {
        key: key_name(key).into(),
        ..rpc::RangeRequest::default()
    }
}

fn put(key: Key, value: u64) -> rpc::PutRequest {
    rpc::PutRequest {
        key: key_name(key).into(),
        value: format!("v{value}").into_bytes().into(),
        ..rpc::PutRequest::default()
    }
}

fn put_operation(key: Key, value: u64) -> rpc::RequestOp {
    rpc::RequestOp {
        request: Some(request_op::Request::RequestPut(put(key, value))),
    }
}

fn swap(key: Key, expected: i64, value: u64) -> rpc::TxnRequest {
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
