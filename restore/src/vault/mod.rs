//! A vault: a place in an object store where backups live, all objects create-only.
//!
//! [`Vault<ReadOnly>`] cannot change anything; [`Vault<ReadWrite>`] can add objects that are not
//! there yet and remove objects, and has no way to overwrite one.

mod belongings;
mod catalog;
mod connect;
pub mod doctor;
pub mod layout;
mod listing;
mod lock;
pub mod probe;
mod refusal;
mod reload;
mod spec;
mod trash;

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use holdfast_policies::ClusterName;
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, path,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::flaw::{Flaw, FlawKind};
use crate::key::Verifier;
use crate::unique::UniqueId;

pub use catalog::{Backup, Catalog};
pub use layout::{Folder, ObjectName};
pub use listing::Listing;
pub use lock::{LockMode, ObjectLock};
pub use spec::{AzureSpec, GcsSpec, RequestChecksum, S3Credentials, S3Spec, VaultSpec};
pub use trash::{Released, Trashed};

use connect::Place;
use listing::Lister;
use lock::Locker;

/// Version of the vault's layout.
pub const VAULT_VERSION: u64 = 1;

/// The value of `format` in the marker.
pub const VAULT_FORMAT: &str = "holdfast.vault";

/// Largest marker read, in bytes.
const MARKER_BYTES_MAX: u64 = 64 * 1024;

/// Most objects one listing may return.
const LISTED_MAX: usize = 4_000_000;

/// May read.
#[derive(Debug, Clone, Copy)]
pub struct ReadOnly;

/// May read, add and remove.
#[derive(Debug, Clone, Copy)]
pub struct ReadWrite;

/// The marker object: says that this is a vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// [`VAULT_FORMAT`].
    pub format: String,
    /// [`VAULT_VERSION`].
    pub version: u64,
    /// Names this vault.
    pub id: UniqueId,
    /// When it was created, by its creator's clock.
    pub created: DateTime<Utc>,
    /// The key of its creator. Nobody vouches for it: good for a first look, not for trust.
    pub verifying_key: String,
}

/// A vault, opened for reading ([`ReadOnly`]) or for writing too ([`ReadWrite`]).
#[derive(Debug)]
pub struct Vault<Mode> {
    store: Arc<dyn ObjectStore>,
    lister: Lister,
    locker: Option<Locker>,
    prefix: path::Path,
    location: String,
    doubt: Option<Flaw>,
    mode: PhantomData<Mode>,
}

impl<Mode> Clone for Vault<Mode> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            lister: self.lister.clone(),
            locker: self.locker.clone(),
            prefix: self.prefix.clone(),
            location: self.location.clone(),
            doubt: self.doubt.clone(),
            mode: PhantomData,
        }
    }
}

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: ObjectName,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was stored, by the store's clock.
    pub modified: DateTime<Utc>,
}

impl Vault<ReadOnly> {
    /// Opens an existing vault for reading. On the worst day backups must be had from a vault that
    /// has lost its marker too: [`Vault::doubt`] says so then.
    pub async fn open(spec: &VaultSpec) -> Result<Self> {
        let mut vault = Self::at(spec.connect(false)?)?;
        let lost = match vault.check_marker().await {
            Ok(_) => return Ok(vault),
            Err(
                lost @ (Error::NotAVault { .. } | Error::Malformed { .. } | Error::TooLarge { .. }),
            ) => lost,
            Err(other) => return Err(other),
        };
        if vault.clusters().await?.is_empty() {
            return Err(lost);
        }
        let detail = match lost {
            Error::NotAVault { .. } => "not there, although backups are".to_owned(),
            damaged => damaged.to_string(),
        };
        vault.doubt = Some(Flaw::new(FlawKind::MarkerLost, layout::marker(), detail));
        Ok(vault)
    }
}

impl Vault<ReadWrite> {
    /// Opens an existing vault for reading and writing.
    pub async fn open(spec: &VaultSpec) -> Result<Self> {
        let vault = Self::at(spec.connect(false)?)?;
        match vault.check_marker().await {
            Ok(_) => Ok(vault),
            Err(error) => Err(vault.without_marker(error).await),
        }
    }

    /// Opens a vault, or makes the place one when nothing is there. `now` and `verifier` go into
    /// the marker of a new one.
    pub async fn open_or_create(
        spec: &VaultSpec,
        now: DateTime<Utc>,
        verifier: &Verifier,
    ) -> Result<Self> {
        Self::at(spec.connect(true)?)?
            .created((now, verifier), false)
            .await
    }

    /// The same, where a vault that lost its marker is meant: it gets a new one.
    pub async fn open_or_renew(
        spec: &VaultSpec,
        now: DateTime<Utc>,
        verifier: &Verifier,
    ) -> Result<Self> {
        Self::at(spec.connect(true)?)?
            .created((now, verifier), true)
            .await
    }

    /// As [`Vault::open_or_create`], in an object store made elsewhere (tests, wrappers).
    pub async fn create_in_store(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        location: String,
        made: (DateTime<Utc>, &Verifier),
    ) -> Result<Self> {
        let place = Place::made_elsewhere(store, prefix, location);
        Self::at(place)?.created(made, false).await
    }

    /// A vault in an object store made elsewhere (tests, wrappers).
    pub async fn from_store(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        location: String,
    ) -> Result<Self> {
        let vault = Self::at(Place::made_elsewhere(store, prefix, location))?;
        vault.check_marker().await?;
        Ok(vault)
    }

    async fn created(
        self,
        (now, verifier): (DateTime<Utc>, &Verifier),
        is_renewed: bool,
    ) -> Result<Self> {
        match self.check_marker().await {
            Ok(_) => return Ok(self),
            Err(Error::NotAVault { .. }) if is_renewed => {}
            Err(error) => match self.without_marker(error).await {
                Error::NotAVault { .. } => {}
                refused => return Err(refused),
            },
        }
        let marker = Marker {
            format: VAULT_FORMAT.to_owned(),
            version: VAULT_VERSION,
            id: UniqueId::generate(),
            created: now,
            verifying_key: verifier.to_text(),
        };
        let json = serde_json::to_vec_pretty(&marker)
            .map_err(|error| Error::malformed("vault.json", error.to_string()))?;
        match self.put_new(&layout::marker(), json.into()).await {
            Ok(()) | Err(Error::ObjectExists { .. }) => {}
            Err(other) => return Err(other),
        }
        self.check_marker().await?;
        Ok(self)
    }

    /// Why nothing may be written: what lost its marker may be the wrong place, or half of one.
    async fn without_marker(&self, error: Error) -> Error {
        if !matches!(error, Error::NotAVault { .. }) {
            return error;
        }
        match self.clusters().await {
            Ok(clusters) if clusters.is_empty() => error,
            Ok(_) => Error::MarkerLost {
                location: self.location.clone(),
            },
            Err(unknown) => unknown,
        }
    }

    /// The same vault, unable to change anything.
    pub fn read_only(&self) -> Vault<ReadOnly> {
        Vault {
            store: Arc::clone(&self.store),
            lister: self.lister.clone(),
            locker: self.locker.clone(),
            prefix: self.prefix.clone(),
            location: self.location.clone(),
            doubt: self.doubt.clone(),
            mode: PhantomData,
        }
    }

    /// Stores an object that is not there yet. When it is there with the same bytes (an answer
    /// got lost and the request was repeated), that is a success; with others, a conflict.
    pub async fn put_new(&self, name: &ObjectName, bytes: Bytes) -> Result<()> {
        let stored = self
            .store
            .put_opts(
                &self.path(name),
                PutPayload::from_bytes(bytes.clone()),
                PutMode::Create.into(),
            )
            .await;
        match stored {
            Ok(_) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => {
                let found = self.get(name, crate::part::length(&bytes)).await;
                match found {
                    Ok(found) if found == bytes => Ok(()),
                    Ok(_) | Err(Error::TooLarge { .. }) => Err(Error::ObjectExists {
                        object: name.to_string(),
                    }),
                    Err(other) => Err(other),
                }
            }
            Err(error) => Err(failed("store", name)(error)),
        }
    }

    /// Locks an object until then, where the vault has object lock.
    pub async fn lock_until(&self, name: &ObjectName, until: DateTime<Utc>) -> Result<()> {
        let Some(locker) = &self.locker else {
            return Ok(());
        };
        let locked = locker.extend(&self.path(name), until).await;
        locked.map_err(failed("lock", name))
    }

    /// What time it is by the vault's own clock: that at which it stores a small object of
    /// `cluster`, which is removed again.
    pub async fn clock(&self, cluster: &ClusterName) -> Result<DateTime<Utc>> {
        let name = layout::probe(cluster, UniqueId::generate());
        self.put_new(&name, Bytes::from_static(b"{}")).await?;
        let found = self.store.head(&self.path(&name)).await;
        let stored = found.map_err(failed("look up", &name))?.last_modified;
        // Whoever may not remove it hears of that from what is to be removed.
        if let Err(error) = self.remove(&name).await {
            tracing::debug!(object = name.as_str(), %error, "a probe of the clock stays");
        }
        Ok(stored)
    }

    /// Removes an object; one that is not there counts as removed.
    pub async fn remove(&self, name: &ObjectName) -> Result<()> {
        let path = self.path(name);
        let removed = match &self.locker {
            Some(locker) => locker.remove(&path).await,
            None => self.store.delete(&path).await,
        };
        match removed {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("remove", name)(error)),
        }
    }
}

impl<Mode> Vault<Mode> {
    fn at(place: Place) -> Result<Self> {
        Ok(Self {
            store: place.store,
            lister: place.lister,
            locker: place.locker,
            prefix: parse_prefix(&place.prefix)?,
            location: place.location,
            doubt: None,
            mode: PhantomData,
        })
    }

    /// Tells this vault from every other one: what its marker says.
    pub async fn id(&self) -> Result<UniqueId> {
        self.check_marker().await
    }

    async fn check_marker(&self) -> Result<UniqueId> {
        let name = layout::marker();
        let bytes = match self.get(&name, MARKER_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(Error::ObjectMissing { .. }) => {
                return Err(Error::NotAVault {
                    location: self.location.clone(),
                });
            }
            Err(other) => return Err(other),
        };
        let marker: Marker = serde_json::from_slice(&bytes)
            .map_err(|error| Error::malformed(name.as_str(), error.to_string()))?;
        if marker.format != VAULT_FORMAT {
            return Err(Error::malformed(
                name.as_str(),
                "not a holdfast vault's marker",
            ));
        }
        if marker.version > VAULT_VERSION {
            return Err(Error::UnsupportedVersion {
                object: name.to_string(),
                version: marker.version,
                supported: VAULT_VERSION,
            });
        }
        Ok(marker.id)
    }

    /// What is wrong with the place as a whole: a marker that is not there or damaged.
    pub fn doubt(&self) -> Option<&Flaw> {
        self.doubt.as_ref()
    }

    /// How objects are locked here, where they are.
    pub fn object_lock(&self) -> Option<ObjectLock> {
        self.locker.as_ref().map(|locker| locker.lock)
    }

    /// Until when an object is locked; `None` when it is not, or this vault has no object lock.
    pub async fn locked_until(&self, name: &ObjectName) -> Result<Option<DateTime<Utc>>> {
        let Some(locker) = &self.locker else {
            return Ok(None);
        };
        let until = locker.until(&self.path(name)).await;
        until.map_err(failed("read the lock of", name))
    }

    /// What to call the place in messages.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The whole object, at most `limit` bytes of it.
    pub async fn get(&self, name: &ObjectName, limit: u64) -> Result<Bytes> {
        let found = match self
            .store
            .get_opts(&self.path(name), GetOptions::default())
            .await
        {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => {
                return Err(Error::ObjectMissing {
                    object: name.to_string(),
                });
            }
            Err(error) => return Err(failed("read", name)(error)),
        };
        if found.meta.size > limit {
            return Err(Error::TooLarge {
                object: name.to_string(),
                limit,
            });
        }
        found.bytes().await.map_err(failed("read", name))
    }

    /// The first `length` bytes of an object, or all of it when it is shorter.
    pub async fn get_start(&self, name: &ObjectName, length: u64) -> Result<Bytes> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..length)),
            ..GetOptions::default()
        };
        match self.store.get_opts(&self.path(name), options).await {
            Ok(found) => found.bytes().await.map_err(failed("read", name)),
            Err(object_store::Error::NotFound { .. }) => Err(Error::ObjectMissing {
                object: name.to_string(),
            }),
            Err(error) => Err(failed("read", name)(error)),
        }
    }

    /// The object's size in bytes; `None` when it is not there.
    pub async fn size(&self, name: &ObjectName) -> Result<Option<u64>> {
        match self.store.head(&self.path(name)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("look up", name)(error)),
        }
    }

    /// Every object below a folder, sorted by name. An error means that the listing is not
    /// complete, and then there is no listing at all.
    pub async fn list(&self, folder: &ObjectName) -> Result<Vec<Listed>> {
        Ok(self.list_with_odd(folder).await?.objects)
    }

    /// The same, and the names there that cannot be an object's.
    pub async fn list_with_odd(&self, folder: &ObjectName) -> Result<Listing> {
        match self.list_objects(folder).await {
            Ok(objects) => Ok(Listing {
                objects,
                odd: Vec::new(),
            }),
            Err(error @ Error::Vault { .. }) => {
                self.lister.go_on(&self.prefix, folder, error).await
            }
            Err(error) => Err(error),
        }
    }

    async fn list_objects(&self, folder: &ObjectName) -> Result<Vec<Listed>> {
        let root = self.path(folder);
        let mut found = self.store.list(Some(&root));
        let mut listed = Vec::new();
        while let Some(meta) = found.try_next().await.map_err(failed("list", folder))? {
            if listed.len() >= LISTED_MAX {
                let limit = u64::try_from(LISTED_MAX).unwrap_or(u64::MAX);
                return Err(Error::TooLarge {
                    object: format!("listing of {folder}"),
                    limit,
                });
            }
            if let Some(name) = self.name_of(&meta.location) {
                listed.push(Listed {
                    name,
                    bytes: meta.size,
                    modified: meta.last_modified,
                });
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    /// Names of the clusters that have objects here.
    pub async fn clusters(&self) -> Result<Vec<ClusterName>> {
        let Some(folder) = ObjectName::listed(layout::CLUSTERS) else {
            return Ok(Vec::new());
        };
        let root = self.path(&folder);
        let found = self.store.list_with_delimiter(Some(&root)).await;
        let mut names: Vec<ClusterName> = match found.map_err(failed("list", &folder)) {
            Ok(found) => {
                let folders = found.common_prefixes.iter();
                folders
                    .filter_map(|path| path.filename()?.parse().ok())
                    .collect()
            }
            // A bucket that is not there holds nothing; what is stored next is told so.
            Err(error) if says_no_bucket(&error) => Vec::new(),
            Err(error) => {
                let listing = self.lister.go_on(&self.prefix, &folder, error).await?;
                let second = |one: &Listed| one.name.as_str().split('/').nth(1)?.parse().ok();
                listing.objects.iter().filter_map(second).collect()
            }
        };
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn path(&self, name: &ObjectName) -> path::Path {
        name.as_str()
            .split('/')
            .fold(self.prefix.clone(), path::Path::join)
    }

    fn name_of(&self, location: &path::Path) -> Option<ObjectName> {
        let mut segments = location.prefix_match(&self.prefix)?.peekable();
        segments.peek()?;
        let names: Vec<String> = segments
            .map(|segment| segment.as_ref().to_owned())
            .collect();
        ObjectName::listed(&names.join("/"))
    }
}

fn parse_prefix(prefix: &str) -> Result<path::Path> {
    path::Path::parse(prefix).map_err(|error| Error::VaultSettings {
        reason: format!("prefix {prefix:?}: {error}"),
    })
}

/// S3's code for it is the only trace: a failed listing has no kind of its own in the library.
fn says_no_bucket(error: &Error) -> bool {
    let Error::Vault { source, .. } = error else {
        return false;
    };
    let cause: Option<&(dyn std::error::Error + 'static)> = Some(source.as_ref());
    let mut causes = std::iter::successors(cause, |cause| cause.source());
    causes.any(|cause| cause.to_string().contains("NoSuchBucket"))
}

fn failed(action: &'static str, name: &ObjectName) -> impl FnOnce(object_store::Error) -> Error {
    let object = name.to_string();
    move |source| refusal::explain(action, object, source)
}
