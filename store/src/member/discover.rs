//! etcd's discovery v3: founders that do not know each other meet under a key of another cluster.
//!
//! Under `/_etcd/registry/<token>` an operator puts the number of members; each founder registers
//! itself there and waits until all have. Who registered first is in, by create revision.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::etcd::kv::KeyValue;
use holdfast_proto::etcd::rpc;
use holdfast_proto::etcd::rpc::auth_client::AuthClient;
use holdfast_proto::etcd::rpc::kv_client::KvClient;
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::time::sleep;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

use crate::consensus::peer::{Dialers, TcpDialer, dial_url};
use crate::datadir::bootstrap::{MEMBERS_MAX, NewCluster};
use crate::datadir::identity::member_id;
use crate::error::{Error, chain};
use crate::tls::{Tls, TlsOptions};

/// Where founders meet.
const REGISTRY: &str = "/_etcd/registry";
/// How often a founder looks for the others.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The longest pause after an attempt that failed.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// `--discovery-token`, `--discovery-endpoints` and what goes with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// Client URLs of the cluster that keeps the registry.
    pub endpoints: Vec<String>,
    /// Tells clusters in the registry apart; also the new cluster's token.
    pub token: String,
    /// User and password there, when it wants them.
    pub user: Option<(String, DiscoveryPassword)>,
    /// How long a connection may take. Default 2 s.
    pub dial_timeout: Duration,
    /// How long a request may take. Default 5 s.
    pub request_timeout: Duration,
    /// After so much silence the service is asked whether it is there. Default 2 s.
    pub keepalive_time: Duration,
    /// How long it may take to say so. Default 6 s.
    pub keepalive_timeout: Duration,
    /// TLS to endpoints of https.
    pub tls: Option<TlsOptions>,
}

/// A password that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct DiscoveryPassword(pub String);

impl std::fmt::Debug for DiscoveryPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiscoveryPassword")
    }
}

/// What is wrong with one look at the registry.
enum Trouble {
    /// It may be better later.
    Passing(String),
    /// Only the operator can help.
    Lasting(String),
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        Self::Passing(status.message().to_owned())
    }
}

/// Registers this member and returns once all founders have: the cluster they form.
///
/// # Errors
/// When the registry says that there is no such cluster to be, or that it is complete.
pub(super) async fn discover(own: &NewCluster, discovery: &Discovery) -> Result<NewCluster, Error> {
    let mut pause = LOOK_INTERVAL;
    let tls = discovery.tls.clone().map(Tls::open).transpose()?;
    let dialers = Dialers {
        plain: Arc::new(TcpDialer),
        tls: tls.map(Arc::new),
    };
    loop {
        let found = match Registry::open(own, discovery, &dialers).await {
            Ok(mut registry) => registry.meet().await,
            Err(trouble) => Err(trouble),
        };
        match found {
            Ok(initial_cluster) => {
                return Ok(NewCluster {
                    name: own.name.clone(),
                    initial_cluster,
                    token: discovery.token.clone(),
                });
            }
            Err(Trouble::Lasting(reason)) => {
                return Err(Error::Option {
                    option: "discovery-token",
                    reason,
                });
            }
            Err(Trouble::Passing(reason)) => {
                tracing::warn!(reason, "the discovery service does not answer; tried again");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The registry's keys of one cluster to be.
struct Registry {
    kv: KvClient<Channel>,
    /// Goes with each request once the user is known.
    auth: Option<MetadataValue<Ascii>>,
    request_timeout: Duration,
    prefix: String,
    own_key: String,
    /// `name=url,name=url` of this member.
    own_value: String,
}

impl Registry {
    async fn open(
        own: &NewCluster,
        discovery: &Discovery,
        dialers: &Dialers,
    ) -> Result<Self, Trouble> {
        let urls = own.initial_cluster.iter().flat_map(|(_, urls)| urls);
        let mut urls: Vec<String> = urls.cloned().collect();
        urls.sort_unstable();
        let id = member_id(&urls, &discovery.token);
        let prefix = format!("{REGISTRY}/{}", discovery.token);
        let named = urls.iter().map(|url| format!("{}={url}", own.name));
        let channel = connect(discovery, dialers).await?;
        Ok(Self {
            auth: sign_in(&channel, discovery).await?,
            kv: KvClient::new(channel),
            request_timeout: discovery.request_timeout,
            own_key: format!("{prefix}/members/{id}"),
            own_value: named.collect::<Vec<_>>().join(","),
            prefix,
        })
    }

    /// Registers and waits for the others.
    async fn meet(&mut self) -> Result<Vec<(String, Vec<String>)>, Trouble> {
        let size = self.size().await?;
        let mut members = self.members().await?;
        if !members.iter().any(|member| self.is_own(member)) {
            if members.len() >= size {
                return Err(full(&self.prefix, size));
            }
            self.register().await?;
        }
        tracing::info!(prefix = self.prefix, size, "waiting for the other founders");
        loop {
            members = self.members().await?;
            if members.len() >= size {
                break;
            }
            sleep(LOOK_INTERVAL).await;
        }
        members.truncate(size);
        if !members.iter().any(|member| self.is_own(member)) {
            return Err(full(&self.prefix, size));
        }
        cluster(&members).map_err(Trouble::Lasting)
    }

    fn is_own(&self, member: &KeyValue) -> bool {
        member.key == self.own_key.as_bytes()
    }

    async fn size(&mut self) -> Result<usize, Trouble> {
        let key = format!("{}/_config/size", self.prefix);
        let found = self.range(key.clone(), String::new()).await?;
        let Some(size) = found.first() else {
            return Err(Trouble::Lasting(format!(
                "discovery: size key not found: put the number of members under {key} first"
            )));
        };
        let size = std::str::from_utf8(&size.value).ok();
        let size = size.and_then(|text| text.trim().parse::<usize>().ok());
        size.filter(|size| (1..=MEMBERS_MAX).contains(size))
            .ok_or_else(|| {
                Trouble::Lasting(format!(
                    "discovery: size key is bad: {key} is to hold a number of 1 to {MEMBERS_MAX}"
                ))
            })
    }

    /// Who is registered, in the order in which they came.
    async fn members(&mut self) -> Result<Vec<KeyValue>, Trouble> {
        let start = format!("{}/members/", self.prefix);
        // The next byte after the slash.
        let end = format!("{}/members0", self.prefix);
        let mut members = self.range(start, end).await?;
        members.sort_by_key(|member| member.create_revision);
        Ok(members)
    }

    async fn register(&mut self) -> Result<(), Trouble> {
        let put = rpc::PutRequest {
            key: self.own_key.clone().into(),
            value: self.own_value.clone().into(),
            ..rpc::PutRequest::default()
        };
        let request = self.request(put);
        self.kv.put(request).await?;
        Ok(())
    }

    async fn range(&mut self, key: String, range_end: String) -> Result<Vec<KeyValue>, Trouble> {
        let range = rpc::RangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            ..rpc::RangeRequest::default()
        };
        let request = self.request(range);
        Ok(self.kv.range(request).await?.into_inner().kvs)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.request_timeout);
        if let Some(token) = &self.auth {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

fn full(prefix: &str, size: usize) -> Trouble {
    Trouble::Lasting(format!(
        "discovery: cluster is full: {size} other members are registered under {prefix}"
    ))
}

async fn connect(discovery: &Discovery, dialers: &Dialers) -> Result<Channel, Trouble> {
    let mut failures = Vec::new();
    for url in &discovery.endpoints {
        // TLS is the connector's: to the channel all is plain.
        let place = url
            .split_once("://")
            .map_or(url.as_str(), |(_, place)| place);
        let endpoint = Endpoint::from_shared(format!("http://{place}"))
            .map_err(|error| Trouble::Lasting(format!("{url}: {error}")))?;
        let (dialers, dialled) = (dialers.clone(), url.clone());
        let connector = service_fn(move |_: Uri| {
            let (dialers, url) = (dialers.clone(), dialled.clone());
            async move {
                let stream = dial_url(&dialers, &url, &["h2"]).await?;
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        match endpoint
            .connect_timeout(discovery.dial_timeout)
            .http2_keep_alive_interval(discovery.keepalive_time)
            .keep_alive_timeout(discovery.keepalive_timeout)
            .connect_with_connector(connector)
            .await
        {
            Ok(channel) => return Ok(channel),
            Err(error) => failures.push(format!("{url}: {}", chain(&error))),
        }
    }
    Err(Trouble::Passing(failures.join("; ")))
}

async fn sign_in(
    channel: &Channel,
    discovery: &Discovery,
) -> Result<Option<MetadataValue<Ascii>>, Trouble> {
    let Some((name, password)) = &discovery.user else {
        return Ok(None);
    };
    let mut request = Request::new(rpc::AuthenticateRequest {
        name: name.clone(),
        password: password.0.clone(),
    });
    request.set_timeout(discovery.request_timeout);
    let mut auth = AuthClient::new(channel.clone());
    let answer = auth.authenticate(request).await?.into_inner();
    let token = MetadataValue::try_from(answer.token);
    token
        .map(Some)
        .or(Err(Trouble::Passing("its token cannot be used".to_owned())))
}

/// The founders, from what they registered.
fn cluster(members: &[KeyValue]) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut cluster: Vec<(String, Vec<String>)> = Vec::new();
    for member in members {
        let key = String::from_utf8_lossy(&member.key);
        let value = std::str::from_utf8(&member.value).unwrap_or_default();
        for part in value.trim().split(',') {
            let Some((name, url)) = part.split_once('=').filter(|(name, _)| !name.is_empty())
            else {
                return Err(format!("discovery: {key} holds no name=url but {value:?}"));
            };
            if cluster
                .iter()
                .any(|(_, urls)| urls.iter().any(|known| known == url))
            {
                return Err(format!(
                    "discovery: {url} is registered twice, also by {key}"
                ));
            }
            match cluster.iter_mut().find(|(known, _)| known == name) {
                Some((_, urls)) => urls.push(url.to_owned()),
                None => cluster.push((name.to_owned(), vec![url.to_owned()])),
            }
        }
    }
    if cluster.len() != members.len() {
        return Err("discovery: two members registered under one name".to_owned());
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(value: &'static str) -> KeyValue {
        KeyValue {
            key: "/_etcd/registry/t/members/1".into(),
            value: value.into(),
            ..KeyValue::default()
        }
    }

    #[test]
    fn founders_are_read_from_what_they_registered() {
        let founders = [
            registered("a=http://h:1,a=http://h:2"),
            registered("b=http://h:3\n"),
        ];
        let named = |name: &str, urls: &[&str]| {
            let urls = urls.iter().map(|&url| url.to_owned()).collect::<Vec<_>>();
            (name.to_owned(), urls)
        };
        assert_eq!(
            cluster(&founders).unwrap(),
            [
                named("a", &["http://h:1", "http://h:2"]),
                named("b", &["http://h:3"])
            ]
        );
        for wrong in [
            "",
            "http://h:1",
            "=http://h:9",
            "c=http://h:3",
            "b=http://h:9",
        ] {
            let mut founders = founders.to_vec();
            founders.push(registered(wrong));
            assert!(cluster(&founders).is_err(), "{wrong}");
        }
    }
}
