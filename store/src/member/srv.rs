//! `--discovery-srv`: founders found in DNS, `_etcd-server[-NAME]._tcp.DOMAIN`.
//!
//! The standard library asks for addresses only, so the question for SRV records is put here: one
//! datagram to each name server of the system in turn, over TCP when the answer does not fit.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;

use crate::datadir::bootstrap::NewCluster;
use crate::error::Error;

/// How long a name server may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Where the system names its name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;
/// Bytes of an answer by datagram.
const DATAGRAM_BYTES_MAX: usize = 4096;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 256;
/// Pointers followed in one name.
const POINTERS_MAX: usize = 16;
const TYPE_SRV: u16 = 33;
const CLASS_IN: u16 = 1;

/// `--discovery-srv` and `--discovery-srv-name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SrvDiscovery {
    /// The domain.
    pub domain: String,
    /// What follows the service's name after a dash; may be empty.
    pub service: String,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
}

/// The founders that DNS names; this member is the one whose address is its own.
///
/// # Errors
/// When there are no records, or none is this member's.
pub(super) async fn discover(own: &NewCluster, srv: &SrvDiscovery) -> Result<NewCluster, Error> {
    let config = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    discover_at(own, srv, &name_servers(&config)).await
}

async fn discover_at(
    own: &NewCluster,
    srv: &SrvDiscovery,
    servers: &[SocketAddr],
) -> Result<NewCluster, Error> {
    let suffix = match srv.service.as_str() {
        "" => String::new(),
        service => format!("-{service}"),
    };
    let name = format!("_etcd-server{suffix}._tcp.{}", srv.domain);
    let refused = |reason: String| Error::Option {
        option: "discovery-srv",
        reason,
    };
    let targets = ask(&name, servers).await.map_err(|error| {
        refused(format!(
            "error querying DNS SRV records for {name}: {error} (members reach each other by \
             plain http in this version: records of _etcd-server-ssl are not asked for)"
        ))
    })?;
    let own_urls = own.initial_cluster.iter().flat_map(|(_, urls)| urls);
    let own_urls: Vec<String> = own_urls.cloned().collect();
    let own_addresses = addresses(&own_urls).await;
    let mut initial_cluster: Vec<(String, Vec<String>)> = Vec::new();
    for target in &targets {
        let url = format!("http://{}:{}", target.host, target.port);
        let found = addresses(std::slice::from_ref(&url)).await;
        let name = if found.is_disjoint(&own_addresses) {
            initial_cluster.len().to_string()
        } else {
            own.name.clone()
        };
        tracing::info!(name, url, "got a founder from DNS");
        match initial_cluster.iter_mut().find(|(known, _)| *known == name) {
            Some((_, urls)) => urls.push(url),
            None => initial_cluster.push((name, vec![url])),
        }
    }
    if !initial_cluster.iter().any(|(name, _)| *name == own.name) {
        return Err(refused(format!(
            "cannot find local etcd member \"{}\" in SRV records: none of {name} leads to {}",
            own.name,
            own_urls.join(",")
        )));
    }
    Ok(NewCluster {
        initial_cluster,
        ..own.clone()
    })
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

fn name_servers(config: &str) -> Vec<SocketAddr> {
    let words = config.lines().map(|line| line.split_whitespace());
    let named = words.filter_map(|mut words| {
        (words.next() == Some("nameserver"))
            .then(|| words.next()?.parse::<IpAddr>().ok())
            .flatten()
    });
    named.map(|ip| SocketAddr::new(ip, DNS_PORT)).collect()
}

async fn ask(name: &str, servers: &[SocketAddr]) -> io::Result<Vec<Target>> {
    let id = rand::random::<u16>();
    let question = question(id, name)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the system has no name server");
    for server in servers {
        let answer = match timeout(ANSWER_MAX, by_datagram(*server, &question)).await {
            Ok(Ok(answer)) if is_cut(&answer) => {
                let answer = timeout(ANSWER_MAX, by_stream(*server, &question)).await;
                answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        match answer.and_then(|answer| targets(&answer, id)) {
            Ok(targets) => return Ok(targets),
            Err(error) => last = io::Error::new(error.kind(), format!("{server}: {error}")),
        }
    }
    Err(last)
}

async fn by_datagram(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; DATAGRAM_BYTES_MAX];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}

async fn by_stream(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// A query with recursion for the SRV records of `name`.
fn question(id: u16, name: &str) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    // Recursion desired; one question.
    for word in [id, 0x0100, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len()).unwrap_or(u8::MAX);
        if !(1..=63).contains(&length) {
            return Err(wrong("the name"));
        }
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.push(0);
    for word in [TYPE_SRV, CLASS_IN] {
        message.extend(word.to_be_bytes());
    }
    Ok(message)
}

fn is_cut(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

/// The records of an answer to question `id`.
fn targets(answer: &[u8], id: u16) -> io::Result<Vec<Target>> {
    let word = |at: usize| -> io::Result<u16> {
        let bytes = answer.get(at..at + 2).and_then(|bytes| bytes.first_chunk());
        bytes
            .map(|bytes| u16::from_be_bytes(*bytes))
            .ok_or_else(|| wrong("its end"))
    };
    let flags = word(2)?;
    if word(0)? != id || flags & 0x8000 == 0 {
        return Err(wrong("another question"));
    }
    match flags & 0x000f {
        0 => {}
        3 => return Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        code => return Err(wrong(&format!("code {code}"))),
    }
    let (questions, records) = (word(4)?, word(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = name_at(answer, at)?.1 + 4;
    }
    let mut found = Vec::new();
    for _ in 0..usize::from(records).min(RECORDS_MAX) {
        let start = name_at(answer, at)?.1;
        let (kind, length) = (word(start)?, usize::from(word(start + 8)?));
        let data = start + 10;
        if kind == TYPE_SRV {
            let (host, _) = name_at(answer, data + 6)?;
            let port = word(data + 4)?;
            found.push(Target { host, port });
        }
        at = data + length;
    }
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no records"));
    }
    Ok(found)
}

/// The name at a place, and where it ends there.
fn name_at(message: &[u8], start: usize) -> io::Result<(String, usize)> {
    let mut labels: Vec<String> = Vec::new();
    let (mut at, mut end, mut pointers) = (start, None, 0);
    loop {
        let length = usize::from(*message.get(at).ok_or_else(|| wrong("its end"))?);
        match length & 0xc0 {
            0 if length == 0 => break,
            0 => {
                let label = message.get(at + 1..at + 1 + length);
                let label = label.ok_or_else(|| wrong("its end"))?;
                let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
                if !label.iter().all(is_plain) || labels.len() > 127 {
                    return Err(wrong("a name that is no host's"));
                }
                labels.push(String::from_utf8_lossy(label).into_owned());
                at += 1 + length;
            }
            0xc0 => {
                let low = usize::from(*message.get(at + 1).ok_or_else(|| wrong("its end"))?);
                end.get_or_insert(at + 2);
                pointers += 1;
                if pointers > POINTERS_MAX {
                    return Err(wrong("a name without an end"));
                }
                at = (length & 0x3f) << 8 | low;
            }
            _ => return Err(wrong("a label of an unknown kind")),
        }
    }
    Ok((labels.join("."), end.unwrap_or(at + 1)))
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the name server sends {text}"),
    )
}

#[cfg(test)]
mod tests;
