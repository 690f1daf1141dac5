//! One call of each kind at one member, all at once, and what came of each as a line to compare.

use std::time::Duration;

use anyhow::Result;
use futures::future::{BoxFuture, join_all};
use holdfast_interop::client::Client;
use holdfast_proto::etcd::rpc::{self, watch_request};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

/// What a client waits for at most: longer than any member may make it wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a watch that was created is listened to.
const LISTEN: Duration = Duration::from_secs(3);

type Asked = (&'static str, BoxFuture<'static, Result<String, Status>>);

/// What the member at `endpoint` says to each kind of call, in a fixed order. `lease` is one that
/// was granted, `member` one of the cluster.
pub(crate) async fn everything(endpoint: &str, lease: i64, member: u64) -> Result<Vec<String>> {
    let client = Client::connect(endpoint).await?;
    let mut asked = keys(&client);
    asked.extend(leases(&client, lease));
    asked.extend(members(&client));
    asked.extend(upkeep(&client));
    asked.extend(watches(&client));
    let answers = asked.into_iter().map(|(name, work)| line(name, work));
    let mut told = join_all(answers).await;
    // By themselves: etcd forgets a change of membership that comes while another one is under
    // way, and a member counts as behind that is a few entries of a short log behind.
    told.push(line("member promote", promote(client.clone(), member)).await);
    told.push(line("member add", add_learner(client)).await);
    Ok(told)
}

async fn line(name: &str, work: impl Future<Output = Result<String, Status>>) -> String {
    match timeout(PATIENCE, work).await {
        Ok(Ok(text)) => format!("{name}: {text}"),
        Ok(Err(status)) => format!("{name}: {:?} {}", status.code(), status.message()),
        Err(_) => format!("{name}: nothing within {PATIENCE:?}"),
    }
}

fn told<T>(answer: Result<Response<T>, Status>) -> Result<String, Status> {
    answer.map(|_| "done".to_owned())
}

/// The call with the metadata of a client that wants a leader.
fn wants_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = tonic::metadata::MetadataValue::from_static("true");
    request.metadata_mut().insert("hasleader", value);
    request
}

fn key(name: &str) -> rpc::PutRequest {
    rpc::PutRequest {
        key: name.as_bytes().to_vec().into(),
        ..rpc::PutRequest::default()
    }
}

fn range(is_serializable: bool) -> rpc::RangeRequest {
    rpc::RangeRequest {
        key: b"asked".to_vec().into(),
        serializable: is_serializable,
        ..rpc::RangeRequest::default()
    }
}

fn keys(client: &Client) -> Vec<Asked> {
    let of = || client.kv.clone();
    let (mut put, mut want, mut get, mut local) = (of(), of(), of(), of());
    let (mut txn, mut read, mut delete, mut compact) = (of(), of(), of(), of());
    let only_reads = rpc::TxnRequest {
        success: vec![rpc::RequestOp {
            request: Some(rpc::request_op::Request::RequestRange(range(true))),
        }],
        ..rpc::TxnRequest::default()
    };
    let writes = rpc::TxnRequest {
        success: vec![rpc::RequestOp {
            request: Some(rpc::request_op::Request::RequestPut(key("asked/txn"))),
        }],
        ..rpc::TxnRequest::default()
    };
    let one = rpc::DeleteRangeRequest {
        key: b"asked/gone".to_vec().into(),
        ..rpc::DeleteRangeRequest::default()
    };
    let first = rpc::CompactionRequest {
        revision: 1,
        physical: false,
    };
    let wanted = wants_leader(key("asked/put"));
    vec![
        (
            "put",
            Box::pin(async move { told(put.put(key("asked/put")).await) }),
        ),
        (
            "put that wants a leader",
            Box::pin(async move { told(want.put(wanted).await) }),
        ),
        (
            "get",
            Box::pin(async move { told(get.range(range(false)).await) }),
        ),
        (
            "serializable get",
            Box::pin(async move { told(local.range(range(true)).await) }),
        ),
        (
            "txn that writes",
            Box::pin(async move { told(txn.txn(writes).await) }),
        ),
        (
            "serializable txn",
            Box::pin(async move { told(read.txn(only_reads).await) }),
        ),
        (
            "delete",
            Box::pin(async move { told(delete.delete_range(one).await) }),
        ),
        (
            "compact",
            Box::pin(async move { told(compact.compact(first).await) }),
        ),
    ]
}

fn leases(client: &Client, id: i64) -> Vec<Asked> {
    let of = || client.lease.clone();
    let (mut grant, mut revoke, mut keep, mut left, mut list) = (of(), of(), of(), of(), of());
    let granted = rpc::LeaseGrantRequest { ttl: 100, id: 0 };
    let question = rpc::LeaseTimeToLiveRequest { id, keys: false };
    vec![
        (
            "lease grant",
            Box::pin(async move { told(grant.lease_grant(granted).await) }),
        ),
        (
            "lease revoke",
            Box::pin(async move {
                told(
                    revoke
                        .lease_revoke(rpc::LeaseRevokeRequest { id: 77 })
                        .await,
                )
            }),
        ),
        (
            "lease keep alive",
            Box::pin(async move {
                let requests = tokio_stream::iter([rpc::LeaseKeepAliveRequest { id }]);
                let answers = keep.lease_keep_alive(requests).await?;
                first(answers.into_inner()).await
            }),
        ),
        (
            "lease time to live",
            Box::pin(async move { told(left.lease_time_to_live(question).await) }),
        ),
        (
            "lease list",
            Box::pin(async move { told(list.lease_leases(rpc::LeaseLeasesRequest {}).await) }),
        ),
    ]
}

/// Whether there is a first answer.
async fn first<T>(mut answers: Streaming<T>) -> Result<String, Status> {
    let answer = answers.message().await?;
    Ok(answer.map_or("an end", |_| "an answer").to_owned())
}

fn members(client: &Client) -> Vec<Asked> {
    let of = || client.cluster.clone();
    let (mut list, mut local) = (of(), of());
    let ask = |linearizable| rpc::MemberListRequest { linearizable };
    let (linearizable, serializable) = (ask(true), ask(false));
    vec![
        (
            "member list",
            Box::pin(async move { told(list.member_list(linearizable).await) }),
        ),
        (
            "serializable member list",
            Box::pin(async move { told(local.member_list(serializable).await) }),
        ),
    ]
}

async fn promote(mut client: Client, id: u64) -> Result<String, Status> {
    told(
        client
            .cluster
            .member_promote(rpc::MemberPromoteRequest { id })
            .await,
    )
}

async fn add_learner(mut client: Client) -> Result<String, Status> {
    let learner = rpc::MemberAddRequest {
        peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()],
        is_learner: true,
    };
    told(client.cluster.member_add(learner).await)
}

fn upkeep(client: &Client) -> Vec<Asked> {
    let of = || client.maintenance.clone();
    let (mut status, mut alarms, mut defragment, mut hash, mut snapshot) =
        (of(), of(), of(), of(), of());
    vec![
        (
            "status",
            Box::pin(async move {
                let answer = status.status(rpc::StatusRequest {}).await?.into_inner();
                let leads = if answer.leader == 0 {
                    "no leader"
                } else {
                    "a leader"
                };
                Ok(format!("{leads}, {:?}", answer.errors))
            }),
        ),
        (
            "alarms",
            Box::pin(async move { told(alarms.alarm(rpc::AlarmRequest::default()).await) }),
        ),
        (
            "defragment",
            Box::pin(async move { told(defragment.defragment(rpc::DefragmentRequest {}).await) }),
        ),
        (
            "hash",
            Box::pin(async move { told(hash.hash_kv(rpc::HashKvRequest { revision: 0 }).await) }),
        ),
        (
            "snapshot",
            Box::pin(async move {
                let answers = snapshot.snapshot(rpc::SnapshotRequest {}).await?;
                first(answers.into_inner()).await
            }),
        ),
    ]
}

fn watches(client: &Client) -> Vec<Asked> {
    let (mut plain, mut wants) = (client.watch.clone(), client.watch.clone());
    vec![
        (
            "watch",
            Box::pin(async move {
                let answers = plain.watch(watch_requests()).await?;
                watched(answers.into_inner()).await
            }),
        ),
        (
            "watch that wants a leader",
            Box::pin(async move {
                let answers = wants.watch(wants_leader(watch_requests())).await?;
                watched(answers.into_inner()).await
            }),
        ),
    ]
}

/// A watch of a key that nobody writes.
fn watch_requests() -> impl tokio_stream::Stream<Item = rpc::WatchRequest> + Send + 'static {
    let create = rpc::WatchCreateRequest {
        key: b"never".to_vec().into(),
        ..rpc::WatchCreateRequest::default()
    };
    let request = rpc::WatchRequest {
        request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
    };
    tokio_stream::StreamExt::chain(tokio_stream::iter([request]), tokio_stream::pending())
}

/// What a watch is told while it is listened to.
async fn watched(mut answers: Streaming<rpc::WatchResponse>) -> Result<String, Status> {
    let mut told = Vec::new();
    loop {
        match timeout(LISTEN, answers.message()).await {
            Ok(Ok(Some(answer))) if answer.created => told.push("created".to_owned()),
            Ok(Ok(Some(answer))) if answer.canceled => told.push(answer.cancel_reason),
            Ok(Ok(Some(_))) => told.push("an event".to_owned()),
            Ok(Ok(None)) => told.push("an end".to_owned()),
            Ok(Err(status)) => told.push(format!("{:?} {}", status.code(), status.message())),
            Err(_) => return Ok(told.join(", ")),
        }
        if told.len() > 3 {
            return Ok(told.join(", "));
        }
    }
}
