//! Decisions as an operator reads them.

use chrono::{DateTime, TimeDelta, Utc};
use holdfast_policies::objective::{BackupPoint, DrillPoint};
use holdfast_policies::retention::{Scenario, simulate};
use holdfast_policies::{
    BackupFact, ByteSize, DrillId, EncryptionRule, Evidence, Generation, Level, Listing, Objective,
    ObjectiveStatus, PolicyOptions, Pool, RetentionInput, RetentionPolicy, Rto, Schedule, Sequence,
    SnapshotId, Span, TimeZone,
};

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn fact(number: u8, time: DateTime<Utc>, level: Level) -> BackupFact {
    BackupFact {
        id: SnapshotId::new(time, [number; 10]),
        generation: Generation::FIRST,
        pool: Pool::Scheduled,
        sequence: Sequence(u64::from(number)),
        time,
        observed: Some(time + TimeDelta::seconds(5)),
        revision: 100 * i64::from(number),
        size: ByteSize::new(1 << 20),
        level: Some(level),
        is_signed: true,
        is_damaged: false,
        is_pinned: false,
        is_in_use: false,
        needs: Vec::new(),
    }
}

/// Thirty backups, every eight hours, with one of everything among them.
fn thirty() -> (Vec<BackupFact>, RetentionInput) {
    let start = at("2026-05-01T06:00:00Z");
    let mut facts: Vec<BackupFact> = (1..=30)
        .map(|number| {
            fact(
                number,
                start + TimeDelta::hours(8 * i64::from(number)),
                Level::L2,
            )
        })
        .collect();
    facts[1].level = Some(Level::L3);
    facts[3].is_pinned = true;
    facts[5].is_signed = false;
    facts[6].level = Some(Level::L0);
    facts[7].is_damaged = true;
    facts[8].is_in_use = true;
    facts[12].needs = vec![facts[11].id];
    facts[12].is_pinned = true;
    facts[28].level = Some(Level::L0);
    facts[29].level = Some(Level::L0);
    let occasion = &facts[27];
    let input = RetentionInput {
        occasion: occasion.id,
        now: occasion.time + TimeDelta::minutes(2),
        vault_now: Some(occasion.time + TimeDelta::minutes(2)),
        listing: Listing::Complete,
        confirmed: None,
    };
    (facts, input)
}

fn small_policy() -> RetentionPolicy {
    RetentionPolicy {
        keep_last: 2,
        keep_hourly: 0,
        keep_daily: 3,
        keep_weekly: 2,
        keep_monthly: 2,
        ..RetentionPolicy::default()
    }
}

#[test]
fn every_decision_is_explained() {
    let (facts, input) = thirty();
    insta::assert_snapshot!(small_policy().plan(&facts, &input).unwrap());
}

#[test]
fn a_run_that_has_released_its_fill_says_so() {
    let (facts, input) = thirty();
    let policy = RetentionPolicy {
        max_deletions: 3,
        ..small_policy()
    };
    let plan = policy.plan(&facts, &input).unwrap();
    assert_eq!(plan.release.len(), 3);
    insta::assert_snapshot!(plan.to_string().lines().last().unwrap());
}

#[test]
fn every_refusal_says_what_is_wrong() {
    let policy = small_policy();
    let (facts, input) = thirty();
    let mut texts = Vec::new();
    let mut refuse = |facts: &[BackupFact], input: RetentionInput| {
        texts.push(policy.plan(facts, &input).unwrap_err().to_string());
    };
    let skewed = input.now + TimeDelta::hours(2);
    refuse(
        &facts,
        RetentionInput {
            listing: Listing::Incomplete,
            ..input
        },
    );
    refuse(
        &facts,
        RetentionInput {
            vault_now: Some(skewed),
            ..input
        },
    );
    refuse(
        &facts,
        RetentionInput {
            now: input.now + TimeDelta::days(3650),
            vault_now: None,
            ..input
        },
    );
    refuse(
        &facts,
        RetentionInput {
            occasion: facts[6].id,
            ..input
        },
    );
    refuse(
        &facts,
        RetentionInput {
            occasion: facts[10].id,
            ..input
        },
    );
    refuse(&facts[..20], input);
    let mut changed = facts.clone();
    changed[27].observed = Some(input.now + TimeDelta::days(2));
    refuse(&changed, input);
    let mut changed = facts.clone();
    changed[10].observed = Some(changed[10].time - TimeDelta::hours(1));
    refuse(&changed, input);
    let mut changed = facts.clone();
    changed[10].time -= TimeDelta::days(1);
    refuse(&changed, input);
    let mut changed = facts.clone();
    for old in &mut changed[..10] {
        old.time -= TimeDelta::days(40);
    }
    refuse(&changed, input);
    let confirmed = RetentionInput {
        confirmed: Some(Sequence(11)),
        ..input
    };
    assert!(policy.plan(&changed, &confirmed).is_ok());
    let mut changed = facts.clone();
    changed[10].sequence = Sequence(10);
    refuse(&changed, input);
    let mut changed = facts.clone();
    changed.remove(11);
    refuse(&changed, input);
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn policies_that_keep_nothing_are_refused() {
    let nothing = RetentionPolicy {
        keep_last: 0,
        keep_hourly: 0,
        keep_daily: 0,
        keep_weekly: 0,
        keep_monthly: 0,
        ..RetentionPolicy::default()
    };
    let none_proven = RetentionPolicy {
        min_proven: 0,
        ..RetentionPolicy::default()
    };
    let texts: Vec<String> = [nothing, none_proven]
        .iter()
        .map(|policy| policy.check().unwrap_err().to_string())
        .collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_year_of_the_default_policy_is_simulated() {
    let hourly = Schedule::parse("@hourly", TimeZone::UTC).unwrap();
    let weekly = Schedule::parse("@weekly", TimeZone::UTC).unwrap();
    let policy = RetentionPolicy::default();
    let of = Scenario {
        schedule: &hourly,
        drills: Some(&weekly),
        manual: None,
        start: at("2026-01-01T00:00:00Z"),
        length: Span::from_secs(365 * 86_400),
        size: ByteSize::new(1 << 30),
    };
    let year = simulate(&policy, of).unwrap();
    assert_eq!((year.taken, year.is_cut_short), (8760, false));
    let remaining: Vec<String> = year
        .remaining
        .iter()
        .map(|fact| format!("{} {}", fact.time.format("%F %H:%M"), fact.level.unwrap()))
        .collect();
    insta::assert_snapshot!(format!(
        "at most {} at once\n{}",
        year.kept_max,
        remaining.join("\n")
    ));
}

fn describe(name: &str, status: &ObjectiveStatus) -> String {
    let overall = status.overall();
    let at_risk = status.revisions_at_risk;
    let ObjectiveStatus {
        rpo, rto, drill, ..
    } = status;
    format!("{name}: {overall:?}\n  rpo {rpo}\n  at risk {at_risk:?}\n  rto {rto}\n  drill {drill}")
}

#[test]
fn objectives_are_judged_with_their_numbers() {
    let objective = Objective {
        rto: Some(Rto(Span::from_secs(300))),
        ..Objective::default()
    };
    let now = at("2026-05-10T12:00:00Z");
    let id = SnapshotId::new(now, [1; 10]);
    let newest = |minutes| BackupPoint {
        id,
        time: now - TimeDelta::minutes(minutes),
        revision: 1000,
        level: Level::L2,
    };
    let drill = |hours, is_passed| DrillPoint {
        id: DrillId::new(now - TimeDelta::hours(hours), [2; 10]),
        time: now - TimeDelta::hours(hours),
        is_passed,
        rto: is_passed.then_some(Span::from_secs(42)),
    };
    let good = Evidence {
        newest: Some(newest(30)),
        source: Some((1250, now)),
        last_drill: Some(drill(50, true)),
        last_passed: Some(drill(50, true)),
        ..Evidence::default()
    };
    let cases = [
        ("nothing is known", Evidence::default()),
        ("all is well", good),
        (
            "the backup is old",
            Evidence {
                newest: Some(newest(200)),
                ..good
            },
        ),
        (
            "the backup is old and nothing was written since",
            Evidence {
                newest: Some(newest(200)),
                source: Some((1000, now)),
                ..good
            },
        ),
        (
            "the last drill failed",
            Evidence {
                last_drill: Some(drill(2, false)),
                ..good
            },
        ),
        (
            "the backup is of the future",
            Evidence {
                newest: Some(newest(-90)),
                ..good
            },
        ),
    ];
    let judged = cases.map(|(name, evidence)| describe(name, &objective.judge(&evidence, now)));
    insta::assert_snapshot!(judged.join("\n"));
}

#[test]
fn the_default_policy_reads_back_as_written() {
    let options = PolicyOptions::new(EncryptionRule::None);
    options.check().unwrap();
    let json = serde_json::to_string_pretty(&options).unwrap();
    assert_eq!(
        serde_json::from_str::<PolicyOptions>(&json).unwrap(),
        options
    );
    insta::assert_snapshot!(json);
}

#[test]
fn unknown_settings_and_bad_values_are_refused() {
    let refused = |json: &str| {
        let read = serde_json::from_str::<PolicyOptions>(json).map_err(|error| error.to_string());
        read.and_then(|options| options.check().map_err(|error| error.to_string()))
            .unwrap_err()
    };
    let texts = [
        refused("{}"),
        refused(r#"{"encryption": {}}"#),
        refused(r#"{"encryption": "none", "retentoin": {}}"#),
        refused(r#"{"encryption": "none", "retention": {"keep_lats": 3}}"#),
        refused(r#"{"encryption": "none", "backup": {"schedule": "0 /6 * * *"}}"#),
        refused(r#"{"encryption": "none", "backup": {"time_zone": "Europe/Atlantis"}}"#),
        refused(r#"{"encryption": "none", "backup": {"verify": "L4"}}"#),
        refused(r#"{"encryption": "none", "drill": {"deadline": "5"}}"#),
        refused(r#"{"encryption": "none", "objective": {"rpo": "0s"}}"#),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}
