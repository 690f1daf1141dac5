//! The vault's doctor: tries out everything a backup relies on, with one small object of its own.

use bytes::Bytes;
use chrono::TimeDelta;
use holdfast_policies::{ClusterName, DrillId, ID_RANDOM_BYTES};
use holdfast_restore::vault::{Folder, ObjectName, layout};
use holdfast_restore::{Error, ReadWrite, Vault};
use serde::Serialize;

use crate::clock::Clock;

/// The cluster under whose name the doctor writes; a source of that name would share its folder of
/// drills and nothing else.
const PATIENT: &str = "holdfast.doctor";

/// What the object holds.
const CONTENT: &[u8] = b"{\"written_by\":\"holdfast vault check\"}";

/// Clocks further apart than this make retention refuse.
const SKEW_MAX: TimeDelta = TimeDelta::minutes(10);

/// One thing that was tried.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    /// What was tried.
    pub(crate) name: &'static str,
    /// Whether it works as backups need it.
    pub(crate) is_good: bool,
    /// What happened.
    pub(crate) detail: String,
}

/// Tries everything; what was written is removed again.
pub(crate) async fn examine(vault: &Vault<ReadWrite>, clock: &Clock) -> Vec<Finding> {
    let Ok(cluster) = PATIENT.parse::<ClusterName>() else {
        return Vec::new();
    };
    let mut random = [0_u8; ID_RANDOM_BYTES];
    rand::fill(&mut random);
    let name = layout::drill(&cluster, DrillId::new(clock.now(), random));
    let mut findings = vec![create(vault, &name).await];
    if findings.iter().all(|one| one.is_good) {
        findings.push(create_again(vault, &name).await);
        findings.push(read(vault, &name).await);
        findings.extend(list(vault, &cluster, &name, clock).await);
        findings.push(remove(vault, &name).await);
    }
    findings
}

async fn create(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let outcome = vault.put_new(name, Bytes::from_static(CONTENT)).await;
    finding(
        "write",
        outcome.map(|()| "a new object can be written".to_owned()),
    )
}

/// The commit of a backup relies on this: a manifest is never written over.
async fn create_again(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let (is_good, detail) = match vault.put_new(name, Bytes::from_static(b"other")).await {
        Err(Error::ObjectExists { .. }) => (true, "writing over an object is refused".to_owned()),
        Ok(()) => (
            false,
            "an existing object was written over: not fit for backups".to_owned(),
        ),
        Err(error) => (false, line(&error)),
    };
    Finding {
        name: "create only",
        is_good,
        detail,
    }
}

async fn read(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let limit = u64::try_from(CONTENT.len()).unwrap_or(u64::MAX);
    match vault.get(name, limit).await {
        Ok(bytes) if bytes == CONTENT => {
            finding("read", Ok("what was written is read back".to_owned()))
        }
        Ok(_) => Finding {
            name: "read",
            is_good: false,
            detail: "other bytes came back".to_owned(),
        },
        Err(error) => finding("read", Err(error)),
    }
}

async fn list(
    vault: &Vault<ReadWrite>,
    cluster: &ClusterName,
    name: &ObjectName,
    clock: &Clock,
) -> Vec<Finding> {
    let listed = match vault.list(&Folder::Drills.of(cluster)).await {
        Ok(listed) => listed,
        Err(error) => return vec![finding("list", Err(error))],
    };
    let Some(found) = listed.iter().find(|one| one.name == *name) else {
        let detail = "what was written is not in the listing".to_owned();
        return vec![Finding {
            name: "list",
            is_good: false,
            detail,
        }];
    };
    let skew = clock.now() - found.modified;
    let clocks = Finding {
        name: "clock",
        is_good: skew.abs() <= SKEW_MAX,
        detail: format!("ours is {} s ahead of the vault's", skew.num_seconds()),
    };
    vec![
        finding("list", Ok("what was written is listed".to_owned())),
        clocks,
    ]
}

/// Without this, retention cannot let anything go and the vault grows until it is full.
async fn remove(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let outcome = match vault.remove(name).await {
        Ok(()) => vault.size(name).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(None) => finding("remove", Ok("an object can be removed".to_owned())),
        Ok(Some(_)) => Finding {
            name: "remove",
            is_good: false,
            detail: "the removed object is still there".to_owned(),
        },
        Err(error) => finding("remove", Err(error)),
    }
}

fn finding(name: &'static str, outcome: Result<String, Error>) -> Finding {
    match outcome {
        Ok(detail) => Finding {
            name,
            is_good: true,
            detail,
        },
        Err(error) => Finding {
            name,
            is_good: false,
            detail: line(&error),
        },
    }
}

/// An error with its reason.
fn line(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
