//! What is asked of a restored cluster, one check a file.
//!
//! A check says what it found, or that it failed, or that it could not run. The last two are
//! kept apart for people and are the same for the drill: it has not passed.

mod alarms;
pub(crate) mod auth;
mod compacted;
mod content;
mod keys;
mod leases;
mod members;
mod pages;
mod prefixes;
mod revision;
mod watch;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_policies::{DrillId, Span};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::auth::AuthFacts;
use crate::client::Client;
use crate::expected::Expected;
use crate::report::CheckRecord;

pub(crate) use members::Other;

/// How a check, or a whole drill, came out. The worst of its checks is a drill's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran, and what it looked for is so.
    Passed,
    /// It could not run; nothing is proven.
    Inconclusive,
    /// It ran, and what it looked for is not so.
    Failed,
}

/// Why a check did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// What it looked for is not so.
    Failed(String),
    /// It could not run.
    Inconclusive(String),
}

/// What a check found.
pub(crate) type Finding = Result<String, Doubt>;

impl From<Status> for Doubt {
    /// A member that does not answer leaves the question open; one that answers with an error
    /// to a question it should answer is broken.
    fn from(status: Status) -> Self {
        let text = format!(
            "the member answers {:?}: {}",
            status.code(),
            status.message()
        );
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unimplemented
            | Code::Unauthenticated
            | Code::PermissionDenied => Self::Inconclusive(text),
            Code::InvalidArgument if status.message().contains("user name is empty") => {
                Self::Inconclusive("authentication is on and the drill has no user".to_owned())
            }
            _ => Self::Failed(text),
        }
    }
}

pub(crate) fn failed<T>(text: impl Into<String>) -> Result<T, Doubt> {
    Err(Doubt::Failed(text.into()))
}

/// What the checks are about.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) id: DrillId,
    /// The backup's revision, from its manifest.
    pub(crate) revision: i64,
    /// HashKV at that revision, from the manifest.
    pub(crate) recorded_hash: u32,
    /// HashKV at that revision as the source told it, or why it did not.
    pub(crate) told_hash: Result<u32, String>,
    /// Live keys, from the manifest.
    pub(crate) recorded_keys: u64,
    /// Live keys an operator expects.
    pub(crate) wanted_keys: Option<u64>,
    /// Nothing was ever written to the source.
    pub(crate) is_new: bool,
    /// The revision the restored cluster starts at.
    pub(crate) revision_after: i64,
    /// The highest revision any client may have seen.
    pub(crate) highest_seen: i64,
    /// A database file of the restored cluster from before it was booted, where there is one.
    pub(crate) restored_file: Option<PathBuf>,
    /// The authentication records the member booted with, where it can tell.
    pub(crate) member_auth: Option<AuthFacts>,
}

impl Facts {
    /// Whether a backup without keys is what was to be expected.
    pub(crate) fn may_be_empty(&self) -> bool {
        self.wanted_keys.map_or(self.is_new, |wanted| wanted == 0)
    }
}

/// The restored cluster and what it should be.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) facts: Facts,
    pub(crate) expected: Arc<Expected>,
    pub(crate) client: Client,
}

/// Every check of a full drill, in the order in which they run. The write comes last: those
/// before it look at the cluster as it was restored.
pub const CHECK_NAMES: [&str; 10] = [
    "content",
    "revision",
    "keys",
    "prefixes",
    "compacted",
    "watch",
    "leases",
    "auth",
    "alarms",
    "write",
];

/// The check of a cluster of several members, beside [`CHECK_NAMES`].
pub const MEMBERS_CHECK: &str = "members";

/// Every check of a full drill; `others` are the members beside the one that is asked.
pub(crate) async fn check_at(
    place: usize,
    subject: &Subject,
    others: &[Other],
) -> Vec<CheckRecord> {
    let Some(name) = CHECK_NAMES.get(place) else {
        return Vec::new();
    };
    if others.is_empty() || place + 1 < CHECK_NAMES.len() {
        return vec![check(name, subject).await];
    }
    // The last one writes: what all have is looked at before it and after.
    let begun = Instant::now();
    let before = members::before(subject, others).await;
    let written = check(name, subject).await;
    let finding = match before {
        Ok(()) => members::after(subject, others).await,
        Err(doubt) => Err(doubt),
    };
    vec![written, record(MEMBERS_CHECK, finding, begun)]
}

/// Runs one check by its name.
pub(crate) async fn check(name: &str, subject: &Subject) -> CheckRecord {
    let begun = Instant::now();
    let finding = match name {
        "content" => content::check(&subject.facts, &subject.expected),
        "revision" => revision::check(subject).await,
        "keys" => keys::check(subject).await,
        "prefixes" => prefixes::check(subject).await,
        "compacted" => compacted::check(subject).await,
        "watch" => watch::check(subject).await,
        "leases" => leases::check(subject).await,
        "auth" => auth::check(subject).await,
        "alarms" => alarms::check(subject).await,
        "write" => write::check(subject).await,
        _ => Err(Doubt::Inconclusive("there is no such check".to_owned())),
    };
    record(name, finding, begun)
}

/// A check as it goes into the report.
pub(crate) fn record(name: &str, finding: Finding, begun: Instant) -> CheckRecord {
    let (outcome, detail) = match finding {
        Ok(detail) => (Outcome::Passed, detail),
        Err(Doubt::Failed(detail)) => (Outcome::Failed, detail),
        Err(Doubt::Inconclusive(detail)) => (Outcome::Inconclusive, detail),
    };
    CheckRecord {
        name: name.to_owned(),
        outcome,
        detail,
        took: Span::from(begun.elapsed()),
    }
}

/// Keys, counted for people.
pub(crate) fn keys_text(count: u64) -> String {
    if count == 1 {
        "1 key".to_owned()
    } else {
        format!("{count} keys")
    }
}

#[cfg(test)]
mod tests;
