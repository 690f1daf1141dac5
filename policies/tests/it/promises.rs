//! Random histories of backups, clocks and policies: the promises of retention, one by one, each
//! looked at from outside after everything that happens.
//!
//! The world has a true time, which is also the vault's clock; the host's clock is set at random.
//! Backups of both pools are taken, verified, proven, found damaged, pinned, read; policies change;
//! records and removals fail. What a prune does there is what `restore::prune` does in a vault.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use holdfast_policies::retention::{Removal, TrashFact, needed_by, removals};
use holdfast_policies::{
    BackupFact, ByteSize, Generation, KeepRules, Level, Listing, Pool, Refusal, RetentionInput,
    RetentionPlan, RetentionPolicy, Sequence, SnapshotId, Span, Verdict,
};

use crate::long::rounds;
use crate::random::Random;

const STEPS: usize = 70;

/// A backup in the trash, and when it got there by the true time.
struct Trashed {
    fact: TrashFact,
    since: DateTime<Utc>,
    grace: TimeDelta,
}

struct World {
    random: Random,
    now: DateTime<Utc>,
    skew: TimeDelta,
    policy: RetentionPolicy,
    live: Vec<BackupFact>,
    trash: Vec<Trashed>,
    gone: BTreeSet<SnapshotId>,
    sequence: u64,
    confirmed: Option<Sequence>,
    tally: Tally,
}

/// What happened in all histories: tame ones prove nothing.
#[derive(Debug, Default)]
struct Tally {
    trashed: usize,
    removed: usize,
    returned: usize,
    refused_for_clocks: usize,
    manual_released: usize,
    held: usize,
}

fn rules(random: &mut Random) -> KeepRules {
    let mut count = |limit| u32::try_from(random.below(limit)).unwrap();
    KeepRules {
        keep_last: 1 + count(4),
        keep_hourly: count(4),
        keep_daily: count(4),
        keep_weekly: count(3),
        keep_monthly: count(3),
        keep_yearly: count(2),
        keep_within: (count(4) == 0).then(|| Span::from_secs(3_600 * u64::from(1 + count(200)))),
    }
}

fn policy(random: &mut Random) -> RetentionPolicy {
    let of = rules(random);
    let policy = RetentionPolicy {
        keep_last: of.keep_last,
        keep_hourly: of.keep_hourly,
        keep_daily: of.keep_daily,
        keep_weekly: of.keep_weekly,
        keep_monthly: of.keep_monthly,
        keep_yearly: of.keep_yearly,
        keep_within: of.keep_within,
        manual: rules(random),
        recovery_window: random
            .one_in(3)
            .then(|| Span::from_secs(3_600 * (1 + random.below(400)))),
        min_proven: 1 + u32::try_from(random.below(3)).unwrap(),
        max_deletions: *random.pick(&[1, 2, 5, 100]),
        trash_grace: Span::from_secs(3_600 * random.below(100)),
        time_zone: random
            .pick(&["UTC", "Europe/Berlin", "Asia/Kolkata"])
            .parse()
            .unwrap(),
        ..RetentionPolicy::default()
    };
    policy.check().unwrap();
    policy
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            policy: policy(&mut random),
            random,
            now: DateTime::from_timestamp(1_760_000_000, 0).unwrap(),
            skew: TimeDelta::zero(),
            live: Vec::new(),
            trash: Vec::new(),
            gone: BTreeSet::new(),
            sequence: 0,
            confirmed: None,
            tally: Tally::default(),
        }
    }

    fn host_now(&self) -> DateTime<Utc> {
        self.now + self.skew
    }

    fn step(&mut self) {
        let hours = *self.random.pick(&[1, 1, 5, 12, 30]);
        self.now += TimeDelta::seconds(hours * 3_600 + 17);
        for fact in &mut self.live {
            fact.is_in_use = self.random.one_in(25);
        }
        for one in &mut self.trash {
            one.fact.backup.is_in_use = self.random.one_in(25);
        }
        match self.random.below(20) {
            0 => self.set_clock(),
            1 => self.policy = policy(&mut self.random),
            2 => self.pin(),
            3 => self.drill(),
            4 => self.find_damage(),
            5 => self.bring_back(),
            6 => self.look_at_times(),
            _ => {}
        }
        self.back_up();
        self.prune();
    }

    fn set_clock(&mut self) {
        let skews = [0, 0, 60, -60, 7_200, -7_200, 315_360_000, -315_360_000];
        self.skew = TimeDelta::seconds(*self.random.pick(&skews));
    }

    fn some_live(&mut self) -> Option<usize> {
        let count = u64::try_from(self.live.len()).unwrap();
        (count > 0).then(|| usize::try_from(self.random.below(count)).unwrap())
    }

    fn some_trashed(&mut self) -> Option<usize> {
        let count = u64::try_from(self.trash.len()).unwrap();
        (count > 0).then(|| usize::try_from(self.random.below(count)).unwrap())
    }

    fn pin(&mut self) {
        if let Some(place) = self.some_live() {
            self.live[place].is_pinned = !self.live[place].is_pinned;
        }
        if let Some(place) = self.some_trashed() {
            self.trash[place].fact.backup.is_pinned = true;
        }
    }

    fn drill(&mut self) {
        if let Some(place) = self
            .some_live()
            .filter(|place| !self.live[*place].is_damaged)
        {
            self.live[place].level = Some(Level::L3);
        }
    }

    fn find_damage(&mut self) {
        if let Some(place) = self.some_live() {
            self.live[place].is_damaged = true;
        }
    }

    /// As an operator does: it comes back pinned.
    fn bring_back(&mut self) {
        if let Some(place) = self.some_trashed() {
            let mut fact = self.trash.remove(place).fact.backup;
            fact.is_pinned = true;
            self.live.push(fact);
            self.tally.returned += 1;
        }
    }

    /// An operator sets the clock right and says that the times so far may count.
    fn look_at_times(&mut self) {
        self.skew = TimeDelta::zero();
        self.confirmed = Some(Sequence(self.sequence));
    }

    fn back_up(&mut self) {
        self.sequence += 1;
        let mut bytes = [0; 10];
        bytes[2..].copy_from_slice(&self.sequence.to_be_bytes());
        let forged = if self.random.one_in(60) {
            TimeDelta::hours(*self.random.pick(&[-400, 400]))
        } else {
            TimeDelta::zero()
        };
        let base = self
            .live
            .last()
            .filter(|fact| fact.is_signed)
            .map(|one| one.id);
        let level = *self
            .random
            .pick(&[Level::L2, Level::L2, Level::L2, Level::L0]);
        self.live.push(BackupFact {
            id: SnapshotId::new(self.now, bytes),
            generation: Generation::FIRST,
            pool: *self
                .random
                .pick(&[Pool::Scheduled, Pool::Scheduled, Pool::Manual]),
            sequence: Sequence(self.sequence),
            time: self.host_now() + forged,
            observed: Some(self.now + TimeDelta::seconds(20)),
            revision: i64::try_from(self.sequence).unwrap(),
            size: ByteSize::new(1),
            level: Some(level),
            is_signed: !self.random.one_in(30),
            is_damaged: false,
            is_pinned: false,
            is_in_use: false,
            needs: base.filter(|_| self.random.one_in(6)).into_iter().collect(),
        });
    }

    /// Plans on the occasion of the newest that counts, as the daemon does, and carries it out.
    fn prune(&mut self) {
        self.live.sort_by_key(|fact| fact.sequence);
        let count_from = self.policy.count_from;
        let Some(occasion) = self.live.iter().rfind(|fact| fact.holds_at(count_from)) else {
            return;
        };
        let input = RetentionInput {
            occasion: occasion.id,
            now: self.host_now(),
            vault_now: Some(self.now),
            listing: Listing::Complete,
            confirmed: self.confirmed,
        };
        let announced = self.policy.plan(&self.live, &input);
        let plan = match &announced {
            Ok(plan) => plan.clone(),
            Err(refusal) => {
                self.tally.refused_for_clocks += usize::from(refusal.is_about_clocks());
                return;
            }
        };
        self.check_clocks_agreed();
        self.check_that_explain_names_a_reason_for_each(&plan);
        assert_eq!(self.policy.plan(&self.live, &input), announced, "announced");
        let before = self.live.clone();
        self.put_into_trash(&plan);
        self.remove_from_trash();
        self.check_what_left(&before, &plan);
        self.check_the_floor(&before);
        self.check_needs();
        for pool in Pool::ALL {
            self.check_the_rules_of(pool, &before);
        }
        self.check_the_window(&before);
    }

    fn put_into_trash(&mut self, plan: &RetentionPlan) {
        for id in &plan.release {
            // A reader came, the record could not be stored: the rest goes on.
            if self.random.one_in(12) || needed_by(&self.live, *id).is_some() {
                self.tally.held += 1;
                continue;
            }
            let place = self.live.iter().position(|fact| fact.id == *id).unwrap();
            let backup = self.live.remove(place);
            self.tally.manual_released += usize::from(backup.pool == Pool::Manual);
            self.tally.trashed += 1;
            let grace = self.policy.trash_grace.as_delta();
            let at = self.host_now();
            self.trash.push(Trashed {
                fact: TrashFact {
                    backup,
                    at,
                    until: at + grace,
                    stored: self.now,
                    locked_until: None,
                },
                since: self.now,
                grace,
            });
        }
    }

    fn remove_from_trash(&mut self) {
        let facts: Vec<TrashFact> = self.trash.iter().map(|one| one.fact.clone()).collect();
        let clocks = (self.host_now(), Some(self.now));
        for (id, removal) in removals(&self.live, &facts, clocks) {
            if removal != Removal::Due || self.random.one_in(6) {
                continue;
            }
            let place = self.trash.iter().position(|one| one.fact.backup.id == id);
            let one = self.trash.remove(place.unwrap());
            let backup = &one.fact.backup;
            assert!(
                self.now >= one.since + one.grace,
                "removed before its grace"
            );
            assert!(!backup.is_pinned, "a pinned one was removed");
            assert!(!backup.is_in_use, "removed while it was read");
            let is_proven = |fact: &BackupFact| fact.holds_at(Level::L3);
            assert!(
                !is_proven(backup) || self.live.iter().any(is_proven),
                "the last proven backup was removed"
            );
            assert!(self.gone.insert(id), "removed twice");
            self.tally.removed += 1;
        }
    }

    /// A plan is made only while the host's clock and the vault's agree.
    fn check_clocks_agreed(&self) {
        assert!(self.skew.abs() <= self.policy.clock_tolerance.as_delta());
        let tolerance = self.policy.clock_tolerance.as_delta();
        for fact in self.live.iter().filter(|fact| fact.is_signed) {
            let is_confirmed = self.confirmed.is_some_and(|upto| fact.sequence <= upto);
            let is_ahead = fact.observed.is_some_and(|at| fact.time - at > tolerance);
            assert!(is_confirmed || !is_ahead, "a forged time counts: {fact:?}");
        }
    }

    fn check_that_explain_names_a_reason_for_each(&self, plan: &RetentionPlan) {
        let named: BTreeSet<SnapshotId> = plan.decisions.iter().map(|one| one.id).collect();
        let live: BTreeSet<SnapshotId> = self.live.iter().map(|fact| fact.id).collect();
        assert_eq!(named, live);
        for decision in &plan.decisions {
            if let Verdict::Keep(reasons) = &decision.verdict {
                assert!(!reasons.is_empty(), "{decision}");
            }
            let text = decision.to_string();
            assert!(text.contains(": ") && text.len() > 60, "{text}");
        }
    }

    /// No more leaves than was announced and `max_deletions` allows, and nothing pinned or read.
    fn check_what_left(&self, before: &[BackupFact], plan: &RetentionPlan) {
        let stays: BTreeSet<SnapshotId> = self.live.iter().map(|fact| fact.id).collect();
        let left: Vec<&BackupFact> = before
            .iter()
            .filter(|one| !stays.contains(&one.id))
            .collect();
        assert!(left.len() <= usize::try_from(self.policy.max_deletions).unwrap());
        for fact in left {
            assert!(plan.release.contains(&fact.id), "not announced: {fact:?}");
            assert!(
                !fact.is_pinned && !fact.is_in_use && fact.is_signed,
                "{fact:?}"
            );
        }
    }

    fn check_the_floor(&self, before: &[BackupFact]) {
        let proven = |fact: &&BackupFact| fact.holds_at(Level::L3);
        let newest = before.iter().rfind(proven).map(|fact| fact.id);
        let is_there = newest.is_none_or(|id| self.live.iter().any(|fact| fact.id == id));
        assert!(is_there, "the last proven backup went");
        let wanted = usize::try_from(self.policy.min_proven).unwrap();
        for level in [Level::L3, Level::L2, Level::L1, Level::L0] {
            let count = |all: &[BackupFact]| all.iter().filter(|one| one.holds_at(level)).count();
            assert!(count(&self.live) >= count(before).min(wanted), "{level}");
        }
    }

    fn check_needs(&self) {
        let live: BTreeSet<SnapshotId> = self.live.iter().map(|fact| fact.id).collect();
        for fact in self.live.iter().filter(|fact| fact.holds_at(Level::L2)) {
            for needs in &fact.needs {
                // What was brought back may have come without its base, and is pinned.
                let is_known = live.contains(needs) || fact.is_pinned;
                assert!(is_known, "{} lost what it needs", fact.id);
            }
        }
    }

    /// Recounted from outside, each backup against those of its pool that are newer.
    fn check_the_rules_of(&self, pool: Pool, before: &[BackupFact]) {
        let rules = self.policy.rules(pool);
        let zone = self.policy.time_zone.tz();
        let counted: Vec<&BackupFact> = before
            .iter()
            .filter(|fact| fact.pool == pool && fact.holds_at(self.policy.count_from))
            .collect();
        let live: BTreeSet<SnapshotId> = self.live.iter().map(|fact| fact.id).collect();
        let calendars = [
            (rules.keep_hourly, "%Y-%m-%d %H %z"),
            (rules.keep_daily, "%Y-%m-%d"),
            (rules.keep_weekly, "%G-%V"),
            (rules.keep_monthly, "%Y-%m"),
            (rules.keep_yearly, "%Y"),
        ];
        for (place, fact) in counted.iter().enumerate() {
            let newer = &counted[place + 1..];
            let mut is_kept = newer.len() < usize::try_from(rules.keep_last).unwrap();
            for (count, format) in calendars {
                let name = |fact: &BackupFact| name_of(fact.time, zone, format);
                let names: BTreeSet<String> = newer.iter().map(|one| name(one)).collect();
                let is_first = !names.contains(&name(fact));
                is_kept |= is_first && names.len() < usize::try_from(count).unwrap();
            }
            assert!(
                !is_kept || live.contains(&fact.id),
                "a rule of {pool:?} keeps {fact:?}"
            );
        }
    }

    /// Each backup of the window is there, and one that counts before it where there was one.
    fn check_the_window(&self, before: &[BackupFact]) {
        let Some(window) = self.policy.recovery_window else {
            return;
        };
        let counts = |fact: &&BackupFact| fact.holds_at(self.policy.count_from);
        let begins = before.iter().rfind(counts).unwrap().time - window.as_delta();
        let live: BTreeMap<SnapshotId, &BackupFact> =
            self.live.iter().map(|fact| (fact.id, fact)).collect();
        for fact in before.iter().filter(|fact| fact.holds_at(Level::L0)) {
            // In chain order: what comes before the window's base is none of its matter.
            let is_after_base = !before
                .iter()
                .any(|one| one.sequence >= fact.sequence && one.time <= begins && counts(&one));
            let is_needed = fact.time > begins && is_after_base;
            assert!(
                !is_needed || live.contains_key(&fact.id),
                "in the window: {fact:?}"
            );
        }
        let base = before
            .iter()
            .rfind(|fact| fact.time <= begins && counts(fact));
        let is_there = base.is_none_or(|fact| live.contains_key(&fact.id));
        assert!(is_there, "the window's beginning is out of reach");
    }
}

fn name_of(time: DateTime<Utc>, zone: Tz, format: &str) -> String {
    time.with_timezone(&zone).format(format).to_string()
}

#[test]
fn retention_keeps_its_promises_in_random_histories_of_backups_clocks_and_policies() {
    let mut all = Tally::default();
    for seed in 0..rounds(2_000, 60_000) {
        let mut world = World::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                world.step();
            }
        }));
        assert!(
            ran.is_ok(),
            "seed {seed} at {}\n{:#?}",
            world.sequence,
            world.policy
        );
        all.trashed += world.tally.trashed;
        all.removed += world.tally.removed;
        all.returned += world.tally.returned;
        all.refused_for_clocks += world.tally.refused_for_clocks;
        all.manual_released += world.tally.manual_released;
        all.held += world.tally.held;
    }
    let counts = [
        (all.trashed, 20_000),
        (all.removed, 10_000),
        (all.returned, 1_000),
        (all.refused_for_clocks, 10_000),
        (all.manual_released, 3_000),
        (all.held, 1_000),
    ];
    let is_wild = counts.iter().all(|(count, least)| count >= least);
    assert!(is_wild, "the histories are too tame: {all:?}");
}

#[test]
fn a_policy_change_alone_lets_no_more_go_than_a_dry_run_announces() {
    for seed in 0..rounds(300, 5_000) {
        let mut world = World::new(seed);
        for _ in 0..40 {
            world.now += TimeDelta::hours(7);
            world.back_up();
        }
        world.live.iter_mut().for_each(|fact| {
            (fact.is_signed, fact.level) = (true, Some(Level::L2));
            fact.time = fact.observed.unwrap();
        });
        let last = world.live.last().unwrap();
        let input = RetentionInput {
            occasion: last.id,
            now: last.time,
            vault_now: None,
            listing: Listing::Complete,
            confirmed: None,
        };
        let strict = RetentionPolicy {
            max_deletions: 3,
            ..policy(&mut world.random)
        };
        let plan = strict.plan(&world.live, &input).unwrap();
        assert!(plan.release.len() <= 3, "seed {seed}");
        let would_go = plan.release.len() + plan.deferred();
        assert_eq!(plan.kept().count() + would_go, 40, "seed {seed}");
    }
}

#[test]
fn backups_of_one_pool_push_none_of_the_other_out() {
    for seed in 0..rounds(2_000, 20_000) {
        let mut random = Random::new(seed);
        let policy = RetentionPolicy {
            keep_within: None,
            recovery_window: None,
            max_deletions: 1_000,
            manual: KeepRules {
                keep_within: None,
                ..rules(&mut random)
            },
            ..policy(&mut random)
        };
        let mut world = World::new(seed);
        for _ in 0..30 {
            world.now += TimeDelta::hours(5);
            world.back_up();
        }
        for (place, fact) in world.live.iter_mut().enumerate() {
            (fact.is_signed, fact.level) = (true, Some(Level::L2));
            (fact.time, fact.needs) = (fact.observed.unwrap(), Vec::new());
            // The newest proves nothing about pools: it is the floor.
            if place == 29 {
                (fact.level, fact.pool) = (Some(Level::L3), Pool::Scheduled);
            }
        }
        let released = |facts: &[BackupFact], pool: Pool| -> Vec<SnapshotId> {
            let last = facts.last().unwrap();
            let input = RetentionInput {
                occasion: last.id,
                now: last.time,
                vault_now: None,
                listing: Listing::Complete,
                confirmed: Some(last.sequence),
            };
            let plan = match policy.plan(facts, &input) {
                Ok(plan) => plan,
                Err(refusal) => panic!("seed {seed}: {refusal}"),
            };
            let of = |id: &&SnapshotId| facts.iter().any(|one| one.id == **id && one.pool == pool);
            plan.release.iter().filter(of).copied().collect()
        };
        // One pool alone, and beside the other: the same goes. Where the floor took several, the
        // other pool's stand in for some of them.
        let own = |fact: &&BackupFact| fact.pool == Pool::Scheduled;
        let alone: Vec<BackupFact> = world.live.iter().filter(own).cloned().collect();
        let (one, both) = (
            released(&alone, Pool::Scheduled),
            released(&world.live, Pool::Scheduled),
        );
        if policy.min_proven == 1 {
            assert_eq!(one, both, "seed {seed}\n{policy:#?}");
        }
    }
}

#[test]
fn every_refusal_about_clocks_says_so() {
    let id = SnapshotId::new(DateTime::UNIX_EPOCH, [1; 10]);
    let (time, sequence) = (DateTime::UNIX_EPOCH, Sequence(4));
    let ahead = Refusal::TimeAhead {
        id,
        sequence,
        time,
        vault: time,
    };
    assert!(ahead.is_about_clocks());
    assert!(ahead.to_string().contains("confirm place 4"), "{ahead}");
    assert!(!Refusal::Incomplete.is_about_clocks());
}
