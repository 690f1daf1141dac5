//! etcd's Go client library knows all members of a cluster that loses its leader again and again:
//! what was acknowledged to it is there once, whatever the library has asked again by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use holdfast_interop::cluster::Cluster;
use holdfast_interop::peers::{Peer, Peers};
use holdfast_interop::process::Process;
use holdfast_interop::recorder;
use holdfast_interop::server::Kind;
use holdfast_interop::wait;
use tokio::runtime::Runtime;

use super::{faults, nemesis, verdict};
use crate::long;
use crate::pair::our_kind;

/// The key that all transactions swap.
const SHARED: &str = "w/shared";
/// Operations that must succeed before and after each loss.
const BETWEEN: usize = 400;
/// The client ends within one attempt, and then reads the history back.
const END_MAX: Duration = Duration::from_mins(2);
/// What etcd says of a request that a leader was lost with, each of it a text that clients match.
const ETCDS: [&str; 8] = [
    "etcdserver: request timed out",
    "etcdserver: request timed out, possibly due to previous leader failure",
    "etcdserver: request timed out, possibly due to connection lost",
    "etcdserver: request timed out, waiting for the applied index took too long",
    "etcdserver: no leader",
    "etcdserver: leader changed",
    "etcdserver: not leader",
    "etcdserver: server stopped",
];
/// What the library says of a connection that broke, and by itself in the end; and one error that
/// etcd passes on from its raft without a code.
const CODES: [&str; 3] = [
    "Unavailable ",
    "DeadlineExceeded ",
    "Unknown rpc error: code = Unknown desc = raft proposal dropped",
];

/// What the client said of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It was acknowledged at a revision.
    Done(i64),
    /// Its comparison did not hold: it was not done.
    Refused,
    /// It failed: it was done once, or not.
    Unknown,
}

/// What the client saw, line by line.
#[derive(Debug, Default)]
struct Seen {
    /// Each write by its value, which no other has; whether it swapped the shared key.
    writes: BTreeMap<String, (bool, Told)>,
    /// Reads that were answered.
    reads: usize,
    /// Errors, and how often each came.
    errors: BTreeMap<String, usize>,
    /// Key, value, revision and version of every event, in order.
    events: Vec<(String, String, i64, i64)>,
    /// Whether the history was read to its end.
    is_whole: bool,
}

impl Seen {
    fn parse(log: &str) -> Result<Self> {
        let mut seen = Self::default();
        for line in log.lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap_or_default().to_owned();
            let (kind, first) = (word(), word());
            match kind.as_str() {
                "event" => {
                    let (value, revision, version) = (word(), word().parse()?, word().parse()?);
                    seen.events.push((first, value, revision, version));
                }
                "end" => seen.is_whole = true,
                "put" | "swap" | "get" => {
                    let (outcome, revision) = (word(), word().parse().context(line.to_owned())?);
                    let told = match outcome.as_str() {
                        "done" => Told::Done(revision),
                        "refused" => Told::Refused,
                        _ => Told::Unknown,
                    };
                    if told == Told::Unknown {
                        let error: Vec<&str> = words.collect();
                        *seen.errors.entry(error.join(" ")).or_default() += 1;
                    }
                    if kind == "get" {
                        seen.reads += usize::from(told != Told::Unknown);
                    } else if seen.writes.insert(first, (kind == "swap", told)).is_some() {
                        bail!("attempted twice: {line}");
                    }
                }
                _ => bail!("the client said: {line}"),
            }
        }
        Ok(seen)
    }

    /// Writes that were acknowledged.
    fn acknowledged(&self) -> usize {
        let told = self.writes.values();
        told.filter(|(_, told)| matches!(told, Told::Done(_)))
            .count()
    }

    /// Every acknowledged write is in the history once, at its revision; a refused one never, and
    /// one of unknown outcome once or never.
    fn check(&self) -> Result<()> {
        ensure!(self.is_whole, "the history was not read to its end");
        let mut own: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        let mut swaps: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (key, value, revision, version) in &self.events {
            if key == SHARED {
                let swapped = i64::try_from(swaps.len())? + 1;
                ensure!(
                    *version == swapped,
                    "{value} is write {version} of the key, after {}",
                    swapped - 1
                );
                swaps.entry(value).or_default().push(*revision);
            } else if let Some(named) = key.strip_prefix("w/") {
                ensure!(
                    named == value && *version == 1,
                    "{key} was written again at {revision}: version {version}, {value}"
                );
                own.entry(value).or_default().push(*revision);
            }
        }
        let known: BTreeSet<&str> = self.writes.keys().map(String::as_str).collect();
        if let Some(value) = own.keys().chain(swaps.keys()).find(|v| !known.contains(*v)) {
            bail!("nobody wrote {value}");
        }
        for (value, (is_swap, told)) in &self.writes {
            let times = |written: &BTreeMap<&str, Vec<i64>>| {
                written.get(value.as_str()).cloned().unwrap_or_default()
            };
            let (own, swapped) = (times(&own), times(&swaps));
            ensure!(
                swapped.is_empty() || *is_swap,
                "{value} is of another transaction: {swapped:?}"
            );
            ensure!(
                !*is_swap || own == swapped,
                "half of a transaction: {value} at {own:?} and {swapped:?}"
            );
            let is_kept = match told {
                Told::Done(revision) => own == [*revision],
                Told::Refused => own.is_empty(),
                Told::Unknown => own.len() <= 1,
            };
            ensure!(is_kept, "{value}: {told:?}, and in the history at {own:?}");
        }
        for error in self.errors.keys() {
            let is_known = match error.split_once(' ') {
                Some(("etcd", text)) => ETCDS.contains(&text),
                Some(("code", text)) => CODES.iter().any(|code| text.starts_with(code)),
                _ => false,
            };
            ensure!(is_known, "etcd says no such thing: {error}");
        }
        Ok(())
    }
}

/// Returns once the client has been told of [`BETWEEN`] further successes.
fn wait_progress(client: &Process) -> Result<()> {
    let successes = || client.log().matches(" done ").count();
    let goal = successes() + BETWEEN;
    let gone_on = wait::until("progress of the client", wait::READY_MAX, || {
        Ok((successes() >= goal).then_some(()))
    });
    gone_on.with_context(|| newest_lines(&client.log()))
}

fn newest_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// The leader of a cluster is lost `losses` times while the Go client writes.
fn loses_its_leader(peers: &Peers, kind: Kind, losses: usize) -> Result<Seen> {
    let mut cluster = Cluster::start(peers, kind, 3, &[])?;
    let folder = tempfile::tempdir()?;
    let mut command = peers.command(Peer::Goclient)?;
    command.args(["writes", &cluster.endpoints().join(",")]);
    let mut client = Process::start("goclient", &mut command, &folder.path().join("log"))?;
    wait_progress(&client)?;
    for loss in 0..losses {
        let leader = cluster.leader()?;
        if loss % 2 == 0 {
            cluster.kill(leader)?;
            // Now two members serve; then the one that was away does, too.
            wait_progress(&client)?;
            cluster.restart(leader)?;
        } else {
            nemesis::move_lead(&cluster, leader, (leader + 1) % 3)?;
        }
        wait_progress(&client)?;
    }
    client.send(rustix::process::Signal::TERM)?;
    let status = client.wait_end(END_MAX)?;
    ensure!(
        status.success(),
        "{status}: {}",
        newest_lines(&client.log())
    );
    let seen = Seen::parse(&client.log())?;
    seen.check().with_context(|| format!("{kind:?}"))?;
    Runtime::new()?.block_on(async {
        let endpoints = cluster.endpoints();
        let newest = recorder::newest(endpoints.first().context("no member")?).await?;
        verdict::assert_alike(&endpoints, newest).await
    })?;
    Ok(seen)
}

/// Half a minute for each of the two.
#[test]
fn what_the_go_client_was_acknowledged_is_there_once_though_leaders_are_lost_as_in_etcd()
-> Result<()> {
    let Some(peers) = Peers::get() else {
        return Ok(());
    };
    for kind in [Kind::Etcd, our_kind()] {
        let losses = long::rounds(4, 60);
        let seen = loses_its_leader(&peers, kind, losses)?;
        faults::tell(&format!(
            "{kind:?}: {losses} losses, {} attempts, {} acknowledged, {} reads, errors {:?}",
            seen.writes.len(),
            seen.acknowledged(),
            seen.reads,
            seen.errors
        ));
        ensure!(seen.acknowledged() > BETWEEN, "{:?}", seen.errors);
    }
    Ok(())
}

/// A history that is as it should be, of a put and of a swap of each outcome.
const GOOD: [&str; 11] = [
    "put 0/0 done 2",
    "get 0/0 done 2",
    "swap 1/0 done 3",
    "swap 1/1 refused 0",
    "put 0/1 unknown 0 etcd etcdserver: request timed out",
    "swap 1/2 unknown 0 code Unavailable transport is closing",
    "event w/0/0 0/0 2 1",
    "event w/shared 1/0 3 1",
    "event w/1/0 1/0 3 1",
    "event w/0/1 0/1 4 1",
    "end",
];

fn judged(lines: &[&str]) -> Result<()> {
    Seen::parse(&lines.join("\n"))?.check()
}

#[test]
fn a_lost_a_repeated_and_a_refused_write_that_was_done_do_not_pass() {
    judged(&GOOD).unwrap();
    let with = |at: usize, line: &'static str| {
        let mut lines = GOOD.to_vec();
        lines[at] = line;
        judged(&lines).unwrap_err().to_string()
    };
    assert!(with(6, "event w/other x 2 1").contains("written again"));
    assert!(with(6, "event elsewhere 0/0 2 1").contains("in the history at []"));
    assert!(with(9, "event w/0/0 0/0 4 2").contains("written again"));
    assert!(with(9, "event w/1/1 1/1 4 1").contains("half of a transaction"));
    assert!(with(9, "event w/shared 1/0 4 2").contains("half of a transaction"));
    assert!(with(9, "event w/shared 1/0 4 3").contains("write 3 of the key"));
    assert!(with(9, "event w/7/7 7/7 4 1").contains("nobody wrote 7/7"));
    assert!(with(0, "put 0/0 done 5").contains("in the history at [2]"));
    assert!(with(4, "put 0/1 unknown 0 etcd etcdserver: oops").contains("no such thing"));
    assert!(with(10, "get 0/9 done 5").contains("not read to its end"));
}
