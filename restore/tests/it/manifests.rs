//! Manifests read back as they were written, whatever they say.

use chrono::DateTime;
use holdfast_policies::{Generation, ID_RANDOM_BYTES, Pool, Sequence, SnapshotId};
use holdfast_restore::manifest::{
    ContentMember, ContentRecord, Link, MANIFEST_VERSION, Manifest, SourceHash, SourceRecord,
};
use holdfast_restore::part::{PART_BYTES_UNIT, PartRecord};
use holdfast_restore::seal::Encryption;
use holdfast_restore::{Digest, Signer, Trust};
use proptest::prelude::*;

use super::long::rounds;

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

fn id() -> impl Strategy<Value = SnapshotId> {
    (0..4_000_000_000_i64, any::<[u8; ID_RANDOM_BYTES]>())
        .prop_map(|(at, random)| SnapshotId::new(DateTime::from_timestamp(at, 0).unwrap(), random))
}

fn content(bytes: u64) -> impl Strategy<Value = ContentRecord> {
    let names = (
        ".*",
        proptest::collection::vec(".*", 0..3),
        proptest::collection::vec(".*", 0..3),
    );
    let member =
        ("[0-9a-f]{1,16}", names).prop_map(|(id, (name, peer_urls, client_urls))| ContentMember {
            id,
            name,
            peer_urls,
            client_urls,
        });
    (
        (
            digest(),
            1..i64::MAX,
            any::<u32>(),
            any::<u64>(),
            any::<u64>(),
            any::<bool>(),
        ),
        proptest::collection::vec(member, 0..4),
        proptest::collection::vec(".*", 0..3),
        (proptest::option::of(".*"), proptest::option::of(".*")),
    )
        .prop_map(move |(numbers, members, alarms, versions)| {
            let (digest, revision, hash_kv, keys, leases, is_auth_enabled) = numbers;
            ContentRecord {
                bytes,
                digest,
                revision,
                compact_revision: revision / 2 - 1,
                hash_kv,
                keys,
                cluster_version: versions.0,
                storage_version: versions.1,
                members,
                alarms,
                leases,
                is_auth_enabled,
            }
        })
}

fn source_hash() -> impl Strategy<Value = SourceHash> {
    prop_oneof![
        ".*".prop_map(|reason| SourceHash::Unavailable { reason }),
        (
            any::<u32>(),
            any::<i64>(),
            any::<i64>(),
            proptest::collection::vec(".*", 0..3)
        )
            .prop_map(
                |(hash, revision, compact_revision, members)| SourceHash::Told {
                    hash,
                    revision,
                    compact_revision,
                    divergent: members.clone(),
                    members,
                }
            ),
    ]
}

fn encryption() -> impl Strategy<Value = Encryption> {
    prop_oneof![
        Just(Encryption::None),
        (
            ".*",
            proptest::collection::vec(".*", 1..4),
            "[A-Za-z0-9+/]*"
        )
            .prop_map(|(backup_recipient, recipients, envelope)| Encryption::Age {
                backup_recipient,
                recipients,
                envelope
            }),
    ]
}

fn manifest() -> impl Strategy<Value = Manifest> {
    let unit = u64::try_from(PART_BYTES_UNIT).unwrap();
    let parts = proptest::collection::vec((digest(), digest(), 1..unit), 1..20);
    (parts, 1..=unit).prop_flat_map(move |(parts, last)| {
        let count = parts.len();
        let parts: Vec<PartRecord> = parts
            .into_iter()
            .enumerate()
            .map(
                |(index, (plain_digest, stored_digest, stored_bytes))| PartRecord {
                    plain_bytes: if index + 1 == count { last } else { unit },
                    plain_digest,
                    stored_bytes: stored_bytes.min(last),
                    stored_digest,
                },
            )
            .collect();
        let bytes = parts.iter().map(|part| part.plain_bytes).sum();
        let source = (
            ".*",
            ".*",
            proptest::option::of(".*"),
            proptest::option::of(".*"),
        );
        (
            (
                id(),
                id(),
                digest(),
                any::<u64>(),
                1..u64::MAX,
                "[a-z0-9]{1,63}",
            ),
            (0..4_000_000_000_i64, 0..1_000_000_000_u32),
            source,
            (content(bytes), source_hash(), encryption()),
        )
            .prop_map(move |(names, (at, nanos), source, rest)| {
                let (id, before, digest, generation, sequence, cluster) = names;
                let started = DateTime::from_timestamp(at, nanos).unwrap();
                Manifest {
                    id,
                    cluster: cluster.parse().unwrap(),
                    generation: Generation(generation),
                    pool: Pool::ALL[usize::from(generation % 2 == 1)],
                    sequence: Sequence(sequence),
                    predecessor: (sequence > 1).then(|| Link {
                        sequence: Sequence(sequence - 1),
                        id: before,
                        digest,
                    }),
                    started,
                    finished: started,
                    source: SourceRecord {
                        kind: source.0,
                        endpoint: source.1,
                        cluster_id: source.2,
                        member_id: source.3.clone(),
                        server_version: source.3,
                    },
                    content: rest.0,
                    source_hash: rest.1,
                    encryption: rest.2,
                    part_bytes: unit,
                    parts: parts.clone(),
                    writer: "holdfast".to_owned(),
                }
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(200, 5_000)))]

    #[test]
    fn a_manifest_reads_back_as_it_was_written(manifest in manifest()) {
        let signer = Signer::generate();
        let trust = Trust::in_keys([signer.verifier()]);
        let bytes = manifest.encode(&signer).unwrap();
        let read = Manifest::decode("m", &bytes, &trust).unwrap();
        prop_assert_eq!(&read.record, &manifest);
        prop_assert_eq!(read.digest, Digest::of(&bytes));
        prop_assert_eq!(read.record.encode(&signer).unwrap(), bytes);
    }

    #[test]
    fn bytes_that_are_no_manifest_are_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        prop_assert!(Manifest::decode("m", &bytes, &Trust::default()).is_err());
    }
}

fn sample() -> Manifest {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    manifest().new_tree(&mut runner).unwrap().current()
}

#[test]
fn a_signed_manifest_that_contradicts_itself_is_refused() {
    let signer = Signer::generate();
    let trust = Trust::in_keys([signer.verifier()]);
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = sample();
        change(&mut manifest);
        let bytes = manifest.encode(&signer).unwrap();
        Manifest::decode("m", &bytes, &trust).is_err()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|manifest| manifest.parts.clear()));
    assert!(refused(&|manifest| manifest.content.bytes += 1));
    assert!(refused(&|manifest| manifest.part_bytes += 1));
    assert!(refused(&|manifest| manifest.part_bytes = 0));
    assert!(refused(&|manifest| manifest.content.revision = 0));
    assert!(refused(
        &|manifest| manifest.content.compact_revision = manifest.content.revision + 1
    ));
    assert!(refused(&|manifest| manifest.sequence = Sequence(0)));
    assert!(refused(&|manifest| {
        let link = Link {
            sequence: Sequence(7),
            id: manifest.id,
            digest: Digest::of(b""),
        };
        manifest.sequence = Sequence(9);
        manifest.predecessor = Some(link);
    }));
    assert!(refused(&|manifest| {
        manifest.parts[0].stored_bytes = u64::MAX;
    }));
}

#[test]
fn a_manifest_of_a_later_version_is_refused_with_the_way_out() {
    let signer = Signer::generate();
    let trust = Trust::in_keys([signer.verifier()]);
    let text = String::from_utf8(sample().encode(&signer).unwrap().to_vec()).unwrap();
    let now = format!("\"version\":{MANIFEST_VERSION}");
    let later = text.replacen(&now, &format!("\"version\":{}", MANIFEST_VERSION + 1), 1);
    let refused = Manifest::decode("m", later.as_bytes(), &trust)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("newer holdfast"), "{refused}");
}
