//! Whether letting go has any effect on the vault.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Runs in a row without effect before somebody is told.
pub const NO_EFFECT_RUNS: usize = 3;

/// One prune: what it was to remove, and what a look at the vault afterwards showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PruneRun {
    /// When.
    pub at: DateTime<Utc>,
    /// Backups whose time in the trash was over and that nothing held back.
    pub due: usize,
    /// Those of them that were listed no more afterwards.
    pub gone: usize,
}

/// Whether the last [`NO_EFFECT_RUNS`] of `runs`, oldest first, were all to remove something and
/// none of it went: the vault grows although the policy says otherwise.
pub fn has_no_effect(runs: &[PruneRun]) -> bool {
    let last = runs.iter().rev().take(NO_EFFECT_RUNS);
    last.clone().count() == NO_EFFECT_RUNS && last.clone().all(|run| run.due > 0 && run.gone == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_runs_without_effect_are_told_and_one_with_effect_ends_it() {
        let run = |(due, gone)| PruneRun {
            at: DateTime::UNIX_EPOCH,
            due,
            gone,
        };
        let tell = |runs: &[(usize, usize)]| {
            let runs: Vec<PruneRun> = runs.iter().copied().map(run).collect();
            has_no_effect(&runs)
        };
        assert!(!tell(&[]));
        assert!(!tell(&[(1, 0), (2, 0)]));
        assert!(tell(&[(1, 1), (1, 0), (2, 0), (2, 0)]));
        assert!(!tell(&[(1, 0), (2, 1), (2, 0)]), "some of it goes");
        assert!(!tell(&[(1, 0), (0, 0), (2, 0)]), "there was nothing to do");
    }
}
