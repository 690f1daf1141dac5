//! Backups that must not pass: each is bad in one way.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_drills::{DrillOptions, DrillReport, Outcome, publish};
use holdfast_policies::{Level, Span};
use holdfast_restore::ledger::{self, Observation, Reason};
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::{Catalog, Identities, Keys, Pick, key};
use holdfast_store::etcd_file::EtcdFile;
use sha2::{Digest as _, Sha256};

use super::stage::{ALARM, EMPTY, SMALL, Stage, keys_in, noon, outcome, targets};

fn assert_breaks_off(report: &DrillReport, why: &str) {
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
    let fault = report.fault.as_deref().unwrap_or_default();
    assert!(fault.contains(why), "{fault:?} does not say {why:?}");
    assert_eq!(report.proof(), None);
}

#[tokio::test]
async fn a_part_with_a_flipped_byte_fails() {
    let stage = Stage::new().await;
    let part = stage.part(stage.backup(SMALL).await, 0);
    let mut bytes = fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&part, bytes).unwrap();
    assert_breaks_off(&stage.drill(&stage.options()).await, "damaged");
}

#[tokio::test]
async fn a_truncated_part_fails() {
    let stage = Stage::new().await;
    let part = stage.part(stage.backup(SMALL).await, 0);
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() - 1]).unwrap();
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
    assert!(report.fault.is_some());
}

#[tokio::test]
async fn a_missing_part_fails() {
    let stage = Stage::new().await;
    fs::remove_file(stage.part(stage.backup(SMALL).await, 1)).unwrap();
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
    assert!(report.fault.is_some());
}

/// The golden snapshot with every `from` replaced, and a digest trailer that fits.
fn edited(stage: &Stage, from: &[u8], to: &[u8]) -> PathBuf {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(SMALL.path()).unwrap();
    bytes.truncate(bytes.len() - 32);
    let places: Vec<usize> = (0..bytes.len() - from.len())
        .filter(|at| bytes[*at..].starts_with(from))
        .collect();
    assert!(!places.is_empty(), "nothing to edit");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    let path = stage.folder.path().join("edited.db");
    fs::write(&path, bytes).unwrap();
    path
}

/// A live key of the golden snapshot, and its value.
fn some_pair() -> (Vec<u8>, Vec<u8>) {
    let bytes = fs::read(SMALL.path()).unwrap();
    let file = EtcdFile::open(bytes).unwrap();
    let keys = file.keys(0).unwrap();
    let is_fit =
        |pair: &&holdfast_proto::etcd::kv::KeyValue| pair.key.len() > 4 && pair.value.len() > 4;
    let pair = keys.iter().find(is_fit).unwrap();
    (pair.key.to_vec(), pair.value.to_vec())
}

fn turned(bytes: &[u8]) -> Vec<u8> {
    let mut turned = bytes.to_vec();
    let last = turned.len() - 1;
    turned[last] ^= 1;
    turned
}

#[tokio::test]
async fn a_backup_with_a_changed_value_fails() {
    let stage = Stage::new().await;
    let (_, value) = some_pair();
    let file = edited(&stage, &value, &turned(&value));
    stage.backup_of(&file, told_of(&file)).await;
    stage.retell(SMALL.told()).await;
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
}

#[tokio::test]
async fn a_backup_that_lacks_a_key_fails() {
    let stage = Stage::new().await;
    let (key, _) = some_pair();
    let file = edited(&stage, &key, &turned(&key));
    stage.backup_of(&file, told_of(&file)).await;
    stage.retell(SMALL.told()).await;
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
}

#[tokio::test]
async fn a_backup_of_other_content_than_the_source_told_fails() {
    let stage = Stage::new().await;
    let id = stage.backup(SMALL).await;
    stage.retell(told(SMALL.1 ^ 1)).await;
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
    publish(&stage.vault, &report, &stage.signer).await.unwrap();
    let trust = &stage.keys.trust;
    let catalog = Catalog::load(&stage.vault, &stage.cluster, trust, None)
        .await
        .unwrap();
    assert!(
        catalog.get(id).unwrap().level() < Some(Level::L3),
        "a failed drill proved something"
    );
}

/// What a source tells that really has the file's content.
fn told_of(file: &Path) -> SourceHash {
    let file = EtcdFile::open(fs::read(file).unwrap()).unwrap();
    told(file.hash_kv(0).unwrap().hash)
}

fn told(hash: u32) -> SourceHash {
    let mut told = SMALL.told();
    if let SourceHash::Told { hash: place, .. } = &mut told {
        *place = hash;
    }
    told
}

#[tokio::test]
async fn a_backup_whose_source_told_no_hash_is_inconclusive() {
    let stage = Stage::new().await;
    let reason = "asleep".to_owned();
    let told = SourceHash::Unavailable { reason };
    stage.backup_of(&SMALL.path(), told).await;
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Inconclusive, "{report}");
    assert_eq!(report.proof(), None);
}

#[tokio::test]
async fn a_backup_with_an_alarm_fails_unless_alarms_are_cleared() {
    for target in targets() {
        let stage = Stage::new().await;
        stage.backup(ALARM).await;
        let options = DrillOptions {
            target,
            ..stage.options()
        };
        let report = stage.drill(&options).await;
        assert_eq!(report.outcome, Outcome::Failed, "{report}");
        assert_eq!(outcome(&report, "alarms"), Outcome::Failed);
        assert_eq!(outcome(&report, "write"), Outcome::Failed);

        let id = stage.options().id;
        let report = stage
            .drill(&DrillOptions {
                id,
                clear_alarms: true,
                ..options
            })
            .await;
        assert_eq!(report.outcome, Outcome::Passed, "{report}");
    }
}

#[tokio::test]
async fn an_empty_backup_of_a_store_that_had_keys_fails_unless_it_is_expected() {
    let stage = Stage::new().await;
    stage.backup(EMPTY).await;
    // Keys were there: the ledger knows a revision that only a write can make.
    let seen = Observation {
        cluster: stage.cluster.clone(),
        revision: 2,
        at: noon(),
        reason: Reason::Source,
        head: None,
    };
    ledger::record(&stage.vault, &seen, &stage.signer)
        .await
        .unwrap();
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
    assert_eq!(outcome(&report, "content"), Outcome::Failed, "{report}");
    let expected = DrillOptions {
        wanted_keys: Some(0),
        ..stage.options()
    };
    let report = stage.drill(&expected).await;
    assert_eq!(report.outcome, Outcome::Passed, "{report}");
}

#[tokio::test]
async fn an_empty_backup_after_one_with_keys_fails() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    let empty = stage.backup(EMPTY).await;
    let options = DrillOptions {
        pick: Some(Pick::Id(empty)),
        ..stage.options()
    };
    let report = stage.drill(&options).await;
    assert_eq!(outcome(&report, "content"), Outcome::Failed, "{report}");
}

#[tokio::test]
async fn the_backup_of_a_store_that_nothing_was_ever_written_to_passes() {
    let stage = Stage::new().await;
    stage.backup(EMPTY).await;
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Passed, "{report}");
}

#[tokio::test]
async fn a_vault_without_backups_fails() {
    let stage = Stage::new().await;
    let report = stage.drill(&stage.options()).await;
    assert_breaks_off(&report, "none of 0 backups");
    assert_eq!(report.backup, None);
}

#[tokio::test]
async fn a_backup_that_this_identity_does_not_open_is_inconclusive() {
    let mut stage = Stage::new().await;
    stage.backup(SMALL).await;
    let other = stage.folder.path().join("other-identity");
    key::generate_identity(&other).unwrap();
    stage.keys = Keys {
        trust: stage.keys.trust.clone(),
        identities: Some(Identities::load(&other).unwrap()),
    };
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Inconclusive, "{report}");
    let fault = report.fault.as_deref().unwrap();
    for words in ["no matching identity", "says nothing of the backup"] {
        assert!(fault.contains(words), "{fault}");
    }
    assert!(report.restored.is_none());
    assert_eq!(report.proof(), None);
    // With the right one and damage beside it, the damage counts.
    stage.keys = keys_in(stage.folder.path());
    fs::remove_file(stage.part(report.backup.unwrap().id, 0)).unwrap();
    let report = stage.drill(&stage.options()).await;
    assert_eq!(report.outcome, Outcome::Failed, "{report}");
}

#[tokio::test]
async fn a_drill_that_is_not_done_in_time_fails() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    let deadline = Span::from(std::time::Duration::from_millis(1));
    let report = stage
        .drill(&DrillOptions {
            deadline,
            ..stage.options()
        })
        .await;
    assert_breaks_off(&report, "not done after");
}

#[tokio::test]
async fn a_drill_that_outgrows_its_budget_fails() {
    let stage = Stage::new().await;
    stage.backup(SMALL).await;
    let budget = holdfast_policies::ByteSize::new(8 * 1024);
    let report = stage
        .drill(&DrillOptions {
            budget,
            ..stage.options()
        })
        .await;
    assert_breaks_off(&report, "holds more than 8192 bytes");
}
