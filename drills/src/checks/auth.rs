//! Users, roles and whether they are in force are as in the backup.
//!
//! Looked at in the restored database itself, since asking would need a password: in the file
//! before the boot where the target has one, else in a snapshot of the booted member.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::{Auth, EtcdFile};

use tonic::{Code, Status};

use super::{Doubt, Finding, Subject, failed};
use crate::client::answer;
use crate::error::Error;

pub(super) async fn check(subject: &Subject) -> Finding {
    let expected = &subject.expected.auth;
    let file = match &subject.facts.restored_file {
        Some(file) => file.clone(),
        None => snapshot(subject).await?,
    };
    let read = tokio::task::spawn_blocking(move || read_auth(&file));
    let found = read
        .await
        .map_err(|error| Doubt::Inconclusive(error.to_string()))??;
    if found != *expected {
        return failed(format!(
            "auth is {} with {} users and {} roles, the backup has it {} with {} and {}",
            on_off(found.is_enabled),
            found.users.len(),
            found.roles.len(),
            on_off(expected.is_enabled),
            expected.users.len(),
            expected.roles.len()
        ));
    }
    let (users, roles) = (found.users.len(), found.roles.len());
    let records = format!("{}, {users} users, {roles} roles", on_off(found.is_enabled));
    if !found.is_enabled {
        return Ok(records);
    }
    let Some(stranger) = subject.client.stranger() else {
        return Ok(format!(
            "{records}; the scratch member was told to serve without it"
        ));
    };
    let request = rpc::RangeRequest {
        key: Bytes::from_static(b"\0"),
        ..rpc::RangeRequest::default()
    };
    match answer(stranger.kv().range(request)).await {
        Ok(_) => failed("auth is on and a caller without a user is answered"),
        Err(status) if is_refusal(&status) => Ok(format!(
            "{records}; in force: a caller without a user is refused, a root token is let in"
        )),
        Err(status) => Err(status.into()),
    }
}

/// How etcd turns a caller without a user away.
fn is_refusal(status: &Status) -> bool {
    status.code() == Code::InvalidArgument && status.message().contains("user name is empty")
}

/// Users, roles and whether they are in force, as a database file holds them.
pub(crate) fn auth_of(path: &Path) -> crate::error::Result<Auth> {
    let source = FileSource::open(path).map_err(Error::io("open", path))?;
    EtcdFile::open(source)
        .and_then(|file| file.auth())
        .map_err(|source| Error::Content { source })
}

fn on_off(is_enabled: bool) -> &'static str {
    if is_enabled { "on" } else { "off" }
}

fn read_auth(path: &Path) -> Result<Auth, Doubt> {
    let unreadable = |error: String| Doubt::Failed(format!("cannot be read back: {error}"));
    let source = FileSource::open(path).map_err(|error| unreadable(error.to_string()))?;
    let file = EtcdFile::open(source).map_err(|error| unreadable(error.to_string()))?;
    file.auth().map_err(|error| unreadable(error.to_string()))
}

/// Streams a snapshot of the member into the scratch directory. The restored data lies there in
/// clear anyway.
async fn snapshot(subject: &Subject) -> Result<PathBuf, Doubt> {
    let path = subject.facts.scratch.join("served.db");
    let failed_to = |error: std::io::Error| Doubt::Inconclusive(format!("a snapshot: {error}"));
    let mut file = std::fs::File::create_new(&path).map_err(failed_to)?;
    let mut maintenance = subject.client.maintenance();
    let mut stream = answer(maintenance.snapshot(rpc::SnapshotRequest {})).await?;
    while let Some(message) = stream.message().await? {
        file.write_all(&message.blob).map_err(failed_to)?;
    }
    Ok(path)
}
