//! An S3 server for one bucket that fails as it is told: on a real socket, byte by byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use holdfast_restore::VaultSpec;
use holdfast_restore::vault::{S3Credentials, S3Spec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this status and code, and not carried out.
    Status(u16, &'static str),
    /// It is carried out, and the connection ends without an answer.
    AnswerLost,
    /// The whole of it was read; the connection ends, and nothing was done.
    Dropped,
    /// One bit of what is stored is another one.
    Flipped,
    /// The last byte is not stored.
    Short,
}

/// A request, as far as faults depend on it.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) key: &'a str,
    /// The access key that signed it.
    pub(crate) access_key: &'a str,
}

type Plan = Box<dyn FnMut(&Asked<'_>) -> Option<Fault> + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    plan: Option<Plan>,
    /// The next upload's connection ends after so many bytes of the request.
    cut: Option<usize>,
    /// Objects whose names begin so are not listed yet.
    hidden: Option<String>,
}

/// A running server; it ends with the test.
pub(crate) struct FakeS3 {
    state: Arc<Mutex<State>>,
    endpoint: String,
    _tasks: JoinSet<()>,
}

impl FakeS3 {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                open.spawn(async move { drop(serve(stream, &state).await) });
            }
        });
        Self {
            state,
            endpoint,
            _tasks: tasks,
        }
    }

    pub(crate) fn spec(&self) -> S3Spec {
        let credentials = S3Credentials {
            access_key_id: "k".to_owned(),
            secret_access_key: Zeroizing::new("s".to_owned()),
            session_token: None,
        };
        S3Spec::at(&self.endpoint, "bucket", credentials)
    }

    pub(crate) fn vault_spec(&self) -> VaultSpec {
        VaultSpec::S3(self.spec())
    }

    pub(crate) fn plan(&self, plan: impl FnMut(&Asked<'_>) -> Option<Fault> + Send + 'static) {
        self.state.lock().unwrap().plan = Some(Box::new(plan));
    }

    pub(crate) fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        (state.plan, state.cut, state.hidden) = (None, None, None);
    }

    pub(crate) fn cut_next_upload_after(&self, bytes: usize) {
        self.state.lock().unwrap().cut = Some(bytes);
    }

    pub(crate) fn hide(&self, prefix: &str) {
        self.state.lock().unwrap().hidden = Some(prefix.to_owned());
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Reads one request; `None` when the connection is cut, by plan or by the client.
async fn read(stream: &mut TcpStream, state: &Mutex<State>) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        {
            let mut state = state.lock().unwrap();
            let is_upload = bytes.starts_with(b"PUT ");
            let is_due = |at: usize| bytes.len() >= at && (is_upload || at < 4);
            if state.cut.is_some_and(is_due) {
                state.cut = None;
                return None;
            }
        }
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut request = parse(&head);
            let length = request.headers.get("content-length");
            let length: usize = length.map_or(0, |text| text.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                request.body = bytes[end + 4..end + 4 + length].to_vec();
                return Some(request);
            }
        }
        match stream.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    }
}

fn parse(head: &str) -> Request {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap().split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let headers = lines.filter_map(|line| line.split_once(": "));
    Request {
        method: method.to_owned(),
        key: decoded(path.trim_start_matches("/bucket").trim_start_matches('/')),
        query: pairs
            .map(|(key, value)| (decoded(key), decoded(value)))
            .collect(),
        headers: headers
            .map(|(key, value)| (key.to_lowercase(), value.to_owned()))
            .collect(),
        body: Vec::new(),
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
            let digits = std::str::from_utf8(&digits).unwrap();
            out.push(u8::from_str_radix(digits, 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).unwrap()
}

async fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let Some(request) = read(&mut stream, state).await else {
        return Ok(());
    };
    let Some((status, headers, body)) = answer(&request, &mut state.lock().unwrap()) else {
        return Ok(());
    };
    let mut text = format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{headers}");
    if !headers.contains("Content-Length") {
        write!(text, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

/// Status, header lines and body; `None` ends the connection.
fn answer(request: &Request, state: &mut State) -> Option<(u16, String, Vec<u8>)> {
    let authorization = request.headers.get("authorization").map_or("", |text| text);
    let access_key = authorization
        .split_once("Credential=")
        .and_then(|(_, rest)| rest.split_once('/'))
        .map_or("", |(key, _)| key);
    let asked = Asked {
        method: &request.method,
        key: &request.key,
        access_key,
    };
    let fault = state.plan.as_mut().and_then(|plan| plan(&asked));
    match fault {
        Some(Fault::Status(status, code)) => {
            let body = format!(
                "<Error><Code>{code}</Code><RequestTime>20260101T120000Z</RequestTime>\
                 <ServerTime>2026-01-01T11:30:00Z</ServerTime></Error>"
            );
            return Some((status, "Retry-After: 0\r\n".to_owned(), body.into_bytes()));
        }
        Some(Fault::Dropped) => return None,
        _ => {}
    }
    let done = carry_out(request, state, fault);
    (fault != Some(Fault::AnswerLost)).then_some(done)
}

const ETAG: &str = "ETag: \"x\"\r\nLast-Modified: Thu, 28 May 2026 20:26:40 GMT\r\n";

fn carry_out(request: &Request, state: &mut State, fault: Option<Fault>) -> (u16, String, Vec<u8>) {
    let key = &request.key;
    match request.method.as_str() {
        "PUT" => {
            let is_new = request.headers.contains_key("if-none-match");
            if is_new && state.objects.contains_key(key) {
                let body = b"<Error><Code>PreconditionFailed</Code></Error>".to_vec();
                return (412, String::new(), body);
            }
            let mut bytes = request.body.clone();
            match fault {
                Some(Fault::Flipped) => bytes[0] ^= 1,
                Some(Fault::Short) => bytes.truncate(bytes.len() - 1),
                _ => {}
            }
            state.objects.insert(key.clone(), bytes);
            (200, ETAG.to_owned(), Vec::new())
        }
        "POST" => {
            // Several at once, which is how the library removes even one.
            let body = String::from_utf8_lossy(&request.body).into_owned();
            for piece in body.split("<Key>").skip(1) {
                let (key, _) = piece.split_once("</Key>").unwrap();
                state.objects.remove(key);
            }
            (
                200,
                String::new(),
                b"<DeleteResult></DeleteResult>".to_vec(),
            )
        }
        "DELETE" => {
            state.objects.remove(key);
            (204, String::new(), Vec::new())
        }
        _ if key.is_empty() => (200, String::new(), list(request, state).into_bytes()),
        method => match state.objects.get(key) {
            None => (
                404,
                String::new(),
                b"<Error><Code>NoSuchKey</Code></Error>".to_vec(),
            ),
            Some(bytes) if method == "HEAD" => {
                let headers = format!("{ETAG}Content-Length: {}\r\n", bytes.len());
                (200, headers, Vec::new())
            }
            Some(bytes) => (200, ETAG.to_owned(), bytes.clone()),
        },
    }
}

fn list(request: &Request, state: &State) -> String {
    let asked = |name: &str| request.query.get(name).cloned().unwrap_or_default();
    let (prefix, delimiter) = (asked("prefix"), asked("delimiter"));
    let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
    let mut folders = std::collections::BTreeSet::new();
    for (key, bytes) in &state.objects {
        let is_hidden = state
            .hidden
            .as_ref()
            .is_some_and(|one| key.starts_with(one));
        let Some(rest) = key.strip_prefix(&prefix).filter(|_| !is_hidden) else {
            continue;
        };
        match rest.split_once('/') {
            Some((folder, _)) if !delimiter.is_empty() => {
                folders.insert(format!("{prefix}{folder}/"));
            }
            _ => {
                write!(
                    text,
                    "<Contents><Key>{key}</Key><LastModified>2026-05-28T20:26:40Z</LastModified>\
                     <ETag>\"x\"</ETag><Size>{}</Size></Contents>",
                    bytes.len()
                )
                .unwrap();
            }
        }
    }
    for folder in folders {
        write!(
            text,
            "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"
        )
        .unwrap();
    }
    text.push_str("</ListBucketResult>");
    text
}
