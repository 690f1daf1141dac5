//! The rules applied: one decision for each backup.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::guard;
use super::view::View;
use super::{KeepReason, Refusal, ReleaseReason, RetentionInput, RetentionPolicy};
use crate::{BackupFact, Level, Pool, Sequence, SnapshotId};

/// What becomes of one backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It stays, for each of these reasons.
    Keep(Vec<KeepReason>),
    /// It goes.
    Release(ReleaseReason),
    /// It would go, but this run has released its fill.
    Defer(ReleaseReason),
}

/// The decision for one backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The backup.
    pub id: SnapshotId,
    /// What it was taken for.
    pub pool: Pool,
    /// Its place in the chain.
    pub sequence: Sequence,
    /// Its time.
    pub time: DateTime<Utc>,
    /// Level of proof it has reached.
    pub level: Option<Level>,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// What stays and what goes. Made by [`RetentionPolicy::plan`], carried out by `restore::prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetentionPlan {
    /// One decision for each backup, oldest first.
    pub decisions: Vec<Decision>,
    /// What goes, in the order in which it may be deleted: stopped at any point, no backup that
    /// is still there lacks what it needs.
    pub release: Vec<SnapshotId>,
}

impl RetentionPolicy {
    /// Decides for every backup. Refuses as a whole when anything casts doubt on the facts.
    pub fn plan(
        &self,
        facts: &[BackupFact],
        input: &RetentionInput,
    ) -> Result<RetentionPlan, Refusal> {
        let chain = in_chain_order(facts);
        guard::check(self, &chain, input)?;
        let mut kept = Kept::default();
        // The guard has seen to it that one counts.
        let newest = chain.iter().rfind(|fact| fact.holds_at(self.count_from));
        if let Some(newest) = newest {
            for pool in Pool::ALL {
                let view = View {
                    policy: self,
                    rules: self.rules(pool),
                    pool,
                    newest,
                    chain: &chain,
                };
                view.apply_rules(&mut kept);
                view.apply_calendar(&mut kept);
            }
            self.apply_window(newest, &chain, &mut kept);
        }
        self.apply_floor(&chain, &mut kept);
        keep_what_must_not_go(&chain, self.count_from, &mut kept);
        keep_what_is_needed(&chain, &mut kept);
        Ok(self.conclude(&chain, &kept))
    }

    /// `recovery_window`: what lies in it, proven or not, and the newest that counts before it.
    fn apply_window(&self, newest: &BackupFact, chain: &[&BackupFact], kept: &mut Kept) {
        let Some(window) = self.recovery_window else {
            return;
        };
        let begins = newest.time.checked_sub_signed(window.as_delta());
        let begins = begins.unwrap_or(DateTime::<Utc>::MIN_UTC);
        for fact in chain.iter().rev() {
            if !fact.is_signed || fact.is_damaged {
                continue;
            }
            if fact.time > begins {
                kept.add(fact.id, KeepReason::RecoveryWindow);
            } else if fact.holds_at(self.count_from) {
                kept.add(fact.id, KeepReason::WindowBase);
                return;
            }
        }
    }

    /// The newest proven backups, and the best others while those are too few.
    fn apply_floor(&self, chain: &[&BackupFact], kept: &mut Kept) {
        let wanted = usize::try_from(self.min_proven.max(1)).unwrap_or(usize::MAX);
        let mut best: Vec<&BackupFact> = chain
            .iter()
            .rev()
            .copied()
            .filter(|fact| fact.holds_at(Level::L0))
            .collect();
        // All restored ones rank alike: the newer serves better. Below that, proof comes first.
        best.sort_by_key(|fact| std::cmp::Reverse(fact.level.min(Some(Level::L3))));
        for fact in best.into_iter().take(wanted) {
            let level = fact.level.unwrap_or(Level::L0);
            let reason = if level >= Level::L3 {
                KeepReason::Proven { level }
            } else {
                KeepReason::BestProven { level }
            };
            kept.add(fact.id, reason);
        }
    }

    fn conclude(&self, chain: &[&BackupFact], kept: &Kept) -> RetentionPlan {
        let candidates: Vec<&BackupFact> = chain
            .iter()
            .copied()
            .filter(|fact| !kept.has(fact.id))
            .collect();
        let mut release = deletion_order(&candidates);
        release.truncate(usize::try_from(self.max_deletions).unwrap_or(usize::MAX));
        let released: BTreeSet<SnapshotId> = release.iter().copied().collect();
        let decisions = chain
            .iter()
            .map(|fact| {
                let verdict = match kept.reasons(fact.id) {
                    Some(reasons) => Verdict::Keep(reasons),
                    None if released.contains(&fact.id) => Verdict::Release(self.why_not(fact)),
                    None => Verdict::Defer(self.why_not(fact)),
                };
                Decision {
                    id: fact.id,
                    pool: fact.pool,
                    sequence: fact.sequence,
                    time: fact.time,
                    level: fact.level,
                    verdict,
                }
            })
            .collect();
        RetentionPlan { decisions, release }
    }

    fn why_not(&self, fact: &BackupFact) -> ReleaseReason {
        if fact.is_damaged {
            ReleaseReason::Damaged
        } else if fact.holds_at(self.count_from) {
            ReleaseReason::NoRule
        } else {
            ReleaseReason::NeverVerified
        }
    }
}

impl RetentionPlan {
    /// What stays, oldest first.
    pub fn kept(&self) -> impl Iterator<Item = &Decision> {
        self.decisions
            .iter()
            .filter(|decision| matches!(decision.verdict, Verdict::Keep(_)))
    }

    /// How many would go and wait for the next run. More than none means that something changed:
    /// a policy, or the times.
    pub fn deferred(&self) -> usize {
        let is_deferred = |decision: &&Decision| matches!(decision.verdict, Verdict::Defer(_));
        self.decisions.iter().filter(is_deferred).count()
    }
}

impl fmt::Display for RetentionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for decision in &self.decisions {
            writeln!(f, "{decision}")?;
        }
        let (kept, released) = (self.kept().count(), self.release.len());
        write!(f, "{kept} kept, {released} released")?;
        match self.deferred() {
            0 => Ok(()),
            deferred => write!(f, ", {deferred} left for the next run (max_deletions)"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.map_or("--", |level| match level {
            Level::L0 => "L0",
            Level::L1 => "L1",
            Level::L2 => "L2",
            Level::L3 => "L3",
            Level::L4 => "L4",
            Level::L5 => "L5",
        });
        write!(
            f,
            "{} {} {level} {}{}",
            self.id,
            self.time.format("%F %TZ"),
            if self.pool == Pool::Manual {
                "manual, "
            } else {
                ""
            },
            self.verdict
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(reasons) => {
                f.write_str("keep: ")?;
                for (place, reason) in reasons.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{reason}")?;
                }
                Ok(())
            }
            Self::Release(reason) => write!(f, "release: {reason}"),
            Self::Defer(reason) => write!(f, "release later: {reason}"),
        }
    }
}

/// Reasons to keep, by backup.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<SnapshotId, BTreeSet<KeepReason>>);

impl Kept {
    pub(super) fn add(&mut self, id: SnapshotId, reason: KeepReason) {
        self.0.entry(id).or_default().insert(reason);
    }

    /// Named for the first rule that would keep it: one is enough.
    pub(super) fn add_unverified(&mut self, id: SnapshotId, rule: &'static str) {
        let reasons = self.0.entry(id).or_default();
        let is_named = |reason: &KeepReason| matches!(reason, KeepReason::NotVerified { .. });
        if !reasons.iter().any(is_named) {
            reasons.insert(KeepReason::NotVerified { rule });
        }
    }

    fn has(&self, id: SnapshotId) -> bool {
        self.0.contains_key(&id)
    }

    fn reasons(&self, id: SnapshotId) -> Option<Vec<KeepReason>> {
        self.0
            .get(&id)
            .map(|reasons| reasons.iter().cloned().collect())
    }
}

/// Oldest first, by place in the chain; ids break ties, so that the order never varies.
fn in_chain_order(facts: &[BackupFact]) -> Vec<&BackupFact> {
    let mut chain: Vec<&BackupFact> = facts.iter().collect();
    chain.sort_by_key(|fact| (fact.sequence, fact.id));
    chain
}

fn keep_what_must_not_go(chain: &[&BackupFact], count_from: Level, kept: &mut Kept) {
    let newest_counted = chain
        .iter()
        .rev()
        .find(|fact| fact.holds_at(count_from))
        .map(|fact| fact.sequence);
    for fact in chain {
        if fact.is_pinned {
            kept.add(fact.id, KeepReason::Pinned);
        }
        if fact.is_in_use {
            kept.add(fact.id, KeepReason::InUse);
        }
        if !fact.is_signed {
            kept.add(fact.id, KeepReason::Unsigned);
        } else if newest_counted.is_none_or(|newest| fact.sequence > newest) {
            kept.add(fact.id, KeepReason::AwaitsVerification);
        }
    }
}

/// What a kept backup needs stays, and what that needs, and so on.
fn keep_what_is_needed(chain: &[&BackupFact], kept: &mut Kept) {
    let by_id: BTreeMap<SnapshotId, &BackupFact> =
        chain.iter().map(|fact| (fact.id, *fact)).collect();
    let mut open: Vec<SnapshotId> = kept.0.keys().copied().collect();
    let mut done = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !done.insert(id) {
            continue;
        }
        for needs in by_id.get(&id).into_iter().flat_map(|fact| &fact.needs) {
            kept.add(*needs, KeepReason::NeededBy(id));
            open.push(*needs);
        }
    }
}

/// Oldest first, and before each one everything that needs it.
fn deletion_order(candidates: &[&BackupFact]) -> Vec<SnapshotId> {
    let mut dependents: BTreeMap<SnapshotId, Vec<&BackupFact>> = BTreeMap::new();
    for fact in candidates {
        for needs in &fact.needs {
            dependents.entry(*needs).or_default().push(fact);
        }
    }
    let mut order = Vec::with_capacity(candidates.len());
    let mut emitted = BTreeSet::new();
    for root in candidates {
        let mut group = BTreeMap::new();
        let mut open = vec![*root];
        while let Some(fact) = open.pop() {
            if emitted.insert(fact.id) {
                group.insert((fact.sequence, fact.id), fact.id);
                open.extend(dependents.get(&fact.id).into_iter().flatten());
            }
        }
        // Whatever needs another comes after it in the chain.
        order.extend(group.into_values().rev());
    }
    order
}
