//! The vault's doctor: tries out everything a backup relies on, and what is good to know besides,
//! with a few objects of its own.

mod bucket;

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
    /// What to do, where it does not work.
    pub(crate) next: Option<&'static str>,
}

impl Finding {
    fn new(name: &'static str, is_good: bool, detail: impl Into<String>) -> Self {
        Self {
            name,
            is_good,
            is_needed: true,
            detail: detail.into(),
            next: (!is_good).then(|| next_step(name)).flatten(),
        }
    }

    /// Backups do without it.
    fn good_to_know(self) -> Self {
        Self {
            is_needed: false,
            ..self
        }
    }
}

/// What an administrator does about it, for S3 in the words of its permissions.
fn next_step(name: &str) -> Option<&'static str> {
    Some(match name {
        "write" => "let these credentials store objects (s3:PutObject) below the prefix",
        "create only" => {
            "use a server that honours `If-None-Match: *`: without it a second appliance could \
             write over a backup"
        }
        "read" => "let these credentials read objects (s3:GetObject) below the prefix",
        "list" => {
            "let these credentials list the bucket (s3:ListBucket); a listing that lags behind \
             writes cannot be relied on"
        }
        "clock" => "set this host's clock (NTP): retention refuses to act while clocks disagree",
        "remove" => {
            "let these credentials remove objects (s3:DeleteObject), or retention frees nothing \
             and the vault grows until it is full"
        }
        "multipart" => "backups do without; tools that upload large files to this bucket do not",
        "multipart abort" => {
            "let these credentials give up uploads (s3:AbortMultipartUpload), and set a lifecycle \
             rule that removes incomplete ones: they are invisible and paid for"
        }
        "signed digest" | "checksum" => {
            "every part is read back all the same; prefer a server or proxy that checks what it \
             stores"
        }
        "checksum mode" => "set `request_checksum` to one that is accepted",
        "region" => "set `region` to the one the bucket is in",
        "authorities" => "name a PEM file with the certificates of the server's authority",
        "versioning" => {
            "nothing here needs it; with it a removal by somebody else can be undone, and old \
             versions need a lifecycle rule to ever go"
        }
        "object lock" => {
            "nothing here needs it; with it even stolen credentials cannot remove backups before \
             their time (buckets have it from their creation)"
        }
        _ => return None,
    })
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
    let mut findings = bucket::place(spec);
    let name = new_name();
    let written = create(vault, &name).await;
    let is_written = written.is_good;
    findings.push(written);
    if !is_written {
        return findings;
    }
    findings.push(create_again(vault, &name).await);
    findings.push(read(vault, &name).await);
    findings.extend(list(vault, &cluster, &name, clock).await);
    findings.push(remove(vault, &name).await);
    findings.push(multipart(vault, &new_name()).await);
    findings.push(multipart_abort(vault, &new_name()).await);
    for protection in [Protection::Signature, Protection::Checksum] {
        findings.push(changed_bytes(spec, &new_name(), protection).await);
    }
    findings.extend(bucket::checksum_modes(spec, new_name).await);
    findings.extend(bucket::facts(spec).await);
    findings
}

/// Backups do without: their parts are single requests. Other tools on the same bucket may not.
async fn multipart(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let uploaded = vault.try_multipart(name).await;
    let outcome = match (uploaded, vault.remove(name).await) {
        (Ok(bytes), Ok(())) => Ok(format!("{bytes} bytes were uploaded in pieces")),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    finding("multipart", outcome).good_to_know()
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
    Finding::new("multipart abort", is_good, detail).good_to_know()
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
        Ok(Verdict::NotS3) => (true, "not applicable: not an S3 server".to_owned()),
        Err(error) => (false, line(&error)),
    };
    Finding::new(name_of, is_good, detail).good_to_know()
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
    Finding::new("create only", is_good, detail)
}

async fn read(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let limit = u64::try_from(CONTENT.len()).unwrap_or(u64::MAX);
    match vault.get(name, limit).await {
        Ok(bytes) if bytes == CONTENT => {
            Finding::new("read", true, "what was written is read back")
        }
        Ok(_) => Finding::new("read", false, "other bytes came back"),
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
        let detail = "what was written is not in the listing";
        return vec![Finding::new("list", false, detail)];
    };
    let skew = clock.now() - found.modified;
    let detail = format!("ours is {} s ahead of the vault's", skew.num_seconds());
    vec![
        Finding::new("list", true, "what was written is listed at once"),
        Finding::new("clock", skew.abs() <= SKEW_MAX, detail),
    ]
}

/// Without this, retention cannot let anything go and the vault grows until it is full.
async fn remove(vault: &Vault<ReadWrite>, name: &ObjectName) -> Finding {
    let outcome = match vault.remove(name).await {
        Ok(()) => vault.size(name).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(None) => Finding::new("remove", true, "an object can be removed"),
        Ok(Some(_)) => Finding::new("remove", false, "the removed object is still there"),
        Err(error) => finding("remove", Err(error)),
    }
}

fn finding(name: &'static str, outcome: Result<String, Error>) -> Finding {
    match outcome {
        Ok(detail) => Finding::new(name, true, detail),
        Err(error) => Finding::new(name, false, line(&error)),
    }
}

/// An error with its reason.
fn line(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
