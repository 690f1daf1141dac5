//! The vault's doctor: tries out everything a backup relies on, and what is good to know besides,
//! with a few objects of its own.

use bytes::Bytes;
use chrono::TimeDelta;
use holdfast_policies::{ClusterName, DrillId, ID_RANDOM_BYTES};
use holdfast_restore::vault::doctor::{Protection, Verdict, try_changed_bytes};
use holdfast_restore::vault::{Folder, ObjectName, layout};
use holdfast_restore::{Error, ReadWrite, Vault, VaultSpec};
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
    /// Whether it works.
    pub(crate) is_good: bool,
    /// Whether backups rely on it.
    pub(crate) is_needed: bool,
    /// What happened.
    pub(crate) detail: String,
}

/// Tries everything; what was written is removed again.
pub(crate) async fn examine(
    vault: &Vault<ReadWrite>,
    spec: &VaultSpec,
    clock: &Clock,
) -> Vec<Finding> {
    let Ok(cluster) = PATIENT.parse::<ClusterName>() else {
        return Vec::new();
    };
    let new_name = || {
        let mut random = [0_u8; ID_RANDOM_BYTES];
        rand::fill(&mut random);
        layout::drill(&cluster, DrillId::new(clock.now(), random))
    };
    let name = new_name();
    let mut findings = vec![create(vault, &name).await];
    if findings.iter().all(|one| one.is_good) {
        findings.push(create_again(vault, &name).await);
        findings.push(read(vault, &name).await);
        findings.extend(list(vault, &cluster, &name, clock).await);
        findings.push(remove(vault, &name).await);
        findings.push(multipart(vault, &new_name()).await);
        findings.push(multipart_abort(vault, &new_name()).await);
        for protection in [Protection::Signature, Protection::Checksum] {
            findings.push(changed_bytes(spec, &new_name(), protection).await);
        }
    }
    findings
}

/// Backups do without: their parts are single requests. Other tools on the same bucket may not.
async fn multipart(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let uploaded = vault.try_multipart(name).await;
    let outcome = match (uploaded, vault.remove(name).await) {
        (Ok(bytes), Ok(())) => Ok(format!("{bytes} bytes were uploaded in pieces")),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    good_to_know(finding("multipart", outcome))
}

async fn multipart_abort(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let (is_good, detail) = match vault.try_multipart_abort(name).await {
        Ok(false) => (
            true,
            "an upload that is given up leaves no object".to_owned(),
        ),
        Ok(true) => (
            false,
            "an upload that was given up left an object".to_owned(),
        ),
        Err(error) => (false, line(&error)),
    };
    Finding {
        name: "multipart abort",
        is_good,
        is_needed: false,
        detail,
    }
}

/// Backups do not rely on it either: every part is read back against its digest.
async fn changed_bytes(spec: &VaultSpec, name: &ObjectName, protection: Protection) -> Finding {
    let (name_of, header) = match protection {
        Protection::Signature => ("signed digest", "x-amz-content-sha256"),
        Protection::Checksum => ("checksum", "x-amz-checksum-sha256"),
    };
    let (is_good, detail) = match try_changed_bytes(spec, name, protection).await {
        Ok(Verdict::Refused(reason)) => (
            true,
            format!("verified: bytes other than those of {header} are refused ({reason})"),
        ),
        Ok(Verdict::Stored) => (
            false,
            format!("not verified: bytes other than those of {header} were stored"),
        ),
        Ok(Verdict::NoNetwork) => (
            true,
            "not applicable: a local folder has no network on the way".to_owned(),
        ),
        Err(error) => (false, line(&error)),
    };
    Finding {
        name: name_of,
        is_good,
        is_needed: false,
        detail,
    }
}

fn good_to_know(finding: Finding) -> Finding {
    Finding {
        is_needed: false,
        ..finding
    }
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
        is_needed: true,
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
            is_needed: true,
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
            is_needed: true,
            detail,
        }];
    };
    let skew = clock.now() - found.modified;
    let clocks = Finding {
        name: "clock",
        is_needed: true,
        is_good: skew.abs() <= SKEW_MAX,
        detail: format!("ours is {} s ahead of the vault's", skew.num_seconds()),
    };
    vec![
        finding("list", Ok("what was written is listed at once".to_owned())),
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
            is_needed: true,
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
            is_needed: true,
            detail,
        },
        Err(error) => Finding {
            name,
            is_good: false,
            is_needed: true,
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
