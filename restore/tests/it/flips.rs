//! One bit of one object in the vault is flipped: it is noticed, or nothing depends on it. Never a
//! wrong value believed or given back, never a panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_policies::{Level, SnapshotId};
use holdfast_restore::part::PartRecord;
use holdfast_restore::{Captured, Catalog, Digest, VerifyOptions, proof, rebuild, verify};

use super::bench::{BASIC, Bench, Golden, SMALL, minute};
use super::long::rounds;

/// A number that looks random and is the same every time.
pub(crate) fn scattered(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Bytes with a valid digest trailer whose parts do not compress: an etcd database followed by
/// free pages of noise is beyond this; parts only need equal sizes.
pub(crate) fn even_snapshot() -> Vec<u8> {
    let mut database = BASIC.bytes();
    database.truncate(database.len() - 32);
    // Pages behind the database's own are never read; they are free space in a bbolt file.
    let noise = (0..8 * 64 * 1024 / 8_u64).flat_map(|n| scattered(n).to_le_bytes());
    database.extend(noise);
    let digest = Digest::of(&database);
    database.extend_from_slice(digest.as_bytes());
    database
}

/// Two parts that have one stored size.
pub(crate) fn equal_sized_pair(parts: &[PartRecord]) -> Option<(usize, usize)> {
    parts.iter().enumerate().find_map(|(index, part)| {
        let same = |(other, record): (usize, &PartRecord)| {
            (other > index && record.stored_bytes == part.stored_bytes).then_some((index, other))
        };
        parts.iter().enumerate().find_map(same)
    })
}

/// Two backups at L2 with their proofs, and what they have to give back.
struct Subject {
    bench: Bench,
    backups: [(Captured, Golden); 2],
}

/// By which of its readers a backup is read.
#[derive(Debug, Clone, Copy)]
enum How {
    /// Verification up to a level.
    Verified(Level),
    /// Written out as it was.
    GivenBack,
}

/// What became of the flips in one kind of object.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    noticed: usize,
    harmless: usize,
}

impl Subject {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let first = bench.backup(BASIC, minute(0)).await;
        let second = bench.backup(SMALL, minute(1)).await;
        for captured in [&first, &second] {
            let proof = bench.verify(captured.manifest.id, Level::L2).await;
            assert_eq!(proof.level, Some(Level::L2));
            proof::record(&bench.vault, &proof, &bench.signer)
                .await
                .unwrap();
        }
        Self {
            bench,
            backups: [(first, BASIC), (second, SMALL)],
        }
    }

    /// Whether `path` belongs to this backup: a part, an envelope, a proof or its manifest.
    fn owns(captured: &Captured, path: &Path) -> bool {
        let manifest = format!("manifests/{:012}.json", captured.manifest.sequence.0);
        let text = path.to_str().unwrap();
        text.contains(&captured.manifest.id.to_string()) || text.ends_with(&manifest)
    }

    /// Whether anything is found wrong when the vault is listed and the backups that `is_read`
    /// picks are read: what is believed, and what is given back, must be what was stored.
    async fn is_noticed(&self, how: How, is_read: impl Fn(&Captured) -> bool) -> bool {
        let bench = &self.bench;
        let trust = &bench.keys.trust;
        let Ok(catalog) = Catalog::load(&bench.vault, &bench.cluster, trust, None).await else {
            return true;
        };
        let mut is_noticed = !catalog.flaws.is_empty() || catalog.backups.len() != 2;
        for (captured, golden) in &self.backups {
            let id = captured.manifest.id;
            if !is_read(captured) || catalog.get(id).is_err() {
                continue;
            }
            is_noticed |= match how {
                How::GivenBack => !self.gives_back(&catalog, captured, *golden).await,
                How::Verified(upto) => !self.is_proven(&catalog, id, upto, *golden).await,
            };
        }
        is_noticed
    }

    /// Whether anything at all is found wrong.
    async fn is_seen(&self) -> bool {
        self.is_noticed(How::Verified(Level::L2), |_| true).await
            || self.is_noticed(How::GivenBack, |_| true).await
    }

    /// Whether the backup reaches the level; what is believed of it then is true.
    async fn is_proven(
        &self,
        catalog: &Catalog,
        id: SnapshotId,
        upto: Level,
        golden: Golden,
    ) -> bool {
        let bench = &self.bench;
        let options = VerifyOptions {
            upto,
            now: minute(50),
            work_dir: bench.work_dir(),
        };
        let proof = verify(&bench.vault, catalog, id, &bench.keys, &options, &|_| {})
            .await
            .unwrap();
        if upto == Level::L2 && proof.level >= Some(Level::L1) {
            let believed = proof.evidence.hash_kv;
            assert_eq!(believed, Some(golden.1), "a wrong value was believed");
        }
        proof.flaws.is_empty() && proof.level >= Some(upto)
    }

    /// Whether the backup can be written out; if it can, it is what was backed up.
    async fn gives_back(&self, catalog: &Catalog, captured: &Captured, golden: Golden) -> bool {
        let bench = &self.bench;
        let file = bench.folder.path().join("exported.db");
        let backup = catalog.get(captured.manifest.id).unwrap();
        let places = (file.as_path(), bench.folder.path());
        let vault = bench.vault.read_only();
        let exported = rebuild::export(&vault, backup, &bench.keys, places, &|_| {}).await;
        if exported.is_err() {
            assert!(!file.exists(), "half an export was left");
            return false;
        }
        assert!(
            fs::read(&file).unwrap() == golden.bytes(),
            "wrong bytes were given back"
        );
        fs::remove_file(&file).unwrap();
        true
    }
}

/// The kind of object a file of the vault is: the folder its name says it is in.
fn kind(path: &Path) -> &'static str {
    const KINDS: [&str; 6] = [
        "parts",
        "manifests",
        "proofs",
        "ledger",
        "envelopes",
        "vault.json",
    ];
    let text = path.to_str().unwrap();
    KINDS
        .into_iter()
        .find(|kind| text.split('/').any(|word| word == *kind))
        .unwrap_or_else(|| panic!("an object of an unknown kind: {text}"))
}

fn flip(good: &[u8], n: u64) -> (usize, Vec<u8>) {
    let bits = u64::try_from(good.len()).unwrap() * 8;
    let bit = usize::try_from(scattered(n ^ 0xf11b) % bits).unwrap();
    let mut bad = good.to_vec();
    bad[bit / 8] ^= 1 << (bit % 8);
    (bit, bad)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_any_object_is_noticed_or_harmless() {
    let flips = rounds(3_000_u64, 30_000);
    let subject = Subject::new().await;
    let files: Vec<(PathBuf, Vec<u8>)> = subject
        .bench
        .files()
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for n in 0..flips {
        let pick = scattered(n) % u64::try_from(files.len()).unwrap();
        let (path, good) = &files[usize::try_from(pick).unwrap()];
        let (bit, bad) = flip(good, n);
        fs::write(path, &bad).unwrap();
        // The listing that all share and the backup that the object belongs to come first, by one
        // of the two readers in turn; only what passes that is put through everything.
        let first = if n % 4 == 0 {
            How::Verified(Level::L1)
        } else {
            How::GivenBack
        };
        let is_owner = |captured: &Captured| Subject::owns(captured, path);
        let is_noticed = subject.is_noticed(first, is_owner).await || subject.is_seen().await;
        fs::write(path, good).unwrap();
        let tally = tallies.entry(kind(path)).or_default();
        tally.noticed += usize::from(is_noticed);
        tally.harmless += usize::from(!is_noticed);
        // The marker says nothing that anything is decided from.
        let may_pass = kind(path) == "vault.json";
        let path = path.display();
        assert!(
            is_noticed || may_pass,
            "bit {bit} of {path} went unnoticed (flip {n})"
        );
    }
    println!("{tallies:?}");
    let sum: usize = tallies
        .values()
        .map(|tally| tally.noticed + tally.harmless)
        .sum();
    assert_eq!(u64::try_from(sum).unwrap(), flips);
    for kind in ["parts", "manifests", "proofs", "ledger"] {
        let tally = tallies[kind];
        assert!(
            tally.noticed > 50 && tally.harmless == 0,
            "{kind}: {tally:?}"
        );
    }
    assert!(!subject.is_seen().await, "everything is as it was");
}
