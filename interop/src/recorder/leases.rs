//! Leases that are granted, kept alive for a while and then left to run out.

use std::time::Duration;

use holdfast_proto::etcd::rpc;
use rand::RngExt as _;
use tokio::time::{sleep, timeout};

use super::{Actor, CALL_MAX, calls};
use crate::history::{Call, Key, Lease, Nanos, Operation, Outcome};

/// Shorter ones are made longer by the store: it must outlive an election.
const TTL_S: i64 = 3;

/// Uses one lease after the other on `key` until the recording ends.
pub(super) async fn act(mut actor: Actor, key: Key) -> (Vec<Operation>, Vec<Lease>) {
    let (mut operations, mut leases) = (Vec::new(), Vec::new());
    while !actor.is_stopped() {
        let Some(mut lease) = grant(&mut actor).await else {
            actor.failed().await;
            continue;
        };
        if let Some(client) = actor.client().await {
            let call = Call::Put {
                key,
                value: actor.shared.value(),
                lease: lease.id,
            };
            let operation = calls::run(&mut actor, client, call).await;
            let is_done = matches!(operation.outcome, Outcome::Done { .. });
            operations.push(operation);
            if !is_done {
                actor.failed().await;
            }
        }
        keep(&mut actor, &mut lease).await;
        // Left alone, it runs out; one read in between sees whether that is too early.
        let end = actor.shared.now() + 2 * lease.ttl;
        while actor.shared.now() < end && !actor.is_stopped() {
            if let Some(client) = actor.client().await {
                let operation = calls::run(&mut actor, client, Call::Get { key }).await;
                match operation.outcome {
                    Outcome::Done { .. } => operations.push(operation),
                    _ => actor.failed().await,
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        leases.push(lease);
    }
    (operations, leases)
}

async fn grant(actor: &mut Actor) -> Option<Lease> {
    let mut client = actor.client().await?;
    let renewed = actor.shared.now();
    let request = rpc::LeaseGrantRequest { ttl: TTL_S, id: 0 };
    let answer = timeout(CALL_MAX, client.lease.lease_grant(request)).await;
    let answer = answer.ok()?.ok()?.into_inner();
    Some(Lease {
        id: answer.id,
        ttl: nanos_of(answer.ttl),
        renewed,
        is_revoked: false,
    })
}

/// Renews the lease a few times, through whichever member answers.
async fn keep(actor: &mut Actor, lease: &mut Lease) {
    for _ in 0..actor.rng.random_range(0..5) {
        sleep(Duration::from_millis(700)).await;
        if actor.is_stopped() {
            return;
        }
        let sent = actor.shared.now();
        match renew(actor, lease.id).await {
            Some(ttl @ 1..) => {
                lease.renewed = sent;
                lease.ttl = nanos_of(ttl);
            }
            Some(_) => return,
            None => actor.failed().await,
        }
    }
}

/// The time to live that a renewal gave; 0: there is no such lease any more.
async fn renew(actor: &mut Actor, id: i64) -> Option<i64> {
    let mut client = actor.client().await?;
    let requests = tokio_stream::iter([rpc::LeaseKeepAliveRequest { id }]);
    let answered = timeout(CALL_MAX, async {
        let mut answers = client.lease.lease_keep_alive(requests).await?.into_inner();
        answers.message().await
    });
    Some(answered.await.ok()?.ok()??.ttl)
}

fn nanos_of(ttl_s: i64) -> Nanos {
    u64::try_from(ttl_s)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
}
