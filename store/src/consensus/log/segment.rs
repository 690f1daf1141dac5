//! Segment files: names, headers, creation.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf as _, BufMut as _};

use super::record::{self, Place, Record};
use super::{LogError, LogIo};
use crate::datadir::durable;

/// Version of the segment format.
pub const SEGMENT_VERSION: u32 = 2;
/// The oldest version that is read: its ended segments do not say that the next has its name.
const SEGMENT_VERSION_MIN: u32 = 1;
/// Bytes before the first record.
pub(super) const SEGMENT_HEADER_BYTES: u64 = 64;
/// The smallest segment.
pub(super) const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const HEADER_BYTES: usize = 64;
/// More than [`Segment::begin`] writes.
const BEGIN_BYTES_MAX: usize = 4096;
const MAGIC: &[u8; 8] = b"HFRAFTLG";
const SUFFIX: &str = ".log";
const SPARE: &str = "spare";

/// Whose log it is; a log of another member or cluster is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogIdentity {
    /// The cluster's id.
    pub cluster: u64,
    /// The member's id.
    pub member: u64,
}

/// An open segment file.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) sequence: u64,
    pub(super) size: u64,
    pub(super) file: Arc<File>,
}

impl Segment {
    /// The file name of segment `sequence`.
    pub(super) fn path(dir: &Path, sequence: u64) -> PathBuf {
        dir.join(format!("{sequence:016x}{SUFFIX}"))
    }

    /// The name under which the next segment is prepared.
    pub(super) fn spare_path(dir: &Path) -> PathBuf {
        dir.join(SPARE)
    }

    /// The numbers of the segments in `dir`, ascending.
    pub(super) fn list(dir: &Path) -> io::Result<Vec<u64>> {
        let mut sequences = Vec::new();
        for item in std::fs::read_dir(dir)? {
            let name = item?.file_name();
            let sequence = name
                .to_str()
                .and_then(|name| name.strip_suffix(SUFFIX))
                .filter(|stem| stem.len() == 16)
                .and_then(|stem| u64::from_str_radix(stem, 16).ok());
            sequences.extend(sequence);
        }
        sequences.sort_unstable();
        Ok(sequences)
    }

    /// Turns a zero-filled `file` into segment `sequence`, with `first` as its first bytes after
    /// the header, and gives it its name once those bytes are durable.
    pub(super) fn begin(
        dir: &Path,
        prepared: Prepared,
        sequence: u64,
        identity: LogIdentity,
        (first, log_io): (&[u8], &dyn LogIo),
    ) -> io::Result<Self> {
        let mut bytes = header(sequence, identity, prepared.size);
        bytes.extend_from_slice(first);
        prepared.file.write_all_at(&bytes, 0)?;
        log_io.sync(&prepared.file)?;
        durable::rename(&Self::spare_path(dir), &Self::path(dir, sequence))?;
        Ok(Self {
            sequence,
            size: prepared.size,
            file: Arc::new(prepared.file),
        })
    }

    /// Notes durably, behind the end record at `ended_at`, that the next segment has its name.
    /// Nothing in the next is acknowledged before.
    pub(super) fn note_followed(&self, ended_at: u64, log_io: &dyn LogIo) -> io::Result<()> {
        let mut bytes = Vec::new();
        let place = Place {
            segment: self.sequence,
            offset: ended_at,
        };
        let batch_start = u32::try_from(ended_at).map_err(io::Error::other)?;
        record::encode(&Record::Followed, place, batch_start, &mut bytes);
        let len = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        if ended_at.saturating_add(len) > self.size {
            // Version 1 kept no room for it.
            return Ok(());
        }
        self.file.write_all_at(&bytes, ended_at)?;
        log_io.sync(&self.file)
    }

    /// Opens segment `sequence` and checks its header.
    pub(super) fn open(dir: &Path, sequence: u64, identity: LogIdentity) -> Result<Self, LogError> {
        let path = Self::path(dir, sequence);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let actual = file.metadata()?.len();
        let damaged = |what: &str| LogError::Damaged {
            segment: path.clone(),
            offset: 0,
            what: what.to_owned(),
        };
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged("the file is shorter than a header"),
                _ => LogError::Io(error),
            })?;
        let (sealed, mut crc) = bytes.split_at(HEADER_BYTES - 4);
        let (magic, mut fields) = sealed.split_at(MAGIC.len());
        if magic != MAGIC || crc32c::crc32c(sealed) != crc.get_u32_le() {
            return Err(damaged("the segment's header is not valid"));
        }
        let version = fields.get_u32_le();
        if !(SEGMENT_VERSION_MIN..=SEGMENT_VERSION).contains(&version) {
            return Err(LogError::Version {
                segment: path,
                version,
            });
        }
        fields.advance(4);
        let (number, cluster, member) = (
            fields.get_u64_le(),
            fields.get_u64_le(),
            fields.get_u64_le(),
        );
        let found = LogIdentity { cluster, member };
        if found != identity {
            return Err(LogError::Identity {
                expected: identity,
                found,
            });
        }
        let size = fields.get_u64_le();
        if number != sequence || size != actual {
            return Err(damaged(
                "the file's number or length is not what its header says",
            ));
        }
        Ok(Self {
            sequence,
            size,
            file: Arc::new(file),
        })
    }
}

/// A zero-filled file that can become a segment.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) file: File,
    pub(super) size: u64,
}

impl Prepared {
    /// Fills the spare file of `dir` with `size` zeros, replacing an unfinished one.
    pub(super) fn create(dir: &Path, size: u64) -> io::Result<Self> {
        let path = Segment::spare_path(dir);
        durable::remove_file(&path)?;
        let file = durable::create_zeroed(&path, size).inspect_err(|_| {
            if let Err(error) = durable::remove_file(&path) {
                tracing::warn!(%error, "cannot remove an unfinished log segment");
            }
        })?;
        Ok(Self { file, size })
    }

    /// The spare file that an earlier process left in `dir`, when it is whole, has `size` bytes
    /// and was not begun: what is written to it first goes to its start.
    pub(super) fn reopen(dir: &Path, size: u64) -> io::Result<Option<Self>> {
        let path = Segment::spare_path(dir);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let on_disk = metadata.blocks().saturating_mul(512);
        if metadata.len() != size || on_disk < size || size < SEGMENT_BYTES_MIN {
            return Ok(None);
        }
        let mut start = [0; BEGIN_BYTES_MAX];
        file.read_exact_at(&mut start, 0)?;
        let is_untouched = start.iter().all(|byte| *byte == 0);
        Ok(is_untouched.then_some(Self { file, size }))
    }
}

fn header(sequence: u64, identity: LogIdentity, size: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.put_slice(MAGIC);
    bytes.put_u32_le(SEGMENT_VERSION);
    bytes.put_u32_le(0);
    bytes.put_u64_le(sequence);
    bytes.put_u64_le(identity.cluster);
    bytes.put_u64_le(identity.member);
    bytes.put_u64_le(size);
    bytes.put_bytes(0, HEADER_BYTES - 4 - bytes.len());
    let sum = crc32c::crc32c(&bytes);
    bytes.put_u32_le(sum);
    bytes
}
