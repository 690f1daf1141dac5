//! One bit of one object in the vault is flipped: never a wrong value restored, never a panic.
//!
//! 1,000 flips by default; `HOLDFAST_FLIPS` asks for another number.

use std::fs;

use holdfast_policies::Level;
use holdfast_restore::part::PartRecord;
use holdfast_restore::{Catalog, Digest, VerifyOptions, proof, verify};

use super::bench::{BASIC, Bench, SMALL, minute};

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

#[tokio::test]
async fn a_flipped_bit_in_any_object_is_noticed_or_harmless() {
    let flips: u64 = std::env::var("HOLDFAST_FLIPS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1_000);
    let bench = Bench::new().await;
    let first = bench.backup(BASIC, minute(0)).await;
    let second = bench.backup(SMALL, minute(1)).await;
    for captured in [&first, &second] {
        let proof = bench.verify(captured.manifest.id, Level::L2).await;
        proof::record(&bench.vault, &proof, &bench.signer)
            .await
            .unwrap();
    }
    let files = bench.files();
    let mut noticed = 0;
    for n in 0..flips {
        let pick = usize::try_from(scattered(n) % u64::try_from(files.len()).unwrap()).unwrap();
        let path = &files[pick];
        let good = fs::read(path).unwrap();
        let bits = u64::try_from(good.len()).unwrap() * 8;
        let bit = usize::try_from(scattered(n ^ 0xf11b) % bits).unwrap();
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(path, &bad).unwrap();
        let was_noticed = check(&bench).await;
        fs::write(path, &good).unwrap();
        // The marker says nothing that anything is decided from.
        let is_marker = path.ends_with("vault.json");
        assert!(
            was_noticed || is_marker,
            "bit {bit} of {} went unnoticed",
            path.display()
        );
        noticed += u64::from(was_noticed);
    }
    assert!(noticed * 10 > flips * 8, "{noticed} of {flips} noticed");
    assert!(!check(&bench).await, "everything is as it was");
}

/// Whether anything is found wrong; what is believed must be what was stored.
async fn check(bench: &Bench) -> bool {
    let trust = &bench.keys.trust;
    let Ok(vault) = Catalog::load(&bench.vault, &bench.cluster, trust, None).await else {
        return true;
    };
    let mut is_wrong = !vault.flaws.is_empty() || vault.backups.len() != 2;
    for backup in &vault.backups {
        let options = VerifyOptions {
            upto: Level::L2,
            now: minute(50),
            work_dir: bench.work_dir(),
        };
        let id = backup.id();
        let proof = verify(&bench.vault, &vault, id, &bench.keys, &options, &|_| {})
            .await
            .unwrap();
        let expected = if backup.manifest.sequence.0 == 1 {
            BASIC
        } else {
            SMALL
        };
        if proof.level >= Some(Level::L1) {
            assert_eq!(
                proof.evidence.hash_kv,
                Some(expected.1),
                "a wrong value was believed"
            );
        } else {
            is_wrong = true;
        }
    }
    is_wrong
}
