//! Every lease is there with its time to live and its keys.

use std::collections::BTreeSet;

use holdfast_proto::etcd::rpc;
use holdfast_store::etcd_file::LeaseRecord;

use super::{Doubt, Finding, Subject, failed};
use crate::client::answer;

/// Leases asked about one by one; the rest is only listed.
const ASKED_MAX: usize = 500;

/// A lease granted for less may have run out while the drill was looking elsewhere.
const SHORT_LEASE_S: i64 = 600;

pub(super) async fn check(subject: &Subject) -> Finding {
    let listed = answer(
        subject
            .client
            .lease()
            .lease_leases(rpc::LeaseLeasesRequest {}),
    )
    .await?;
    let found: BTreeSet<i64> = listed.leases.iter().map(|lease| lease.id).collect();
    let expected = &subject.expected.leases;
    let known: BTreeSet<i64> = expected.iter().map(|lease| lease.id).collect();
    if let Some(unknown) = found.difference(&known).next() {
        return failed(format!("lease {unknown:x} is not in the backup"));
    }
    let mut run_out = 0;
    for lease in expected.iter().filter(|lease| !found.contains(&lease.id)) {
        if lease.granted_ttl > SHORT_LEASE_S {
            return failed(format!("lease {:x} is missing", lease.id));
        }
        run_out += 1;
    }
    for lease in expected
        .iter()
        .filter(|lease| found.contains(&lease.id))
        .take(ASKED_MAX)
    {
        ask(subject, lease).await?;
    }
    let kept = expected.len() - run_out;
    Ok(match run_out {
        0 => format!("{kept} leases with their keys"),
        _ => format!("{kept} leases with their keys, {run_out} short ones have run out"),
    })
}

async fn ask(subject: &Subject, lease: &LeaseRecord) -> Result<(), Doubt> {
    let request = rpc::LeaseTimeToLiveRequest {
        id: lease.id,
        keys: true,
    };
    let told = answer(subject.client.lease().lease_time_to_live(request)).await?;
    if told.ttl < 0 && lease.granted_ttl <= SHORT_LEASE_S {
        return Ok(());
    }
    if told.granted_ttl != lease.granted_ttl {
        return failed(format!(
            "lease {:x} is granted {} s instead of {} s",
            lease.id, told.granted_ttl, lease.granted_ttl
        ));
    }
    let found: BTreeSet<_> = told.keys.into_iter().collect();
    if !found.iter().eq(lease.keys.iter()) {
        return failed(format!(
            "lease {:x} holds {} keys instead of {}, or others",
            lease.id,
            found.len(),
            lease.keys.len()
        ));
    }
    Ok(())
}
