//! A leader that stood still while another one was elected, and goes on as if nothing had been.
//!
//! What clients sent it in the meantime waits in its sockets, together with what its peers have to
//! say: it must not answer the one before it has understood the other.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::Peers;
use holdfast_interop::wait;
use holdfast_proto::etcd::rpc;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::{Code, Request, Status};

use crate::long;
use crate::pair::our_kind;

/// Connections to the leader, opened before it stands still.
const CONNECTIONS: usize = 8;
/// A lease that is kept alive meanwhile by another member.
const TTL_S: i64 = 3;
/// Longer than the lease and any election.
const STANDS_STILL: Duration = Duration::from_secs(4);
/// The pause between two renewals.
const RENEWAL: Duration = Duration::from_millis(300);
/// What waited must be answered, one way or the other.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Round after round about six seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_answers_nothing_stale_and_loses_nothing_it_acknowledged()
-> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let mut cluster = Cluster::start(&peers, our_kind(), 3, &[])?;
    let mut acknowledged = Vec::new();
    for round in 0..long::rounds(3, 100) {
        let wrote = strike(&mut cluster, round).await;
        acknowledged.extend(wrote.with_context(|| format!("round {round}"))?);
    }
    for endpoint in cluster.endpoints() {
        let mut client = Client::connect(&endpoint).await?;
        for key in &acknowledged {
            let answer = client.kv.range(get(key)).await?.into_inner();
            ensure!(answer.count == 1, "{key} was acknowledged and is gone");
        }
    }
    Ok(())
}

fn get(key: &str) -> Request<rpc::RangeRequest> {
    limited(Request::new(rpc::RangeRequest {
        key: key.to_owned().into(),
        ..rpc::RangeRequest::default()
    }))
}

fn put(key: &str, value: &str, lease: i64) -> Request<rpc::PutRequest> {
    let mut request = Request::new(rpc::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        lease,
        ..rpc::PutRequest::default()
    });
    request.set_timeout(ANSWER_MAX);
    request
}

/// One pause of the leader; the keys whose writes were acknowledged.
async fn strike(cluster: &mut Cluster, round: usize) -> Result<Vec<String>> {
    let old = cluster.leader()?;
    let mut other = Client::connect(&cluster.endpoint((old + 1) % 3)).await?;
    let mut waiting = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(&cluster.endpoint(old)).await?;
        client.kv.range(get("value")).await?;
        waiting.push(client);
    }
    let grant = rpc::LeaseGrantRequest { ttl: TTL_S, id: 0 };
    let lease = other.lease.lease_grant(grant).await?.into_inner().id;
    let leased = format!("leased/{round}");
    other.kv.put(put(&leased, "kept", lease)).await?;
    cluster.signal(old, Signal::STOP)?;
    let value = round.to_string();
    let written = go_on(&mut other, lease, &value).await;
    // Sent to the one that stands still, after something newer was acknowledged by its successor.
    let asked = written.map(|revision| (revision, ask(&waiting, lease, &value, revision, round)));
    // What was sent is in its sockets by then.
    sleep(RENEWAL).await;
    cluster.signal(old, Signal::CONT)?;
    let (_, mut asked) = asked?;
    let mut acknowledged = Vec::new();
    while let Some(answer) = asked.join_next().await {
        acknowledged.extend(answer??);
    }
    // The lease outlived a leader that missed all its renewals.
    let left = timeout(ANSWER_MAX, renew(&mut other, lease)).await??;
    ensure!(
        left > 0,
        "a lease that was kept alive ran out after the pause"
    );
    let kept = other.kv.range(get(&leased)).await?.into_inner().count;
    ensure!(kept == 1, "a lease that was kept alive ran out");
    let revoke = rpc::LeaseRevokeRequest { id: lease };
    other
        .lease
        .lease_revoke(limited(Request::new(revoke)))
        .await?;
    Ok(acknowledged)
}

/// Writes and keeps a lease alive while the old leader stands still; the revision written.
async fn go_on(client: &mut Client, lease: i64, value: &str) -> Result<i64> {
    let start = wait::now();
    let mut written = None;
    while start.elapsed() < STANDS_STILL || written.is_none() {
        ensure!(start.elapsed() < wait::READY_MAX, "no successor");
        // What was sent to the old leader has no answer, and is sent again.
        if written.is_none() {
            let put = timeout(RENEWAL, client.kv.put(put("value", value, 0))).await;
            if let Ok(Ok(answer)) = put {
                let header = answer.into_inner().header.context("no header")?;
                written = Some(header.revision);
            }
        }
        if let Ok(Ok(ttl)) = timeout(RENEWAL, renew(client, lease)).await {
            ensure!(ttl > 0, "a lease that was kept alive ran out");
        }
        sleep(RENEWAL).await;
    }
    written.context("nothing was written")
}

/// What is left of the lease, 0 when it is gone.
async fn renew(client: &mut Client, id: i64) -> Result<i64> {
    let requests = tokio_stream::iter([rpc::LeaseKeepAliveRequest { id }]);
    let mut answers = client.lease.lease_keep_alive(requests).await?.into_inner();
    Ok(answers.message().await?.context("no answer")?.ttl)
}

/// Sends reads, writes and renewals over connections to a member that stands still. Each answer
/// must be an error or newer than `revision`; the keys written are given.
fn ask(
    connections: &[Client],
    lease: i64,
    value: &str,
    revision: i64,
    round: usize,
) -> JoinSet<Result<Option<String>>> {
    let mut asked = JoinSet::new();
    for (number, client) in connections.iter().enumerate() {
        let (mut client, value) = (client.clone(), value.to_owned());
        match number % 4 {
            0 | 1 => asked.spawn(async move {
                let answer = client.kv.range(get("value")).await;
                let Some(answer) = unless_refused(answer)? else {
                    return Ok(None);
                };
                let shown = answer.kvs.first().map(|pair| pair.value.to_vec());
                let at = answer.header.map_or(0, |header| header.revision);
                let is_new = at >= revision && shown.as_deref() == Some(value.as_bytes());
                ensure!(
                    is_new,
                    "a stale read: {shown:?} at {at}; {value} at {revision}"
                );
                Ok(None)
            }),
            2 => asked.spawn(async move {
                let key = format!("waited/{round}/{number}");
                let answer = client.kv.put(put(&key, "x", 0)).await;
                let Some(answer) = unless_refused(answer)? else {
                    return Ok(None);
                };
                let at = answer.header.map_or(0, |header| header.revision);
                ensure!(at > revision, "a write at {at}, after {revision}");
                Ok(Some(key))
            }),
            _ => asked.spawn(async move {
                let requests = tokio_stream::iter([rpc::LeaseKeepAliveRequest { id: lease }]);
                let answers = client.lease.lease_keep_alive(requests).await;
                let Some(mut answers) = unless_refused(answers)? else {
                    return Ok(None);
                };
                if let Ok(Some(answer)) = answers.message().await {
                    ensure!(answer.ttl > 0, "a lease that is kept alive is called gone");
                }
                Ok(None)
            }),
        };
    }
    asked
}

/// The answer, or nothing for an error that a client takes for "try again".
fn unless_refused<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) => {
            Ok(None)
        }
        Err(status) => Err(status).context("an error that is none of a lost leader"),
    }
}
