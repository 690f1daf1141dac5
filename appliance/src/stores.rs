//! The bundled store inside the daemon: started from our settings, read by backups, stopped last.

pub(crate) mod flags;
pub(crate) mod lost;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use holdfast_restore::Source;
use holdfast_restore::source::{BundledSource, ClusterSource, Overflow};
use holdfast_store::api::StoreServer;
use holdfast_store::error::Error as StoreError;
use holdfast_store::member::Member;
use holdfast_store::options::{Invocation, StoreOptions};

use crate::config::{Settings, Store};
use crate::failure::{ErrorName, Failure, OrFail as _};

/// The version the bundled store tells of itself in manifests.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A running store.
#[derive(Debug)]
pub(crate) struct RunningStore {
    server: StoreServer,
    is_clustered: bool,
}

/// The member of a running store; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RunningMember {
    member: Member,
    is_clustered: bool,
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
        Ok(Self {
            server,
            is_clustered: settings.config.store.is_clustered(),
        })
    }

    /// The member, to hand to jobs.
    pub(crate) fn member(&self) -> RunningMember {
        RunningMember {
            member: self.server.member().clone(),
            is_clustered: self.is_clustered,
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

    /// Whether it is, or was made to be, one of several.
    pub(crate) fn is_clustered(&self) -> bool {
        self.is_clustered
    }

    /// The term of its group.
    pub(crate) fn term(&self) -> u64 {
        self.member.term()
    }

    /// Whether it leads now, as far as a quorum confirmed it lately.
    pub(crate) fn is_leader(&self) -> bool {
        self.member.is_leader()
    }

    /// Whether nobody else has a vote.
    pub(crate) fn is_alone(&self) -> bool {
        let members = self.member.state().members();
        let mut voters = members.iter().filter(|one| !one.is_learner);
        voters.next().is_some() && voters.next().is_none()
    }

    /// The name of the leader, when there is one.
    pub(crate) fn leader_name(&self) -> Option<String> {
        let leader = self.member.leader()?;
        let members = self.member.state().members();
        let known = members.into_iter().find(|one| one.id == leader.0);
        let name = known.map(|one| one.name).filter(|name| !name.is_empty());
        Some(name.unwrap_or_else(|| leader.to_string()))
    }

    /// Whether anybody leads, as far as this member heard lately.
    pub(crate) fn has_leader(&self) -> bool {
        self.member.leader().is_some()
    }

    /// Its own name.
    pub(crate) fn name(&self) -> String {
        self.member.options().name.clone()
    }

    /// How long a lead counts that no quorum acknowledges: the longest election timeout.
    pub(crate) fn lease(&self) -> Duration {
        2 * self.member.options().election_timeout
    }

    /// Confirms with a quorum that it leads in `term`.
    pub(crate) async fn confirm_lead(&self, term: u64) -> Result<(), StoreError> {
        self.member.confirm_lead(term).await
    }

    /// This member alone as a source.
    pub(crate) fn itself(&self) -> BundledSource {
        let status = self.member.status();
        BundledSource::new(
            Arc::clone(self.member.state()),
            status.cluster_id.0,
            status.member_id.0,
            VERSION,
        )
    }

    /// The store as a source of backups: a healthy follower of its cluster, else itself.
    pub(crate) fn source(&self, overflow: Overflow) -> Result<Box<dyn Source>, Failure> {
        let status = self.member.status();
        let source = self.itself().with_overflow(overflow);
        let members = self.member.state().members();
        let others = members.iter().filter(|one| one.id != status.member_id.0);
        let mut others = others.filter(|one| !one.client_urls.is_empty());
        if others.next().is_none() {
            return Ok(Box::new(source));
        }
        let urls = members.iter().filter_map(|one| one.client_urls.first());
        let cluster = ClusterSource::new(source, urls.cloned().collect())
            .or_fail("the members of the bundled store cannot be read")?;
        Ok(Box::new(cluster))
    }

    /// Returns when it cannot go on, with the reason.
    pub(crate) async fn failed(&self) -> String {
        self.member.failed().await
    }
}

/// Whether other members of the configured cluster answer as ones of a running cluster.
pub(crate) async fn is_cluster_running(settings: &Settings) -> Result<bool, Failure> {
    if !settings.config.store.is_clustered() {
        return Ok(false);
    }
    StoreServer::is_cluster_running(&options(settings)?)
        .await
        .or_fail("the other members of the cluster cannot be asked")
}

/// Whether the section `store` makes sense; nothing is started.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    if settings.config.store.enabled {
        options(settings)?;
    }
    Ok(())
}

/// The founding members, as etcd's `--initial-cluster` has them.
fn members(store: &Store) -> Vec<String> {
    if !store.initial_cluster.is_empty() || store.discovery.is_used() {
        return store.initial_cluster.clone();
    }
    let own = store.peer_urls.iter();
    own.map(|url| format!("{}={url}", store.name)).collect()
}

/// The settings in etcd's own words, so that each key means what etcd's flag means.
fn options(settings: &Settings) -> Result<StoreOptions, Failure> {
    let store = &settings.config.store;
    let peer_urls = store.peer_urls.join(",");
    let members = members(store);
    let listen_peers = if store.listen_peer_urls.is_empty() {
        &store.peer_urls
    } else {
        &store.listen_peer_urls
    };
    let advertised = if store.advertise_client_urls.is_empty() {
        &store.listen_client_urls
    } else {
        &store.advertise_client_urls
    };
    let mut flags = vec![
        ("--name", store.name.clone()),
        ("--data-dir", settings.store_dir().display().to_string()),
        ("--listen-client-urls", store.listen_client_urls.join(",")),
        ("--advertise-client-urls", advertised.join(",")),
        ("--listen-peer-urls", listen_peers.join(",")),
        ("--initial-advertise-peer-urls", peer_urls),
        ("--initial-cluster", members.join(",")),
        (
            "--initial-cluster-state",
            store.initial_cluster_state.clone(),
        ),
        (
            "--initial-cluster-token",
            store.initial_cluster_token.clone(),
        ),
        ("--quota-backend-bytes", store.quota.bytes().to_string()),
        ("--auto-compaction-mode", store.auto_compaction.mode.clone()),
        (
            "--auto-compaction-retention",
            store.auto_compaction.retention.clone(),
        ),
    ];
    flags.extend(flags::between_members(settings));
    flags.extend(flags::discovery(settings)?);
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
            if !store.is_clustered() {
                // A member by itself has no peers; another process may well have the port.
                options.listen.peer_urls.clear();
            }
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
