//! Between a store that is read and a vault that is slower.
//!
//! A read view that is held for long makes the store's file grow under writes. So what the vault
//! does not take at once waits: a little in memory, then sealed on local disk, up to a limit. Only
//! beyond the limit does the writer wait, and the view with it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::spool::Spool;

/// Chunks that wait in memory.
const CHUNKS_MAX: usize = 4;

/// Where chunks wait that have no place in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// A folder for the sealed spool.
    pub work_dir: PathBuf,
    /// The most that waits there, in bytes.
    pub limit: u64,
}

/// The two ends of a buffer; `overflow` is `None` where nothing waits on disk.
pub(super) fn buffer(overflow: Option<Overflow>) -> (Writer, Reader) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue::default()),
        room: Condvar::new(),
        come: Notify::new(),
    });
    let writer = Writer {
        shared: Arc::clone(&shared),
        overflow,
        spool: None,
        written: 0,
    };
    (writer, Reader { shared })
}

struct Shared {
    queue: Mutex<Queue>,
    /// The writer waits for it.
    room: Condvar,
    /// The reader waits for it.
    come: Notify,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    in_memory: usize,
    on_disk: u64,
    has_ended: bool,
    is_abandoned: bool,
}

enum Item {
    Memory(Bytes),
    Disk {
        spool: Arc<Spool>,
        index: usize,
        bytes: u64,
    },
    Failed(Error),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the store. Blocks; dropped, it ends the stream.
pub(super) struct Writer {
    shared: Arc<Shared>,
    overflow: Option<Overflow>,
    spool: Option<Arc<Spool>>,
    written: usize,
}

/// What to do with a chunk.
enum Place {
    Memory,
    Disk,
}

impl Writer {
    /// Hands over a chunk. An error means that nobody reads any more, or that the disk failed.
    pub(super) fn send(&mut self, chunk: Bytes) -> io::Result<()> {
        let bytes = crate::part::length(&chunk);
        let item = match self.wait_for_place(bytes)? {
            Place::Memory => Item::Memory(chunk),
            Place::Disk => self.spool(&chunk).map_err(io::Error::other)?,
        };
        self.push(item);
        Ok(())
    }

    /// Ends the stream with an error.
    pub(super) fn fail(&mut self, error: Error) {
        self.push(Item::Failed(error));
    }

    fn push(&mut self, item: Item) {
        self.shared.lock().items.push_back(item);
        self.shared.come.notify_one();
    }

    /// Claims a place for a chunk, waiting for one where it must.
    fn wait_for_place(&self, bytes: u64) -> io::Result<Place> {
        let limit = self.overflow.as_ref().map_or(0, |overflow| overflow.limit);
        let mut queue = self.shared.lock();
        loop {
            if queue.is_abandoned {
                let gone = "the reader is gone";
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, gone));
            }
            if queue.in_memory < CHUNKS_MAX {
                queue.in_memory += 1;
                return Ok(Place::Memory);
            }
            let after = queue.on_disk.saturating_add(bytes);
            if after <= limit {
                queue.on_disk = after;
                return Ok(Place::Disk);
            }
            let woken = self.shared.room.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn spool(&mut self, chunk: &Bytes) -> Result<Item> {
        let spool = match (&self.spool, &self.overflow) {
            (Some(spool), _) => Arc::clone(spool),
            (None, Some(overflow)) => Arc::new(Spool::create(&overflow.work_dir)?),
            (None, None) => {
                let reason = "no spool to write to".to_owned();
                return Err(Error::Worker { reason });
            }
        };
        self.spool = Some(Arc::clone(&spool));
        let index = self.written;
        self.written += 1;
        spool.write(index, chunk)?;
        let bytes = crate::part::length(chunk);
        Ok(Item::Disk {
            spool,
            index,
            bytes,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.come.notify_one();
    }
}

/// What there is to read.
enum Taken {
    Item(Item),
    /// Nothing, and nothing will come.
    End,
    /// Nothing yet.
    Later,
}

/// The end of the vault. Dropped, it lets the writer fail.
pub(super) struct Reader {
    shared: Arc<Shared>,
}

impl Reader {
    /// The chunks, in order.
    pub(super) fn chunks(self) -> impl Stream<Item = Result<Bytes>> + Send {
        futures::stream::try_unfold(self, |reader| async move {
            Ok(reader.next().await?.map(|chunk| (chunk, reader)))
        })
    }

    async fn next(&self) -> Result<Option<Bytes>> {
        loop {
            match self.take() {
                Taken::Item(Item::Memory(chunk)) => return Ok(Some(chunk)),
                Taken::Item(Item::Failed(error)) => return Err(error),
                Taken::Item(Item::Disk { spool, index, .. }) => {
                    let taken = tokio::task::spawn_blocking(move || spool.take(index));
                    return Ok(Some(taken.await??.into()));
                }
                Taken::End => return Ok(None),
                Taken::Later => self.shared.come.notified().await,
            }
        }
    }

    fn take(&self) -> Taken {
        let mut queue = self.shared.lock();
        let Some(item) = queue.items.pop_front() else {
            return if queue.has_ended {
                Taken::End
            } else {
                Taken::Later
            };
        };
        match &item {
            Item::Memory(_) => queue.in_memory -= 1,
            Item::Disk { bytes, .. } => queue.on_disk = queue.on_disk.saturating_sub(*bytes),
            Item::Failed(_) => {}
        }
        drop(queue);
        self.shared.room.notify_one();
        Taken::Item(item)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.lock().is_abandoned = true;
        self.shared.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use futures::TryStreamExt as _;

    use super::*;

    const CHUNK: usize = 100_000;

    fn chunk(number: usize) -> Bytes {
        let text = format!("plain text of chunk {number:06} ");
        text.repeat(CHUNK / text.len()).into()
    }

    fn overflow(folder: &Path, chunks: usize) -> Overflow {
        Overflow {
            work_dir: folder.to_owned(),
            limit: u64::try_from(chunk(0).len() * chunks).unwrap(),
        }
    }

    /// Writes so many chunks on a thread of its own.
    fn write(mut writer: Writer, count: usize) -> tokio::task::JoinHandle<io::Result<()>> {
        tokio::task::spawn_blocking(move || (0..count).try_for_each(|n| writer.send(chunk(n))))
    }

    fn bytes_in(folder: &Path) -> Vec<u8> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                found.extend(bytes_in(&entry.path()));
            } else {
                found.extend(std::fs::read(entry.path()).unwrap());
            }
        }
        found
    }

    #[tokio::test]
    async fn a_store_is_read_to_its_end_while_the_vault_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, reader) = buffer(Some(overflow(folder.path(), 60)));
        // The writer ends although nobody has read a byte: the read view is free.
        write(writer, 40).await.unwrap().unwrap();
        let waiting = bytes_in(folder.path());
        assert!(waiting.len() > 30 * CHUNK, "{} bytes wait", waiting.len());
        let is_readable = waiting
            .windows(19)
            .any(|seen| seen == b"plain text of chunk");
        assert!(!is_readable, "in clear on disk");
        let read: Vec<Bytes> = reader.chunks().try_collect().await.unwrap();
        assert_eq!(read, (0..40).map(chunk).collect::<Vec<_>>());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn beyond_the_limit_the_store_waits_and_goes_on_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, reader) = buffer(Some(overflow(folder.path(), 10)));
        let mut writing = write(writer, 40);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut writing).await;
        assert!(early.is_err(), "more than the limit was taken");
        let read: Vec<Bytes> = reader.chunks().try_collect().await.unwrap();
        assert_eq!(read.len(), 40);
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_goes_ends_the_writer_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (writer, reader) = buffer(Some(overflow(folder.path(), 10)));
        let writing = write(writer, 40);
        let first = reader.next().await.unwrap();
        assert_eq!(first, Some(chunk(0)));
        drop(reader);
        let ended = writing.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn an_error_of_the_store_reaches_the_reader_after_what_came_before() {
        let (mut writer, reader) = buffer(None);
        writer.send(chunk(1)).unwrap();
        writer.fail(Error::Worker {
            reason: "lost".to_owned(),
        });
        drop(writer);
        assert_eq!(reader.next().await.unwrap(), Some(chunk(1)));
        assert!(matches!(reader.next().await, Err(Error::Worker { .. })));
        assert_eq!(reader.next().await.unwrap(), None);
    }
}
