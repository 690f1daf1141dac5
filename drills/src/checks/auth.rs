//! Users, roles and whether they are in force are as in the backup.
//!
//! Looked at in the restored database itself, since asking would need a password: in the file
//! before the boot where the target has one, else by the member's own process when it has booted.

use std::path::Path;

use bytes::Bytes;
use holdfast_proto::etcd::rpc;
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::{Auth, EtcdFile};
use tonic::{Code, Status};

use super::{Doubt, Finding, Subject, failed};
use crate::auth::AuthFacts;
use crate::client::answer;
use crate::error::Error;

pub(super) async fn check(subject: &Subject) -> Finding {
    let expected = AuthFacts::of(&subject.expected.auth);
    let found = match (&subject.facts.member_auth, &subject.facts.restored_file) {
        (Some(told), _) => told.clone(),
        (None, Some(file)) => {
            let file = file.clone();
            let read = tokio::task::spawn_blocking(move || auth_of(&file)).await;
            let read = read.map_err(|error| Doubt::Inconclusive(error.to_string()))?;
            let unreadable = |error| Doubt::Failed(format!("cannot be read back: {error}"));
            AuthFacts::of(&read.map_err(unreadable)?)
        }
        (None, None) => {
            let reason = "neither a file nor the member tells".to_owned();
            return Err(Doubt::Inconclusive(reason));
        }
    };
    if found != expected {
        return failed(format!(
            "auth is {} with {} users and {} roles, the backup has it {} with {} and {}",
            on_off(found.is_enabled),
            found.users,
            found.roles,
            on_off(expected.is_enabled),
            expected.users,
            expected.roles
        ));
    }
    let (users, roles) = (found.users, found.roles);
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
