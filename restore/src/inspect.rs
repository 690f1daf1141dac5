//! What a snapshot says of itself, read from its bytes.

use holdfast_store::bolt::ReadAt;
use holdfast_store::etcd_file::{Content, EtcdFile};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::{ContentMember, ContentRecord, SourceHash};

/// Everything a manifest says of the content: what a survey of `file` found, and the small records.
/// `digest` is that of all bytes of the file.
pub(crate) fn inspect<R: ReadAt, V>(
    file: &EtcdFile<R>,
    content: &Content<V>,
    (bytes, digest): (u64, Digest),
) -> Result<ContentRecord> {
    let (status, hash) = (&content.status, &content.hash);
    let members = file.members().map_err(|error| unreadable(&error))?;
    let alarms = file.alarms().map_err(|error| unreadable(&error))?;
    let auth = file.auth().map_err(|error| unreadable(&error))?;
    let members = members
        .into_iter()
        .map(|member| ContentMember {
            id: format!("{:x}", member.id),
            name: member.name,
            peer_urls: member.peer_urls,
            client_urls: member.client_urls,
        })
        .collect();
    let alarms = alarms
        .iter()
        .map(|alarm| format!("{} on {:x}", alarm.alarm().as_str_name(), alarm.member_id))
        .collect();
    Ok(ContentRecord {
        bytes,
        digest,
        revision: hash.hash_revision,
        compact_revision: hash.compact_revision,
        hash_kv: hash.hash,
        keys: status.client_key,
        cluster_version: file.cluster_version().map_err(|error| unreadable(&error))?,
        storage_version: file.storage_version().map_err(|error| unreadable(&error))?,
        members,
        alarms,
        leases: u64::try_from(content.leases.len()).unwrap_or(u64::MAX),
        is_auth_enabled: auth.is_enabled,
    })
}

/// An error of the reader as one of ours.
pub(crate) fn unreadable(error: &dyn std::error::Error) -> Error {
    let mut reason = error.to_string();
    let mut cause = error.source();
    for _depth in 0..8 {
        let Some(inner) = cause else { break };
        reason = format!("{reason}: {inner}");
        cause = inner.source();
    }
    Error::Content { reason }
}

/// How the source's hash compares with the content's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Both hash the same revision behind the same compaction and agree.
    Equal,
    /// They hash the same and differ.
    Different,
    /// They cannot be compared; says why.
    Unknown(String),
}

/// Compares what the source told with what was recomputed from the bytes.
pub(crate) fn compare(content: &ContentRecord, told: &SourceHash) -> Comparison {
    let (hash, revision, compact_revision) = match told {
        SourceHash::Unavailable { reason } => return Comparison::Unknown(reason.clone()),
        SourceHash::Told {
            hash,
            revision,
            compact_revision,
            ..
        } => (*hash, *revision, *compact_revision),
    };
    if revision != content.revision {
        return Comparison::Unknown(format!(
            "the source hashed revision {revision}, the backup is at {}",
            content.revision
        ));
    }
    if compact_revision != content.compact_revision {
        return Comparison::Unknown(format!(
            "the source was compacted at {compact_revision} by then, the backup at {}",
            content.compact_revision
        ));
    }
    if hash == content.hash_kv {
        Comparison::Equal
    } else {
        Comparison::Different
    }
}
