//! Many small requests: throughput, latency and processor time of the server.

use std::time::Duration;

use anyhow::{Context as _, Result};
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::server::{Kind, Server};
use holdfast_interop::{run, usage};

use crate::figures::{Figure, Figures};
use crate::{Scale, progress};

/// How long one run of the load generator may take.
pub(crate) const LOAD_MAX: Duration = Duration::from_mins(15);

/// What one run of the load generator said, and what the server spent on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Median latency in milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile of the latency in milliseconds.
    pub(crate) p99_ms: f64,
    /// Processor time of the servers per request, in microseconds.
    pub(crate) cpu_us: f64,
}

/// Whom the load is for: addresses, and the processes whose time is counted.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    pub(crate) endpoints: String,
    pub(crate) process_ids: Vec<u32>,
}

impl Servers {
    /// One server.
    pub(crate) fn one(server: &Server) -> Self {
        Self {
            endpoints: server.address().to_string(),
            process_ids: vec![server.process_id()],
        }
    }

    fn cpu_s(&self) -> Result<f64> {
        self.process_ids.iter().map(|id| usage::cpu_s(*id)).sum()
    }
}

/// Runs the load generator against `servers`.
pub(crate) fn run(
    peers: &Peers,
    servers: &Servers,
    clients: u32,
    total: u32,
    arguments: &[&str],
) -> Result<Load> {
    let mut command = peers.command(Peer::Benchmark)?;
    command
        .arg(format!("--endpoints={}", servers.endpoints))
        .arg(format!("--conns={}", clients.div_ceil(10)))
        .arg(format!("--clients={clients}"))
        .arg("--precise")
        .args(arguments)
        .arg(format!("--total={total}"));
    let before = servers.cpu_s()?;
    let output = run::run_within(&mut command, "", LOAD_MAX)?.success()?;
    let spent = servers.cpu_s()? - before;
    let text = output.stdout;
    let after = |mark: &str| -> Option<f64> {
        let (_, rest) = text.split_once(mark)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let find = |mark: &str| after(mark).with_context(|| format!("no {mark} in\n{text}"));
    Ok(Load {
        rate: find("Requests/sec:")?,
        p50_ms: find("50% in")? * 1_000.0,
        p99_ms: find("99% in")? * 1_000.0,
        cpu_us: spent * 1e6 / f64::from(total),
    })
}

/// Puts and ranges of 256 bytes, by one client and by a thousand.
pub(crate) fn measure(
    peers: &Peers,
    kind: Kind,
    scale: Scale,
    figures: &mut Figures,
) -> Result<()> {
    let server = Server::start(peers, kind)?;
    let servers = Servers::one(&server);
    let put = ["put", "--val-size=256", "--key-space-size=100000"];
    progress(kind, "put, 1 client");
    let one = run(peers, &servers, 1, scale.single, &put)?;
    figures.set(kind, Figure::PutOneRate, one.rate);
    figures.set(kind, Figure::PutOneP50, one.p50_ms);
    figures.set(kind, Figure::PutOneP99, one.p99_ms);
    progress(kind, "put, 1,000 clients");
    let many = run(peers, &servers, 1_000, scale.many, &put)?;
    figures.set(kind, Figure::PutManyRate, many.rate);
    figures.set(kind, Figure::PutManyP99, many.p99_ms);
    figures.set(kind, Figure::PutManyCpu, many.cpu_us);
    progress(kind, "range");
    let range = ["range", "foo", "--consistency=l"];
    let one = run(peers, &servers, 1, scale.single, &range)?;
    figures.set(kind, Figure::RangeOneP50, one.p50_ms);
    let many = run(peers, &servers, 1_000, scale.many, &range)?;
    figures.set(kind, Figure::RangeManyRate, many.rate);
    figures.set(kind, Figure::RangeManyP99, many.p99_ms);
    figures.set(kind, Figure::RangeManyCpu, many.cpu_us);
    let many = run(
        peers,
        &servers,
        1_000,
        scale.many,
        &["range", "foo", "--consistency=s"],
    )?;
    figures.set(kind, Figure::SerializableRate, many.rate);
    figures.set(kind, Figure::SerializableCpu, many.cpu_us);
    Ok(())
}
