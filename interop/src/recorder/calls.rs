//! One client's operations.

use std::sync::Arc;

use tokio::time::timeout;
use tonic::{Code, Status};

use super::{Actor, CALL_MAX};
use crate::client::Client;
use crate::history::calls::{self, Seen};
use crate::history::{Call, Operation, Outcome};

/// Operates until the recording ends.
pub(super) async fn act(mut actor: Actor) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut seen = Seen::default();
    while !actor.is_stopped() && operations.len() < actor.load.operations_max {
        let shared = Arc::clone(&actor.shared);
        let call = calls::draw(&mut actor.rng, &seen, || shared.value());
        let Some(client) = actor.client().await else {
            continue;
        };
        let operation = run(&mut actor, client, call).await;
        seen.note(call, operation.outcome);
        if matches!(operation.outcome, Outcome::Done { .. }) {
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
    let outcome = match call {
        Call::Get { key } => {
            let answer = client.kv.range(calls::get(key)).await?.into_inner();
            calls::done(answer.header.as_ref(), false, answer.kvs.first())
        }
        Call::Put { key, value, lease } => {
            let request = calls::put(key, value, lease);
            let answer = client.kv.put(request).await?.into_inner();
            calls::done(answer.header.as_ref(), true, None)
        }
        Call::Delete { key } => {
            let request = calls::delete(key);
            let answer = client.kv.delete_range(request).await?.into_inner();
            calls::done(answer.header.as_ref(), answer.deleted > 0, None)
        }
        Call::PutBoth { keys, value } => {
            let request = calls::put_both(keys, value);
            let answer = client.kv.txn(request).await?.into_inner();
            calls::done(answer.header.as_ref(), true, None)
        }
        Call::Swap {
            key,
            expected,
            value,
        } => {
            let request = calls::swap(key, expected, value);
            calls::txn_done(&client.kv.txn(request).await?.into_inner())
        }
    };
    outcome.map_err(Status::internal)
}
