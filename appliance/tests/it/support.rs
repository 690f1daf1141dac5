//! A folder with a configuration, the program in it, and an etcd client.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use holdfast_proto::etcd::rpc::{
    CompactionRequest, DeleteRangeRequest, PutRequest, RangeRequest, kv_client::KvClient,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) said: String,
    pub(crate) complained: String,
}

impl Ended {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.said).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

/// A folder of its own.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::with_prefix("holdfast-it-").unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path().join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The program in this folder, away from whatever this machine has set.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.command_of(env!("CARGO_BIN_EXE_holdfast"));
        command.args(words);
        command
    }

    /// Any program in this folder.
    pub(crate) fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        for (name, _) in std::env::vars() {
            if name.starts_with("HOLDFAST_") || name.starts_with("ETCD") {
                command.env_remove(name);
            }
        }
        command
    }

    pub(crate) async fn run(&self, words: &[&str]) -> Ended {
        let output = self.command(words).output().await.unwrap();
        Ended {
            code: output.status.code().unwrap_or(-1),
            said: String::from_utf8(output.stdout).unwrap(),
            complained: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn spawn(&self, words: &[&str], log: &str) -> Child {
        let log = std::fs::File::create(self.path().join(log)).unwrap();
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// A member of its own on `port` and on any free port for peers.
    pub(crate) fn spawn_store(&self, data_dir: &str, port: u16, log: &str) -> Child {
        let client_url = format!("http://127.0.0.1:{port}");
        let peer_url = format!("http://127.0.0.1:{}", free_port());
        let words = [
            "store",
            "--data-dir",
            data_dir,
            "--listen-client-urls",
            &client_url,
            "--advertise-client-urls",
            &client_url,
            "--listen-peer-urls",
            &peer_url,
        ];
        self.spawn(&words, log)
    }

    /// Writes a configuration whose store listens on `port` and whose schedules are as given.
    pub(crate) async fn init(&self, port: u16, backup: &str, drill: &str) {
        self.run(&["init"]).await.expect(0);
        let file = self.path().join("holdfast.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let edited = text
            .replace("http://127.0.0.1:2379", &format!("http://127.0.0.1:{port}"))
            .replace("listen: 127.0.0.1:2384", "listen: 127.0.0.1:0")
            .replace("schedule: \"@hourly\"", &format!("schedule: {backup}"))
            .replace("schedule: \"30 3 * * SUN\"", &format!("schedule: {drill}"));
        std::fs::write(&file, edited).unwrap();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Waits until `found` is something, at most `PATIENCE`.
pub(crate) async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A client of one member.
#[derive(Clone)]
pub(crate) struct Client {
    kv: KvClient<Channel>,
}

impl Client {
    pub(crate) async fn connect(port: u16) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        eventually("a member that serves", || async {
            let mut client = Self {
                kv: KvClient::new(endpoint.connect().await.ok()?),
            };
            client.try_get("x").await.ok()?;
            Some(client)
        })
        .await
    }

    /// A client when somebody listens there.
    pub(crate) async fn try_connect(port: u16) -> Option<Self> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        let kv = KvClient::new(endpoint.connect().await.ok()?);
        Some(Self { kv })
    }

    pub(crate) async fn put(&mut self, key: &str, value: &str) -> i64 {
        let request = PutRequest {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            ..Default::default()
        };
        let answer = self.kv.put(request).await.unwrap().into_inner();
        answer.header.unwrap().revision
    }

    pub(crate) async fn delete(&mut self, key: &str) {
        let request = DeleteRangeRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        self.kv.delete_range(request).await.unwrap();
    }

    pub(crate) async fn compact(&mut self, revision: i64) {
        let request = CompactionRequest {
            revision,
            physical: true,
        };
        self.kv.compact(request).await.unwrap();
    }

    pub(crate) async fn get(&mut self, key: &str) -> (Option<String>, i64) {
        self.try_get(key).await.unwrap()
    }

    pub(crate) async fn try_get(
        &mut self,
        key: &str,
    ) -> Result<(Option<String>, i64), tonic::Status> {
        self.get_at(key, 0).await
    }

    /// Reads a key as it was at `revision`; 0 is now.
    pub(crate) async fn get_at(
        &mut self,
        key: &str,
        revision: i64,
    ) -> Result<(Option<String>, i64), tonic::Status> {
        let request = RangeRequest {
            key: key.to_owned().into(),
            revision,
            ..Default::default()
        };
        let answer = self.kv.range(request).await?.into_inner();
        let value = answer
            .kvs
            .first()
            .map(|pair| String::from_utf8(pair.value.to_vec()).unwrap());
        Ok((value, answer.header.unwrap().revision))
    }
}
