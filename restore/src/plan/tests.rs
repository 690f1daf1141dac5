use std::collections::BTreeMap;

use holdfast_policies::{Generation, ID_RANDOM_BYTES};

use super::*;
use crate::chain::Chain;
use crate::flaw::FlawKind;
use crate::key::Signer;
use crate::ledger::Ledger;
use crate::manifest::{ContentRecord, Manifest, SourceHash, SourceRecord};
use crate::part::PART_BYTES;
use crate::proof::{Evidence, Proof};
use crate::seal::Encryption;

pub(super) fn at(minute: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + minute * 60, 0).unwrap()
}

fn id(sequence: u64) -> SnapshotId {
    let minute = i64::try_from(sequence).unwrap();
    SnapshotId::new(
        at(minute),
        [u8::try_from(sequence).unwrap(); ID_RANDOM_BYTES],
    )
}

pub(super) fn backup(sequence: u64, revision: i64, level: Level) -> Backup {
    let cluster: ClusterName = "prod".parse().unwrap();
    let manifest = Manifest {
        id: id(sequence),
        cluster: cluster.clone(),
        generation: Generation::FIRST,
        pool: holdfast_policies::Pool::Scheduled,
        sequence: Sequence(sequence),
        predecessor: None,
        started: at(i64::try_from(sequence).unwrap()),
        finished: at(i64::try_from(sequence).unwrap()),
        source: SourceRecord {
            kind: "etcd".to_owned(),
            endpoint: "e".to_owned(),
            cluster_id: None,
            member_id: None,
            server_version: None,
        },
        content: ContentRecord {
            bytes: 1000,
            digest: Digest::of(b""),
            revision,
            compact_revision: -1,
            hash_kv: 1,
            keys: 1,
            cluster_version: None,
            storage_version: None,
            members: Vec::new(),
            alarms: Vec::new(),
            leases: 0,
            is_auth_enabled: false,
        },
        source_hash: SourceHash::Unavailable {
            reason: "x".to_owned(),
        },
        encryption: Encryption::None,
        part_bytes: u64::try_from(PART_BYTES).unwrap(),
        parts: Vec::new(),
        writer: "test".to_owned(),
    };
    let link = manifest.link(Digest::of(&sequence.to_le_bytes()));
    let proof = Proof {
        id: manifest.id,
        cluster,
        manifest: link.digest,
        at: at(100),
        level: Some(level),
        evidence: Evidence::default(),
        flaws: Vec::new(),
    };
    Backup {
        observed: manifest.started,
        manifest,
        link,
        proofs: vec![proof],
        by: Signer::generate().verifier(),
        flaws: Vec::new(),
        is_pinned: false,
        locked_until: None,
        uses: Vec::new(),
    }
}

pub(super) fn catalog(backups: Vec<Backup>, highest: i64) -> Catalog {
    Catalog {
        cluster: "prod".parse().unwrap(),
        backups,
        trash: Vec::new(),
        released: Vec::new(),
        flaws: Vec::new(),
        strangers: std::collections::BTreeSet::new(),
        ledger: Ledger {
            highest,
            head: None,
        },
        bumps: Vec::new(),
        claim: None,
        orphans: Vec::new(),
        confirmed: None,
        chain: Chain {
            places: BTreeMap::new(),
            released: BTreeMap::new(),
            head: None,
        },
        returned: BTreeMap::new(),
    }
}

pub(super) fn options() -> RestoreOptions {
    RestoreOptions::single(
        Target::Holdfast,
        "/data/new".into(),
        "m0",
        "http://127.0.0.1:2380",
    )
}

fn three() -> Catalog {
    catalog(
        vec![
            backup(1, 100, Level::L3),
            backup(2, 200, Level::L3),
            backup(3, 300, Level::L2),
        ],
        350,
    )
}

#[test]
fn the_newest_proven_backup_is_taken_and_the_newer_one_is_said() {
    let plan = plan_restore(&three(), Pick::LatestProven, &options()).unwrap();
    assert_eq!(plan.id, id(2));
    assert_eq!(plan.passed_over.len(), 1);
    assert_eq!(plan.passed_over[0].id, id(3));
    let text = plan.to_string();
    assert!(text.contains("60 s and 100 revisions newer"), "{text}");
    assert!(text.contains("--latest takes it"), "{text}");
}

#[test]
fn a_newer_backup_at_a_lower_revision_is_said_in_words() {
    let catalog = catalog(
        vec![
            backup(1, 2_000_000_100, Level::L3),
            backup(2, 92, Level::L2),
        ],
        0,
    );
    let text = plan_restore(&catalog, Pick::LatestProven, &options())
        .unwrap()
        .to_string();
    let wanted = "60 s newer, at revision 92 of another history";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_further_member_of_the_same_restore_is_not_warned_of_its_own_revision() {
    let wish = RestoreOptions {
        bump: Bump::By(BUMP_FLOOR),
        members: ["m0", "m1"]
            .map(|name| NewMember {
                name: name.to_owned(),
                peer_urls: vec![format!("http://{name}:2380")],
            })
            .to_vec(),
        write: vec!["m1".to_owned()],
        token: Some("t".to_owned()),
        ..options()
    };
    let warned = |highest: i64| {
        let catalog = catalog(vec![backup(1, 100, Level::L3)], highest);
        plan_restore(&catalog, Pick::Latest, &wish)
            .unwrap()
            .warnings
    };
    assert_eq!(warned(BUMP_FLOOR + 99), Vec::<String>::new());
    let same = warned(BUMP_FLOOR + 100);
    assert!(same[0].contains("another member"), "{same:?}");
    let beyond = warned(BUMP_FLOOR + 101);
    assert!(beyond[0].contains("will reuse"), "{beyond:?}");
}

#[test]
fn each_pick_finds_its_backup_or_says_what_there_is() {
    let catalog = three();
    let picked = |pick| plan_restore(&catalog, pick, &options()).map(|plan| plan.id);
    assert_eq!(picked(Pick::Latest).unwrap(), id(3));
    assert_eq!(picked(Pick::Revision(299)).unwrap(), id(2));
    assert_eq!(picked(Pick::Time(at(1))).unwrap(), id(1));
    assert_eq!(picked(Pick::Id(id(1))).unwrap(), id(1));
    let none = picked(Pick::Revision(99)).unwrap_err().to_string();
    assert!(
        none.contains("none of 3 backups") && none.contains("revision 99"),
        "{none}"
    );
    let unproven = self::catalog(vec![backup(1, 100, Level::L2)], 0);
    let none = plan_restore(&unproven, Pick::LatestProven, &options())
        .unwrap_err()
        .to_string();
    assert!(
        none.contains("L3") && none.contains(&id(1).to_string()),
        "{none}"
    );
}

#[test]
fn a_damaged_backup_is_never_picked_unless_named() {
    let mut catalog = three();
    let flaw = Flaw::new(FlawKind::PartChanged, "p", "x");
    catalog.backups[2].proofs[0].flaws.push(flaw);
    assert_eq!(
        plan_restore(&catalog, Pick::Latest, &options()).unwrap().id,
        id(2)
    );
    let named = plan_restore(&catalog, Pick::Id(id(3)), &options()).unwrap();
    assert!(
        named.warnings[0].contains("damaged"),
        "{:?}",
        named.warnings
    );
}

#[test]
fn the_automatic_bump_passes_everything_ever_seen() {
    let plan = plan_restore(&three(), Pick::Id(id(1)), &options()).unwrap();
    assert_eq!(plan.highest_seen, 350);
    assert_eq!(plan.revision_after, 350 + BUMP_FLOOR);
}

#[test]
fn a_second_restore_from_an_older_backup_still_ends_higher() {
    let first = plan_restore(&three(), Pick::Id(id(3)), &options()).unwrap();
    let mut after = three();
    after.ledger.merge(&Ledger {
        highest: first.observation(at(0)).revision,
        head: None,
    });
    let second = plan_restore(&after, Pick::Id(id(1)), &options()).unwrap();
    assert!(second.revision_after > first.revision_after + BUMP_FLOOR - 1);
}

#[test]
fn a_bump_that_cannot_be_held_is_refused() {
    let mut wish = options();
    for bump in [i64::MAX, i64::MAX - 100, REVISION_MAX] {
        wish.bump = Bump::By(bump);
        let refused = plan_restore(&three(), Pick::Latest, &wish).unwrap_err();
        assert!(
            matches!(refused, Error::BumpOverflow { .. }),
            "{bump}: {refused}"
        );
    }
    for bump in [0, -1, i64::MIN] {
        wish.bump = Bump::By(bump);
        assert!(matches!(
            plan_restore(&three(), Pick::Latest, &wish),
            Err(Error::Refused { .. })
        ));
    }
    let seen = catalog(vec![backup(1, 100, Level::L3)], i64::MAX - 5);
    assert!(matches!(
        plan_restore(&seen, Pick::Latest, &options()),
        Err(Error::BumpOverflow { .. })
    ));
}

#[test]
fn a_restore_that_reuses_seen_revisions_is_warned_of() {
    let mut wish = options();
    wish.bump = Bump::None;
    let plan = plan_restore(&three(), Pick::Latest, &wish).unwrap();
    assert!(
        plan.warnings.iter().any(|one| one.contains("350")),
        "{:?}",
        plan.warnings
    );
    wish.bump = Bump::By(10);
    wish.mark_compacted = false;
    let plan = plan_restore(&three(), Pick::Latest, &wish).unwrap();
    assert!(
        plan.warnings.iter().any(|one| one.contains("silently")),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn members_that_cannot_form_a_cluster_are_refused_before_anything_is_read() {
    let member = |name: &str, urls: &[&str]| NewMember {
        name: name.to_owned(),
        peer_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
    };
    let cases: Vec<(&str, Vec<NewMember>, Vec<&str>)> = vec![
        ("none", vec![], vec![]),
        ("no url", vec![member("a", &[])], vec![]),
        ("scheme", vec![member("a", &["127.0.0.1:1"])], vec![]),
        (
            "same name",
            vec![member("a", &["http://a"]), member("a", &["http://b"])],
            vec![],
        ),
        (
            "same url",
            vec![member("a", &["http://a"]), member("b", &["http://a"])],
            vec![],
        ),
        ("path in name", vec![member("../a", &["http://a"])], vec![]),
        ("stranger", vec![member("a", &["http://a"])], vec!["b"]),
        ("twice", vec![member("a", &["http://a"])], vec!["a", "a"]),
    ];
    for (name, members, write) in cases {
        let mut wish = options();
        wish.members = members;
        wish.write = write.into_iter().map(str::to_owned).collect();
        let refused = plan_restore(&three(), Pick::Latest, &wish);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{name}");
    }
}

#[test]
fn several_members_are_written_side_by_side_with_one_token() {
    let mut wish = options();
    wish.members = (0..3)
        .map(|n| NewMember {
            name: format!("m{n}"),
            peer_urls: vec![format!("http://h{n}:2380")],
        })
        .collect();
    let plan = plan_restore(&three(), Pick::Latest, &wish).unwrap();
    let dirs: Vec<_> = plan
        .write
        .iter()
        .map(|one| one.data_dir.display().to_string())
        .collect();
    assert_eq!(dirs, ["/data/new/m0", "/data/new/m1", "/data/new/m2"]);
    assert_eq!(plan.token, format!("holdfast-{}", wish.restore_id));
}

#[test]
fn a_plan_reads_the_same_every_time() {
    let mut wish = options();
    wish.restore_id = "11111111-2222-4333-8444-555555555555".parse().unwrap();
    let plan = plan_restore(&three(), Pick::LatestProven, &wish).unwrap();
    insta::assert_snapshot!(plan.to_string());
}
