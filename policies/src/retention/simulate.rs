//! What a policy would keep, had it run for a while.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::Serialize;

use super::{Listing, Refusal, RetentionInput, RetentionPolicy};
use crate::schedule::Schedule;
use crate::{BackupFact, ByteSize, Generation, Level, Pool, Sequence, SnapshotId, Span};

/// Most backups one simulation takes.
pub const SIMULATED_RUNS_MAX: usize = 200_000;

/// The vault at the end of one simulated day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SimulatedDay {
    /// The day, in the policy's time zone.
    pub day: NaiveDate,
    /// Backups there, those in the trash aside.
    pub kept: usize,
    /// Those of them that somebody asked for.
    pub manual: usize,
    /// Backups in the trash.
    pub trash: usize,
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
    /// Most backups there at any time, those in the trash aside.
    pub kept_max: usize,
    /// Most backups in the vault at any time, those in the trash among them.
    pub stored_max: usize,
    /// What is there at the end, oldest first.
    pub remaining: Vec<BackupFact>,
    /// Until when each backup in the trash stays.
    pub trash: Vec<DateTime<Utc>>,
    /// Whether [`SIMULATED_RUNS_MAX`] cut it short.
    pub is_cut_short: bool,
}

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Scenario<'a> {
    /// When backups are taken.
    pub schedule: &'a Schedule,
    /// When one is proven by a drill.
    pub drills: Option<&'a Schedule>,
    /// When somebody asks for one besides.
    pub manual: Option<&'a Schedule>,
    /// When it begins.
    pub start: DateTime<Utc>,
    /// How long it takes.
    pub length: Span,
    /// The size of each backup.
    pub size: ByteSize,
}

/// Takes the backups of a scenario and applies the policy after each.
pub fn simulate(policy: &RetentionPolicy, of: Scenario<'_>) -> Result<Simulation, Refusal> {
    let end = of
        .start
        .checked_add_signed(of.length.as_delta())
        .unwrap_or(DateTime::<Utc>::MAX_UTC);
    let mut simulation = Simulation {
        days: Vec::new(),
        taken: 0,
        kept_max: 0,
        stored_max: 0,
        remaining: Vec::new(),
        trash: Vec::new(),
        is_cut_short: false,
    };
    let next = |schedule: Option<&Schedule>, at| schedule.and_then(|one| one.next_after(at));
    let mut next_drill = next(of.drills, of.start);
    let (mut scheduled, mut asked) = (next(Some(of.schedule), of.start), next(of.manual, of.start));
    while let Some((time, pool)) = first(scheduled, asked).filter(|(time, _)| *time <= end) {
        if simulation.taken == SIMULATED_RUNS_MAX {
            simulation.is_cut_short = true;
            break;
        }
        match pool {
            Pool::Scheduled => scheduled = next(Some(of.schedule), time),
            Pool::Manual => asked = next(of.manual, time),
        }
        while let Some(drill) = next_drill.filter(|drill| *drill <= time) {
            if let Some(newest) = simulation.remaining.last_mut() {
                newest.level = Some(Level::L3);
            }
            next_drill = next(of.drills, drill);
        }
        simulation.take(policy, (time, pool), of.size)?;
    }
    Ok(simulation)
}

/// Whichever comes first; the schedule when both do.
fn first(
    scheduled: Option<DateTime<Utc>>,
    asked: Option<DateTime<Utc>>,
) -> Option<(DateTime<Utc>, Pool)> {
    let scheduled = scheduled.map(|time| (time, Pool::Scheduled));
    let asked = asked.map(|time| (time, Pool::Manual));
    [scheduled, asked].into_iter().flatten().min()
}

impl Simulation {
    fn take(
        &mut self,
        policy: &RetentionPolicy,
        (time, pool): (DateTime<Utc>, Pool),
        size: ByteSize,
    ) -> Result<(), Refusal> {
        self.taken += 1;
        let fact = simulated_fact(self.taken, (time, pool), size);
        let input = RetentionInput {
            occasion: fact.id,
            now: time + TimeDelta::seconds(1),
            vault_now: None,
            listing: Listing::Complete,
            // Gaps of a simulated schedule are meant.
            confirmed: Some(fact.sequence),
        };
        self.remaining.push(fact);
        self.trash.retain(|until| *until > input.now);
        let stored = self.remaining.len() + self.trash.len();
        self.stored_max = self.stored_max.max(stored);
        self.kept_max = self.kept_max.max(self.remaining.len());
        let plan = policy.plan(&self.remaining, &input)?;
        self.remaining
            .retain(|fact| !plan.release.contains(&fact.id));
        let until = input.now + policy.trash_grace.as_delta();
        self.trash.extend(plan.release.iter().map(|_| until));
        self.note_day(policy, time, plan.release.len());
        Ok(())
    }

    fn note_day(&mut self, policy: &RetentionPolicy, time: DateTime<Utc>, released: usize) {
        let day = time.with_timezone(&policy.time_zone.tz()).date_naive();
        let oldest = self.remaining.first().map_or(time, |fact| fact.time);
        let is_manual = |fact: &&BackupFact| fact.pool == Pool::Manual;
        let entry = SimulatedDay {
            day,
            kept: self.remaining.len(),
            manual: self.remaining.iter().filter(is_manual).count(),
            trash: self.trash.len(),
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

fn simulated_fact(
    number: usize,
    (time, pool): (DateTime<Utc>, Pool),
    size: ByteSize,
) -> BackupFact {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    let mut random = [0; 10];
    for (to, from) in random.iter_mut().skip(2).zip(number.to_be_bytes()) {
        *to = from;
    }
    BackupFact {
        id: SnapshotId::new(time, random),
        generation: Generation::FIRST,
        pool,
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
