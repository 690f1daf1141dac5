//! The format does not change: a log is written as by the first that wrote its version, and a log
//! of each version is read.

use std::path::Path;

use openraft::RaftLogReader as _;
use openraft::storage::RaftLogStorage as _;
use tempfile::TempDir;

use super::super::types::{LogEntry, Membership, Payload, PeerNode, Vote, log_id};
use super::tests::{append, entry};
use super::*;

const IDENTITY: LogIdentity = LogIdentity {
    cluster: 0x0123_4567_89ab_cdef,
    member: 0xfedc,
};

fn golden(version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/raft-log");
    folder.join(format!("v{version}"))
}

fn options(dir: &Path) -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::new(dir, IDENTITY)
    }
}

/// Every kind of record, over two segments.
async fn write(dir: &Path) {
    let mut log = RaftLog::open(&options(dir)).unwrap();
    log.save_vote(&Vote::new(1, 0xfedc)).await.unwrap();
    log.save_vote(&Vote::new_committed(1, 0xfedc))
        .await
        .unwrap();
    let node = PeerNode {
        peer_urls: vec!["http://127.0.0.1:2380".to_owned()],
        ..PeerNode::default()
    };
    let membership = Membership::new(
        vec![[0xfedc].into()],
        [(0xfedc, node)]
            .into_iter()
            .collect::<std::collections::BTreeMap<_, _>>(),
    )
    .unwrap();
    append(
        &mut log,
        [LogEntry {
            log_id: log_id(0, 0),
            payload: Payload::Membership(membership),
        }],
    )
    .await;
    append(
        &mut log,
        [LogEntry {
            log_id: log_id(1, 1),
            payload: Payload::Blank,
        }],
    )
    .await;
    append(&mut log, [entry(1, 2, 100), entry(1, 3, 0)]).await;
    log.save_committed(Some(log_id(1, 3))).await.unwrap();
    while log.read_committed().await.unwrap() != Some(log_id(1, 3)) {
        tokio::task::yield_now().await;
    }
    append(&mut log, [entry(1, 4, 10), entry(1, 5, 10)]).await;
    log.truncate_after(Some(log_id(1, 4))).await.unwrap();
    append(&mut log, [entry(2, 5, 40_000)]).await;
    append(&mut log, [entry(2, 6, 40_000)]).await;
    log.purge(log_id(0, 0)).await.unwrap();
}

fn segments(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let sequences = segment::Segment::list(dir).unwrap();
    sequences
        .into_iter()
        .map(|sequence| {
            let path = segment::Segment::path(dir, sequence);
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

#[tokio::test]
async fn the_same_log_has_the_same_bytes_as_the_first_of_its_version() {
    let golden = golden(SEGMENT_VERSION);
    let dir = TempDir::new().unwrap();
    write(dir.path()).await;
    let written = segments(dir.path());
    if std::env::var_os("HOLDFAST_WRITE_GOLDEN").is_some() {
        for (name, bytes) in &written {
            std::fs::write(golden.join(name), bytes).unwrap();
        }
    }
    assert_eq!(written.len(), 2);
    assert!(
        written == segments(&golden),
        "the bytes differ from {}",
        golden.display()
    );
}

#[tokio::test]
async fn a_log_of_each_version_is_read() {
    for version in 1..=SEGMENT_VERSION {
        assert_is_read(&golden(version)).await;
    }
}

async fn assert_is_read(golden: &Path) {
    let dir = TempDir::new().unwrap();
    for (name, bytes) in segments(golden) {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let mut log = RaftLog::open(&options(dir.path())).unwrap();
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id(0, 0)));
    assert_eq!(state.last_log_id, Some(log_id(2, 6)));
    assert_eq!(log.read_committed().await.unwrap(), Some(log_id(1, 3)));
    let mut reader = log.reader();
    assert_eq!(
        reader.read_vote().await.unwrap(),
        Some(Vote::new_committed(1, 0xfedc))
    );
    let ids: Vec<_> = reader
        .try_get_log_entries(..)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| (entry.log_id.leader_id.term, entry.log_id.index))
        .collect();
    assert_eq!(ids, [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)]);
}
