//! Drills that pass, and what they say.

use chrono::TimeDelta;
use holdfast_drills::{
    CHECK_NAMES, DrillMembers, DrillOptions, DrillTarget, MEMBERS_CHECK, Outcome, TargetKind,
    publish, reports,
};
use holdfast_policies::{Level, Span};
use holdfast_restore::ledger::{self, Observation, Reason};
use holdfast_restore::{Catalog, Pick, Trust};

use super::stage::{ALARM, AUTH, K8S, SMALL, Stage, noon, targets};

#[tokio::test]
async fn a_drill_of_a_good_backup_passes_on_every_target() {
    for target in targets() {
        let stage = Stage::new().await;
        let id = stage.backup(SMALL).await;
        let options = DrillOptions {
            target,
            known: Some((500, noon() + TimeDelta::minutes(19))),
            rto: Some(Span::from_secs(600)),
            rpo: Some(Span::from_secs(60)),
            ..stage.options()
        };
        let report = stage.drill(&options).await;
        assert_eq!(report.outcome, Outcome::Passed, "{report}");

        let names: Vec<&str> = report
            .checks
            .iter()
            .map(|check| check.name.as_str())
            .collect();
        assert_eq!(names, CHECK_NAMES);
        let backup = report.backup.as_ref().unwrap();
        assert_eq!(
            (backup.id, backup.revision, backup.keys > 0),
            (id, 452, true)
        );
        let restored = report.restored.as_ref().unwrap();
        assert_eq!(restored.revision, 452 + restored.bump);
        assert!(restored.bump >= 1_000_000_000, "{restored:?}");
        let phases: Vec<&str> = report
            .phases
            .iter()
            .map(|phase| phase.name.as_str())
            .collect();
        assert_eq!(
            phases,
            ["pick", "restore", "boot", "decode", "check", "teardown"]
        );
        assert!(report.rto.is_some_and(|rto| rto > Span::ZERO));
        assert_eq!(report.is_rto_met(), Some(true));
        let rpo = report.rpo.as_ref().unwrap();
        assert_eq!(
            (rpo.age, rpo.revisions_missing),
            (Span::from_secs(1200), 48)
        );
        assert_eq!(report.is_rpo_met(), Some(false));
    }
}

#[tokio::test]
async fn three_scratch_members_form_one_cluster_on_every_target() {
    for target in targets() {
        let stage = Stage::new().await;
        stage.backup(SMALL).await;
        let options = DrillOptions {
            target,
            members: DrillMembers::Exactly(3),
            ..stage.options()
        };
        let report = stage.drill(&options).await;
        assert_eq!(report.outcome, Outcome::Passed, "{report}");
        assert_eq!(report.restored.as_ref().unwrap().members, 3);
        let check = report.checks.last().unwrap();
        assert_eq!(check.name, MEMBERS_CHECK);
        assert!(check.detail.contains("3 members"), "{report}");
        assert!(report.to_string().contains("3 members of"), "{report}");
    }
}

#[tokio::test]
async fn five_scratch_members_pass_with_authentication_on() {
    let stage = Stage::new().await;
    stage.backup(AUTH).await;
    let options = DrillOptions {
        members: DrillMembers::Exactly(5),
        ..stage.options()
    };
    let report = stage.drill(&options).await;
    assert_eq!(report.outcome, Outcome::Passed, "{report}");
    assert_eq!(report.restored.as_ref().unwrap().members, 5);
}

#[tokio::test]
async fn a_control_plane_passes_with_its_prefixes_counted_and_not_named() {
    let stage = Stage::new().await;
    stage.backup(K8S).await;
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Passed, "{report}");
    assert!(report.prefixes.len() > 5, "{report:?}");
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains("registry"), "a report names keys");
}

#[tokio::test]
async fn a_backup_with_authentication_on_is_proven_on_every_target_without_a_password() {
    let stage = Stage::new().await;
    stage.backup(AUTH).await;
    for target in targets() {
        let is_etcd = matches!(target, DrillTarget::Etcd(_));
        let report = stage
            .drill(&DrillOptions {
                target,
                ..stage.options()
            })
            .await;
        assert_eq!(report.outcome, Outcome::Passed, "{report}");
        let auth = report.checks.iter().find(|check| check.name == "auth");
        let detail = &auth.unwrap().detail;
        let said = if is_etcd {
            "a caller without a user is refused"
        } else {
            "told to serve without it"
        };
        assert!(detail.contains(said), "{detail}");
    }
}

#[tokio::test]
async fn a_published_drill_proves_its_backup_and_reads_back() {
    let stage = Stage::new().await;
    let id = stage.backup(SMALL).await;
    let report = stage.drill(&stage.options()).await;
    publish(&stage.vault, &report, &stage.signer).await.unwrap();

    let trust = &stage.keys.trust;
    let catalog = Catalog::load(&stage.vault, &stage.cluster, trust, None)
        .await
        .unwrap();
    assert_eq!(catalog.get(id).unwrap().level(), Some(Level::L3));
    assert_eq!(
        reports(&stage.vault, &stage.cluster, trust).await.unwrap(),
        [report]
    );
    let strangers = Trust::default();
    assert_eq!(
        reports(&stage.vault, &stage.cluster, &strangers)
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn a_drill_takes_the_backup_it_is_told_to() {
    let stage = Stage::new().await;
    let older = stage.backup(SMALL).await;
    stage.backup(SMALL).await;
    let pick = Some(Pick::Id(older));
    let report = stage
        .drill(&DrillOptions {
            pick,
            ..stage.options()
        })
        .await;
    assert_eq!(report.backup.unwrap().id, older);
    assert_eq!(
        (report.outcome, report.target),
        (Outcome::Passed, TargetKind::Holdfast)
    );
}

/// A restore says in the ledger which revision it bumped to.
async fn note_bump(stage: &Stage, revision: i64) {
    let bumped = Observation {
        cluster: stage.cluster.clone(),
        revision,
        at: noon(),
        reason: Reason::Restore,
        head: None,
    };
    ledger::record(&stage.vault, &bumped, &stage.signer)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_a_restore_bumped_to_is_not_told_as_lost() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    note_bump(&stage, 2_000_000_447).await;
    let objective = Some(Span::from_secs(60));
    let report = stage
        .drill(&DrillOptions {
            rpo: objective,
            ..stage.options()
        })
        .await;
    let rpo = report.rpo.as_ref().unwrap();
    assert_eq!((rpo.newest_known, rpo.newest_known_at), (452, None));
    assert_eq!(rpo.revisions_missing, 0);
    assert_eq!(
        report.restored.as_ref().unwrap().highest_seen,
        2_000_000_447
    );
    // Nothing newer is known because nobody asked: that meets no objective.
    assert_eq!(report.is_rpo_met(), Some(false));
}

#[tokio::test]
async fn what_a_restored_source_was_bumped_to_is_not_told_as_lost() {
    let stage = Stage::new().await;
    let older = stage.backup(ALARM).await;
    stage.backup(SMALL).await;
    note_bump(&stage, 1_000_000_452).await;
    // Up to 452 before the restore, and three writes after it.
    for (pick, missing) in [(None, 3), (Some(Pick::Id(older)), 422 + 3)] {
        let options = DrillOptions {
            pick,
            known: Some((1_000_000_455, noon())),
            clear_alarms: true,
            ..stage.options()
        };
        let report = stage.drill(&options).await;
        let rpo = report.rpo.as_ref().unwrap();
        assert_eq!(rpo.revisions_missing, missing, "{report}");
        assert_eq!(rpo.newest_known, 1_000_000_455);
    }
}
