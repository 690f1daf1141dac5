//! Questions to the system's name servers that the standard library does not put: for the hosts of
//! a service (SRV) and for the names of an address (PTR).
//!
//! One datagram to each name server in turn, over TCP when the answer does not fit.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long a name server may take.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Where the system names its name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Where the system knows hosts without them.
const HOSTS: &str = "/etc/hosts";
const DNS_PORT: u16 = 53;
/// Bytes of an answer by datagram.
const DATAGRAM_BYTES_MAX: usize = 4096;
/// Records of an answer that are looked at.
const RECORDS_MAX: usize = 256;
/// Pointers followed in one name.
const POINTERS_MAX: usize = 16;
const TYPE_PTR: u16 = 12;
const TYPE_SRV: u16 = 33;
const CLASS_IN: u16 = 1;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
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

/// The hosts and ports of a service's SRV records.
///
/// # Errors
/// When no name server knows any.
pub(crate) async fn services(name: &str, servers: &[SocketAddr]) -> io::Result<Vec<Target>> {
    ask(name, TYPE_SRV, servers, targets).await
}

/// The names of an address: those that the system's own file has, or else its PTR records'.
pub(crate) async fn names_of(address: IpAddr) -> Vec<String> {
    let known = hosts(&std::fs::read_to_string(HOSTS).unwrap_or_default(), address);
    if !known.is_empty() {
        return known;
    }
    let asked = ask(&reverse(address), TYPE_PTR, &system_servers(), names).await;
    asked.unwrap_or_default()
}

/// The name servers of the system.
pub(crate) fn system_servers() -> Vec<SocketAddr> {
    name_servers(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

/// The names that a file of hosts has for an address.
fn hosts(file: &str, address: IpAddr) -> Vec<String> {
    let lines = file
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let of_it = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next()?.parse::<IpAddr>().ok()? == address;
        is_it.then_some(words)
    });
    of_it.flatten().map(str::to_owned).collect()
}

/// The name under which an address has its names.
fn reverse(address: IpAddr) -> String {
    let (labels, zone): (Vec<String>, _) = match address {
        IpAddr::V4(ip) => {
            let bytes = ip.octets().into_iter().rev();
            (bytes.map(|byte| byte.to_string()).collect(), "in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let bytes = ip.octets().into_iter().rev();
            let digits = bytes.flat_map(|byte| [byte & 0xf, byte >> 4]);
            (
                digits.map(|digit| format!("{digit:x}")).collect(),
                "ip6.arpa",
            )
        }
    };
    format!("{}.{zone}", labels.join("."))
}

async fn ask<T>(
    name: &str,
    kind: u16,
    servers: &[SocketAddr],
    read: impl Fn(&[u8], u16) -> io::Result<Vec<T>>,
) -> io::Result<Vec<T>> {
    let id = rand::random::<u16>();
    let question = question(id, name, kind)?;
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
        match answer.and_then(|answer| read(&answer, id)) {
            Ok(found) => return Ok(found),
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

/// A query with recursion for the records of `name`.
fn question(id: u16, name: &str, kind: u16) -> io::Result<Vec<u8>> {
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
    for word in [kind, CLASS_IN] {
        message.extend(word.to_be_bytes());
    }
    Ok(message)
}

fn is_cut(answer: &[u8]) -> bool {
    answer.get(2).is_some_and(|flags| flags & 0x02 != 0)
}

/// The SRV records of an answer to question `id`.
fn targets(answer: &[u8], id: u16) -> io::Result<Vec<Target>> {
    records(answer, id, TYPE_SRV, |data| {
        let (host, _) = name_at(answer, data + 6)?;
        let port = word(answer, data + 4)?;
        Ok(Target { host, port })
    })
}

/// The PTR records of an answer to question `id`.
fn names(answer: &[u8], id: u16) -> io::Result<Vec<String>> {
    records(answer, id, TYPE_PTR, |data| Ok(name_at(answer, data)?.0))
}

fn word(message: &[u8], at: usize) -> io::Result<u16> {
    let bytes = message
        .get(at..at + 2)
        .and_then(|bytes| bytes.first_chunk());
    bytes
        .map(|bytes| u16::from_be_bytes(*bytes))
        .ok_or_else(|| wrong("its end"))
}

/// The records of one kind in an answer to question `id`; `read` is told where their data begin.
fn records<T>(
    answer: &[u8],
    id: u16,
    kind: u16,
    read: impl Fn(usize) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let flags = word(answer, 2)?;
    if word(answer, 0)? != id || flags & 0x8000 == 0 {
        return Err(wrong("another question"));
    }
    match flags & 0x000f {
        0 => {}
        3 => return Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        code => return Err(wrong(&format!("code {code}"))),
    }
    let (questions, records) = (word(answer, 4)?, word(answer, 6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = name_at(answer, at)?.1 + 4;
    }
    let mut found = Vec::new();
    for _ in 0..usize::from(records).min(RECORDS_MAX) {
        let start = name_at(answer, at)?.1;
        let (found_kind, length) = (word(answer, start)?, usize::from(word(answer, start + 8)?));
        let data = start + 10;
        if found_kind == kind {
            found.push(read(data)?);
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
pub(crate) mod tests;
