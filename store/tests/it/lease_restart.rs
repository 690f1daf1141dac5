//! The time left of a lease goes on after a restart where it was last recorded.

use std::time::Duration;

use holdfast_proto::etcd::rpc::LeaseGrantRequest;
use holdfast_store::command::Request;
use holdfast_store::lease::{LeaseClockOptions, LeaseId};
use holdfast_store::member::{Member, MemberOptions};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::member::{options, start};

const LEASE: i64 = 7;
const TTL_S: i64 = 600;
/// A new leader adds an election timeout, so that no lease ends early.
const EXTENSION: Duration = Duration::from_secs(2);

/// Waits until less than `below` seconds are recorded in the state.
async fn recorded_below(member: &Member, below: i64) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let lease = member.state().lease(LeaseId(LEASE)).expect("the lease");
        if lease.checkpoint_ttl_s > 0 && lease.checkpoint_ttl_s < below {
            return lease.checkpoint_ttl_s;
        }
        assert!(Instant::now() < deadline, "{lease:?}, not below {below}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_left_of_a_lease_survives_restarts() {
    let dir = TempDir::new().unwrap();
    let options = MemberOptions {
        leases: LeaseClockOptions {
            makes_checkpoints: true,
            checkpoint_interval: Duration::from_secs(1),
            ..LeaseClockOptions::default()
        },
        ..options(dir.path())
    };
    let member = start(options.clone()).await;
    let grant = LeaseGrantRequest {
        ttl: TTL_S,
        id: LEASE,
    };
    member.propose(Request::LeaseGrant(grant)).await.unwrap();
    let mut recorded = recorded_below(&member, TTL_S - 1).await;
    member.stop().await.unwrap();
    for _restart in 0..2 {
        let member = start(options.clone()).await;
        let left = member.leases().remaining(LeaseId(LEASE), Instant::now());
        let left = left.expect("the lease runs");
        let most = Duration::from_secs(u64::try_from(recorded).unwrap()) + EXTENSION;
        assert!(left <= most, "{left:?} left, {recorded} s were recorded");
        let granted = member.state().lease(LeaseId(LEASE)).unwrap();
        assert_eq!(granted.granted_ttl_s, TTL_S);
        recorded = recorded_below(&member, recorded).await;
        member.stop().await.unwrap();
    }
}
