//! Watches that go on over broken streams, and the list of all changes in the end.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use holdfast_proto::etcd::rpc::{self, watch_request};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::Actor;
use crate::client::Client;
use crate::history::calls::event;
use crate::history::{Event, Key, Watch, WatchAnswer};

/// All keys that are recorded.
const ALL: (Key, Key) = (0, Key::MAX);
/// A stream that is silent for longer is left for another member's.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long reading all changes back may take without one coming.
const READ_BACK_MAX: Duration = Duration::from_mins(1);

/// Watches until the recording ends, from where it was when a stream breaks.
pub(super) async fn act(mut actor: Actor, from: i64) -> Watch {
    let mut watch = Watch {
        from,
        keys: ALL,
        answers: Vec::new(),
    };
    let mut next = from;
    while !actor.is_stopped() {
        let Some(client) = actor.client().await else {
            continue;
        };
        if let Ok(stream) = open(client, next).await {
            follow(&actor, stream, &mut watch, &mut next).await;
        }
        if !actor.is_stopped() {
            actor.failed().await;
        }
    }
    watch
}

/// Takes answers until the stream breaks, falls silent or the recording ends.
async fn follow(actor: &Actor, mut stream: Stream, watch: &mut Watch, next: &mut i64) {
    let mut stop = actor.stop.clone();
    while !actor.is_stopped() {
        let message = tokio::select! {
            message = timeout(SILENCE_MAX, stream.answers.message()) => message,
            _ = stop.changed() => return,
        };
        let Ok(Ok(Some(answer))) = message else {
            return;
        };
        if answer.created {
            continue;
        }
        let Some(answer) = recorded(&answer) else {
            return;
        };
        if let Some(last) = answer.events.last() {
            *next = last.revision + 1;
        }
        watch.answers.push(answer);
        // Asked for now and then: how far it has come is a promise as well.
        if watch.answers.len().is_multiple_of(16) {
            let ask = watch_request::RequestUnion::ProgressRequest(rpc::WatchProgressRequest {});
            let request = rpc::WatchRequest {
                request_union: Some(ask),
            };
            if stream.requests.send(request).await.is_err() {
                return;
            }
        }
    }
}

/// `None` for the answer of a watch that the member has cancelled.
fn recorded(answer: &rpc::WatchResponse) -> Option<WatchAnswer> {
    if answer.canceled {
        return None;
    }
    let events: Result<Vec<Event>, String> = answer.events.iter().map(event).collect();
    Some(WatchAnswer {
        revision: answer.header.as_ref()?.revision,
        events: events.ok()?,
    })
}

struct Stream {
    /// Ends the stream when dropped.
    requests: mpsc::Sender<rpc::WatchRequest>,
    answers: Streaming<rpc::WatchResponse>,
}

/// A watch over all recorded keys.
async fn open(mut client: Client, from: i64) -> Result<Stream> {
    let (requests, receiver) = mpsc::channel(4);
    let create = rpc::WatchCreateRequest {
        key: b"k".to_vec().into(),
        range_end: b"l".to_vec().into(),
        start_revision: from,
        ..rpc::WatchCreateRequest::default()
    };
    let request = rpc::WatchRequest {
        request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
    };
    requests.send(request).await?;
    let opened = client.watch.watch(ReceiverStream::new(receiver));
    let answers = timeout(SILENCE_MAX, opened).await??.into_inner();
    Ok(Stream { requests, answers })
}

/// Every change after `base` up to `last`, as the member at `endpoint` has it.
///
/// # Errors
/// When no more come for a minute.
pub async fn all_changes(endpoint: &str, base: i64, last: i64) -> Result<Vec<Event>> {
    let mut changes = Vec::new();
    if last <= base {
        return Ok(changes);
    }
    let client = Client::connect(endpoint).await?;
    let mut stream = open(client, base + 1).await?;
    while changes
        .last()
        .is_none_or(|last_change: &Event| last_change.revision < last)
    {
        let answer = timeout(READ_BACK_MAX, stream.answers.message()).await;
        let answer = answer.with_context(|| format!("{endpoint} did not show all changes"))??;
        let answer = answer.context("the watch ended")?;
        if answer.canceled {
            bail!("the watch was cancelled: {}", answer.cancel_reason);
        }
        for change in &answer.events {
            changes.push(event(change).map_err(anyhow::Error::msg)?);
        }
    }
    Ok(changes)
}
