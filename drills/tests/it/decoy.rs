//! A drill never speaks to the cluster it rehearses the loss of, although the backup names it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use holdfast_drills::{DrillOptions, Outcome, Phase, run};
use holdfast_restore::offline::{SnapshotRestore, restore};
use holdfast_store::etcd_file::EtcdFile;
use sha2::{Digest as _, Sha256};

use super::stage::{SMALL, Stage, processes_in, targets};

/// What stands where production did. Whoever connects waits in its queue.
struct Decoy(TcpListener);

impl Decoy {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    fn assert_undisturbed(&self) {
        let answer = self.0.accept();
        let nobody = answer.expect_err("production was connected to");
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
    }
}

/// A snapshot of a cluster whose members are at these URLs, with a digest trailer.
fn snapshot_naming(stage: &Stage, urls: &[String]) -> std::path::PathBuf {
    let pairs: Vec<String> = urls
        .iter()
        .enumerate()
        .map(|(n, url)| format!("m{n}={url}"))
        .collect();
    let data_dir = stage.folder.path().join("production");
    restore(&SnapshotRestore {
        snapshot: SMALL.path(),
        data_dir: Some(data_dir.clone()),
        wal_dir: None,
        name: "m0".to_owned(),
        initial_cluster: pairs.join(","),
        initial_cluster_token: "production".to_owned(),
        initial_advertise_peer_urls: vec![urls[0].clone()],
        skip_hash_check: false,
        bump_revision: 0,
        mark_compacted: None,
        clear_alarms: false,
    })
    .unwrap();
    let mut bytes = fs::read(data_dir.join("member/snap/db")).unwrap();
    let members = EtcdFile::open(bytes.clone()).unwrap().members().unwrap();
    assert_eq!(members.len(), urls.len());
    assert!(members.iter().all(|one| urls.contains(&one.peer_urls[0])));
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    let path = stage.folder.path().join("production.db");
    fs::write(&path, bytes).unwrap();
    path
}

/// Addresses of the TCP sockets of the processes that work below `folder`, as the kernel writes
/// them: the host's bytes backwards, in hexadecimal.
fn addresses_in(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for process in processes_in(folder) {
        let process = Path::new("/proc").join(process);
        let descriptors = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let inodes: BTreeSet<String> = descriptors
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .filter_map(|target| {
                let text = target.to_str()?.strip_prefix("socket:[")?;
                Some(text.trim_end_matches(']').to_owned())
            })
            .collect();
        for table in ["net/tcp", "net/tcp6"] {
            let text = fs::read_to_string(process.join(table)).unwrap_or_default();
            for line in text.lines().skip(1) {
                let words: Vec<&str> = line.split_whitespace().collect();
                if inodes.contains(words[9]) {
                    found.extend([words[1].to_owned(), words[2].to_owned()]);
                }
            }
        }
    }
    found
}

/// 127.0.0.0/8, also as an IPv6 address, `::1`, or no peer at all.
fn is_loopback(address: &str) -> bool {
    let (host, port) = address.split_once(':').unwrap();
    let is_nobody = port == "0000" && host.bytes().all(|digit| digit == b'0');
    let is_v4 = host.ends_with("7F") && (host.len() == 8 || host.contains("FFFF0000"));
    is_nobody || is_v4 || host == "00000000000000000000000001000000"
}

#[tokio::test]
async fn a_drill_of_a_backup_that_names_production_connects_to_loopback_scratch_alone() {
    for target in targets() {
        let decoys = [Decoy::new(), Decoy::new(), Decoy::new()];
        let urls: Vec<String> = decoys.iter().map(Decoy::url).collect();
        let stage = Stage::new().await;
        let file = snapshot_naming(&stage, &urls);
        stage.backup_of(&file, SMALL.told()).await;
        let options = DrillOptions {
            target,
            ..stage.options()
        };
        let scratch = stage.scratch();
        let seen = std::sync::Mutex::new(BTreeSet::new());
        let look = |phase| {
            if matches!(phase, Phase::Decode | Phase::Check | Phase::Teardown) {
                seen.lock().unwrap().extend(addresses_in(&scratch));
            }
        };
        let vault = stage.vault.read_only();
        let report = run(&options, &vault, &stage.keys, &look).await.unwrap();
        assert_eq!(report.outcome, Outcome::Passed, "{report}");
        let seen = seen.into_inner().unwrap();
        assert!(
            seen.len() > 1,
            "the member's sockets were looked at: {seen:?}"
        );
        let strange: Vec<&String> = seen.iter().filter(|one| !is_loopback(one)).collect();
        assert_eq!(strange, Vec::<&String>::new());
        for decoy in &decoys {
            decoy.assert_undisturbed();
        }
    }
}

#[test]
fn a_decoy_notices_whoever_connects() {
    let decoy = Decoy::new();
    let _visit = std::net::TcpStream::connect(decoy.0.local_addr().unwrap()).unwrap();
    let noticed = std::panic::catch_unwind(|| decoy.assert_undisturbed());
    assert!(noticed.is_err());
    assert!(is_loopback("0100007F:1F90") && is_loopback("00000000:0000"));
    assert!(!is_loopback("0100000A:094B") && !is_loopback("00000000:094B"));
}
