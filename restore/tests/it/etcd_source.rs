//! The etcd source against members that misbehave in every way we know.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_policies::{ByteSize, Level, Span};
use holdfast_restore::manifest::SourceHash;
use holdfast_restore::source::{TlsSpec, UserSpec};
use holdfast_restore::{Captured, Error, ErrorKind, EtcdSource, EtcdSpec, Source as _, capture};

use super::bench::{BASIC, Bench, SMALL, minute};
use super::fake_etcd::{Fake, Flow, tls_file};

async fn spec(members: &[&Fake]) -> EtcdSpec {
    let mut endpoints = Vec::new();
    for member in members {
        endpoints.push(member.serve().await.to_string());
    }
    EtcdSpec {
        idle_timeout: Span::from(Duration::from_millis(300)),
        ..EtcdSpec::at(endpoints)
    }
}

async fn take(bench: &Bench, spec: EtcdSpec) -> Result<Captured, Error> {
    let source = EtcdSource::new(spec).unwrap();
    let mut options = bench.options(minute(0));
    options.attempts = 3;
    capture(
        &options,
        &source,
        &bench.vault,
        &bench.sealer,
        &bench.signer,
        &|_| {},
    )
    .await
}

fn three() -> [Fake; 3] {
    [1, 2, 3].map(|id| Fake::of(SMALL, id))
}

#[tokio::test]
async fn a_follower_that_agrees_with_the_others_is_read_to_l2() {
    let bench = Bench::new().await;
    let [leader, second, third] = three();
    let captured = take(&bench, spec(&[&leader, &second, &third]).await)
        .await
        .unwrap();
    assert_eq!(captured.warnings, [""; 0]);
    assert_eq!(
        leader.snapshots.load(Ordering::SeqCst),
        0,
        "the leader is spared"
    );
    let manifest = &captured.manifest;
    assert_eq!(manifest.source.cluster_id.as_deref(), Some("cafe"));
    assert_eq!(manifest.source.server_version.as_deref(), Some("3.7.3"));
    let SourceHash::Told {
        members, divergent, ..
    } = &manifest.source_hash
    else {
        panic!()
    };
    assert_eq!((members.len(), divergent.len()), (3, 0));
    let proof = bench.verify(manifest.id, Level::L2).await;
    assert_eq!(proof.level, Some(Level::L2));
}

#[tokio::test]
async fn a_divergent_member_is_named_and_not_read() {
    let bench = Bench::new().await;
    let [leader, mut second, third] = three();
    second.hash ^= 1;
    let spec = spec(&[&leader, &second, &third]).await;
    let named = spec.endpoints[1].clone();
    let captured = take(&bench, spec).await.unwrap();
    assert_eq!(second.snapshots.load(Ordering::SeqCst), 0);
    assert!(
        captured.warnings[0].contains(&named),
        "{:?}",
        captured.warnings
    );
    let SourceHash::Told { divergent, .. } = &captured.manifest.source_hash else {
        panic!()
    };
    assert_eq!(*divergent, [named]);
}

#[tokio::test]
async fn two_members_that_disagree_are_not_backed_up() {
    let bench = Bench::new().await;
    let [leader, mut second, _] = three();
    second.hash ^= 1;
    let refused = take(&bench, spec(&[&leader, &second]).await)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::NoUsableMember { .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_stream_that_fails_is_begun_again_on_another_member() {
    for flow in [
        Flow::CutAfter(3),
        Flow::CutAfter(0),
        Flow::SilentAfter(4),
        Flow::Flipped(5),
    ] {
        let bench = Bench::new().await;
        let [leader, mut second, third] = three();
        second.flow = flow;
        let captured = take(&bench, spec(&[&leader, &second, &third]).await)
            .await
            .unwrap();
        assert_eq!(second.snapshots.load(Ordering::SeqCst), 1, "{flow:?}");
        assert_eq!(third.snapshots.load(Ordering::SeqCst), 1, "{flow:?}");
        let proof = bench.verify(captured.manifest.id, Level::L2).await;
        assert_eq!(proof.level, Some(Level::L2), "{flow:?}");
        let catalog = bench.catalog().await;
        assert_eq!(
            (catalog.backups.len(), catalog.orphans.len()),
            (1, 0),
            "{flow:?}"
        );
    }
}

#[tokio::test]
async fn a_source_that_never_comes_to_an_end_is_given_up_after_the_attempts() {
    let bench = Bench::new().await;
    let mut members = three();
    for member in &mut members {
        member.flow = Flow::SilentAfter(2);
    }
    let [first, second, third] = &members;
    let failed = take(&bench, spec(&[first, second, third]).await)
        .await
        .unwrap_err();
    assert!(matches!(failed, Error::Stalled { .. }), "{failed}");
    let tried: usize = members
        .iter()
        .map(|member| member.snapshots.load(Ordering::SeqCst))
        .sum();
    assert_eq!(tried, 3);
    assert_eq!(bench.catalog().await.orphans, []);
}

#[tokio::test]
async fn learners_stragglers_and_members_without_a_leader_are_not_read() {
    let bench = Bench::new().await;
    let [leader, mut learner, mut lost] = three();
    learner.is_learner = true;
    lost.leader = 0;
    let captured = take(&bench, spec(&[&leader, &learner, &lost]).await)
        .await
        .unwrap();
    assert_eq!(captured.manifest.source.member_id.as_deref(), Some("1"));
    let [mut ahead, behind, _] = three();
    ahead.revision += 20_000;
    ahead.is_learner = true;
    let refused = take(&bench, spec(&[&ahead, &behind]).await)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("20000 revisions behind"),
        "{refused}"
    );
}

#[tokio::test]
async fn members_of_two_clusters_are_refused() {
    let bench = Bench::new().await;
    let [leader, mut other, _] = three();
    other.cluster_id = 0xbeef;
    let refused = take(&bench, spec(&[&leader, &other]).await)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("beef"), "{refused}");
}

#[tokio::test]
async fn one_dead_endpoint_of_three_does_not_stop_a_backup_and_three_do() {
    let bench = Bench::new().await;
    let [leader, second, _] = three();
    let mut spec = spec(&[&leader, &second]).await;
    spec.endpoints.push("127.0.0.1:1".to_owned());
    take(&bench, spec).await.unwrap();
    let dead = EtcdSpec::at(["127.0.0.1:1", "127.0.0.1:2"]);
    let refused = take(&bench, dead).await.unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("127.0.0.1:1") && text.contains("127.0.0.1:2"),
        "{text}"
    );
}

#[tokio::test]
async fn a_password_is_exchanged_for_a_token_and_a_wrong_one_is_told() {
    let bench = Bench::new().await;
    let mut member = Fake::of(BASIC, 1);
    member.password = Some("s3cret");
    let file = bench.folder.path().join("password");
    fs::write(&file, "s3cret\n").unwrap();
    let mut spec = spec(&[&member]).await;
    let anonymous = take(&bench, spec.clone()).await.unwrap_err();
    assert!(
        anonymous.to_string().contains("user name is empty"),
        "{anonymous}"
    );
    spec.user = Some(UserSpec {
        name: "root".to_owned(),
        password_file: file.clone(),
    });
    take(&bench, spec.clone()).await.unwrap();
    fs::write(&file, "guess").unwrap();
    let wrong = take(&bench, spec).await.unwrap_err().to_string();
    assert!(wrong.contains("invalid user ID or password"), "{wrong}");
    assert!(!wrong.contains("guess"));
}

#[tokio::test]
async fn a_hash_taken_behind_another_compaction_is_no_proof() {
    let bench = Bench::new().await;
    let mut member = Fake::of(SMALL, 1);
    member.compact_revision += 1;
    let captured = take(&bench, spec(&[&member]).await).await.unwrap();
    assert!(
        captured.warnings[0].contains("compacted at 417"),
        "{:?}",
        captured.warnings
    );
    let proof = bench.verify(captured.manifest.id, Level::L2).await;
    assert_eq!(proof.level, Some(Level::L1));
}

#[tokio::test]
async fn the_newest_revision_of_any_member_counts() {
    let [leader, mut second, _] = three();
    second.revision += 7;
    let source = EtcdSource::new(spec(&[&leader, &second]).await).unwrap();
    let seen = source.latest_revision().await.unwrap();
    assert_eq!(
        (seen.revision, seen.cluster_id.as_deref()),
        (SMALL.2 + 7, Some("cafe"))
    );
}

#[test]
fn settings_that_cannot_work_are_refused_before_dialling() {
    assert!(EtcdSource::new(EtcdSpec::at([""; 0])).is_err());
    assert!(EtcdSource::new(EtcdSpec::at((0..40).map(|n| format!("h{n}:2379")))).is_err());
}

#[tokio::test]
async fn tls_needs_the_right_authority_and_a_client_certificate() {
    let bench = Bench::new().await;
    let port = Fake::of(BASIC, 1).serve_tls().await.port();
    let mut spec = EtcdSpec::at([format!("https://localhost:{port}")]);
    let plain = take(&bench, spec.clone()).await.unwrap_err().to_string();
    assert!(plain.contains("cacert"), "{plain}");
    let tls = TlsSpec {
        cacert: tls_file("ca.pem"),
        cert: Some(tls_file("client.pem")),
        key: Some(tls_file("client.key")),
        server_name: None,
    };
    spec.tls = Some(tls.clone());
    take(&bench, spec.clone()).await.unwrap();
    spec.tls = Some(TlsSpec {
        cert: None,
        key: None,
        ..tls.clone()
    });
    assert!(
        take(&bench, spec.clone()).await.is_err(),
        "no client certificate"
    );
    spec.tls = Some(TlsSpec {
        server_name: Some("elsewhere".to_owned()),
        ..tls.clone()
    });
    assert!(
        take(&bench, spec.clone()).await.is_err(),
        "another name in the certificate"
    );
    spec.tls = Some(TlsSpec {
        cacert: tls_file("client.pem"),
        ..tls.clone()
    });
    assert!(
        take(&bench, spec.clone()).await.is_err(),
        "another authority"
    );
    spec.tls = Some(TlsSpec { key: None, ..tls });
    let half = take(&bench, spec.clone()).await.unwrap_err().to_string();
    assert!(half.contains("both"), "{half}");
    assert_eq!(bench.catalog().await.backups.len(), 1);
}

#[tokio::test]
async fn an_aborted_backup_leaves_no_manifest_and_no_spool() {
    let bench = Bench::new().await;
    let mut member = Fake::of(SMALL, 1);
    member.flow = Flow::SilentAfter(6);
    let mut spec = spec(&[&member]).await;
    spec.idle_timeout = Span::from(Duration::from_mins(1));
    let aborted = tokio::time::timeout(Duration::from_millis(700), take(&bench, spec)).await;
    assert!(aborted.is_err(), "it was still waiting for bytes");
    assert_eq!(bench.catalog().await.backups.len(), 0);
    for _poll in 0..100 {
        if fs::read_dir(bench.work_dir()).unwrap().count() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the spool of the aborted backup stays");
}

#[tokio::test]
async fn a_rate_at_which_no_backup_ends_is_refused() {
    let spec = EtcdSpec {
        rate: Some(ByteSize::new(1000)),
        ..EtcdSpec::at(["127.0.0.1:1"])
    };
    let refused = EtcdSource::new(spec).unwrap_err();
    assert!(refused.to_string().contains("rate"), "{refused}");
}
