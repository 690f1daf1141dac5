//! Copies of the first vault: opened without taking an empty place for one, and how each stands.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use holdfast_restore::copy::{Standing, standing};
use holdfast_restore::vault::VaultSpec;
use holdfast_restore::{Catalog, Error, ReadOnly, ReadWrite, Signer, UniqueId, Vault};
use serde::Serialize;

use crate::config::{CopyVault, Settings};
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::health::moment;
use crate::keys;

/// Longest wait for one copy to say how it stands: the others are told of all the same.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a copy may lack something before a person should look.
const LATE_AFTER: TimeDelta = TimeDelta::hours(1);

/// How a copy stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CopyStatus {
    /// Its name.
    pub(crate) vault: String,
    /// In a word.
    pub(crate) state: CopyState,
    /// What it holds and lacks; `None` when it could not be read.
    pub(crate) standing: Option<Standing>,
    /// Since when it is behind or failing, as far as is known.
    pub(crate) since: Option<DateTime<Utc>>,
    /// Why it is failing.
    pub(crate) reason: Option<String>,
}

/// How a copy stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyState {
    /// It holds everything.
    Ok,
    /// Something is still to come.
    Behind,
    /// It cannot be reached, or refuses what is to come.
    Failing,
}

impl CopyStatus {
    fn of(name: &str, read: Result<Standing, String>) -> Self {
        let vault = name.to_owned();
        match read {
            Ok(standing) => Self {
                vault,
                state: if standing.is_level() {
                    CopyState::Ok
                } else {
                    CopyState::Behind
                },
                since: standing.since,
                standing: Some(standing),
                reason: None,
            },
            Err(reason) => Self {
                vault,
                state: CopyState::Failing,
                standing: None,
                since: None,
                reason: Some(reason),
            },
        }
    }

    /// Nothing was asked of it yet.
    #[cfg(test)]
    pub(crate) fn unknown(name: &str) -> Self {
        Self::of(name, Err("not asked".to_owned()))
    }

    /// What the daemon's own last try says besides: a copy can be read and refuse what is new.
    pub(crate) fn tried(&mut self, failing_since: DateTime<Utc>, reason: &str) {
        if self.state != CopyState::Ok {
            self.state = CopyState::Failing;
            let since = self.since.unwrap_or(failing_since);
            self.since = Some(since.min(failing_since));
            self.reason = self.reason.take().or_else(|| Some(reason.to_owned()));
        }
    }

    /// What a person must look at, at `now`.
    pub(crate) fn problem(&self, now: DateTime<Utc>) -> Option<String> {
        let is_late = self.since.is_some_and(|since| now - since > LATE_AFTER);
        match self.state {
            CopyState::Failing => Some(format!("the copy {self}")),
            CopyState::Behind if is_late => Some(format!("the copy {self}")),
            CopyState::Ok | CopyState::Behind => None,
        }
    }
}

impl fmt::Display for CopyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            CopyState::Ok => "ok",
            CopyState::Behind => "behind",
            CopyState::Failing => "FAILING",
        };
        write!(f, "{} {state}", self.vault)?;
        if let Some(standing) = &self.standing {
            write!(f, ", {} backups", standing.held)?;
            if !standing.is_level() {
                let (backups, deltas) = (standing.behind, standing.deltas_behind);
                write!(f, ", lacks {backups} backups and {deltas} deltas")?;
            }
        }
        if let Some(since) = self.since {
            write!(f, ", since {}", moment(since))?;
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// How every copy stands beside what `first` holds. One that does not answer delays none.
pub(crate) async fn statuses(
    settings: &Settings,
    (first, catalog): (&Vault<ReadOnly>, &Catalog),
) -> Vec<CopyStatus> {
    let look = |copy: CopyVault| {
        async move {
            let reading = read_one(settings, &copy, (first, catalog));
            let read = match tokio::time::timeout(LOOK_TIMEOUT, reading).await {
                Ok(read) => read.map_err(|failure| failure.line()),
                Err(_elapsed) => Err("it does not answer in time".to_owned()),
            };
            CopyStatus::of(copy.name.as_str(), read)
        }
        .boxed()
    };
    let copies = settings.config.restore.copies.iter().cloned();
    let looks: Vec<BoxFuture<'_, CopyStatus>> = copies.map(look).collect();
    join_all(looks).await
}

async fn read_one(
    settings: &Settings,
    copy: &CopyVault,
    (first, catalog): (&Vault<ReadOnly>, &Catalog),
) -> Result<Standing, Failure> {
    let what = || format!("the copy `{}` cannot be read", copy.name);
    let spec = settings.resolve_vault(&copy.vault);
    let vault = match Vault::<ReadOnly>::open(&spec).await {
        Ok(vault) => vault,
        // It is made with its first backup.
        Err(Error::NotAVault { .. }) if known(settings, copy)?.is_none() => {
            return Ok(Standing::nothing_of(catalog));
        }
        Err(Error::NotAVault { .. }) => return Err(lost(copy, &spec)),
        Err(error) => return Err(error).or_fail(what()),
    };
    let stands = standing(first, catalog, &vault).await;
    stands.or_fail(what())
}

/// Opens a copy for writing. An empty place becomes one at first, and when a new one is meant; one
/// that this host knows and that is gone, or is another, is an error: a lost mount must not fill
/// the disk below it.
pub(crate) async fn write(
    settings: &Settings,
    copy: &CopyVault,
    (signer, now): (&Signer, DateTime<Utc>),
    is_new: bool,
) -> Result<Vault<ReadWrite>, Failure> {
    let spec = settings.resolve_vault(&copy.vault);
    let what = || {
        format!(
            "the copy `{}` at {} cannot be written",
            copy.name,
            spec.location()
        )
    };
    let before = known(settings, copy)?;
    let opened = match Vault::<ReadWrite>::open(&spec).await {
        Err(Error::NotAVault { .. }) if is_new || before.is_none() => {
            Vault::open_or_create(&spec, now, &signer.verifier()).await
        }
        Err(Error::NotAVault { .. }) => return Err(lost(copy, &spec)),
        opened => opened,
    };
    let vault = opened.or_fail(what())?;
    let id = vault.id().await.or_fail(what())?;
    match before {
        Some(before) if before == id => {}
        Some(_) if !is_new => {
            let what = format!("at {} is another vault than before", spec.location());
            return Err(Failure::new(ErrorName::InUse, what).next(format!(
                "see that the copy `{0}` is the right one; where it is, `holdfast vault copy first \
                 {0} --new` takes it",
                copy.name
            )));
        }
        _ => remember(settings, copy, id)?,
    }
    Ok(vault)
}

/// Where the first vault cannot be read, the copies can.
pub(crate) fn offer(settings: &Settings, failure: Failure) -> Failure {
    let copies = settings.config.restore.copies.iter();
    let names: Vec<&str> = copies.map(|copy| copy.name.as_str()).collect();
    if names.is_empty() || settings.is_at_copy() {
        return failure;
    }
    failure.next(format!(
        "a copy may have what is wanted: `holdfast restore --vault NAME` and `holdfast backup list \
         --vault NAME` read from it; there is {}",
        names.join(", ")
    ))
}

fn lost(copy: &CopyVault, spec: &VaultSpec) -> Failure {
    let what = format!("the copy `{}` is gone from {}", copy.name, spec.location());
    Failure::new(ErrorName::NotFound, what).next(format!(
        "mount it, or correct `restore.copies`; where it is gone for good, `holdfast vault copy \
         first {} --new` makes a new one",
        copy.name
    ))
}

/// Where this host keeps which vault a copy was.
fn known_file(settings: &Settings, copy: &CopyVault) -> PathBuf {
    let name = format!("{}.json", copy.name);
    settings.data_dir().join("copies").join(name)
}

fn known(settings: &Settings, copy: &CopyVault) -> Result<Option<UniqueId>, Failure> {
    let file = known_file(settings, copy);
    let what = || format!("{} cannot be read", file.display());
    match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Failure::new(ErrorName::Corrupt, what()).because(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).or_fail(what()),
    }
}

fn remember(settings: &Settings, copy: &CopyVault, id: UniqueId) -> Result<(), Failure> {
    let file = known_file(settings, copy);
    let what = format!("{} cannot be written", file.display());
    if let Some(dir) = file.parent() {
        keys::make_private_dir(dir)?;
    }
    let text = serde_json::to_vec(&id).map_err(|e| Failure::unexpected(what.clone(), &e))?;
    holdfast_store::datadir::durable::write_file(&file, &text).or_fail(what)
}
