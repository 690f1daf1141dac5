//! What to rehearse, and within which bounds.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use holdfast_policies::{ByteSize, ClusterName, DrillId, Level, Span};
use holdfast_restore::plan::MEMBERS_MAX;
use holdfast_restore::{Catalog, Ledger, Pick};
use serde::{Deserialize, Serialize};

use crate::scratch::MemberCommand;

/// What is restored to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrillTarget {
    /// The bundled store.
    Holdfast,
    /// A real etcd: the path of its binary, 3.5 to 3.7.
    Etcd(PathBuf),
}

/// How many scratch members are booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DrillMembers {
    /// As many as the source had when the backup was taken.
    #[default]
    Source,
    /// So many: 1 to [`MEMBERS_MAX`].
    Exactly(usize),
}

impl DrillMembers {
    /// How many these are for a backup that lists `listed` members.
    pub(crate) fn count(self, listed: usize) -> usize {
        let wanted = match self {
            Self::Source => listed,
            Self::Exactly(count) => count,
        };
        wanted.clamp(1, MEMBERS_MAX)
    }
}

/// What to rehearse, and within which bounds.
#[derive(Debug, Clone)]
pub struct DrillOptions {
    /// Names the drill.
    pub id: DrillId,
    /// Whose backup.
    pub cluster: ClusterName,
    /// Which one. `None`: see [`pick`].
    pub pick: Option<Pick>,
    /// What is restored to.
    pub target: DrillTarget,
    /// How many members are booted as one cluster. Each takes its own disk space.
    pub members: DrillMembers,
    /// How each scratch member is started.
    pub member: MemberCommand,
    /// The folder scratch directories are made in.
    pub scratch_dir: PathBuf,
    /// Most disk space the scratch directory may take.
    pub budget: ByteSize,
    /// A drill not done by then has failed.
    pub deadline: Span,
    /// The time, by the appliance's clock.
    pub now: DateTime<Utc>,
    /// The appliance's own ledger.
    pub ledger: Option<Ledger>,
    /// The newest revision of the source known, and when it was seen.
    pub known: Option<(i64, DateTime<Utc>)>,
    /// Tolerated loss, to be judged in the report.
    pub rpo: Option<Span>,
    /// Tolerated time to be back, to be judged in the report.
    pub rto: Option<Span>,
    /// Live keys the backup must hold. `None`: at least one, unless nothing was ever written.
    pub wanted_keys: Option<u64>,
    /// Restore with alarms removed, as `restore --clear-alarms` does.
    pub clear_alarms: bool,
}

impl DrillOptions {
    /// A drill of a cluster's best candidate on the bundled store: 64 GiB, an hour.
    pub fn new(
        cluster: ClusterName,
        now: DateTime<Utc>,
        scratch_dir: PathBuf,
        member: MemberCommand,
    ) -> Self {
        let random = uuid::Uuid::new_v4().into_bytes();
        let mut bytes = [0; holdfast_policies::ID_RANDOM_BYTES];
        for (to, from) in bytes.iter_mut().zip(random.iter().rev()) {
            *to = *from;
        }
        Self {
            id: DrillId::new(now, bytes),
            cluster,
            pick: None,
            target: DrillTarget::Holdfast,
            members: DrillMembers::Source,
            member,
            scratch_dir,
            budget: ByteSize::new(64 << 30),
            deadline: Span::from_secs(3600),
            now,
            ledger: None,
            known: None,
            rpo: None,
            rto: None,
            wanted_keys: None,
            clear_alarms: false,
        }
    }
}

/// What a drill is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading the catalog and choosing a backup.
    Pick,
    /// Rebuilding a data directory from it.
    Restore,
    /// Starting a member on it, until it serves.
    Boot,
    /// Decoding the backup once more, to compare with.
    Decode,
    /// Asking the member.
    Check,
    /// Removing every trace.
    Teardown,
}

impl Phase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pick => "pick",
            Self::Restore => "restore",
            Self::Boot => "boot",
            Self::Decode => "decode",
            Self::Check => "check",
            Self::Teardown => "teardown",
        }
    }
}

/// Told of each phase as it begins. Must return at once.
pub type PhaseFn<'a> = &'a (dyn Fn(Phase) + Send + Sync);

/// The backup a drill takes when none is named: the newest undamaged one whose content was
/// verified (L2), or the newest undamaged one when there is no such.
pub fn pick(catalog: &Catalog) -> Pick {
    let mut sound = catalog
        .backups
        .iter()
        .rev()
        .filter(|backup| !backup.is_damaged());
    match sound.find(|backup| backup.level() >= Some(Level::L2)) {
        Some(backup) => Pick::Id(backup.id()),
        None => Pick::Latest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drill_boots_as_many_members_as_the_source_had() {
        let counts = [0, 1, 3, 7, 9].map(|listed| DrillMembers::Source.count(listed));
        assert_eq!(counts, [1, 1, 3, 7, 7]);
        assert_eq!(DrillMembers::Exactly(3).count(1), 3);
    }
}
