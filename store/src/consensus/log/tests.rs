//! The log on a real disk: restarts, torn ends, damage, purges.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use openraft::RaftLogReader as _;
use openraft::storage::{RaftLogStorage as _, RaftLogStorageExt as _};
use tempfile::TempDir;

use super::super::types::{LogEntry, Payload, Proposal, Vote, log_id};
use super::*;
use crate::command::{Command, Request};
use holdfast_proto::etcd::rpc::PutRequest;

const IDENTITY: LogIdentity = LogIdentity {
    cluster: 0xc1,
    member: 0xa1,
};

fn options(dir: &Path) -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::new(dir, IDENTITY)
    }
}

fn open(dir: &Path) -> RaftLog {
    RaftLog::open(&options(dir)).expect("the log opens")
}

pub(super) fn entry(term: u64, index: u64, value_bytes: usize) -> LogEntry {
    let put = PutRequest {
        key: Bytes::from(format!("key-{index}")),
        value: Bytes::from(vec![u8::try_from(index % 251).expect("small"); value_bytes]),
        ..PutRequest::default()
    };
    let command = Command {
        id: index,
        request: Some(Request::Put(put)),
    };
    LogEntry {
        log_id: log_id(term, index),
        payload: Payload::Normal(Proposal::new(command)),
    }
}

pub(super) async fn append(log: &mut RaftLog, entries: impl IntoIterator<Item = LogEntry>) {
    let entries: Vec<_> = entries.into_iter().collect();
    log.blocking_append(entries)
        .await
        .expect("the append is durable");
}

/// (term, index, encoded) of every entry.
async fn contents(log: &RaftLog) -> Vec<(u64, u64, Bytes)> {
    let entries = log
        .reader()
        .try_get_log_entries(..)
        .await
        .expect("readable");
    entries
        .into_iter()
        .map(|entry| {
            let Payload::Normal(proposal) = entry.payload else {
                panic!("a command")
            };
            (
                entry.log_id.leader_id.term,
                entry.log_id.index,
                proposal.encoded,
            )
        })
        .collect()
}

fn segment(dir: &Path, sequence: u64) -> PathBuf {
    segment::Segment::path(dir, sequence)
}

#[tokio::test]
async fn entries_and_vote_survive_a_restart() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    log.save_vote(&Vote::new_committed(3, 7)).await.unwrap();
    append(&mut log, (1..=10).map(|index| entry(3, index, 100))).await;
    log.save_committed(Some(log_id(3, 9))).await.unwrap();
    append(&mut log, [entry(3, 11, 100)]).await;
    let before = contents(&log).await;
    drop(log);

    let mut log = open(dir.path());
    assert_eq!(contents(&log).await, before);
    assert_eq!(
        log.reader().read_vote().await.unwrap(),
        Some(Vote::new_committed(3, 7))
    );
    assert_eq!(log.read_committed().await.unwrap(), Some(log_id(3, 9)));
    assert_eq!(
        log.get_log_state().await.unwrap().last_log_id,
        Some(log_id(3, 11))
    );
}

#[tokio::test]
async fn a_committed_position_needs_no_later_write_to_survive_a_kill() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    append(&mut log, [entry(1, 1, 10)]).await;
    log.save_committed(Some(log_id(1, 1))).await.unwrap();
    drop(log);
    let mut log = open(dir.path());
    assert_eq!(log.read_committed().await.unwrap(), Some(log_id(1, 1)));
}

#[tokio::test]
async fn the_log_rolls_over_and_a_purge_deletes_whole_segments() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    log.save_vote(&Vote::new(1, 1)).await.unwrap();
    for index in 1..=100 {
        append(&mut log, [entry(1, index, 4000)]).await;
    }
    let segments = segment::Segment::list(dir.path()).unwrap().len();
    assert!(segments > 5, "{segments} segments");
    log.purge(log_id(1, 90)).await.unwrap();
    assert!(segment::Segment::list(dir.path()).unwrap().len() <= 3);
    let before = contents(&log).await;
    assert_eq!(before.len(), 10);
    drop(log);

    let mut log = open(dir.path());
    assert_eq!(contents(&log).await, before);
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id(1, 90)));
    assert_eq!(
        log.reader().read_vote().await.unwrap(),
        Some(Vote::new(1, 1))
    );
    append(&mut log, [entry(1, 101, 10)]).await;
}

/// A closed log that has just begun its second segment: the last entry's index.
async fn rolled_over(dir: &Path) -> u64 {
    let mut log = open(dir);
    let mut index = 0;
    while segment::Segment::list(dir).unwrap().len() < 2 {
        index += 1;
        append(&mut log, [entry(1, index, 4000)]).await;
    }
    index
}

#[tokio::test]
async fn a_crash_between_the_end_of_a_segment_and_the_next_one_is_continued() {
    let dir = TempDir::new().unwrap();
    let index = rolled_over(dir.path()).await;
    // The entry that rolled the log over was not acknowledged yet: its segment never came to be.
    std::fs::remove_file(segment(dir.path(), 2)).unwrap();
    forget_followed(&segment(dir.path(), 1), 1);
    for next in [index, index + 1] {
        let mut log = open(dir.path());
        append(&mut log, [entry(1, next, 10)]).await;
    }
    let log = open(dir.path());
    assert_eq!(
        contents(&log).await.len(),
        usize::try_from(index).unwrap() + 1
    );
}

#[tokio::test]
async fn an_entry_larger_than_a_segment_gets_one_of_its_own() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    append(
        &mut log,
        [entry(1, 1, 10), entry(1, 2, 300 << 10), entry(1, 3, 10)],
    )
    .await;
    let before = contents(&log).await;
    drop(log);
    assert_eq!(contents(&open(dir.path())).await, before);
}

#[tokio::test]
async fn truncated_entries_stay_gone_and_new_ones_take_their_place() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    append(&mut log, (1..=10).map(|index| entry(1, index, 10))).await;
    log.truncate_after(Some(log_id(1, 4))).await.unwrap();
    append(&mut log, [entry(2, 5, 10), entry(2, 6, 10)]).await;
    let before = contents(&log).await;
    assert_eq!(before.len(), 6);
    drop(log);
    assert_eq!(contents(&open(dir.path())).await, before);
}

/// Appends three batches and returns the bytes of the segment and where each batch ended.
async fn three_batches(dir: &Path) -> (Vec<u8>, Vec<(u64, u64, Bytes)>, Vec<usize>) {
    let mut log = open(dir);
    let mut ends = Vec::new();
    for batch in 0..3 {
        append(&mut log, (1..=4).map(|at| entry(1, batch * 4 + at, 40))).await;
        let bytes = std::fs::read(segment(dir, 1)).unwrap();
        ends.push(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    }
    let all = contents(&log).await;
    drop(log);
    (std::fs::read(segment(dir, 1)).unwrap(), all, ends)
}

#[tokio::test]
async fn a_torn_end_of_the_newest_batch_is_cut_at_every_length() {
    let dir = TempDir::new().unwrap();
    let (bytes, all, ends) = three_batches(dir.path()).await;
    for keep in ends[1]..ends[2] {
        let mut torn = bytes.clone();
        torn[keep..].fill(0);
        std::fs::write(segment(dir.path(), 1), &torn).unwrap();
        let mut log = open(dir.path());
        let found = contents(&log).await;
        assert!(
            found.len() >= 8 && found[..] == all[..found.len()],
            "kept {keep} bytes"
        );
        let next = u64::try_from(found.len()).unwrap() + 1;
        append(&mut log, [entry(2, next, 10)]).await;
        drop(log);
        assert_eq!(contents(&open(dir.path())).await.len(), found.len() + 1);
    }
}

/// Found by the simulation, seed 2.
#[tokio::test]
async fn a_committed_position_that_was_lost_before_a_batch_that_was_not_is_no_damage() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    append(&mut log, [entry(1, 1, 100)]).await;
    let path = segment(dir.path(), 1);
    let before = std::fs::read(&path).unwrap();
    log.save_committed(Some(log_id(1, 1))).await.unwrap();
    append(&mut log, [entry(1, 2, 100)]).await;
    drop(log);
    let mut bytes = std::fs::read(&path).unwrap();
    let lost = (0..bytes.len())
        .find(|at| bytes[*at] != before[*at])
        .unwrap();
    // The power failed before the sync: the second write arrived, the first did not.
    let lost = lost / record::RECORD_ALIGN * record::RECORD_ALIGN;
    let committed = record::decode(&bytes[lost..], place(lost)).unwrap();
    assert_eq!(
        committed.record,
        record::Record::Committed(Some(log_id(1, 1)))
    );
    bytes[lost..lost + committed.bytes].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let log = open(dir.path());
    let indexes: Vec<u64> = contents(&log).await.iter().map(|(_, at, _)| *at).collect();
    assert_eq!(indexes, [1], "the second entry was acknowledged to nobody");
}

fn place(offset: usize) -> record::Place {
    record::Place {
        segment: 1,
        offset: u64::try_from(offset).unwrap(),
    }
}

#[tokio::test]
async fn a_flipped_bit_is_refused_or_cuts_unacknowledged_entries_but_never_changes_one() {
    let dir = TempDir::new().unwrap();
    let (bytes, all, ends) = three_batches(dir.path()).await;
    let (mut refused, mut cut) = (0, 0);
    for at in 0..ends[2] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(segment(dir.path(), 1), &flipped).unwrap();
        match RaftLog::open(&options(dir.path())) {
            Ok(log) => {
                let found = contents(&log).await;
                assert_eq!(found[..], all[..found.len()], "byte {at}");
                let is_padding = found.len() == all.len();
                assert!(at >= ends[1] - 8 || is_padding, "byte {at} was durable");
                cut += usize::from(!is_padding);
            }
            Err(LogError::Damaged { offset, .. }) => {
                assert!(usize::try_from(offset).unwrap() <= at, "byte {at}");
                refused += 1;
            }
            Err(LogError::Version { .. } | LogError::Identity { .. }) => refused += 1,
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(refused > 400 && cut > 100, "{refused} refused, {cut} cut");
}

#[tokio::test]
async fn damage_in_a_finished_segment_names_it_and_the_offset() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    for index in 1..=60 {
        append(&mut log, [entry(1, index, 4000)]).await;
    }
    drop(log);
    let file = File::options()
        .read(true)
        .write(true)
        .open(segment(dir.path(), 2))
        .unwrap();
    file.write_all_at(&[0xff; 16], 9000).unwrap();
    let error = RaftLog::open(&options(dir.path())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LogError::Damaged { .. }), "{text}");
    assert!(text.contains("0000000000000002.log"), "{text}");
}

/// Takes back that the finished segment at `path` says that the next one is there.
pub(super) fn forget_followed(path: &Path, sequence: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    let followed = followed_at(&bytes, sequence).expect("a finished segment");
    bytes[followed..].fill(0);
    std::fs::write(path, bytes).unwrap();
}

/// Where a segment says that the next one is there.
pub(super) fn followed_at(bytes: &[u8], sequence: u64) -> Option<usize> {
    let mut at = usize::try_from(segment::SEGMENT_HEADER_BYTES).unwrap();
    loop {
        let place = record::Place {
            segment: sequence,
            offset: u64::try_from(at).unwrap(),
        };
        let found = record::decode(&bytes[at..], place)?;
        if found.record == record::Record::Followed {
            return Some(at);
        }
        at += found.bytes;
    }
}

#[tokio::test]
async fn a_segment_that_a_crash_left_without_a_word_in_the_one_before_is_missed_afterwards() {
    let dir = TempDir::new().unwrap();
    let index = rolled_over(dir.path()).await;
    forget_followed(&segment(dir.path(), 1), 1);
    let log = open(dir.path());
    assert_eq!(
        contents(&log).await.len(),
        usize::try_from(index).unwrap(),
        "the crash lost nothing"
    );
    drop(log);
    std::fs::remove_file(segment(dir.path(), 2)).unwrap();
    let error = RaftLog::open(&options(dir.path())).unwrap_err();
    assert!(matches!(error, LogError::Missing { .. }), "{error}");
}

#[tokio::test]
async fn a_missing_segment_is_refused_wherever_it_was() {
    let newest = {
        let dir = TempDir::new().unwrap();
        let mut log = open(dir.path());
        for index in 1..=80 {
            append(&mut log, [entry(1, index, 4000)]).await;
        }
        segment::Segment::list(dir.path()).unwrap().len()
    };
    for missing in [1, 3, u64::try_from(newest).unwrap()] {
        let dir = TempDir::new().unwrap();
        let mut log = open(dir.path());
        for index in 1..=80 {
            append(&mut log, [entry(1, index, 4000)]).await;
        }
        drop(log);
        std::fs::remove_file(segment(dir.path(), missing)).unwrap();
        let error = RaftLog::open(&options(dir.path())).unwrap_err();
        let LogError::Missing { segment: named } = error else {
            panic!("{error}");
        };
        assert_eq!(named, segment(dir.path(), missing));
    }
}

#[tokio::test]
async fn a_log_of_another_member_is_refused_with_both_ids() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()));
    let other = LogIdentity {
        cluster: 0xc1,
        member: 0xb2,
    };
    let error = RaftLog::open(&LogOptions::new(dir.path(), other)).unwrap_err();
    assert!(
        error.to_string().contains("a1") && error.to_string().contains("b2"),
        "{error}"
    );
}

#[derive(Debug, Default)]
struct FailingIo {
    is_failing: AtomicBool,
}

impl LogIo for FailingIo {
    fn sync(&self, file: &File) -> io::Result<()> {
        if self.is_failing.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected"));
        }
        DiskIo.sync(file)
    }
}

#[tokio::test]
async fn one_failed_sync_is_final() {
    let dir = TempDir::new().unwrap();
    let failing = Arc::new(FailingIo::default());
    let options = LogOptions {
        io: failing.clone(),
        ..options(dir.path())
    };
    let mut log = RaftLog::open(&options).unwrap();
    append(&mut log, [entry(1, 1, 10)]).await;
    failing.is_failing.store(true, Ordering::Relaxed);
    assert!(log.blocking_append([entry(1, 2, 10)]).await.is_err());
    failing.is_failing.store(false, Ordering::Relaxed);
    assert!(
        log.blocking_append([entry(1, 3, 10)]).await.is_err(),
        "no retry after a failure"
    );
    assert!(log.save_vote(&Vote::new(2, 1)).await.is_err());
    assert!(log.purge(log_id(1, 1)).await.is_err());
}

#[tokio::test]
async fn entries_that_left_the_cache_are_read_back_and_checked() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    append(&mut log, (1..=20).map(|index| entry(1, index, 100))).await;
    let before = contents(&log).await;
    drop(log);
    // After a restart nothing is cached.
    let log = open(dir.path());
    assert_eq!(contents(&log).await, before);
    let file = File::options()
        .write(true)
        .open(segment(dir.path(), 1))
        .unwrap();
    file.write_all_at(&[0xee; 4], 600).unwrap();
    let error = log.reader().try_get_log_entries(..).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn a_hole_or_an_overlap_is_refused() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    append(&mut log, [entry(1, 1, 10)]).await;
    assert!(log.blocking_append([entry(1, 3, 10)]).await.is_err());
    assert!(log.blocking_append([entry(1, 1, 10)]).await.is_err());
    append(&mut log, [entry(1, 2, 10)]).await;
}

#[tokio::test]
async fn many_appends_share_one_sync() {
    #[derive(Debug, Default)]
    struct Counting(std::sync::atomic::AtomicUsize);
    impl LogObserver for Counting {
        fn synced(&self, _elapsed: Duration, _bytes: usize) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dir = TempDir::new().unwrap();
    let counting = Arc::new(Counting::default());
    let options = LogOptions {
        observer: Some(counting.clone()),
        ..options(dir.path())
    };
    let mut log = RaftLog::open(&options).unwrap();
    let mut waits = Vec::new();
    for index in 1..=500 {
        let (done, result) =
            <super::super::types::TypeConfig as openraft::type_config::TypeConfigExt>::oneshot();
        let callback = openraft::storage::IOFlushed::signal(done);
        log.append([entry(1, index, 10)], callback).await.unwrap();
        waits.push(result);
    }
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    let syncs = counting.0.load(Ordering::Relaxed);
    assert!(syncs < 250, "{syncs} syncs for 500 appends");
}

/// The spare's inode, once it is whole.
async fn spare(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let found = std::fs::metadata(segment::Segment::spare_path(dir));
        if let Ok(found) = found
            && found.len() == 64 << 10
            && found.blocks() * 512 >= found.len()
        {
            return found.ino();
        }
        assert!(tokio::time::Instant::now() < deadline, "no spare");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_spare_that_an_earlier_run_left_is_used_and_one_that_was_begun_is_not() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()));
    let first = spare(dir.path()).await;
    drop(open(dir.path()));
    assert_eq!(spare(dir.path()).await, first);

    let begun = segment::Segment::spare_path(dir.path());
    let begun = std::fs::OpenOptions::new().write(true).open(begun).unwrap();
    begun.write_all_at(b"HFRAFTLG", 0).unwrap();
    let mut log = open(dir.path());
    for index in 1..=40 {
        append(&mut log, [entry(1, index, 4000)]).await;
    }
    let before = contents(&log).await;
    drop(log);
    assert_eq!(contents(&open(dir.path())).await, before);
    assert_ne!(spare(dir.path()).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn single_entries_and_batches_in_turn_keep_their_order() {
    let dir = TempDir::new().unwrap();
    let mut log = open(dir.path());
    let mut next = 1;
    for round in 0..200 {
        let count = if round % 3 == 0 { 5 } else { 1 };
        let entries: Vec<_> = (next..next + count)
            .map(|index| entry(1, index, 300))
            .collect();
        append(&mut log, entries).await;
        log.save_committed(Some(log_id(1, next))).await.unwrap();
        next += count;
    }
    let before = contents(&log).await;
    drop(log);
    let log = open(dir.path());
    let indexes: Vec<u64> = contents(&log).await.iter().map(|found| found.1).collect();
    assert_eq!(indexes, (1..next).collect::<Vec<_>>());
    assert_eq!(contents(&log).await, before);
}
