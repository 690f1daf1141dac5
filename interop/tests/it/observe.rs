//! Everything a client can see of a server, as lines to compare.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use holdfast_interop::client::{Client, limited};
use holdfast_interop::wait;
use holdfast_proto::etcd::rpc;
use sha2::{Digest as _, Sha256};
use tonic::Request;

/// What `endpoint` answers about its data, without identities; `old` are revisions to ask for.
pub(crate) async fn observe(endpoint: &str, old: &[i64]) -> Result<Vec<String>> {
    let mut client = Client::connect(endpoint).await?;
    let mut lines = keys(&mut client).await;
    for revision in old {
        lines.push(past(&mut client, *revision).await);
        lines.push(watch(&mut client, *revision).await?);
    }
    // By number: for 0 a server answers what it remembers of an earlier compaction.
    let revision = current(&mut client).await;
    lines.push(match client.hash_kv(revision).await {
        Ok(hash) => format!("HashKV {} at {}", hash.hash, hash.hash_revision),
        Err(error) => format!("HashKV: {error}"),
    });
    lines.extend(leases(&mut client).await);
    let get = rpc::AlarmRequest::default();
    lines.push(
        match client.maintenance.alarm(limited(Request::new(get))).await {
            Ok(answer) => {
                let alarms: Vec<i32> = answer.into_inner().alarms.iter().map(|a| a.alarm).collect();
                format!("alarms {alarms:?}")
            }
            Err(status) => format!("alarms: {}", status.message()),
        },
    );
    let put = rpc::PutRequest {
        key: "observed".into(),
        ..Default::default()
    };
    lines.push(match client.kv.put(limited(Request::new(put))).await {
        Ok(answer) => format!(
            "put at {:?}",
            answer.into_inner().header.map(|h| h.revision)
        ),
        Err(status) => format!("put: {:?} {}", status.code(), status.message()),
    });
    Ok(lines)
}

/// The current revision; 0 when nothing may be read.
async fn current(client: &mut Client) -> i64 {
    let one = rpc::RangeRequest {
        key: vec![0].into(),
        ..Default::default()
    };
    let answer = client.kv.range(limited(Request::new(one))).await;
    let header = answer.ok().and_then(|answer| answer.into_inner().header);
    header.map_or(0, |header| header.revision)
}

async fn keys(client: &mut Client) -> Vec<String> {
    let all = rpc::RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..Default::default()
    };
    match client.kv.range(limited(Request::new(all))).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            let revision = answer.header.map(|header| header.revision);
            let mut lines = vec![format!("revision {revision:?}, {} keys", answer.count)];
            lines.extend(answer.kvs.into_iter().map(|pair| {
                let value = hex::encode(Sha256::digest(&pair.value));
                format!(
                    "{:?} create={} mod={} version={} lease={} {value}",
                    pair.key, pair.create_revision, pair.mod_revision, pair.version, pair.lease
                )
            }));
            lines
        }
        Err(status) => vec![format!("range: {:?} {}", status.code(), status.message())],
    }
}

async fn past(client: &mut Client, revision: i64) -> String {
    let request = rpc::RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        revision,
        ..Default::default()
    };
    match client.kv.range(limited(Request::new(request))).await {
        Ok(answer) => {
            let kvs = answer.into_inner().kvs;
            let digest = hex::encode(Sha256::digest(format!("{kvs:?}")));
            format!("at {revision}: {} keys {digest}", kvs.len())
        }
        Err(status) => format!("at {revision}: {:?} {}", status.code(), status.message()),
    }
}

/// How a watch from `revision` begins: with events, or with a cancellation.
async fn watch(client: &mut Client, revision: i64) -> Result<String> {
    let create = rpc::WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        start_revision: revision,
        ..Default::default()
    };
    let union = rpc::watch_request::RequestUnion::CreateRequest(create);
    let requests = futures::stream::iter([rpc::WatchRequest {
        request_union: Some(union),
    }])
    .chain(futures::stream::pending());
    let mut answers = match client.watch.watch(Request::new(requests)).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return Ok(format!("watch from {revision}: {}", status.message())),
    };
    let mut next = async || -> Result<rpc::WatchResponse> {
        let answer = tokio::time::timeout(wait::READY_MAX, answers.next()).await?;
        Ok(answer.context("the watch ended")??)
    };
    let created = next().await?;
    if created.canceled {
        return Ok(format!(
            "watch from {revision}: canceled, {}",
            created.cancel_reason
        ));
    }
    let second = next().await?;
    Ok(format!(
        "watch from {revision}: created={} canceled={} compact_revision={} first={:?}",
        created.created,
        second.canceled,
        second.compact_revision,
        second
            .events
            .first()
            .and_then(|event| event.kv.as_ref())
            .map(|kv| kv.mod_revision)
    ))
}

async fn leases(client: &mut Client) -> Vec<String> {
    let all = rpc::LeaseLeasesRequest {};
    let all = match client.lease.lease_leases(limited(Request::new(all))).await {
        Ok(answer) => answer.into_inner().leases,
        Err(status) => return vec![format!("leases: {}", status.message())],
    };
    let mut ids: Vec<i64> = all.into_iter().map(|lease| lease.id).collect();
    ids.sort_unstable();
    let mut lines = Vec::new();
    for id in ids {
        let request = rpc::LeaseTimeToLiveRequest { id, keys: true };
        lines.push(
            match client
                .lease
                .lease_time_to_live(limited(Request::new(request)))
                .await
            {
                Ok(answer) => {
                    let mut answer = answer.into_inner();
                    answer.keys.sort();
                    format!(
                        "lease {id} granted={} keys={:?}",
                        answer.granted_ttl, answer.keys
                    )
                }
                Err(status) => format!("lease {id}: {}", status.message()),
            },
        );
    }
    lines
}

/// Fails with the lines that differ between what our side and real etcd answered.
pub(crate) fn assert_same(ours: &[String], real: &[String]) {
    let pairs = ours.iter().zip(real).filter(|(ours, real)| ours != real);
    let lines: Vec<String> = pairs
        .map(|(ours, real)| format!("ours {ours}\netcd {real}"))
        .collect();
    assert!(
        lines.is_empty() && ours.len() == real.len(),
        "{} and {} lines\n{}",
        ours.len(),
        real.len(),
        lines.join("\n")
    );
}
