//! When nothing may be released at all.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::RetentionPolicy;
use crate::{BackupFact, Error, Level, Sequence, SnapshotId};

/// Longest time between the reading of a backup and its verification that still counts as new.
const FRESH_MAX: TimeDelta = TimeDelta::days(1);

/// Whether the facts are all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// Every manifest was listed and read.
    Complete,
    /// Something was not: an error, a page cut short, a manifest that cannot be read.
    Incomplete,
}

/// The circumstances of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionInput {
    /// The backup that was just verified and gives the occasion.
    pub occasion: SnapshotId,
    /// Our clock.
    pub now: DateTime<Utc>,
    /// The vault's clock at the same time, where it has one of its own.
    pub vault_now: Option<DateTime<Utc>>,
    /// Whether the facts are all there is.
    pub listing: Listing,
    /// An operator looked at the times up to here and found them right.
    pub confirmed: Option<Sequence>,
}

/// Why a run releases nothing. Every one of them needs a person's eye.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The policy itself is refused.
    #[error("the policy is refused")]
    Policy {
        /// What is wrong with it.
        #[source]
        source: Error,
    },
    /// A list that may lack backups says nothing about which are the newest.
    #[error("the listing of the vault is incomplete")]
    Incomplete,
    /// The occasion is not in the vault.
    #[error("the backup just verified is not in the vault: {id}")]
    OccasionMissing {
        /// The occasion.
        id: SnapshotId,
    },
    /// The occasion does not count.
    #[error("the backup just taken is not signed, sound and verified to {wanted}: {id}")]
    OccasionUnverified {
        /// The occasion.
        id: SnapshotId,
        /// The level it should have.
        wanted: Level,
    },
    /// A newer verified backup exists: this run is late, or the chain has forked.
    #[error("a newer verified backup than the one just taken exists: {newer}")]
    OccasionOutdated {
        /// The newer one.
        newer: SnapshotId,
    },
    /// Two backups claim one place.
    #[error("two backups share place {sequence} of the chain: {first} and {second}")]
    SequenceShared {
        /// The place.
        sequence: Sequence,
        /// One of them.
        first: SnapshotId,
        /// The other.
        second: SnapshotId,
    },
    /// A backup that counts cannot be restored, since what it needs is gone or comes later.
    #[error("{id} needs {needs}, which is not before it in the vault")]
    NeedMissing {
        /// The backup.
        id: SnapshotId,
        /// What it needs.
        needs: SnapshotId,
    },
    /// Our clock and the vault's differ.
    #[error("clocks disagree: ours says {ours}, the vault's {vault}")]
    ClocksDisagree {
        /// Our time.
        ours: DateTime<Utc>,
        /// The vault's.
        vault: DateTime<Utc>,
    },
    /// The occasion was taken in the future, or too long ago to be new.
    #[error("the backup just verified is of {time}, which is not a little before now ({now})")]
    OccasionTime {
        /// Its time.
        time: DateTime<Utc>,
        /// Our time.
        now: DateTime<Utc>,
    },
    /// A backup claims to be of a time after the vault stored it: its clock was wrong, or its time
    /// is forged.
    #[error(
        "{id} says that it was taken at {time}, and the vault stored it at {vault} already: look \
         at it, and confirm place {sequence} if it may count"
    )]
    TimeAhead {
        /// The backup.
        id: SnapshotId,
        /// Its place.
        sequence: Sequence,
        /// Its time.
        time: DateTime<Utc>,
        /// The vault's.
        vault: DateTime<Utc>,
    },
    /// A later backup of the chain has an earlier time: a clock was set back.
    #[error(
        "a clock was set back: {later} comes after {earlier} and is older by its time; set the \
         clock right, and confirm place {sequence} when both may count"
    )]
    ClockWentBack {
        /// The backup before.
        earlier: SnapshotId,
        /// The backup after it.
        later: SnapshotId,
        /// The place of the later one.
        sequence: Sequence,
    },
    /// Two backups in a row lie implausibly far apart: a clock may have been set.
    #[error(
        "{days} days lie between {earlier} and {later}: a clock may have been set; \
         confirm place {sequence} if they are right"
    )]
    ClockJumped {
        /// The backup before.
        earlier: SnapshotId,
        /// The backup after it.
        later: SnapshotId,
        /// The place of the later one.
        sequence: Sequence,
        /// Whole days between them.
        days: i64,
    },
}

impl Refusal {
    /// Whether times are what it is about: clocks that disagree, were set, or are lied about.
    pub fn is_about_clocks(&self) -> bool {
        matches!(
            self,
            Self::ClocksDisagree { .. }
                | Self::OccasionTime { .. }
                | Self::TimeAhead { .. }
                | Self::ClockWentBack { .. }
                | Self::ClockJumped { .. }
        )
    }
}

/// Checks everything that must hold before anything may be released.
pub(super) fn check(
    policy: &RetentionPolicy,
    chain: &[&BackupFact],
    input: &RetentionInput,
) -> Result<(), Refusal> {
    policy
        .check()
        .map_err(|source| Refusal::Policy { source })?;
    if input.listing == Listing::Incomplete {
        return Err(Refusal::Incomplete);
    }
    let occasion = check_occasion(policy, chain, input)?;
    check_chain(policy, chain)?;
    check_clocks(policy, occasion, input)?;
    check_times(policy, chain, input)
}

fn check_occasion<'a>(
    policy: &RetentionPolicy,
    chain: &[&'a BackupFact],
    input: &RetentionInput,
) -> Result<&'a BackupFact, Refusal> {
    let id = input.occasion;
    let occasion = chain
        .iter()
        .find(|fact| fact.id == id)
        .copied()
        .ok_or(Refusal::OccasionMissing { id })?;
    if !occasion.holds_at(policy.count_from) {
        return Err(Refusal::OccasionUnverified {
            id,
            wanted: policy.count_from,
        });
    }
    let newer = chain
        .iter()
        .rfind(|fact| fact.sequence > occasion.sequence && fact.holds_at(policy.count_from));
    match newer {
        Some(newer) => Err(Refusal::OccasionOutdated { newer: newer.id }),
        None => Ok(occasion),
    }
}

/// Places are taken once, ids are unique, and what counts has what it needs.
fn check_chain(policy: &RetentionPolicy, chain: &[&BackupFact]) -> Result<(), Refusal> {
    let signed = || chain.iter().filter(|fact| fact.is_signed);
    for (first, second) in signed().zip(signed().skip(1)) {
        if first.sequence == second.sequence {
            let (sequence, first, second) = (first.sequence, first.id, second.id);
            return Err(Refusal::SequenceShared {
                sequence,
                first,
                second,
            });
        }
    }
    let mut places: BTreeMap<SnapshotId, Sequence> = BTreeMap::new();
    for fact in chain {
        if fact.holds_at(policy.count_from) {
            for needs in &fact.needs {
                if places
                    .get(needs)
                    .is_none_or(|place| *place >= fact.sequence)
                {
                    return Err(Refusal::NeedMissing {
                        id: fact.id,
                        needs: *needs,
                    });
                }
            }
        }
        if let Some(sequence) = places.insert(fact.id, fact.sequence) {
            let (first, second) = (fact.id, fact.id);
            return Err(Refusal::SequenceShared {
                sequence,
                first,
                second,
            });
        }
    }
    Ok(())
}

fn check_clocks(
    policy: &RetentionPolicy,
    occasion: &BackupFact,
    input: &RetentionInput,
) -> Result<(), Refusal> {
    let tolerance = policy.clock_tolerance.as_delta();
    let now = input.now;
    if let Some(vault) = input.vault_now
        && (now - vault).abs() > tolerance
    {
        return Err(Refusal::ClocksDisagree { ours: now, vault });
    }
    let is_new = |time: DateTime<Utc>| time - now <= tolerance && now - time <= FRESH_MAX;
    if !is_new(occasion.time) {
        return Err(Refusal::OccasionTime {
            time: occasion.time,
            now,
        });
    }
    // The vault's stamp comes from its own clock: after the reading, before now.
    match occasion.observed {
        Some(vault) if !is_new(vault) || occasion.time - vault > tolerance => {
            Err(Refusal::ClocksDisagree {
                ours: occasion.time,
                vault,
            })
        }
        _ => Ok(()),
    }
}

/// Signed times follow the chain, without implausible leaps.
fn check_times(
    policy: &RetentionPolicy,
    chain: &[&BackupFact],
    input: &RetentionInput,
) -> Result<(), Refusal> {
    let tolerance = policy.clock_tolerance.as_delta();
    let gap_max = policy.gap_max.as_delta();
    let signed = || chain.iter().filter(|fact| fact.is_signed);
    let is_confirmed = |fact: &BackupFact| {
        let confirmed = input.confirmed;
        confirmed.is_some_and(|confirmed| fact.sequence <= confirmed)
    };
    // The vault's stamp comes after the reading. A copied vault has later ones, never earlier.
    for fact in signed().filter(|fact| !is_confirmed(fact)) {
        if let Some(vault) = fact.observed.filter(|vault| fact.time - *vault > tolerance) {
            return Err(Refusal::TimeAhead {
                id: fact.id,
                sequence: fact.sequence,
                time: fact.time,
                vault,
            });
        }
    }
    for (earlier, later) in signed().zip(signed().skip(1)) {
        if is_confirmed(later) {
            continue;
        }
        let gap = later.time - earlier.time;
        if gap < -tolerance {
            return Err(Refusal::ClockWentBack {
                earlier: earlier.id,
                later: later.id,
                sequence: later.sequence,
            });
        }
        // Releases leave gaps behind on purpose: only neighbours in the chain say anything.
        let are_neighbours = earlier.sequence.next() == Some(later.sequence);
        if are_neighbours && gap > gap_max {
            return Err(Refusal::ClockJumped {
                earlier: earlier.id,
                later: later.id,
                sequence: later.sequence,
                days: gap.num_days(),
            });
        }
    }
    Ok(())
}
