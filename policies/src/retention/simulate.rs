//! What a policy would keep, had it run for a while.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::Serialize;

use super::{Listing, Refusal, RetentionInput, RetentionPolicy};
use crate::schedule::Schedule;
use crate::{BackupFact, ByteSize, Generation, Level, Sequence, SnapshotId, Span};

/// Most backups one simulation takes.
pub const SIMULATED_RUNS_MAX: usize = 200_000;

/// The vault at the end of one simulated day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SimulatedDay {
    /// The day, in the policy's time zone.
    pub day: NaiveDate,
    /// Backups there.
    pub kept: usize,
    /// Backups released on that day.
    pub released: usize,
    /// Age of the oldest.
    pub oldest: Span,
}

/// A simulated stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Simulation {
    /// Day by day.
    pub days: Vec<SimulatedDay>,
    /// Backups taken.
    pub taken: usize,
    /// Most backups in the vault at any time.
    pub kept_max: usize,
    /// What is there at the end, oldest first.
    pub remaining: Vec<BackupFact>,
    /// Whether [`SIMULATED_RUNS_MAX`] cut it short.
    pub is_cut_short: bool,
}

/// Takes a backup of `size` at every run of `schedule` from `start` for `length`, proves one by
/// a drill whenever `drills` says so, and applies the policy after each.
pub fn simulate(
    policy: &RetentionPolicy,
    schedule: &Schedule,
    drills: Option<&Schedule>,
    (start, length): (DateTime<Utc>, Span),
    size: ByteSize,
) -> Result<Simulation, Refusal> {
    let end = start
        .checked_add_signed(length.as_delta())
        .unwrap_or(DateTime::<Utc>::MAX_UTC);
    let mut simulation = Simulation {
        days: Vec::new(),
        taken: 0,
        kept_max: 0,
        remaining: Vec::new(),
        is_cut_short: false,
    };
    let mut next_drill = drills.and_then(|drills| drills.next_after(start));
    let mut at = start;
    while let Some(time) = schedule.next_after(at).filter(|time| *time <= end) {
        if simulation.taken == SIMULATED_RUNS_MAX {
            simulation.is_cut_short = true;
            break;
        }
        at = time;
        while let Some(drill) = next_drill.filter(|drill| *drill <= time) {
            if let Some(newest) = simulation.remaining.last_mut() {
                newest.level = Some(Level::L3);
            }
            next_drill = drills.and_then(|drills| drills.next_after(drill));
        }
        simulation.take(policy, time, size)?;
    }
    Ok(simulation)
}

impl Simulation {
    fn take(
        &mut self,
        policy: &RetentionPolicy,
        time: DateTime<Utc>,
        size: ByteSize,
    ) -> Result<(), Refusal> {
        self.taken += 1;
        let fact = simulated_fact(self.taken, time, size);
        let input = RetentionInput {
            occasion: fact.id,
            now: time + TimeDelta::seconds(1),
            vault_now: None,
            listing: Listing::Complete,
            // Gaps of a simulated schedule are meant.
            confirmed: Some(fact.sequence),
        };
        self.remaining.push(fact);
        self.kept_max = self.kept_max.max(self.remaining.len());
        let plan = policy.plan(&self.remaining, &input)?;
        self.remaining
            .retain(|fact| !plan.release.contains(&fact.id));
        self.note_day(policy, time, plan.release.len());
        Ok(())
    }

    fn note_day(&mut self, policy: &RetentionPolicy, time: DateTime<Utc>, released: usize) {
        let day = time.with_timezone(&policy.time_zone.tz()).date_naive();
        let oldest = self.remaining.first().map_or(time, |fact| fact.time);
        let entry = SimulatedDay {
            day,
            kept: self.remaining.len(),
            released,
            oldest: (time - oldest).to_std().map(Span::from).unwrap_or_default(),
        };
        match self.days.last_mut().filter(|last| last.day == day) {
            Some(last) => {
                *last = SimulatedDay {
                    released: last.released + released,
                    ..entry
                }
            }
            None => self.days.push(entry),
        }
    }
}

fn simulated_fact(number: usize, time: DateTime<Utc>, size: ByteSize) -> BackupFact {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    let mut random = [0; 10];
    for (to, from) in random.iter_mut().skip(2).zip(number.to_be_bytes()) {
        *to = from;
    }
    BackupFact {
        id: SnapshotId::new(time, random),
        generation: Generation::FIRST,
        sequence: Sequence(number),
        time,
        observed: None,
        revision: i64::try_from(number).unwrap_or(i64::MAX),
        size,
        level: Some(Level::L2),
        is_signed: true,
        is_damaged: false,
        is_pinned: false,
        is_in_use: false,
        needs: Vec::new(),
    }
}
