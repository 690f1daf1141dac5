//! Random vaults under random policies: what must hold of every plan.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::{
    BackupFact, ByteSize, Generation, KeepReason, Level, Listing, Pool, Refusal, RetentionInput,
    RetentionPlan, RetentionPolicy, Sequence, SnapshotId, Span, Verdict,
};

use crate::long::rounds;
use crate::random::Random;

const BACKUPS_MAX: u64 = 24;

fn level(random: &mut Random) -> Option<Level> {
    match random.below(12) {
        0 => None,
        1 => Some(Level::L0),
        2 => Some(Level::L1),
        3 => Some(Level::L4),
        4 => Some(Level::L5),
        5 | 6 => Some(Level::L3),
        _ => Some(Level::L2),
    }
}

fn id_of(random: &mut Random, time: DateTime<Utc>) -> SnapshotId {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&random.next().to_be_bytes());
    SnapshotId::new(time, bytes)
}

fn policy(random: &mut Random) -> RetentionPolicy {
    let mut count = |limit| u32::try_from(random.below(limit)).unwrap();
    let mut policy = RetentionPolicy {
        keep_last: count(5),
        keep_hourly: count(6),
        keep_daily: count(5),
        keep_weekly: count(4),
        keep_monthly: count(4),
        keep_yearly: count(3),
        min_proven: 1 + count(4),
        max_deletions: if count(3) == 0 { 1 + count(4) } else { 100 },
        ..RetentionPolicy::default()
    };
    if random.one_in(3) || policy.check().is_err() {
        policy.keep_within = Some(Span::from_secs(1 + random.below(30 * 86_400)));
    }
    if random.one_in(4) {
        policy.count_from = *random.pick(&Level::ALL[..4]);
    }
    policy.time_zone = random
        .pick(&["UTC", "Europe/Berlin", "Asia/Kolkata"])
        .parse()
        .unwrap();
    policy
}

/// A history that is sound as a whole: clocks agree, the newest was just verified.
fn history(random: &mut Random, policy: &RetentionPolicy) -> (Vec<BackupFact>, RetentionInput) {
    let mut time = DateTime::from_timestamp(1_760_000_000, 0).unwrap();
    let pace = *random.pick(&[600, 3600, 86_400, 5 * 86_400]);
    let mut facts: Vec<BackupFact> = Vec::new();
    let mut sequence = random.below(50);
    let count = 1 + random.below(BACKUPS_MAX);
    for place in 1..=count {
        time += TimeDelta::seconds(i64::try_from(1 + random.below(2 * pace)).unwrap());
        // Releases have left gaps.
        sequence += 1 + random.below(8) / 6;
        let bases: Vec<SnapshotId> = facts.iter().rev().take(3).map(|fact| fact.id).collect();
        let is_delta = !bases.is_empty() && random.one_in(4);
        let mut fact = BackupFact {
            id: id_of(random, time),
            generation: Generation::FIRST,
            pool: Pool::Scheduled,
            sequence: Sequence(sequence),
            time,
            observed: random.one_in(2).then(|| time + TimeDelta::seconds(30)),
            revision: i64::try_from(place).unwrap(),
            size: ByteSize::new(1),
            level: level(random),
            is_signed: !random.one_in(8),
            is_damaged: random.one_in(9),
            is_pinned: random.one_in(15),
            is_in_use: random.one_in(20),
            needs: if is_delta {
                vec![*random.pick(&bases)]
            } else {
                Vec::new()
            },
        };
        if place == count {
            (fact.is_signed, fact.is_damaged) = (true, false);
            fact.level = fact.level.max(Some(policy.count_from));
        }
        facts.push(fact);
    }
    let now = time + TimeDelta::seconds(60);
    let input = RetentionInput {
        occasion: facts.last().unwrap().id,
        now,
        vault_now: random.one_in(2).then_some(now),
        listing: Listing::Complete,
        confirmed: None,
    };
    // The order in which a vault lists them means nothing.
    let split = usize::try_from(random.below(count)).unwrap();
    facts.rotate_left(split);
    (facts, input)
}

fn check_plan(policy: &RetentionPolicy, facts: &[BackupFact], plan: &RetentionPlan) {
    let released: BTreeSet<SnapshotId> = plan.release.iter().copied().collect();
    assert_eq!(plan.decisions.len(), facts.len());
    assert_eq!(
        released.len(),
        plan.release.len(),
        "something is released twice"
    );
    assert!(released.len() <= usize::try_from(policy.max_deletions).unwrap());
    let find = |id: SnapshotId| facts.iter().find(|fact| fact.id == id).unwrap();
    let left = || facts.iter().filter(|fact| !released.contains(&fact.id));

    for decision in &plan.decisions {
        let goes = matches!(decision.verdict, Verdict::Release(_));
        assert_eq!(goes, released.contains(&decision.id));
        match &decision.verdict {
            Verdict::Keep(reasons) => assert!(!reasons.is_empty(), "kept without a reason"),
            Verdict::Release(_) | Verdict::Defer(_) => {
                let fact = find(decision.id);
                assert!(!fact.is_pinned && !fact.is_in_use && fact.is_signed);
            }
        }
    }
    // Stopped after any deletion, nothing that is left lacks what it needs.
    let mut gone = BTreeSet::new();
    for id in &plan.release {
        gone.insert(*id);
        let broken = facts.iter().find(|fact| {
            !gone.contains(&fact.id) && fact.needs.iter().any(|needs| gone.contains(needs))
        });
        assert!(broken.is_none(), "{broken:?} lost what it needs");
    }
    check_floor(policy, facts, &released);
    // What is left still has its newest verified backup, and each rule its count.
    let counted = || facts.iter().filter(|fact| fact.holds_at(policy.count_from));
    let mut newest: Vec<&BackupFact> = counted().collect();
    newest.sort_by_key(|fact| std::cmp::Reverse(fact.sequence));
    for fact in newest
        .iter()
        .take(usize::try_from(policy.keep_last.max(1)).unwrap())
    {
        let is_left = left().any(|one| one.id == fact.id);
        assert!(
            is_left || policy.keep_last == 0,
            "one of the newest is gone"
        );
    }
    check_days(policy, &newest, &released);
    check_unverified(policy, facts, &newest, plan);
}

/// What is not verified yet goes only when the rules would let it go if it counted.
fn check_unverified(
    policy: &RetentionPolicy,
    facts: &[BackupFact],
    counted: &[&BackupFact],
    plan: &RetentionPlan,
) {
    let day = |fact: &BackupFact| fact.time.with_timezone(&policy.time_zone.tz()).date_naive();
    let kept = |decision: &holdfast_policies::Decision| match &decision.verdict {
        Verdict::Keep(reasons) => reasons.clone(),
        Verdict::Release(_) | Verdict::Defer(_) => Vec::new(),
    };
    let is_unverified = |reason: &KeepReason| matches!(reason, KeepReason::NotVerified { .. });
    for decision in &plan.decisions {
        let fact = facts.iter().find(|fact| fact.id == decision.id).unwrap();
        let reasons = kept(decision);
        let counts = fact.holds_at(policy.count_from);
        if counts || !fact.is_signed || fact.is_damaged {
            assert!(!reasons.iter().any(is_unverified), "{decision}");
            continue;
        }
        let newer = || counted.iter().filter(|one| one.sequence > fact.sequence);
        let is_among_last = newer().count() < usize::try_from(policy.keep_last).unwrap();
        let days: BTreeSet<_> = newer().map(|one| day(one)).collect();
        let is_of_a_day =
            !days.contains(&day(fact)) && days.len() < usize::try_from(policy.keep_daily).unwrap();
        if is_among_last || is_of_a_day {
            assert!(
                !reasons.is_empty(),
                "would be kept if it counted: {decision}"
            );
        }
    }
}

fn check_floor(policy: &RetentionPolicy, facts: &[BackupFact], released: &BTreeSet<SnapshotId>) {
    let wanted = usize::try_from(policy.min_proven).unwrap();
    for floor in [Level::L3, Level::L2, Level::L1, Level::L0] {
        let before = facts.iter().filter(|fact| fact.holds_at(floor)).count();
        let after = facts
            .iter()
            .filter(|fact| fact.holds_at(floor) && !released.contains(&fact.id))
            .count();
        assert!(
            after >= before.min(wanted),
            "{after} of {before} at {floor} are left"
        );
    }
    let newest_proven = facts
        .iter()
        .filter(|fact| fact.holds_at(Level::L3))
        .max_by_key(|fact| fact.sequence);
    assert!(newest_proven.is_none_or(|fact| !released.contains(&fact.id)));
}

/// Every one of the last `keep_daily` days that had a verified backup still has one.
fn check_days(policy: &RetentionPolicy, newest: &[&BackupFact], released: &BTreeSet<SnapshotId>) {
    let day = |fact: &BackupFact| fact.time.with_timezone(&policy.time_zone.tz()).date_naive();
    let mut days: Vec<_> = newest.iter().map(|fact| day(fact)).collect();
    days.dedup();
    for wanted in days
        .iter()
        .take(usize::try_from(policy.keep_daily).unwrap())
    {
        let is_served = newest
            .iter()
            .any(|fact| day(fact) == *wanted && !released.contains(&fact.id));
        assert!(is_served, "{wanted} has lost its last verified backup");
    }
}

#[test]
fn every_plan_keeps_its_promises_in_random_histories() {
    let mut released = 0;
    for seed in 0..rounds(120_000, 2_000_000) {
        let mut random = Random::new(seed);
        let policy = policy(&mut random);
        let (facts, input) = history(&mut random, &policy);
        let plan = match policy.plan(&facts, &input) {
            Ok(plan) => plan,
            // A delta on a base that does not count, found out.
            Err(Refusal::NeedMissing { .. }) => continue,
            Err(refusal) => panic!("seed {seed}: refused: {refusal}"),
        };
        let outcome = std::panic::catch_unwind(|| check_plan(&policy, &facts, &plan));
        assert!(outcome.is_ok(), "seed {seed}\n{policy:#?}\n{plan}");
        released += plan.release.len();
    }
    assert!(
        released > 100_000,
        "only {released} releases: the histories are too tame"
    );
}

#[test]
fn a_plan_does_not_depend_on_the_order_of_the_listing() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let policy = policy(&mut random);
        let (mut facts, input) = history(&mut random, &policy);
        let plan = policy.plan(&facts, &input);
        facts.reverse();
        assert_eq!(policy.plan(&facts, &input), plan, "seed {seed}");
    }
}

#[test]
fn fake_newer_backups_push_nothing_out() {
    for seed in 0..5000 {
        let mut random = Random::new(seed);
        let policy = policy(&mut random);
        let (mut facts, input) = history(&mut random, &policy);
        let Ok(before) = policy.plan(&facts, &input) else {
            continue;
        };
        let newest = facts.iter().map(|fact| fact.sequence.0).max().unwrap();
        for number in 1..=20 {
            let mut fake = facts[0].clone();
            fake.id = id_of(&mut random, input.now);
            fake.sequence = Sequence(newest + number);
            (fake.is_signed, fake.level) = (false, Some(Level::L5));
            (fake.time, fake.needs) = (input.now + TimeDelta::days(3650), Vec::new());
            facts.push(fake);
        }
        let after = policy.plan(&facts, &input).unwrap();
        assert_eq!(after.release, before.release, "seed {seed}");
    }
}

#[test]
fn a_clock_set_by_ten_years_releases_nothing() {
    for seed in 0..5000 {
        let mut random = Random::new(seed);
        let policy = policy(&mut random);
        let (mut facts, mut input) = history(&mut random, &policy);
        if facts.iter().filter(|fact| fact.is_signed).count() < 2 {
            continue;
        }
        let by = TimeDelta::days(if seed % 2 == 0 { 3650 } else { -3650 });
        // The clock was set before the newest backup, which follows the one before it.
        facts.sort_by_key(|fact| fact.sequence);
        let last = facts.len() - 1;
        let before = facts[..last]
            .iter()
            .rev()
            .find(|fact| fact.is_signed)
            .unwrap()
            .sequence;
        facts[last].sequence = before.next().unwrap();
        facts[last].time += by;
        facts[last].observed = None;
        facts.retain(|fact| fact.is_signed);
        (input.now, input.vault_now) = (input.now + by, None);
        let refusal = policy.plan(&facts, &input).unwrap_err();
        let is_named = matches!(
            refusal,
            Refusal::ClockJumped { .. }
                | Refusal::ClockWentBack { .. }
                | Refusal::NeedMissing { .. }
        );
        assert!(is_named, "seed {seed}: {refusal}");
    }
}

#[test]
fn an_unverified_backup_goes_only_when_it_would_go_if_it_counted() {
    let mut gone = 0;
    for seed in 0..rounds(20_000, 200_000) {
        let mut random = Random::new(seed);
        let policy = policy(&mut random);
        let (facts, input) = history(&mut random, &policy);
        let Ok(plan) = policy.plan(&facts, &input) else {
            continue;
        };
        for id in &plan.release {
            let place = facts.iter().position(|fact| fact.id == *id).unwrap();
            if facts[place].is_damaged || facts[place].holds_at(policy.count_from) {
                continue;
            }
            let mut counting = facts.clone();
            counting[place].level = Some(policy.count_from);
            let again = policy.plan(&counting, &input).unwrap();
            let decision = again.decisions.iter().find(|one| one.id == *id).unwrap();
            let Verdict::Keep(reasons) = &decision.verdict else {
                gone += 1;
                continue;
            };
            // The floor takes the best proven, not the untried.
            let is_floor = |reason: &KeepReason| {
                matches!(
                    reason,
                    KeepReason::BestProven { .. } | KeepReason::Proven { .. }
                )
            };
            assert!(reasons.iter().all(is_floor), "seed {seed}: {decision}");
        }
    }
    assert!(gone > 1_000, "only {gone}: the histories are too tame");
}

#[test]
fn untried_backups_outlive_the_first_verified_one() {
    let policy = RetentionPolicy::default();
    let start = DateTime::from_timestamp(1_760_000_000, 0).unwrap();
    let fact = |number: u8, level: Option<Level>| {
        let time = start + TimeDelta::minutes(i64::from(number));
        BackupFact {
            id: SnapshotId::new(time, [number; 10]),
            generation: Generation::FIRST,
            pool: Pool::Scheduled,
            sequence: Sequence(u64::from(number)),
            time,
            observed: None,
            revision: i64::from(number),
            size: ByteSize::new(1),
            level,
            is_signed: true,
            is_damaged: false,
            is_pinned: false,
            is_in_use: false,
            needs: Vec::new(),
        }
    };
    // No identity was at hand, a verification did not come to its end: then one is verified.
    let mut facts: Vec<BackupFact> = (1..=4)
        .map(|number| fact(number, Some(Level::L0)))
        .collect();
    facts[1].level = None;
    for number in 5..=11 {
        facts.push(fact(number, Some(Level::L2)));
        let newest = facts.last().unwrap();
        let input = RetentionInput {
            occasion: newest.id,
            now: newest.time,
            vault_now: None,
            listing: Listing::Complete,
            confirmed: None,
        };
        let plan = policy.plan(&facts, &input).unwrap();
        // Six that count come before any that is untried; then the hour has a verified one.
        let expected = if number < 10 {
            0
        } else {
            4 + usize::from(number > 10)
        };
        assert_eq!(plan.release.len(), expected, "{plan}");
        if number == 5 {
            assert!(
                plan.to_string()
                    .contains("L0 keep: not verified yet, would be kept by keep_last\n"),
                "{plan}"
            );
        }
    }
}
