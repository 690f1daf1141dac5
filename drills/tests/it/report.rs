//! The report as people and programs read it.

use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use holdfast_drills::{
    BackupRecord, CHECK_NAMES, CheckRecord, DRILL_REPORT_VERSION, DrillReport, Outcome,
    PhaseRecord, PrefixRecord, RestoredRecord, RpoRecord, TargetKind, TeardownRecord,
};
use holdfast_policies::{DrillId, Level, Sequence, SnapshotId, Span};
use holdfast_restore::{Digest, Trust, Verifier, sign};

use super::stage::noon;

fn passed() -> DrillReport {
    let check = |name: &str| CheckRecord {
        name: name.to_owned(),
        outcome: Outcome::Passed,
        detail: format!("{name} is as it should be"),
        took: Span::from_secs(1),
    };
    let phase = |name: &str| PhaseRecord {
        name: name.to_owned(),
        took: Span::from_secs(2),
    };
    DrillReport {
        id: DrillId::new(noon(), [7; 10]),
        cluster: "prod".parse().unwrap(),
        outcome: Outcome::Passed,
        started: noon(),
        ended: noon() + TimeDelta::seconds(12),
        target: TargetKind::Holdfast,
        backup: Some(BackupRecord {
            id: SnapshotId::new(noon(), [3; 10]),
            sequence: Sequence(9),
            manifest: Digest::of(b"manifest"),
            content: Digest::of(b"content"),
            time: noon() - TimeDelta::minutes(20),
            revision: 452,
            hash_kv: 549_478_386,
            keys: 190,
            bytes: 1 << 20,
            stored_bytes: 1 << 18,
            level: Some(Level::L2),
        }),
        replayed: None,
        restored: Some(RestoredRecord {
            revision: 1_000_000_500,
            bump: 1_000_000_048,
            highest_seen: 500,
            server_version: Some("3.7.3".to_owned()),
            members: 1,
        }),
        phases: ["pick", "restore", "boot", "decode", "check", "teardown"]
            .map(phase)
            .to_vec(),
        rto: Some(Span::from_secs(6)),
        rto_objective: Some(Span::from_secs(300)),
        rpo: Some(RpoRecord {
            age: Span::from_secs(1200),
            newest_known: 500,
            newest_known_at: Some(noon()),
            revisions_missing: 48,
            objective: Some(Span::from_secs(600)),
        }),
        checks: CHECK_NAMES.map(check).to_vec(),
        prefixes: vec![PrefixRecord {
            digest: "0a1b2c3d".to_owned(),
            keys: 120,
        }],
        fault: None,
        teardown: TeardownRecord {
            is_clean: true,
            left: Vec::new(),
        },
        writer: "holdfast 0.1.0".to_owned(),
    }
}

fn broken_off() -> DrillReport {
    let mut report = passed();
    report.outcome = Outcome::Failed;
    report.restored = None;
    report.rto = None;
    report.phases.truncate(2);
    report.checks.clear();
    report.fault = Some("the backup cannot be used: damaged".to_owned());
    report.teardown = TeardownRecord {
        is_clean: false,
        left: vec!["port 4001".to_owned()],
    };
    report
}

#[test]
fn a_report_reads_well() {
    insta::assert_snapshot!(format!("{}\n\n{}", passed(), broken_off()));
}

#[test]
fn a_report_has_a_fixed_form() {
    assert_eq!(DRILL_REPORT_VERSION, 1);
    insta::assert_snapshot!(serde_json::to_string_pretty(&passed()).unwrap());
}

#[test]
fn only_a_passed_drill_proves_its_backup() {
    let proof = passed().proof().unwrap();
    let backup = passed().backup.unwrap();
    assert_eq!((proof.level, proof.id), (Some(Level::L3), backup.id));
    assert_eq!(
        (proof.manifest, proof.evidence.drill),
        (backup.manifest, Some(passed().id))
    );
    assert_eq!(broken_off().proof(), None);
    let open = DrillReport {
        outcome: Outcome::Inconclusive,
        ..passed()
    };
    assert_eq!(open.proof(), None);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/v1")
        .join(name)
}

/// Written by version 1, never made again.
#[test]
fn a_report_of_version_1_reads_as_it_did() {
    let object = std::fs::read(fixture("drill-report.json")).unwrap();
    let verifier = Verifier::load(&fixture("verifying-key")).unwrap();
    let signed = sign::open::<DrillReport>("fixture", &object, &Trust::in_keys([verifier]));
    assert_eq!(signed.unwrap().record, passed());

    let stranger = sign::open::<DrillReport>("fixture", &object, &Trust::default());
    assert!(stranger.is_err());
}

#[test]
fn unknown_fields_are_refused() {
    let mut json = serde_json::to_value(passed()).unwrap();
    json["surprise"] = 1.into();
    assert!(serde_json::from_value::<DrillReport>(json).is_err());
}

#[test]
#[ignore = "made the fixture once"]
fn make_fixture() {
    let signer = holdfast_restore::Signer::generate();
    std::fs::write(
        fixture("drill-report.json"),
        sign::sign(&passed(), &signer).unwrap(),
    )
    .unwrap();
    std::fs::write(
        fixture("verifying-key"),
        format!("{}\n", signer.verifier().to_text()),
    )
    .unwrap();
}
