//! Joining a running cluster: who is in it, and which of its members this one is.
//!
//! The ids of a running cluster do not follow from its addresses: members come and go. So a member
//! that joins asks the others on their peer URLs, as etcd does, and finds itself by its own.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use futures::future::join_all;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::consensus::peer::{Dialers, PEER_PROTOCOL_HEADER, dial_url};
use crate::datadir::bootstrap::{ClusterIds, NewCluster};
use crate::datadir::identity::{ClusterId, MemberId};
use crate::error::Error;

/// How long one member may take to say who the members are.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The same, asked only to be sure that a cluster is new.
const NEW_ANSWER_MAX: Duration = Duration::from_secs(1);
/// Bytes of an answer; a cluster is small.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A running cluster, as one of its members describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    cluster: ClusterId,
    members: Vec<RunningMember>,
    /// Whether members of this program answer, not of etcd.
    is_ours: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct RunningMember {
    id: u64,
    #[serde(rename = "peerURLs", default)]
    peer_urls: Vec<String>,
    #[serde(default)]
    name: String,
    #[serde(rename = "clientURLs", default)]
    client_urls: Vec<String>,
}

/// The ids of the running cluster that the options describe, and of this member in it.
///
/// # Errors
/// When nobody answers, or the answer is not the cluster that the options describe.
pub(super) async fn join(cluster: &NewCluster, dialers: &Dialers) -> Result<ClusterIds, Error> {
    let own = own_urls(cluster)?;
    let mut failures = Vec::new();
    for url in other_urls(cluster, &own) {
        match ask(&url, dialers, ANSWER_MAX).await {
            Ok(running) if !running.members.is_empty() => return assign(cluster, &running),
            Ok(_) => failures.push(format!("{url}: it knows no members yet")),
            Err(error) => failures.push(format!("{url}: {error}")),
        }
    }
    if failures.is_empty() {
        failures.push("it names no other member".to_owned());
    }
    Err(refusal(format!(
        "existing, and no member of --initial-cluster tells of a running cluster: {}",
        failures.join("; ")
    )))
}

/// Makes sure that the cluster is new as far as its other members can tell. One that does not
/// answer yet is none of the running ones.
///
/// # Errors
/// When this member has been in the cluster before, or another cluster has one of its addresses.
pub(super) async fn check_new(
    cluster: &NewCluster,
    ids: &ClusterIds,
    dialers: &Dialers,
) -> Result<(), Error> {
    for (url, running) in running_elsewhere(cluster, dialers).await? {
        refuse_old(cluster, ids, &url, &running)?;
    }
    Ok(())
}

/// Whether another member of the described cluster answers and knows its members: the cluster runs
/// already, whoever starts now.
pub(super) async fn is_running(cluster: &NewCluster, dialers: &Dialers) -> bool {
    let running = running_elsewhere(cluster, dialers).await;
    running.is_ok_and(|running| !running.is_empty())
}

/// The members that the other members of the described cluster know, with their peer URLs.
pub(super) async fn members_elsewhere(
    cluster: &NewCluster,
    dialers: &Dialers,
) -> Vec<(u64, Vec<String>)> {
    let running = running_elsewhere(cluster, dialers)
        .await
        .unwrap_or_default();
    let ours = running.into_iter().filter(|(_, told)| told.is_ours);
    let members = ours.flat_map(|(_, told)| told.members);
    let by_id: BTreeMap<u64, Vec<String>> = members
        .map(|member| (member.id, member.peer_urls))
        .collect();
    by_id.into_iter().collect()
}

/// What the other members of the described cluster tell of running ones, by the URL that did. Who
/// does not answer, or knows no members, tells of none.
async fn running_elsewhere(
    cluster: &NewCluster,
    dialers: &Dialers,
) -> Result<Vec<(String, Running)>, Error> {
    let own = own_urls(cluster)?;
    let urls = other_urls(cluster, &own);
    let asked = urls.iter().map(|url| ask(url, dialers, NEW_ANSWER_MAX));
    let answers = join_all(asked).await;
    let mut running = Vec::new();
    for (url, answer) in urls.into_iter().zip(answers) {
        match answer {
            Ok(told) if !told.members.is_empty() => running.push((url, told)),
            Ok(_) => {}
            Err(error) => tracing::debug!(url, %error, "a founder does not answer yet"),
        }
    }
    Ok(running)
}

fn refusal(reason: String) -> Error {
    Error::Option {
        option: "initial-cluster-state",
        reason,
    }
}

fn own_urls(cluster: &NewCluster) -> Result<Vec<String>, Error> {
    let own = cluster
        .initial_cluster
        .iter()
        .find(|(name, _)| *name == cluster.name);
    own.map(|(_, urls)| sorted(urls))
        .ok_or_else(|| Error::Option {
            option: "initial-cluster",
            reason: format!(
                "couldn't find local name \"{}\" in the initial cluster configuration",
                cluster.name
            ),
        })
}

fn other_urls(cluster: &NewCluster, own: &[String]) -> Vec<String> {
    let urls = cluster.initial_cluster.iter().flat_map(|(_, urls)| urls);
    let mut urls: Vec<String> = urls.filter(|url| !own.contains(url)).cloned().collect();
    urls.sort_unstable();
    urls.dedup();
    urls
}

fn sorted(urls: &[String]) -> Vec<String> {
    let mut urls = urls.to_vec();
    urls.sort_unstable();
    urls
}

/// Finds each member of the running cluster in the options, by its peer URLs.
fn assign(cluster: &NewCluster, running: &Running) -> Result<ClusterIds, Error> {
    if !running.is_ours {
        return Err(refusal(format!(
            "existing, and cluster {} is one of etcd: members of both cannot form one cluster; \
             move its data with a backup and `holdfast restore`",
            running.cluster
        )));
    }
    let described: Vec<String> = running.members.iter().map(describe).collect();
    let described = described.join(",");
    if running.members.len() != cluster.initial_cluster.len() {
        return Err(refusal(format!(
            "member count is unequal: --initial-cluster names {} members, cluster {} has {}: \
             {described}; add this member first (`etcdctl member add`) and use the \
             --initial-cluster that it prints",
            cluster.initial_cluster.len(),
            running.cluster,
            running.members.len(),
        )));
    }
    let own = own_urls(cluster)?;
    let mut found = None;
    let mut members = Vec::new();
    for member in &running.members {
        let urls = sorted(&member.peer_urls);
        let mut local = cluster.initial_cluster.iter();
        let is_described = local.any(|(_, local)| sorted(local) == urls);
        if !is_described {
            return Err(refusal(format!(
                "PeerURLs: no match found for existing member {:x} ({}); cluster {} is \
                 {described}: use these addresses in --initial-cluster",
                member.id,
                urls.join(","),
                running.cluster,
            )));
        }
        if urls == own {
            found = Some(member);
        }
        members.push((MemberId(member.id), urls));
    }
    // As many as there are, and each is found: this one is among them unless an address is twice.
    let Some(own) = found else {
        return Err(refusal(format!(
            "{} ({}) is not a member of cluster {}: {described}",
            cluster.name,
            own.join(","),
            running.cluster
        )));
    };
    refuse_started(own, running.cluster)?;
    Ok(ClusterIds {
        member: MemberId(own.id),
        cluster: running.cluster,
        members,
    })
}

fn describe(member: &RunningMember) -> String {
    let urls = member.peer_urls.iter();
    let parts: Vec<String> = urls.map(|url| format!("{}={url}", member.name)).collect();
    parts.join(",")
}

/// A member that has served may have voted: with an empty directory it would vote again.
fn refuse_started(own: &RunningMember, cluster: ClusterId) -> Result<(), Error> {
    if own.client_urls.is_empty() {
        return Ok(());
    }
    Err(refusal(format!(
        "member {:x} ({}) of cluster {cluster} has already been bootstrapped, and this data \
         directory is empty: bring its data back, or remove the member and add it again \
         (`etcdctl member remove {:x}`)",
        own.id, own.name, own.id
    )))
}

fn refuse_old(
    cluster: &NewCluster,
    ids: &ClusterIds,
    url: &str,
    running: &Running,
) -> Result<(), Error> {
    if running.cluster == ids.cluster && running.is_ours {
        let own = running.members.iter().find(|own| own.id == ids.member.0);
        return own.map_or(Ok(()), |own| refuse_started(own, running.cluster));
    }
    Err(refusal(format!(
        "new, and {url} is the address of a member of another cluster ({}), while \
         --initial-cluster with the token {} makes cluster {}: end that member, or give this \
         cluster other addresses; to join a running cluster use existing",
        running.cluster, cluster.token, ids.cluster
    )))
}

async fn ask(url: &str, dialers: &Dialers, patience: Duration) -> io::Result<Running> {
    let asked = timeout(patience, async {
        let stream = dial_url(dialers, url, &[]).await?;
        let host = url.split_once("://").map_or(url, |(_, host)| host);
        read(&get(stream, host).await?)
    });
    asked
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

/// `GET /members`, without anything that would make the answer come in pieces.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) -> io::Result<Vec<u8>> {
    let request = format!("GET /members HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let read = stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .await?;
    if u64::try_from(read).is_ok_and(|read| read == ANSWER_BYTES_MAX) {
        return Err(wrong("a list of members that is too long"));
    }
    Ok(answer)
}

/// Reads the answer to [`get`].
fn read(answer: &[u8]) -> io::Result<Running> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or_else(|| wrong("no HTTP"))?;
    let mut lines = head.lines();
    let is_fine = lines
        .next()
        .is_some_and(|status| status.split(' ').nth(1) == Some("200"));
    if !is_fine {
        return Err(wrong(head.lines().next().unwrap_or_default()));
    }
    let header = |wanted: &str| {
        let mut named = head.lines().filter_map(|line| line.split_once(':'));
        named
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.trim())
    };
    let cluster = header("x-etcd-cluster-id")
        .and_then(|id| u64::from_str_radix(id, 16).ok())
        .ok_or_else(|| wrong("it names no cluster"))?;
    let members: Option<Vec<RunningMember>> =
        serde_json::from_str(body).map_err(|error| wrong(&error.to_string()))?;
    Ok(Running {
        cluster: ClusterId(cluster),
        members: members.unwrap_or_default(),
        is_ours: header(PEER_PROTOCOL_HEADER).is_some(),
    })
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it answers {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, name: &str, port: u16) -> RunningMember {
        RunningMember {
            id,
            peer_urls: vec![format!("http://h:{port}")],
            name: name.to_owned(),
            client_urls: Vec::new(),
        }
    }

    fn running(members: Vec<RunningMember>) -> Running {
        Running {
            cluster: ClusterId(0xc1),
            members,
            is_ours: true,
        }
    }

    fn options(name: &str, members: &[(&str, u16)]) -> NewCluster {
        let named =
            |(name, port): &(&str, u16)| ((*name).to_owned(), vec![format!("http://h:{port}")]);
        NewCluster {
            name: name.to_owned(),
            initial_cluster: members.iter().map(named).collect(),
            token: "t".to_owned(),
        }
    }

    #[test]
    fn a_member_finds_itself_by_its_peer_urls() {
        let cluster = running(vec![member(0xa, "m1", 1), member(0xb, "", 2)]);
        let ids = assign(&options("m2", &[("m1", 1), ("m2", 2)]), &cluster).unwrap();
        assert_eq!((ids.member, ids.cluster), (MemberId(0xb), ClusterId(0xc1)));
        assert_eq!(ids.members.len(), 2);
    }

    #[test]
    fn what_does_not_fit_the_running_cluster_says_what_to_do() {
        let two = || running(vec![member(0xa, "m1", 1), member(0xb, "", 2)]);
        let mut started = two();
        started.members[1].client_urls.push("http://h:9".to_owned());
        let mut etcd = two();
        etcd.is_ours = false;
        let cases = [
            (options("m2", &[("m2", 2)]), two(), "add this member first"),
            (
                options("m3", &[("m1", 1), ("m3", 3)]),
                two(),
                "no match found for existing member b (http://h:2)",
            ),
            (
                options("m2", &[("m1", 1), ("m2", 2)]),
                started,
                "etcdctl member remove b",
            ),
            (
                options("m2", &[("m1", 1), ("m2", 2)]),
                etcd,
                "holdfast restore",
            ),
            (
                options("m9", &[("m1", 1), ("m2", 2)]),
                two(),
                "couldn't find local name \"m9\"",
            ),
        ];
        for (options, running, text) in cases {
            let error = assign(&options, &running).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_new_cluster_has_no_members_of_an_old_one() {
        let options = options("m1", &[("m1", 1), ("m2", 2)]);
        let ids = options.ids().unwrap();
        let own = ids.member.0;
        let mut same = running(vec![member(own, "m1", 1)]);
        same.cluster = ids.cluster;
        refuse_old(&options, &ids, "http://h:2", &same).unwrap();
        same.members[0].client_urls.push("http://h:9".to_owned());
        let told = |running: &Running| {
            let refused = refuse_old(&options, &ids, "http://h:2", running);
            refused.unwrap_err().to_string()
        };
        assert!(told(&same).contains("has already been bootstrapped"));
        let other = told(&running(vec![member(7, "x", 2)]));
        assert!(other.contains("http://h:2 is the address of a member of another cluster (c1)"));
    }

    #[test]
    fn the_answer_of_a_member_is_read_and_anything_else_is_an_error() {
        let head = "HTTP/1.1 200 OK\r\nX-Etcd-Cluster-ID: c1\r\nholdfast-peer-protocol: 1\r\n";
        let body = r#"[{"id":10,"peerURLs":["http://h:1"],"name":"m1"}]"#;
        let answer = read(format!("{head}\r\n{body}\n").as_bytes()).unwrap();
        assert_eq!(answer, running(vec![member(10, "m1", 1)]));
        for wrong in [
            String::new(),
            format!("{head}\r\nnot json"),
            format!("HTTP/1.1 404 Not Found\r\n\r\n{body}"),
            format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
