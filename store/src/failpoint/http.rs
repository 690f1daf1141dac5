//! gofail's protocol: `GET /` lists the points, `GET`, `PUT` and `DELETE` of a name ask, set and
//! clear one, `GET /name/count` counts, `PUT /failpoints` sets several.
//!
//! A thread of its own with plain sockets, so that a point that stops the runtime can be cleared.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use parking_lot::Mutex;

use super::table::{Refusal, Table, parse_many};

/// A client that says nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a request's body.
const BODY_BYTES_MAX: u64 = 64 << 10;

/// Serves at `address` until the process ends. Whoever holds `answering` holds up the answers.
pub(super) fn serve(
    address: &str,
    table: &'static Table,
    answering: &'static Mutex<()>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let thread = std::thread::Builder::new().name("holdfast-gofail".to_owned());
    drop(thread.spawn(move || {
        for stream in listener.incoming() {
            let served = stream.and_then(|stream| converse(&stream, table, answering));
            if let Err(error) = served {
                tracing::debug!(%error, "a client of the failpoints went away");
            }
        }
    })?);
    Ok(())
}

fn converse(stream: &TcpStream, table: &Table, answering: &Mutex<()>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read(BufReader::new(stream))?;
    let _answering = answering.lock();
    let answer = answer(&request, table);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {}\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}",
        answer.status,
        answer.body.len(),
        answer.header,
        answer.body
    )?;
    stream.flush()
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    path: String,
    body: String,
}

fn read(stream: impl io::BufRead) -> io::Result<Request> {
    let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut head = stream.take(HEAD_BYTES_MAX);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(bad("no request line"));
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut length = 0;
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Err(bad("no end of the head"));
        }
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().or(Err(bad("a length that is none")))?;
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(bad("a body that is too long"));
    }
    let mut body = String::new();
    head.into_inner().take(length).read_to_string(&mut body)?;
    Ok(Request { method, path, body })
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    header: &'static str,
    body: String,
}

impl Answer {
    fn new(status: &'static str, body: impl Into<String>) -> Self {
        Self {
            status,
            header: "",
            body: body.into(),
        }
    }

    fn bad(body: String) -> Self {
        Self::new("400 Bad Request", body)
    }
}

fn answer(request: &Request, table: &Table) -> Answer {
    let Some(key) = request.path.strip_prefix('/') else {
        return Answer::bad("malformed request URI\n".to_owned());
    };
    match request.method.as_str() {
        "PUT" => put(key, &request.body, table),
        "GET" => get(key, table),
        "DELETE" => match table.clear(key) {
            Ok(()) => Answer::new("204 No Content", ""),
            Err(refusal) => Answer::bad(format!("failed to delete failpoint {refusal}\n")),
        },
        _ => Answer {
            header: "Allow: PUT, GET, DELETE\r\n",
            ..Answer::new("405 Method Not Allowed", "Method not allowed\n")
        },
    }
}

fn put(key: &str, body: &str, table: &Table) -> Answer {
    let points = if key.eq_ignore_ascii_case("failpoints") {
        match parse_many(body) {
            Ok(points) => points,
            Err(reason) => return Answer::bad(format!("fail to parse failpoint: {reason}\n")),
        }
    } else {
        vec![(key, body)]
    };
    for (name, terms) in points {
        if let Err(refusal) = table.set(name, terms) {
            return Answer::bad(format!("fail to set failpoint: {refusal}\n"));
        }
    }
    Answer::new("204 No Content", "")
}

fn get(key: &str, table: &Table) -> Answer {
    if key.is_empty() {
        let lines = table.list().into_iter();
        let lines: Vec<String> = lines
            .map(|(name, terms)| format!("{name}={terms}"))
            .collect();
        return Answer::new("200 OK", lines.join("\n") + "\n");
    }
    let failed =
        |status, refusal: Refusal| Answer::new(status, format!("failed to GET: {refusal}\n"));
    if let Some(name) = key.strip_suffix("/count") {
        return match table.status(name) {
            Ok((_, count)) => Answer::new("200 OK", count.to_string()),
            Err(refusal @ Refusal::Unknown) => failed("404 Not Found", refusal),
            Err(refusal) => failed("500 Internal Server Error", refusal),
        };
    }
    match table.status(key) {
        Ok((terms, _)) => Answer::new("200 OK", terms + "\n"),
        Err(refusal) => failed("404 Not Found", refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(table: &Table, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            body: body.to_owned(),
        };
        let answer = answer(&request, table);
        let (code, _) = answer.status.split_once(' ').unwrap();
        (code.parse().unwrap(), answer.body)
    }

    #[test]
    fn points_are_listed_set_counted_and_cleared_with_gofails_answers() {
        let table = Table::new();
        let (code, list) = ask(&table, "GET", "/", "");
        assert_eq!(code, 200);
        assert!(list.starts_with("afterCommit=\n"), "{list}");
        assert!(list.contains("\nraftBeforeSave=\n"));
        let set = ask(&table, "PUT", "/raftBeforeSave", "sleep(\"1ms\")");
        assert_eq!(set, (204, String::new()));
        let asked = ask(&table, "GET", "/raftBeforeSave", "");
        assert_eq!(asked, (200, "sleep(\"1ms\")\n".to_owned()));
        let count = ask(&table, "GET", "/raftBeforeSave/count", "");
        assert_eq!(count, (200, "0".to_owned()));
        assert_eq!(ask(&table, "DELETE", "/raftBeforeSave", "").0, 204);
        assert_eq!(ask(&table, "DELETE", "/raftBeforeSave", "").0, 400);
        assert_eq!(ask(&table, "GET", "/raftBeforeSave", "").0, 404);
        assert_eq!(ask(&table, "GET", "/raftBeforeSave/count", "").0, 500);
        let many = ask(
            &table,
            "PUT",
            "/failpoints",
            "beforeCommit=off;afterCommit=off",
        );
        assert_eq!(many.0, 204);
        assert_eq!(ask(&table, "GET", "/afterCommit", "").1, "off\n");
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_gofails_words() {
        let table = Table::new();
        let unknown = ask(&table, "PUT", "/nowhere", "panic");
        assert_eq!(unknown.0, 400);
        assert_eq!(
            unknown.1,
            "fail to set failpoint: failpoint: failpoint does not exist\n"
        );
        assert_eq!(ask(&table, "PUT", "/afterCommit", "jump").0, 400);
        assert_eq!(ask(&table, "GET", "/nowhere/count", "").0, 404);
        assert_eq!(ask(&table, "POST", "/", "").0, 405);
    }

    #[test]
    fn a_request_is_read_up_to_its_length() {
        let bytes = b"PUT /a HTTP/1.1\r\nHost: h\r\ncontent-length: 5\r\n\r\npanic and more";
        let request = read(&bytes[..]).unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("PUT", "/a")
        );
        assert_eq!(request.body, "panic");
        assert!(read(&b"PUT /a HTTP/1.1\r\n"[..]).is_err());
        assert!(read(&b"\r\n\r\n"[..]).is_err());
        let long = b"PUT /a HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n";
        assert!(read(&long[..]).is_err());
    }
}
