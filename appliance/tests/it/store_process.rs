//! `holdfast store` as a process: flags, exit codes, signals, ports.

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::support::{Client, Ended, PATIENCE, Place, eventually, free_port};

/// A running store in the folder `m0` of its place.
pub(crate) struct Running {
    child: Child,
    pub(crate) port: u16,
    log: std::path::PathBuf,
}

impl Running {
    fn words(port: u16, peer_port: u16, flags: &[&str]) -> Vec<String> {
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peer_port}");
        let mut words = vec![
            "store".to_owned(),
            "--name=m0".to_owned(),
            "--data-dir=m0".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=m0={peer}"),
        ];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words
    }

    /// Starts a store with further flags; it serves when this returns.
    pub(crate) async fn start(place: &Place, flags: &[&str]) -> Self {
        let running = Self::start_at(place, (free_port(), free_port()), flags);
        drop(running.client().await);
        running
    }

    /// Starts a store on given ports and waits for nothing.
    pub(crate) fn start_at(place: &Place, ports: (u16, u16), flags: &[&str]) -> Self {
        let words = Self::words(ports.0, ports.1, flags);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let name = format!("store-{}.log", ports.0);
        Self {
            child: place.spawn(&words, &name),
            port: ports.0,
            log: place.path().join(name),
        }
    }

    /// Starts a store that may open no more than `count` files; it serves when this returns.
    pub(crate) async fn start_with_descriptors(place: &Place, count: usize) -> Self {
        let port = free_port();
        let words = Self::words(port, free_port(), &[]);
        let log = place.path().join("starved.log");
        let limited = format!("ulimit -n {count}; exec \"$@\"");
        let child = place
            .command_of("sh")
            .args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_holdfast")])
            .args(words)
            .stdout(std::process::Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let running = Self { child, port, log };
        drop(running.client().await);
        running
    }

    /// What a store that refuses its data answers to a read.
    pub(crate) async fn refusal(&self) -> tonic::Status {
        eventually("a refusal", || async {
            let status = Client::try_connect(self.port)
                .await?
                .try_get("x")
                .await
                .err()?;
            (status.code() != tonic::Code::Unavailable).then_some(status)
        })
        .await
    }

    /// Runs a store that is expected to end by itself.
    pub(crate) async fn run_to_its_end(place: &Place, flags: &[&str]) -> Ended {
        let words = Self::words(free_port(), free_port(), flags);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        tokio::time::timeout(PATIENCE, place.run(&words))
            .await
            .expect("the store ends by itself")
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.port).await
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id().unwrap()).unwrap()
    }

    /// SIGTERM; the exit code and the log.
    pub(crate) async fn stop(mut self) -> (i32, String) {
        kill_process(Pid::from_raw(self.id()).unwrap(), Signal::TERM).unwrap();
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.expect("the store ends on SIGTERM").unwrap();
        (status.code().unwrap_or(-1), self.log())
    }
}
