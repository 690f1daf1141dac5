//! Storage that remembers every operation, and the disks a loss of power could leave behind.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

/// Smallest piece a disk writes whole.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Write { offset: usize, data: Vec<u8> },
    SetLen(usize),
    Sync,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    is_recording: bool,
}

/// Storage in memory that can be looked into, shared by its clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<Content>>);

impl Disk {
    /// A disk that holds `bytes`.
    pub(crate) fn new(bytes: Vec<u8>, is_recording: bool) -> Self {
        let content = Content {
            bytes,
            operations: Vec::new(),
            is_recording,
        };
        Self(Arc::new(Mutex::new(content)))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }

    pub(crate) fn flip(&self, bit: usize) {
        self.0.lock().bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// How many operations there were so far.
    pub(crate) fn position(&self) -> usize {
        self.0.lock().operations.len()
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.0.lock().operations.clone()
    }
}

impl Content {
    fn record(&mut self, operation: impl FnOnce() -> Operation) {
        if self.is_recording {
            self.operations.push(operation());
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(u64::try_from(self.0.lock().bytes.len()).unwrap())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let content = self.0.lock();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let source = offset
            .checked_add(out.len())
            .and_then(|end| content.bytes.get(offset..end))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(source);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        // A damaged file may ask for anything.
        if len > 1 << 28 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut content = self.0.lock();
        content.record(|| Operation::SetLen(len));
        content.bytes.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.lock().record(|| Operation::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut content = self.0.lock();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        content.record(|| Operation::Write {
            offset,
            data: data.to_vec(),
        });
        write_at(&mut content.bytes, offset, data);
        Ok(())
    }
}

fn write_at(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

fn perform(bytes: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Write { offset, data } => write_at(bytes, *offset, data),
        Operation::SetLen(len) => bytes.resize(*len, 0),
        Operation::Sync => {}
    }
}

/// A reproducible source of choices.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap() % end.max(1)
    }
}

/// Walks along a recording and makes the disks that a loss of power could leave at each point.
#[derive(Debug, Clone)]
pub(crate) struct Wreckage<'log> {
    operations: &'log [Operation],
    /// What is on the disk for certain: everything up to the last sync passed.
    synced: Vec<u8>,
    synced_at: usize,
}

impl<'log> Wreckage<'log> {
    pub(crate) fn new(start: Vec<u8>, operations: &'log [Operation]) -> Self {
        Self {
            operations,
            synced: start,
            synced_at: 0,
        }
    }

    /// The disk after a loss of power just before operation `at`; `at` must not go back.
    pub(crate) fn disk(&mut self, at: usize, dice: &mut Dice) -> Vec<u8> {
        let passed = &self.operations[self.synced_at..at];
        if let Some(last) = passed.iter().rposition(|op| matches!(op, Operation::Sync)) {
            for operation in &passed[..last] {
                perform(&mut self.synced, operation);
            }
            self.synced_at += last + 1;
        }
        let mut bytes = self.synced.clone();
        let mut pending: Vec<&Operation> = self.operations[self.synced_at..at].iter().collect();
        match dice.below(4) {
            // A kill: everything written is there.
            0 => {}
            // Nothing unsynced arrived.
            1 => pending.clear(),
            // Some arrived, in order.
            2 => pending.retain(|_| dice.below(2) == 0),
            // Some arrived, in any order.
            _ => {
                pending.retain(|_| dice.below(3) > 0);
                for index in (1..pending.len()).rev() {
                    pending.swap(index, dice.below(index + 1));
                }
            }
        }
        let torn = if dice.below(2) == 0 {
            dice.below(pending.len().max(1))
        } else {
            usize::MAX
        };
        for (index, operation) in pending.into_iter().enumerate() {
            match operation {
                Operation::Write { offset, data } if index == torn => {
                    tear(&mut bytes, *offset, data, dice);
                }
                other => perform(&mut bytes, other),
            }
        }
        bytes
    }
}

/// Writes a part of the sectors, or a part of the bytes.
fn tear(bytes: &mut Vec<u8>, offset: usize, data: &[u8], dice: &mut Dice) {
    if dice.below(2) == 0 {
        write_at(bytes, offset, &data[..dice.below(data.len())]);
        return;
    }
    for (index, sector) in data.chunks(SECTOR).enumerate() {
        if dice.below(2) == 0 {
            write_at(bytes, offset + index * SECTOR, sector);
        }
    }
}
