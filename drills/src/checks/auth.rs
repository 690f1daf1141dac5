//! Users, roles and whether they are in force are as in the backup.
//!
//! Looked at in the restored database itself, since asking would need a password: in the file
//! before the boot where the target has one, else in a snapshot of the booted member.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use holdfast_proto::etcd::rpc;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::{Auth, EtcdFile};

use super::{Doubt, Finding, Subject, failed};
use crate::client::answer;

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
    Ok(format!(
        "{}, {} users, {} roles",
        on_off(found.is_enabled),
        found.users.len(),
        found.roles.len()
    ))
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
