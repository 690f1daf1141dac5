//! Random requests to real etcd and to our store: every field of every answer is the same.

use anyhow::{Context as _, Result};
use holdfast_interop::client::{Client, limited};
use holdfast_interop::peers::Peers;
use holdfast_proto::etcd::{kv, rpc};
use tonic::Request;

use crate::long::rounds;
use crate::pair::Pair;
use crate::requests::{Call, Calls};

/// Set to repeat a failed run.
const SEED_VARIABLE: &str = "HOLDFAST_TEST_SEED";
const CALLS_PER_SEED: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_get_equal_answers() -> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    let seeds = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => vec![seed.parse()?],
        Err(_) => (1..=rounds(3, 40)).collect(),
    };
    for seed in seeds {
        let pair = Pair::start(&peers)?;
        let mut real = Client::connect(&pair.real.endpoint()).await?;
        let mut ours = Client::connect(&pair.ours.endpoint()).await?;
        let mut calls = Calls::new(seed);
        for number in 0..CALLS_PER_SEED {
            let call = calls.draw();
            let expected = answer(&mut real, call.clone()).await;
            let got = answer(&mut ours, call.clone()).await;
            assert_eq!(
                got, expected,
                "call {number} of {SEED_VARIABLE}={seed} (left ours, right etcd): {call:?}"
            );
            calls.saw(expected.revision);
        }
        let last = calls.revision();
        for revision in (last - 40).max(1)..=last {
            let [expected, got] = [&mut real, &mut ours].map(|client| client.clone());
            let expected = hash(expected, revision).await;
            assert_eq!(
                hash(got, revision).await,
                expected,
                "HashKV at {revision}, seed {seed}"
            );
        }
        let expected = history(&mut real, calls.compacted() + 1, last).await?;
        let got = history(&mut ours, calls.compacted() + 1, last).await?;
        assert_eq!(
            got,
            expected,
            "events after {} of seed {seed}",
            calls.compacted()
        );
    }
    Ok(())
}

/// What a client can compare of an answer: identities and raft terms differ by nature.
#[derive(Debug, PartialEq)]
struct Answer {
    revision: Option<i64>,
    content: Result<String, (tonic::Code, String)>,
}

async fn answer(client: &mut Client, call: Call) -> Answer {
    macro_rules! answer {
        ($call:expr) => {
            match $call.await {
                Ok(response) => {
                    let mut response = response.into_inner();
                    let revision = response.header.take().map(|header| header.revision);
                    Answer {
                        revision,
                        content: Ok(format!("{response:?}")),
                    }
                }
                Err(status) => Answer {
                    revision: None,
                    content: Err((status.code(), status.message().to_owned())),
                },
            }
        };
    }
    match call {
        Call::Range(request) => answer!(client.kv.range(limited(Request::new(request)))),
        Call::Put(request) => answer!(client.kv.put(limited(Request::new(request)))),
        Call::Delete(request) => answer!(client.kv.delete_range(limited(Request::new(request)))),
        Call::Compact(request) => answer!(client.kv.compact(limited(Request::new(request)))),
        Call::Grant(request) => answer!(client.lease.lease_grant(limited(Request::new(request)))),
        Call::Revoke(request) => answer!(client.lease.lease_revoke(limited(Request::new(request)))),
        Call::Txn(request) => {
            let mut answer = answer!(client.kv.txn(limited(Request::new(request))));
            // Headers inside a transaction's answer carry only the revision in etcd; keep that.
            if let Ok(text) = &mut answer.content {
                text.retain(|c| c != '\n');
            }
            answer
        }
    }
}

async fn hash(mut client: Client, revision: i64) -> Result<(u32, i64, i64), String> {
    match client.hash_kv(revision).await {
        Ok(hash) => Ok((hash.hash, hash.compact_revision, hash.hash_revision)),
        Err(error) => Err(error.downcast::<tonic::Status>().map_or_else(
            |error| error.to_string(),
            |status| status.message().to_owned(),
        )),
    }
}

/// Every event from one revision to another, as a watch tells it.
async fn history(client: &mut Client, from: i64, to: i64) -> Result<Vec<kv::Event>> {
    use futures::StreamExt as _;
    let create = rpc::WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        start_revision: from,
        prev_kv: true,
        ..Default::default()
    };
    let union = rpc::watch_request::RequestUnion::CreateRequest(create);
    let request = rpc::WatchRequest {
        request_union: Some(union),
    };
    // The request stream stays open: a watch ends with it.
    let requests = futures::stream::iter([request]).chain(futures::stream::pending());
    let mut answers = client
        .watch
        .watch(Request::new(requests))
        .await?
        .into_inner();
    // A last write marks the end of the history.
    let marker = rpc::PutRequest {
        key: "end".into(),
        ..Default::default()
    };
    client.kv.put(limited(Request::new(marker))).await?;
    let mut events = Vec::new();
    loop {
        let limit = holdfast_interop::wait::READY_MAX;
        let answer = tokio::time::timeout(limit, answers.next())
            .await?
            .context("watch ended")??;
        events.extend(answer.events);
        if events
            .last()
            .and_then(|event: &kv::Event| event.kv.as_ref())
            .is_some_and(|kv| kv.mod_revision > to)
        {
            return Ok(events);
        }
    }
}
