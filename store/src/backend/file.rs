//! The store file: open, write a batch, make it durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use redb::{Builder, Database, Durability, ReadableDatabase as _, TableError};

use crate::datadir::durable;
use crate::error::Error;
use crate::failpoint::{self, Point};

use super::head::{HEAD_KEY, Head};
use super::live::{self, LivePages};
use super::rows::Rows;
use super::scope::{self, Scope};
use super::storage::{Boxed, Home, OpenStorage, SafeDatabase};
use super::tables::Table;
use super::view::View;

/// What a state that is being built is called, behind the path it will have.
const STAGED_SUFFIX: &str = ".staged";

/// Who holds the database when nobody reads an older state: this, and the newest view.
const HOLDERS: usize = 2;

/// Whether what was written must survive a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commit {
    Batch,
    Checkpoint,
}

/// The writing end of the store file.
pub(crate) struct Backend {
    database: Arc<SafeDatabase>,
    home: Home,
    cache_bytes: usize,
    head: Head,
    dirty_bytes: u64,
    durable: Option<crate::apply::LogPosition>,
    is_poisoned: bool,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backend")
            .field("home", &self.home)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Opens the database at `path`, or makes one: beside it, and then renamed, because a loss of
    /// power while redb makes a file leaves one that cannot be opened.
    pub(crate) fn open_path(
        path: &Path,
        open: &Arc<OpenStorage>,
        cache_bytes: usize,
    ) -> Result<Self, Error> {
        let is_there = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
        let home = Home::Path(path.to_owned(), Arc::clone(open));
        if is_there {
            return Self::open(home, Boxed(open(path)?), cache_bytes);
        }
        let failed = |source| Error::Io {
            doing: "make the store file",
            source,
        };
        let staged = durable::with_suffix(path, STAGED_SUFFIX);
        durable::remove_file(&staged).map_err(failed)?;
        let backend = Self::open(home, Boxed(open(&staged)?), cache_bytes)?;
        durable::rename(&staged, path).map_err(failed)?;
        Ok(backend)
    }

    /// Opens or creates the database in `storage`.
    pub(crate) fn open(home: Home, storage: Boxed, cache_bytes: usize) -> Result<Self, Error> {
        if let Home::Path(path, _) = &home {
            scope::opening(path);
        }
        let database = panic_safe("open", || {
            Builder::new()
                .set_cache_size(cache_bytes)
                .create_with_backend(storage)
                .map_err(|source| backend_error("open", source))
        })?;
        Self::start(database, home, cache_bytes)
    }

    fn start(database: Database, home: Home, cache_bytes: usize) -> Result<Self, Error> {
        let database = Arc::new(SafeDatabase::new(database));
        let head = panic_safe("open", || read_head(database.get()))?;
        let mut backend = Self {
            database,
            home,
            cache_bytes,
            head: head.unwrap_or_default(),
            dirty_bytes: 0,
            durable: head.and_then(|head| head.applied),
            is_poisoned: false,
        };
        match head {
            Some(head) => backend.check_counts(&head)?,
            None => backend.initialise()?,
        }
        Ok(backend)
    }

    /// Makes all tables and the first head, durably.
    fn initialise(&mut self) -> Result<(), Error> {
        self.head.revision = 1;
        self.commit(Commit::Checkpoint, |rows| {
            for table in Table::ETCD {
                rows.create(table)?;
            }
            Ok(())
        })
    }

    fn check_counts(&self, head: &Head) -> Result<(), Error> {
        let view = self.view()?;
        for table in Table::ETCD {
            let (found, told) = (view.len(table)?, head.tally(table).rows);
            if found != told {
                return Err(Error::Format {
                    what: "the store file",
                    reason: format!("table {} has {found} rows instead of {told}", table.name()),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    pub(crate) fn durable(&self) -> Option<crate::apply::LogPosition> {
        self.durable
    }

    /// Builds a new state beside this one by `fill` and puts it in this one's place, durably:
    /// whatever happens meanwhile, the path names the old state or the whole new one. Views of
    /// the old state stay readable.
    pub(crate) fn replace(
        &mut self,
        fill: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        let Home::Path(path, open) = self.home.clone() else {
            let storage = Boxed(Box::new(redb::backends::InMemoryBackend::new()));
            let mut fresh = Self::open(Home::Detached, storage, self.cache_bytes)?;
            fill(&mut fresh)?;
            fresh.checkpoint()?;
            *self = fresh;
            return Ok(());
        };
        let failed = |source| Error::Io {
            doing: "replace the store file",
            source,
        };
        let staged = durable::with_suffix(&path, STAGED_SUFFIX);
        durable::remove_file(&staged).map_err(failed)?;
        let built = (|| {
            let storage = Boxed(open(&staged)?);
            let home = Home::Path(path.clone(), Arc::clone(&open));
            let mut fresh = Self::open(home, storage, self.cache_bytes)?;
            fill(&mut fresh)?;
            fresh.checkpoint()?;
            Ok(fresh)
        })();
        match built {
            Ok(fresh) => {
                failpoint::hit(Point::DefragBeforeRename);
                durable::rename(&staged, &path).map_err(|source| {
                    self.is_poisoned = true;
                    failed(source)
                })?;
                *self = fresh;
                Ok(())
            }
            Err(error) => {
                durable::remove_file(&staged).map_err(failed)?;
                Err(error)
            }
        }
    }

    /// Which parts of the file hold something, right after a checkpoint; `None` while it cannot be
    /// said: readers of an older state need more of it.
    pub(crate) fn live_pages(&self) -> Result<Option<LivePages>, Error> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        let has_old_readers = Arc::strong_count(&self.database) > HOLDERS;
        let Home::Path(path, _) = &self.home else {
            return Ok(None);
        };
        if has_old_readers || self.dirty_bytes > 0 {
            return Ok(None);
        }
        live::find(path)
    }

    pub(crate) fn view(&self) -> Result<View, Error> {
        View::new(&self.database)
    }

    /// Writes a batch in one transaction: visible to views made later, not durable yet. After an
    /// error the handle is poisoned.
    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&mut Rows<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.commit(Commit::Batch, work)
    }

    /// Makes everything written so far durable, in two phases.
    pub(crate) fn checkpoint(&mut self) -> Result<(), Error> {
        self.commit(Commit::Checkpoint, |_rows| Ok(()))
    }

    fn commit<T>(
        &mut self,
        commit: Commit,
        work: impl FnOnce(&mut Rows<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        let (database, head) = (&self.database, self.head);
        match panic_safe("write", || transact(database.get(), &head, commit, work)) {
            Ok((answer, head, written)) => {
                self.head = head;
                self.dirty_bytes += written;
                if commit == Commit::Checkpoint {
                    self.dirty_bytes = 0;
                    self.durable = head.applied;
                }
                Ok(answer)
            }
            Err(error) => {
                self.is_poisoned = true;
                Err(error)
            }
        }
    }
}

/// One transaction; the answer, the new head and the bytes written.
fn transact<T>(
    database: &Database,
    head: &Head,
    commit: Commit,
    work: impl FnOnce(&mut Rows<'_>) -> Result<T, Error>,
) -> Result<(T, Head, u64), Error> {
    failpoint::hit(Point::BeforeStartDbTxn);
    let mut transaction = database
        .begin_write()
        .map_err(|source| backend_error("write", source))?;
    failpoint::hit(Point::AfterStartDbTxn);
    match commit {
        Commit::Batch => transaction
            .set_durability(Durability::None)
            .map_err(|source| backend_error("write", source))?,
        Commit::Checkpoint => {
            transaction.set_two_phase_commit(true);
            transaction.set_quick_repair(true);
        }
    }
    let (answer, head, written) = {
        let mut rows = Rows::new(&transaction, head);
        let answer = work(&mut rows)?;
        failpoint::hit(Point::CommitBeforePreCommitHook);
        let encoded = rows.head.encode();
        rows.put(Table::Own, HEAD_KEY, &encoded)?;
        failpoint::hit(Point::CommitAfterPreCommitHook);
        (answer, rows.head, rows.written())
    };
    let is_durable = commit == Commit::Checkpoint;
    if is_durable {
        let failed = failpoint::failure(Point::BeforeCommit, std::io::ErrorKind::Other);
        failed.map_err(|source| backend_error("commit", redb::Error::Io(source)))?;
    }
    transaction
        .commit()
        .map_err(|source| backend_error("commit", source))?;
    if is_durable {
        failpoint::hit(Point::AfterCommit);
    }
    Ok((answer, head, written))
}

/// The head of a database; `None` when it is new.
fn read_head(database: &Database) -> Result<Option<Head>, Error> {
    let transaction = database
        .begin_read()
        .map_err(|source| backend_error("open", source))?;
    let own = match transaction.open_table(Table::Own.definition()) {
        Ok(own) => own,
        Err(TableError::TableDoesNotExist(_)) => {
            return if transaction
                .list_tables()
                .map_err(|source| backend_error("open", source))?
                .next()
                .is_none()
            {
                Ok(None)
            } else {
                Err(no_head())
            };
        }
        Err(source) => return Err(backend_error("open", source)),
    };
    let row = own
        .get(HEAD_KEY)
        .map_err(|source| backend_error("open", source))?;
    let row = row.ok_or_else(no_head)?;
    let (value, _sum) = super::record::open(Table::Own, HEAD_KEY, row.value())?;
    Head::decode(value).map(Some)
}

fn no_head() -> Error {
    Error::Format {
        what: "the store file",
        reason: "it has no head".to_owned(),
    }
}

/// An error of redb as ours: I/O stays I/O, so that a full disk can be told from damage.
pub(crate) fn backend_error(doing: &'static str, source: impl Into<redb::Error>) -> Error {
    match source.into() {
        redb::Error::Io(source) => Error::Io { doing, source },
        redb::Error::PreviousIo | redb::Error::DatabaseClosed => Error::Poisoned,
        redb::Error::Corrupted(reason) => Error::Format {
            what: "the store file",
            reason,
        },
        source => Error::Backend {
            doing,
            source: Box::new(source),
        },
    }
}

/// Runs `work`; a panic of redb over a damaged file becomes an error (where panics unwind).
pub(crate) fn panic_safe<T>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    // Left during the unwinding, so that a panic hook still finds it.
    let inside = || {
        let _scope = Scope::enter(doing);
        work()
    };
    catch_unwind(AssertUnwindSafe(inside)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Err(Error::BackendPanic { doing, message })
    })
}
