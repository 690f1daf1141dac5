//! The few lines of HTTP that health checks and failpoints need.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The status code and body of `GET path`.
///
/// # Errors
/// When nobody answers or the answer is not HTTP.
pub fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    request(address, "GET", path, "")
}

/// The status code and body of `POST path` with a JSON body.
///
/// # Errors
/// When nobody answers or the answer is not HTTP.
pub fn post(address: SocketAddr, path: &str, json: &str) -> Result<(u16, String)> {
    request(address, "POST", path, json)
}

/// The status code and body of `PUT path`.
///
/// # Errors
/// When nobody answers or the answer is not HTTP.
pub fn put(address: SocketAddr, path: &str, body: &str) -> Result<(u16, String)> {
    request(address, "PUT", path, body)
}

/// The status code and body of `DELETE path`.
///
/// # Errors
/// When nobody answers or the answer is not HTTP.
pub fn delete(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    request(address, "DELETE", path, "")
}

fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the body ends where the connection ends, in one piece.
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("no end of the headers")?;
    let status = head
        .split_whitespace()
        .nth(1)
        .context("no status")?
        .parse()?;
    Ok((status, body.to_owned()))
}
