//! `--discovery-srv`: founders found in DNS, `_etcd-server-ssl[-NAME]._tcp.DOMAIN` for those that
//! are reached by https and `_etcd-server[-NAME]._tcp.DOMAIN` for the others.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::net::lookup_host;

use crate::datadir::bootstrap::NewCluster;
use crate::dns;
use crate::error::Error;

/// The services of founders, and how they are reached.
const SERVICES: [(&str, &str); 2] = [("etcd-server-ssl", "https"), ("etcd-server", "http")];

/// `--discovery-srv` and `--discovery-srv-name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SrvDiscovery {
    /// The domain.
    pub domain: String,
    /// What follows the service's name after a dash; may be empty.
    pub service: String,
}

/// The founders that DNS names; this member is the one whose address is its own.
///
/// # Errors
/// When there are no records, or none is this member's.
pub(super) async fn discover(own: &NewCluster, srv: &SrvDiscovery) -> Result<NewCluster, Error> {
    discover_at(own, srv, &dns::system_servers()).await
}

async fn discover_at(
    own: &NewCluster,
    srv: &SrvDiscovery,
    servers: &[SocketAddr],
) -> Result<NewCluster, Error> {
    let refused = |reason: String| Error::Option {
        option: "discovery-srv",
        reason,
    };
    let suffix = match srv.service.as_str() {
        "" => String::new(),
        service => format!("-{service}"),
    };
    let own_urls = own.initial_cluster.iter().flat_map(|(_, urls)| urls);
    let own_urls: Vec<String> = own_urls.cloned().collect();
    let own_addresses = addresses(&own_urls).await;
    let mut initial_cluster: Vec<(String, Vec<String>)> = Vec::new();
    let mut failures = Vec::new();
    for (service, scheme) in SERVICES {
        let service = format!("_{service}{suffix}._tcp.{}", srv.domain);
        let targets = match dns::services(&service, servers).await {
            Ok(targets) => targets,
            Err(error) => {
                failures.push(format!(
                    "error querying DNS SRV records for {service}: {error}"
                ));
                continue;
            }
        };
        for target in &targets {
            let url = format!("{scheme}://{}:{}", target.host, target.port);
            let found = addresses(std::slice::from_ref(&url)).await;
            let name = if found.is_disjoint(&own_addresses) {
                initial_cluster.len().to_string()
            } else if own_urls.iter().any(|own| has_scheme(own, scheme)) {
                own.name.clone()
            } else {
                failures.push(format!(
                    "bootstrap at {url} from DNS for {service} has scheme mismatch with expected \
                     peer {}",
                    own_urls.join(",")
                ));
                continue;
            };
            tracing::info!(name, url, "got a founder from DNS");
            match initial_cluster.iter_mut().find(|(known, _)| *known == name) {
                Some((_, urls)) => urls.push(url),
                None => initial_cluster.push((name, vec![url])),
            }
        }
    }
    if !initial_cluster.iter().any(|(name, _)| *name == own.name) {
        failures.push(format!(
            "cannot find local etcd member \"{}\" in SRV records: none of them leads to {}",
            own.name,
            own_urls.join(",")
        ));
        return Err(refused(failures.join("; ")));
    }
    Ok(NewCluster {
        initial_cluster,
        ..own.clone()
    })
}

fn has_scheme(url: &str, scheme: &str) -> bool {
    url.split_once("://").is_some_and(|(own, _)| own == scheme)
}

/// The addresses behind URLs; one that has none is left out.
async fn addresses(urls: &[String]) -> BTreeSet<SocketAddr> {
    let mut all = BTreeSet::new();
    for url in urls {
        let place = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        match lookup_host(place.trim_end_matches('/')).await {
            Ok(found) => all.extend(found),
            Err(error) => tracing::warn!(url, %error, "the address of a member is not known"),
        }
    }
    all
}

#[cfg(test)]
mod tests;
