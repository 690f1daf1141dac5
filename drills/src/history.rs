//! What the vault knows of the history that a backup is from.

use holdfast_restore::{Catalog, Manifest};

/// The revision of a store that nothing was ever written to.
const FIRST_REVISION: i64 = 1;

/// Revisions that backups were taken at, and those that restores began at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    /// The newest revision in any backup of the same cluster.
    pub(crate) newest_backed_up: i64,
    /// Nothing was ever written, as far as anybody has seen.
    pub(crate) is_new: bool,
    backed_up: Vec<i64>,
    bumps: Vec<i64>,
}

impl History {
    /// The history of the backup with this `manifest`.
    pub(crate) fn of(catalog: &Catalog, manifest: &Manifest) -> Self {
        let all = || catalog.backups.iter().map(|backup| &backup.manifest);
        let newest_backed_up = all()
            .filter(|other| other.source.cluster_id == manifest.source.cluster_id)
            .map(|other| other.content.revision)
            .fold(manifest.content.revision, i64::max);
        Self {
            newest_backed_up,
            is_new: catalog.highest_revision() <= FIRST_REVISION
                && all().all(|other| other.content.keys == 0),
            backed_up: all().map(|other| other.content.revision).collect(),
            bumps: catalog.bumps.clone(),
        }
    }

    /// How many revisions were made after `from` up to `to`. What a restore jumped over was never
    /// made: from the newest revision known before the jump to where the restored cluster began.
    pub(crate) fn revisions_between(&self, from: i64, to: i64) -> u64 {
        let mut bumps: Vec<i64> = self.bumps.clone();
        bumps.retain(|bump| (from.saturating_add(1)..=to).contains(bump));
        bumps.sort_unstable();
        bumps.dedup();
        let mut made = to.saturating_sub(from);
        let mut begun = from;
        for bump in bumps {
            let backed_up = self.backed_up.iter().copied();
            let before = backed_up
                .filter(|revision| *revision < bump)
                .fold(begun, i64::max);
            made = made.saturating_sub(bump.saturating_sub(before));
            begun = bump;
        }
        u64::try_from(made).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(backed_up: &[i64], bumps: &[i64]) -> History {
        History {
            newest_backed_up: 0,
            is_new: false,
            backed_up: backed_up.to_vec(),
            bumps: bumps.to_vec(),
        }
    }

    #[test]
    fn without_a_restore_every_revision_counts() {
        assert_eq!(history(&[300, 452], &[]).revisions_between(300, 460), 160);
        assert_eq!(history(&[300], &[]).revisions_between(300, 299), 0);
    }

    #[test]
    fn what_restores_jumped_over_is_not_lost() {
        // Backed up at 300 and 452, restored to 1,000,452, written to 5 times since.
        let once = history(&[300, 452], &[1_000_452]);
        assert_eq!(once.revisions_between(300, 1_000_457), 152 + 5);
        assert_eq!(once.revisions_between(452, 1_000_457), 5);
        assert_eq!(once.revisions_between(452, 1_000_452), 0);
        // The source that was restored from is still there: nothing was jumped over.
        assert_eq!(once.revisions_between(452, 500), 48);
        // Restored again, from a backup of the restored cluster.
        let twice = history(&[300, 452, 1_000_460], &[1_000_452, 2_000_460, 2_000_460]);
        assert_eq!(twice.revisions_between(452, 2_000_461), 8 + 1);
    }
}
