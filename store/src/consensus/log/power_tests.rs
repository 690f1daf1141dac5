//! Power is lost at every step of a fixed workload, with unsynced sectors lost, reordered and torn:
//! the log opens, and holds everything that was acknowledged and nothing that was never written.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use bytes::Bytes;
use openraft::RaftLogReader as _;
use openraft::storage::RaftLogStorage as _;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;

use super::super::types::{Payload, Vote, log_id};
use super::segment::SEGMENT_HEADER_BYTES;
use super::tests::{append, entry, followed_at};
use super::*;

/// Smallest piece a disk writes whole.
const SECTOR: usize = 512;
/// Disks made for each step of the workload.
const IMAGES: u64 = 12;
const IDENTITY: LogIdentity = LogIdentity {
    cluster: 0xc1,
    member: 0xa1,
};

/// The bytes of each segment.
type Disk = BTreeMap<u64, Vec<u8>>;
/// What was read back: the vote, and term, index and body of every entry.
type Held = (Option<Vote>, Vec<(u64, u64, Bytes)>);

/// Remembers what every file held when it was synced for the first and for the last time.
#[derive(Debug, Default)]
struct Recorder {
    first: Mutex<BTreeMap<u64, Vec<u8>>>,
    synced: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl LogIo for Recorder {
    fn sync(&self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = file.metadata()?;
        let mut bytes = vec![0; usize::try_from(metadata.len()).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        DiskIo.sync(file)?;
        self.first
            .lock()
            .entry(metadata.ino())
            .or_insert_with(|| bytes.clone());
        self.synced.lock().insert(metadata.ino(), bytes);
        Ok(())
    }
}

/// One step: what was on the disk once it was acknowledged, and what has to be read from it.
struct Step {
    disk: Disk,
    held: Held,
}

fn fast_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return TempDir::new_in(memory).unwrap();
    }
    TempDir::new().unwrap()
}

fn options(dir: &Path, io: Arc<dyn LogIo>) -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        io,
        ..LogOptions::new(dir, IDENTITY)
    }
}

async fn held(log: &RaftLog) -> Held {
    let mut reader = log.reader();
    let entries = reader.try_get_log_entries(..).await.expect("readable");
    let entries = entries.into_iter().map(|entry| {
        let Payload::Normal(proposal) = entry.payload else {
            panic!("a command")
        };
        (
            entry.log_id.leader_id.term,
            entry.log_id.index,
            proposal.encoded,
        )
    });
    let entries = entries.collect();
    (reader.read_vote().await.expect("readable"), entries)
}

/// The segments in `dir`; each was synced with its head alone, before it got its name, and later
/// with the very bytes it holds.
fn synced_disk(dir: &Path, recorder: &Recorder) -> Disk {
    use std::os::unix::fs::MetadataExt as _;
    let mut disk = Disk::new();
    for sequence in segment::Segment::list(dir).unwrap() {
        let path = segment::Segment::path(dir, sequence);
        let inode = std::fs::metadata(&path).unwrap().ino();
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            recorder.synced.lock().get(&inode) == Some(&bytes),
            "segment {sequence}: acknowledged without a sync"
        );
        let head = &recorder.first.lock()[&inode];
        assert!(
            head[after_head(sequence, head)..]
                .iter()
                .all(|byte| *byte == 0),
            "segment {sequence}: named before its head was durable"
        );
        disk.insert(sequence, bytes);
    }
    disk
}

/// Appends of all sizes, votes, truncations and purges, each waited for.
async fn workload(dir: &Path) -> Vec<Step> {
    let recorder = Arc::new(Recorder::default());
    let mut log = RaftLog::open(&options(dir, recorder.clone())).unwrap();
    let mut random = StdRng::seed_from_u64(1);
    let (mut term, mut next, mut purged) = (1, 1, 0);
    let mut steps = Vec::new();
    for step in 0..150_u64 {
        if step > 0 {
            match step % 15 {
                4 => {
                    term += 1;
                    log.save_vote(&Vote::new(term, 7)).await.unwrap();
                }
                8 if next > purged + 4 => {
                    next -= 2;
                    log.truncate_after(Some(log_id(term_at(&steps, next - 1), next - 1)))
                        .await
                        .unwrap();
                }
                12 if next > purged + 40 => {
                    purged = next - 20;
                    log.purge(log_id(term_at(&steps, purged), purged))
                        .await
                        .unwrap();
                }
                _ => {
                    let size = random.random_range(1..6);
                    let bytes = random.random_range(1..2_500);
                    let batch = (next..next + size).map(|index| entry(term, index, bytes));
                    append(&mut log, batch).await;
                    next += size;
                }
            }
        }
        steps.push(Step {
            disk: synced_disk(dir, &recorder),
            held: held(&log).await,
        });
    }
    assert!(recorder.synced.lock().len() > 3, "the log rolled over");
    steps
}

/// The term of the entry at `index`, as the newest step has it.
fn term_at(steps: &[Step], index: u64) -> u64 {
    let entries = &steps.last().unwrap().held.1;
    let found = entries.iter().find(|(_, at, _)| *at == index);
    found.expect("an entry that is there").0
}

/// Where the record that every segment begins with ends.
fn after_head(segment: u64, bytes: &[u8]) -> usize {
    let place = record::Place {
        segment,
        offset: SEGMENT_HEADER_BYTES,
    };
    let start = usize::try_from(SEGMENT_HEADER_BYTES).unwrap();
    start + record::decode(&bytes[start..], place).unwrap().bytes
}

/// `old` with a part of what `new` changes: some of its sectors, and one of them torn.
fn partly(old: &[u8], new: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = old.to_vec();
    let chance = [0.0, 0.3, 0.7, 0.95, 1.0][random.random_range(0..5)];
    for (to, from) in bytes.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
        if to != from && random.random_bool(chance) {
            to.copy_from_slice(from);
        }
    }
    bytes
}

/// A disk that a loss of power between two steps can leave behind.
fn wreck(before: &Disk, after: &Disk, random: &mut StdRng) -> Disk {
    let mut disk = before.clone();
    // A purge is durable before the first segment goes, and each goes for good before the next.
    let gone: Vec<u64> = before
        .keys()
        .filter(|at| !after.contains_key(at))
        .copied()
        .collect();
    let removed = random.random_range(0..=gone.len());
    for sequence in &gone[..removed] {
        disk.remove(sequence);
    }
    // A segment is whole before the next gets its name, with its head.
    let made: Vec<u64> = after
        .keys()
        .filter(|at| !before.contains_key(at))
        .copied()
        .collect();
    let present = random.random_range(0..=made.len());
    for sequence in &made[..present] {
        let new = &after[sequence];
        let mut begun = new.clone();
        begun[after_head(*sequence, new)..].fill(0);
        disk.insert(*sequence, begun);
    }
    let last = *disk.keys().last().unwrap();
    for (sequence, bytes) in &mut disk {
        let Some(new) = after.get(sequence) else {
            continue;
        };
        let mut new = new.clone();
        // That the next is there is said once it has its name.
        let is_new = !before.contains_key(&(sequence + 1));
        if is_new
            && (*sequence == last || (sequence + 1 == last && random.random()))
            && let Some(followed) = followed_at(&new, *sequence)
        {
            new[followed..].fill(0);
        }
        let new = &new;
        let is_whole = *sequence < last || removed > 0;
        *bytes = if is_whole {
            new.clone()
        } else {
            partly(bytes, new, random)
        };
    }
    disk
}

/// Whether `found` is `before`, `after`, or `before` with the first of the entries added since.
fn is_between(found: &Held, before: &Held, after: &Held) -> bool {
    let is_vote = found.0 == before.0 || found.0 == after.0;
    let is_part = after.1.starts_with(&found.1) && found.1.starts_with(&before.1);
    is_vote && (found.1 == before.1 || found.1 == after.1 || is_part)
}

#[tokio::test]
async fn a_loss_of_power_at_any_step_keeps_what_was_acknowledged() {
    let steps = {
        let dir = fast_folder();
        workload(dir.path()).await
    };
    let (mut cut, mut whole) = (0, 0);
    for (at, pair) in steps.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        for image in 0..IMAGES {
            let seed = u64::try_from(at).unwrap() * IMAGES + image;
            let mut random = StdRng::seed_from_u64(seed);
            let dir = fast_folder();
            for (sequence, bytes) in wreck(&before.disk, &after.disk, &mut random) {
                std::fs::write(segment::Segment::path(dir.path(), sequence), bytes).unwrap();
            }
            if image % 3 == 0 {
                let spare = segment::Segment::spare_path(dir.path());
                std::fs::write(spare, vec![0; random.random_range(0..65_536)]).unwrap();
            }
            let mut log = RaftLog::open(&options(dir.path(), Arc::new(DiskIo)))
                .unwrap_or_else(|error| panic!("step {at}, image {image}: {error}"));
            let found = held(&log).await;
            assert!(
                is_between(&found, &before.held, &after.held),
                "step {at}, image {image}: {} entries, {} before, {} after",
                found.1.len(),
                before.held.1.len(),
                after.held.1.len()
            );
            cut += u32::from(found == before.held);
            whole += u32::from(found == after.held);
            // It goes on from there.
            let last = log.get_log_state().await.unwrap().last_log_id;
            let next = last.map_or(0, |last| last.index) + 1;
            append(&mut log, [entry(99, next, 100)]).await;
            drop(log);
            let log = RaftLog::open(&options(dir.path(), Arc::new(DiskIo)))
                .unwrap_or_else(|error| panic!("step {at}, image {image}, again: {error}"));
            let again = held(&log).await;
            assert_eq!(again.1.len(), found.1.len() + 1, "step {at}, image {image}");
            assert_eq!(
                again.1[..found.1.len()],
                found.1[..],
                "step {at}, image {image}"
            );
        }
    }
    assert!(cut > 200 && whole > 200, "{cut} cut, {whole} whole");
}
