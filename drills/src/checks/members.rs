//! Where several members were restored: each has what the first one has, before and after the
//! write.

use std::net::SocketAddr;

use holdfast_proto::etcd::rpc;

use super::{Doubt, Finding, Subject, failed};
use crate::client::{Client, answer};

/// Another member of the restored cluster.
#[derive(Debug, Clone)]
pub(crate) struct Other {
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// How it is asked.
    pub(crate) client: Client,
}

/// What every other member is asked before anything is written.
pub(crate) async fn before(subject: &Subject, others: &[Other]) -> Result<(), Doubt> {
    for other in others {
        let there = Subject {
            client: other.client.clone(),
            ..subject.clone()
        };
        let asked = async {
            super::revision::check(&there).await?;
            super::keys::check(&there).await?;
            super::compacted::check(&there).await?;
            super::alarms::check(&there).await
        };
        asked.await.map_err(|doubt| of(other, doubt))?;
    }
    Ok(())
}

/// Whether all have the same after the write: each is asked linearizably, so what the first one
/// acknowledged has come to all of them.
pub(crate) async fn after(subject: &Subject, others: &[Other]) -> Finding {
    let first = state(&subject.client).await?;
    for other in others {
        let there = state(&other.client)
            .await
            .map_err(|doubt| of(other, doubt))?;
        if there.id == first.id {
            return failed(format!("{} is the first member again", other.address));
        }
        let differs = |what| failed(format!("{} has another {what}", other.address));
        if there.cluster != first.cluster {
            return differs("cluster id");
        }
        // Leases that run out meanwhile cost a revision each; then the older one is told again.
        let revision = first.revision.min(there.revision);
        let ours = hash(&subject.client, revision).await?;
        let theirs = hash(&other.client, revision)
            .await
            .map_err(|doubt| of(other, doubt))?;
        if ours != theirs {
            return differs("HashKV");
        }
    }
    Ok(format!(
        "{} members are one cluster with the same content, before and after the write",
        others.len() + 1
    ))
}

struct State {
    id: u64,
    cluster: u64,
    revision: i64,
}

async fn state(client: &Client) -> Result<State, Doubt> {
    let request = rpc::RangeRequest {
        key: b"\0".to_vec().into(),
        limit: 1,
        ..rpc::RangeRequest::default()
    };
    let Some(header) = answer(client.kv().range(request)).await?.header else {
        return failed("an answer without a header");
    };
    Ok(State {
        id: header.member_id,
        cluster: header.cluster_id,
        revision: header.revision,
    })
}

async fn hash(client: &Client, revision: i64) -> Result<(u32, i64), Doubt> {
    let told = answer(
        client
            .maintenance()
            .hash_kv(rpc::HashKvRequest { revision }),
    )
    .await?;
    Ok((told.hash, told.compact_revision))
}

/// The same doubt, with the member's address.
fn of(other: &Other, doubt: Doubt) -> Doubt {
    match doubt {
        Doubt::Failed(text) => Doubt::Failed(format!("{}: {text}", other.address)),
        Doubt::Inconclusive(text) => Doubt::Inconclusive(format!("{}: {text}", other.address)),
    }
}
