//! An object store that is made anew when a file it was made from changes: credentials and
//! authorities are rotated while a daemon runs for months and a backup for hours.
//!
//! The files are looked at before each request. New ones that cannot be used (half written, say)
//! leave the client of before in its place until they change again.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// An object store of a provider.
pub(super) trait Cloud: ObjectStore + PaginatedListStore {}

impl<S: ObjectStore + PaginatedListStore> Cloud for S {}

/// What tells one content of a file from another: when it changed, its size, which file it is.
type Stamp = Option<(i64, i64, u64, u64)>;

type Make = Box<dyn Fn() -> crate::error::Result<Arc<dyn Cloud>> + Send + Sync>;

/// A store that follows its files.
pub(super) struct Reloading {
    files: Vec<PathBuf>,
    location: String,
    make: Make,
    state: Mutex<State>,
}

struct State {
    stamps: Vec<Stamp>,
    store: Arc<dyn Cloud>,
}

impl Reloading {
    pub(super) fn new(
        files: Vec<PathBuf>,
        location: String,
        make: impl Fn() -> crate::error::Result<Arc<dyn Cloud>> + Send + Sync + 'static,
    ) -> crate::error::Result<Self> {
        // Looked at before: what changes while the store is made counts as changed.
        let stamps = files.iter().map(stamp).collect();
        let store = make()?;
        Ok(Self {
            files,
            location,
            make: Box::new(make),
            state: Mutex::new(State { stamps, store }),
        })
    }

    /// The store for the next request.
    fn current(&self) -> Arc<dyn Cloud> {
        let stamps: Vec<Stamp> = self.files.iter().map(stamp).collect();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.stamps != stamps {
            state.stamps = stamps;
            match (self.make)() {
                Ok(store) => {
                    let vault = &self.location;
                    tracing::info!(
                        vault,
                        "credentials or authorities changed and were read anew"
                    );
                    state.store = store;
                }
                Err(error) => {
                    let vault = &self.location;
                    tracing::warn!(vault, %error, "changed files cannot be used; those of before are");
                }
            }
        }
        Arc::clone(&state.store)
    }

    /// The store to try once more with, when the one that was denied has a successor.
    fn successor_of(&self, denied: &Arc<dyn Cloud>, error: &StoreError) -> Option<Arc<dyn Cloud>> {
        let is_denied = matches!(
            error,
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }
        );
        let next = is_denied.then(|| self.current())?;
        (!Arc::ptr_eq(&next, denied)).then_some(next)
    }
}

fn stamp(file: &PathBuf) -> Stamp {
    let found = fs::metadata(file).ok()?;
    Some((found.mtime(), found.mtime_nsec(), found.size(), found.ino()))
}

impl fmt::Debug for Reloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Reloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location)
    }
}

#[async_trait]
impl ObjectStore for Reloading {
    async fn put_opts(
        &self,
        path: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let store = self.current();
        let put = store.put_opts(path, bytes.clone(), options.clone()).await;
        match put {
            Err(error) => match self.successor_of(&store, &error) {
                Some(store) => store.put_opts(path, bytes, options).await,
                None => Err(error),
            },
            done => done,
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.current().put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let store = self.current();
        match store.get_opts(path, options.clone()).await {
            Err(error) => match self.successor_of(&store, &error) {
                Some(store) => store.get_opts(path, options).await,
                None => Err(error),
            },
            found => found,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.current().delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.current().list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.current().list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.current().copy_opts(from, to, options).await
    }
}

#[async_trait]
impl PaginatedListStore for Reloading {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        self.current().list_paginated(prefix, options).await
    }
}
