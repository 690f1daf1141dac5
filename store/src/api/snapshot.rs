//! Streaming a snapshot: the database file in pieces, then its SHA-256.
//!
//! The read view is held only while the file is made. A client that keeps up gets the bytes as
//! they come; when it does not, the rest is spooled to an unlinked file, if the disk has room, and
//! sent from there.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use holdfast_proto::etcd::rpc::SnapshotResponse;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;
use tonic::Status;

use super::context::Context;
use super::maintenance::storage_version;
use super::status::status;
use crate::error::Error;

/// Bytes of one piece. etcd sends 32 KiB; each piece costs both sides a fixed amount of work, and
/// clients take up to 4 MiB.
const CHUNK_BYTES: usize = 256 * 1024;

/// Pieces made ahead of the client.
pub(super) const CHUNKS_WAITING_MAX: usize = 16;

/// Pieces waiting to be digested.
const DIGESTS_WAITING_MAX: usize = 8;

/// Patience with a client before the rest is spooled.
const PATIENCE: Duration = Duration::from_millis(250);

/// A client that takes nothing for this long is given up.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// Room on the disk that spooling leaves alone, in bytes.
const DISK_RESERVE_BYTES: u64 = 256 * 1024 * 1024;

type Answer = Result<SnapshotResponse, Status>;

/// Makes and sends a snapshot; runs on a thread that may block.
pub(super) fn send(context: &Context, sender: &Sender<Answer>, runtime: &Handle) {
    let start = Instant::now();
    let version = storage_version(&context.options().claimed_version);
    match stream(context, sender, runtime, &version) {
        Ok(total) => {
            context.metrics().snapshot_seconds.observe(start.elapsed());
            tracing::info!(
                total_bytes = total,
                "successfully sent database snapshot to client"
            );
        }
        Err(Failure::ClientGone) => tracing::warn!("client left before the snapshot was sent"),
        Err(Failure::Store(error)) => {
            tracing::warn!(error = %error, "failed to send database snapshot to client");
            // When the client is gone too there is nobody left to tell.
            drop(sender.try_send(Err(status(&error))));
        }
    }
}

enum Failure {
    ClientGone,
    Store(Error),
}

fn stream(
    context: &Context,
    sender: &Sender<Answer>,
    runtime: &Handle,
    version: &str,
) -> Result<u64, Failure> {
    let mut export = context.state().export().map_err(Failure::Store)?;
    let total = export.measure().map_err(Failure::Store)?;
    tracing::info!(
        total_bytes = total,
        storage_version = version,
        "sending database snapshot to client"
    );
    let mut sink = Sink {
        sender,
        runtime,
        version,
        directory: &context.options().data_dir,
        remaining: total,
        buffer: BytesMut::with_capacity(CHUNK_BYTES),
        digest: Digesting::start(),
        spool: None,
        may_spool: true,
        is_client_gone: false,
    };
    let written = export.write_to(&mut sink);
    drop(export);
    let finished = written.and_then(|_bytes| {
        sink.finish().map_err(|source| Error::Io {
            doing: "send the snapshot",
            source,
        })
    });
    match finished {
        Ok(()) => Ok(total),
        Err(_) if sink.is_client_gone => Err(Failure::ClientGone),
        Err(error) => Err(Failure::Store(error)),
    }
}

/// Takes the database file and sends it in pieces.
struct Sink<'a> {
    sender: &'a Sender<Answer>,
    runtime: &'a Handle,
    version: &'a str,
    directory: &'a Path,
    /// Bytes of the file not sent yet.
    remaining: u64,
    buffer: BytesMut,
    digest: Digesting,
    spool: Option<File>,
    may_spool: bool,
    is_client_gone: bool,
}

impl Write for Sink<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES - self.buffer.len();
        let (taken, _) = data.split_at_checked(room).unwrap_or((data, &[]));
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() == CHUNK_BYTES {
            self.emit()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink<'_> {
    /// Hands the buffer on.
    fn emit(&mut self) -> io::Result<()> {
        let chunk = self.buffer.split().freeze();
        self.buffer.reserve(CHUNK_BYTES);
        self.digest.update(&chunk)?;
        if let Some(spool) = &mut self.spool {
            return spool.write_all(&chunk);
        }
        let patience = if self.may_spool { PATIENCE } else { IDLE_MAX };
        let Some(chunk) = self.offer(chunk, patience)? else {
            return Ok(());
        };
        if self.may_spool {
            self.may_spool = false;
            self.spool = spool(self.directory, self.remaining)?;
            if let Some(spool) = &mut self.spool {
                tracing::info!(
                    remaining = self.remaining,
                    "slow client, spooling the snapshot"
                );
                return spool.write_all(&chunk);
            }
            if self.offer(chunk, IDLE_MAX)?.is_none() {
                return Ok(());
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes nothing",
        ))
    }

    /// Sends what is left: the buffer, the spool, the digest.
    fn finish(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.emit()?;
        }
        if let Some(mut spool) = self.spool.take() {
            spool.rewind()?;
            loop {
                let mut chunk = Vec::with_capacity(CHUNK_BYTES);
                let limit = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
                if (&spool).take(limit).read_to_end(&mut chunk)? == 0 {
                    break;
                }
                self.insist(chunk.into())?;
            }
        }
        if self.remaining != 0 {
            return Err(io::Error::other("the snapshot is shorter than announced"));
        }
        let digest = self.digest.finish()?;
        self.insist(digest)
    }

    fn insist(&mut self, chunk: Bytes) -> io::Result<()> {
        match self.offer(chunk, IDLE_MAX)? {
            None => Ok(()),
            Some(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client takes nothing",
            )),
        }
    }

    /// Sends a piece, or gives it back when the client does not take it in time.
    fn offer(&mut self, chunk: Bytes, patience: Duration) -> io::Result<Option<Bytes>> {
        let reserved = if let Ok(permit) = self.sender.try_reserve() {
            Ok(permit)
        } else {
            let reserve = tokio::time::timeout(patience, self.sender.reserve());
            match self.runtime.block_on(reserve) {
                Ok(result) => result,
                Err(_elapsed) => return Ok(Some(chunk)),
            }
        };
        let Ok(permit) = reserved else {
            self.is_client_gone = true;
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        self.remaining = self.remaining.saturating_sub(length);
        permit.send(Ok(SnapshotResponse {
            header: None,
            remaining_bytes: self.remaining,
            blob: chunk,
            version: self.version.to_owned(),
        }));
        Ok(None)
    }
}

/// SHA-256 on a thread of its own, beside the one that makes the pieces.
struct Digesting {
    sender: Option<SyncSender<Bytes>>,
    thread: Option<JoinHandle<Bytes>>,
}

impl Digesting {
    fn start() -> Self {
        let (sender, pieces) = sync_channel::<Bytes>(DIGESTS_WAITING_MAX);
        let thread = std::thread::spawn(move || {
            let mut digest = Sha256::new();
            while let Ok(piece) = pieces.recv() {
                digest.update(&piece);
            }
            Bytes::copy_from_slice(&digest.finalize())
        });
        Self {
            sender: Some(sender),
            thread: Some(thread),
        }
    }

    fn update(&self, piece: &Bytes) -> io::Result<()> {
        let sender = self.sender.as_ref().ok_or_else(Self::gone)?;
        sender.send(piece.clone()).map_err(|_gone| Self::gone())
    }

    /// The digest of all pieces.
    fn finish(&mut self) -> io::Result<Bytes> {
        self.sender = None;
        let thread = self.thread.take().ok_or_else(Self::gone)?;
        thread.join().map_err(|_panic| Self::gone())
    }

    fn gone() -> io::Error {
        io::Error::other("the digest of the snapshot cannot be computed")
    }
}

/// A file without a name for what a slow client has not taken; `None` when the disk is too full.
fn spool(directory: &Path, bytes: u64) -> io::Result<Option<File>> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let disk = rustix::fs::statvfs(directory)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < bytes.saturating_add(DISK_RESERVE_BYTES) {
        return Ok(None);
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(
        "snapshot-stream-{}-{number}.tmp",
        std::process::id()
    ));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(Some(file))
}
