//! What makes a member pass a failpoint that load alone does not lead it to.

use std::time::Duration;

use anyhow::{Context as _, Result};
use holdfast_interop::client::Client;
use holdfast_interop::linked::Linked;
use holdfast_interop::mesh::Link;
use holdfast_interop::recorder::Recording;
use holdfast_proto::etcd::rpc::{self, compare, request_op, watch_request};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use super::nemesis::GOES_ON_MAX;

/// How long a call may take that a failpoint may never let be answered.
const CALL_MAX: Duration = Duration::from_secs(5);
/// How long a follower is cut off, in operations of the others: more than the log keeps.
const MISSED: u64 = 250;
/// Rows that one step of a compaction does not come to the end of.
const OLD_ROWS: usize = 1500;
/// Keys written in one transaction.
const TXN_KEYS: usize = 100;
/// Revisions to compact at, none of them one of the recorded clients'.
const OLD_REVISIONS: i64 = 120;
/// Bytes of a large command, and how many: more than a first log segment holds.
const LARGE_BYTES: usize = 1 << 20;
const LARGE_COUNT: usize = 10;

/// What makes a member pass a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// The clients' load does.
    Load,
    /// A compaction.
    Compaction,
    /// A defragmentation of the member.
    Defragmentation,
    /// A follower that was away is sent a snapshot.
    Snapshot,
    /// Large commands that write nothing, so that no revision is missed: they fill the log.
    LargeCommands,
    /// A renewal of a lease and a question for its time, at the leader and through followers.
    LeaseTime,
    /// A streamed range of the member.
    RangeStream,
    /// A watch on the member.
    Watch,
    /// A learner that comes and goes.
    Membership,
    /// A start of the member.
    Start,
}

/// Writes what compactions can work on, before anything is recorded.
pub(crate) async fn prepare(endpoint: &str) -> Result<()> {
    let mut client = Client::connect(endpoint).await?;
    for first in (0..OLD_ROWS).step_by(TXN_KEYS) {
        let puts = (first..first + TXN_KEYS).map(|number| rpc::RequestOp {
            request: Some(request_op::Request::RequestPut(put(
                &format!("old/{number:06}"),
                b"old".to_vec(),
            ))),
        });
        let txn = rpc::TxnRequest {
            success: puts.collect(),
            ..rpc::TxnRequest::default()
        };
        client.kv.txn(txn).await?;
    }
    for number in 0..OLD_REVISIONS {
        let value = number.to_string().into_bytes();
        client.kv.put(put("older", value)).await?;
    }
    Ok(())
}

fn put(key: &str, value: Vec<u8>) -> rpc::PutRequest {
    rpc::PutRequest {
        key: key.as_bytes().to_vec().into(),
        value: value.into(),
        ..rpc::PutRequest::default()
    }
}

/// A write that does not happen: its comparison does not hold.
fn never(key: &str, value: Vec<u8>) -> rpc::TxnRequest {
    let mut is_there = rpc::Compare {
        key: key.as_bytes().to_vec().into(),
        target_union: Some(compare::TargetUnion::Version(1)),
        ..rpc::Compare::default()
    };
    is_there.set_target(compare::CompareTarget::Version);
    is_there.set_result(compare::CompareResult::Equal);
    rpc::TxnRequest {
        compare: vec![is_there],
        success: vec![rpc::RequestOp {
            request: Some(request_op::Request::RequestPut(put(key, value))),
        }],
        ..rpc::TxnRequest::default()
    }
}

impl Trigger {
    /// Before the point is told anything: what has to be so that [`Trigger::pull`] works.
    pub(crate) async fn cock(
        self,
        cluster: &Linked,
        recording: &Recording,
        victim: usize,
    ) -> Result<()> {
        if self == Self::Snapshot {
            cluster.links().set_all_of(victim, cluster.len(), Link::Cut);
            // Who asks the member that is away waits for long.
            recording.progress(MISSED, 2 * GOES_ON_MAX).await?;
        }
        Ok(())
    }

    /// Leads `victim` to the point, once or again and again, until nobody listens any more.
    ///
    /// Errors are no news: the member may be dead, or stalled.
    pub(crate) async fn pull(self, endpoints: Vec<String>, victim: usize) {
        loop {
            let pulled = timeout(CALL_MAX, self.once(&endpoints, victim)).await;
            drop(pulled);
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn once(self, endpoints: &[String], victim: usize) -> Result<()> {
        let mut own = Client::connect(&endpoints[victim]).await?;
        match self {
            Self::Load | Self::Snapshot | Self::Start => {}
            Self::Compaction => compact(&mut own).await?,
            Self::Defragmentation => {
                let request = rpc::DefragmentRequest {};
                own.maintenance.defragment(request).await?;
            }
            Self::LargeCommands => {
                for number in 0..LARGE_COUNT {
                    let value = vec![u8::try_from(number)?; LARGE_BYTES];
                    own.kv.txn(never("large", value)).await?;
                }
            }
            Self::LeaseTime => {
                for endpoint in endpoints {
                    let mut client = Client::connect(endpoint).await?;
                    let grant = rpc::LeaseGrantRequest { ttl: 60, id: 0 };
                    let id = client.lease.lease_grant(grant).await?.into_inner().id;
                    let renewals = tokio_stream::iter([rpc::LeaseKeepAliveRequest { id }]);
                    let renewed = client.lease.lease_keep_alive(renewals).await?;
                    renewed.into_inner().message().await?;
                    let ask = rpc::LeaseTimeToLiveRequest { id, keys: true };
                    client.lease.lease_time_to_live(ask).await?;
                }
            }
            Self::RangeStream => {
                let range = rpc::RangeRequest {
                    key: b"old/".to_vec().into(),
                    range_end: b"old0".to_vec().into(),
                    ..rpc::RangeRequest::default()
                };
                let mut pieces = own.kv.range_stream(range).await?.into_inner();
                while pieces.message().await?.is_some() {}
            }
            Self::Watch => watch(own).await?,
            Self::Membership => come_and_go(&mut own).await?,
        }
        Ok(())
    }
}

/// Compacts the next revision that is not the recorded clients'.
async fn compact(client: &mut Client) -> Result<()> {
    let newest = client.hash_kv(0).await?.compact_revision.max(20);
    let request = rpc::CompactionRequest {
        revision: newest + 1,
        physical: true,
    };
    client.kv.compact(request).await?;
    Ok(())
}

async fn watch(mut client: Client) -> Result<()> {
    let create = rpc::WatchCreateRequest {
        key: b"k".to_vec().into(),
        range_end: b"l".to_vec().into(),
        ..rpc::WatchCreateRequest::default()
    };
    let request = rpc::WatchRequest {
        request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
    };
    let (requests, receiver) = tokio::sync::mpsc::channel(1);
    requests.send(request).await?;
    let opened = client.watch.watch(ReceiverStream::new(receiver)).await?;
    let mut answers = opened.into_inner();
    for _ in 0..3 {
        answers.message().await?.context("the watch ended")?;
    }
    Ok(())
}

/// Adds a learner that is nowhere, or removes it when it is there.
async fn come_and_go(client: &mut Client) -> Result<()> {
    let list = rpc::MemberListRequest { linearizable: true };
    let members = client.cluster.member_list(list).await?.into_inner().members;
    if let Some(learner) = members.iter().find(|member| member.is_learner) {
        let remove = rpc::MemberRemoveRequest { id: learner.id };
        client.cluster.member_remove(remove).await?;
    } else {
        let add = rpc::MemberAddRequest {
            peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()],
            is_learner: true,
        };
        client.cluster.member_add(add).await?;
    }
    Ok(())
}
