//! What is done to a store besides using it: compacting, defragmenting, purging, alarms.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::Error;
use holdfast_store::command::Request;
use holdfast_store::member::Member;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::sleep;

use crate::clients::Book;

/// Revisions that a compaction leaves, at most.
const KEPT_MAX: i64 = 60;

/// Works on `member` until the clients end.
pub async fn work(member: Member, seed: u64, book: Arc<Book>) {
    let mut random = StdRng::seed_from_u64(seed ^ 0x0f2e_e900);
    while !book.is_closed() {
        sleep(Duration::from_millis(random.random_range(100..2500))).await;
        let done = match random.random_range(0..10) {
            0..5 => compact(&member, random.random_range(0..KEPT_MAX)).await,
            5..7 => member.defragment().await,
            7 => member.purge_log().await,
            _ => alarm(&member, random.random_range(50..800)).await,
        };
        // Whatever was in the way is judged by what the store holds afterwards.
        tracing::debug!(?done, "upkeep");
    }
}

async fn compact(member: &Member, kept: i64) -> Result<(), Error> {
    let request = rpc::CompactionRequest {
        revision: member.state().revision() - kept,
        physical: false,
    };
    member.propose(Request::Compact(request)).await.map(drop)
}

/// Refuses writes for a while, and clears what alarms others left.
async fn alarm(member: &Member, lasts_ms: u64) -> Result<(), Error> {
    let mut request = rpc::AlarmRequest {
        member_id: member.id().0,
        ..rpc::AlarmRequest::default()
    };
    request.set_action(rpc::alarm_request::AlarmAction::Activate);
    request.set_alarm(rpc::AlarmType::Nospace);
    let raised = member.propose(Request::Alarm(request)).await;
    sleep(Duration::from_millis(lasts_ms)).await;
    for alarm in member.state().alarms() {
        if alarm.alarm() != rpc::AlarmType::Nospace {
            continue;
        }
        let mut request = rpc::AlarmRequest {
            member_id: alarm.member_id,
            alarm: alarm.alarm,
            ..rpc::AlarmRequest::default()
        };
        request.set_action(rpc::alarm_request::AlarmAction::Deactivate);
        member.propose(Request::Alarm(request)).await?;
    }
    raised.map(drop)
}
