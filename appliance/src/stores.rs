//! The bundled store inside the daemon: started from our settings, read by backups, stopped last.

pub(crate) mod lost;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use holdfast_restore::Source;
use holdfast_restore::source::{BundledSource, Overflow};
use holdfast_store::api::StoreServer;
use holdfast_store::member::Member;
use holdfast_store::options::{Invocation, StoreOptions};

use crate::config::Settings;
use crate::failure::{ErrorName, Failure, OrFail as _};

/// The version the bundled store tells of itself in manifests.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A running store.
#[derive(Debug)]
pub(crate) struct RunningStore {
    server: StoreServer,
}

/// The member of a running store; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RunningMember {
    member: Member,
}

impl RunningStore {
    /// Starts the store that the settings describe and waits until it serves.
    pub(crate) async fn start(settings: &Settings) -> Result<Self, Failure> {
        let dir = settings.store_dir();
        let options = options(settings)?;
        let server = StoreServer::start(options).await.or_fail(format!(
            "the bundled store in {} was not started",
            dir.display()
        ))?;
        for address in server.client_addresses() {
            tracing::info!(%address, "the bundled store serves");
        }
        Ok(Self { server })
    }

    /// The member, to hand to jobs.
    pub(crate) fn member(&self) -> RunningMember {
        RunningMember {
            member: self.server.member().clone(),
        }
    }

    /// Stops it in order.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.server
            .stop()
            .await
            .or_fail("the bundled store was not stopped in order")
    }
}

impl RunningMember {
    /// The id of its cluster.
    pub(crate) fn cluster_id(&self) -> u64 {
        self.member.status().cluster_id.0
    }

    /// What keeps it from serving now.
    pub(crate) fn faults(&self) -> Vec<String> {
        let status = self.member.status();
        let mut faults = status.errors;
        if status.leader.is_none() {
            faults.push("the bundled store has no leader".to_owned());
        }
        faults
    }

    /// The store as a source of backups.
    pub(crate) fn source(&self, overflow: Overflow) -> Box<dyn Source> {
        let status = self.member.status();
        let source = BundledSource::new(
            Arc::clone(self.member.state()),
            status.cluster_id.0,
            status.member_id.0,
            VERSION,
        );
        Box::new(source.with_overflow(overflow))
    }

    /// Returns when it cannot go on, with the reason.
    pub(crate) async fn failed(&self) -> String {
        self.member.failed().await
    }
}

/// Whether the section `store` makes sense; nothing is started.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    if settings.config.store.enabled {
        options(settings)?;
    }
    Ok(())
}

/// The settings in etcd's own words, so that each key means what etcd's flag means.
fn options(settings: &Settings) -> Result<StoreOptions, Failure> {
    let store = &settings.config.store;
    let peer_urls = store.peer_urls.join(",");
    let members: Vec<String> = store
        .peer_urls
        .iter()
        .map(|url| format!("{}={url}", store.name))
        .collect();
    let advertised = if store.advertise_client_urls.is_empty() {
        &store.listen_client_urls
    } else {
        &store.advertise_client_urls
    };
    let flags = [
        ("--name", store.name.clone()),
        ("--data-dir", settings.store_dir().display().to_string()),
        ("--listen-client-urls", store.listen_client_urls.join(",")),
        ("--advertise-client-urls", advertised.join(",")),
        ("--listen-peer-urls", peer_urls.clone()),
        ("--initial-advertise-peer-urls", peer_urls),
        ("--initial-cluster", members.join(",")),
        ("--quota-backend-bytes", store.quota.bytes().to_string()),
        ("--auto-compaction-mode", store.auto_compaction.mode.clone()),
        (
            "--auto-compaction-retention",
            store.auto_compaction.retention.clone(),
        ),
    ];
    let words = flags
        .into_iter()
        .map(|(flag, value)| OsString::from(format!("{flag}={value}")));
    let invalid = |cause: String| {
        Failure::new(
            ErrorName::ConfigInvalid,
            "the section `store` cannot be used",
        )
        .because_of(cause)
    };
    match StoreOptions::from_args(words, &BTreeMap::new()) {
        Ok(Invocation::Run { options, warnings }) => {
            for warning in warnings {
                tracing::warn!(warning, "store settings");
            }
            let mut options = *options;
            // A member by itself has no peers; another process may well have the port.
            options.listen.peer_urls.clear();
            if store.advertise_client_urls.is_empty() {
                // Port 0 is known only once it is bound.
                options.advertise_client_urls.clear();
            }
            Ok(options)
        }
        Ok(_) => Err(invalid(
            "it asks for something else than a store".to_owned(),
        )),
        Err(error) => Err(invalid(error.to_string())),
    }
}
