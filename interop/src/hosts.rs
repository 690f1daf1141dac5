//! Hosts of their own for the members of a cluster: network namespaces on one bridge, in which
//! nftables drops packets or answers them with resets. What the kernel does to a connection that
//! is cut so, no proxy can do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::holdfast;
use crate::mesh::Link;
use crate::peers::{Peer, Peers};
use crate::run::{self, Output};

/// Set for a test that runs in namespaces of its own.
const INSIDE: &str = "HOLDFAST_TEST_INSIDE";
/// Where clients are: the bridge.
const BRIDGE: &str = "10.99.0.1/24";
/// What a test needs of the machine.
const NEEDED: &str = "unshare --net --mount --pid --fork --mount-proc \
     sh -c 'ip netns list && ip link add br0 type bridge && nft add table inet seen'";

/// The programs among it.
const PROGRAMS: [&str; 3] = ["unshare", "ip", "nft"];

/// Where a test runs.
#[derive(Debug)]
pub enum Place {
    /// In namespaces of its own.
    Inside,
    /// Outside: it was run inside and passed, or the machine does not allow it, which was said.
    Outside,
}

/// Runs the calling test, `name` to the test program, again in namespaces of its own: the network
/// of the machine is not touched, and whatever the test leaves ends with it.
///
/// # Errors
/// When it fails there; what it printed is part of the error. Also when a program for it is missing
/// and `HOLDFAST_NEEDS_HOSTS` is set, as `.ci/run` does where the programs are there: then a test
/// that is skipped has failed, unless the machine refuses what it needs.
pub fn enter(peers: &Peers, name: &str) -> Result<Place> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(Place::Inside);
    }
    let refused = run::run(Command::new("sh").args(["-c", NEEDED]))?;
    if refused.code != 0 {
        let is_needed = std::env::var_os("HOLDFAST_NEEDS_HOSTS").is_some();
        let missing: Vec<&str> = PROGRAMS
            .into_iter()
            .filter(|program| Command::new(program).arg("-V").output().is_err())
            .collect();
        // What a machine refuses nobody can install.
        ensure!(
            !is_needed || missing.is_empty(),
            "{} missing: the tests of hosts cannot run, install nftables, iproute2 and util-linux",
            missing.join(", ")
        );
        say(&format!(
            "SKIPPED: no network namespaces with nftables: {}",
            refused.stderr.trim()
        ));
        return Ok(Place::Outside);
    }
    // Inside nothing can be downloaded.
    for peer in [Peer::Etcd, Peer::Etcdctl, Peer::Checker] {
        peers.path(peer)?;
    }
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .arg("--mount-proc")
        .arg(std::env::current_exe()?)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .env(holdfast::PROGRAM_VARIABLE, holdfast::program()?)
        .stdin(Stdio::null())
        .status()
        .context("start unshare")?;
    ensure!(status.success(), "the test inside: {status}");
    Ok(Place::Outside)
}

#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Runs a command line that must succeed.
fn sh(line: &str) -> Result<Output> {
    run::run(Command::new("sh").args(["-c", line]))?
        .success()
        .context(line.to_owned())
}

/// The address of a member's host: `10.99.0.<10 + number>`.
///
/// # Panics
/// With more than 200 members.
pub fn address_of(member: usize) -> Ipv4Addr {
    let last = u8::try_from(member + 10).expect("a small cluster");
    Ipv4Addr::new(10, 99, 0, last)
}

/// The words before a command line that run it on a member's host.
pub fn prefix_of(member: usize) -> Vec<String> {
    ["ip", "netns", "exec", &format!("host{member}")]
        .map(str::to_owned)
        .to_vec()
}

/// Makes the bridge; once, inside.
///
/// # Errors
/// When the machine refuses.
pub fn make_bridge() -> Result<()> {
    // Names of namespaces are files there, and end with the test.
    sh("mount -t tmpfs none /run")?;
    sh("ip link set lo up && ip link add br0 type bridge && ip link set br0 up")?;
    sh(&format!("ip addr add {BRIDGE} dev br0")).map(drop)
}

/// Asks 127.0.0.1 for names; once, inside, with no bridge.
///
/// # Errors
/// When the machine refuses.
pub fn ask_loopback_for_names() -> Result<()> {
    // A file of memory over the machine's, which other namespaces keep seeing.
    sh("ip link set lo up && mount -t tmpfs none /run \
        && echo nameserver 127.0.0.1 > /run/resolv.conf \
        && mount --bind /run/resolv.conf /etc/resolv.conf")
    .map(drop)
}

/// Makes the host of a member.
///
/// # Errors
/// When the machine refuses.
pub fn make_host(member: usize) -> Result<()> {
    let (name, address) = (format!("host{member}"), address_of(member));
    sh(&format!(
        "ip netns add {name} \
         && ip link add to{member} type veth peer name eth0 netns {name} \
         && ip link set to{member} master br0 up \
         && ip -n {name} link set lo up \
         && ip -n {name} addr add {address}/24 dev eth0 \
         && ip -n {name} link set eth0 up"
    ))
    .map(drop)
}

/// Puts the links that lead to `member` into force on its host: packets of a cut one are dropped,
/// some of those of a lossy one, and those of a reset one answered with a reset.
///
/// # Errors
/// When nftables refuses.
pub fn apply(member: usize, links: &BTreeMap<(usize, usize), Link>) -> Result<()> {
    let mut rules = String::from(
        "add table inet links\ndelete table inet links\nadd table inet links\n\
         add chain inet links in { type filter hook input priority 0; }\n",
    );
    for ((from, _), link) in links.iter().filter(|((_, to), _)| *to == member) {
        let verdict = match link {
            Link::Open => continue,
            Link::Cut => "drop".to_owned(),
            Link::Reset => "meta l4proto tcp reject with tcp reset".to_owned(),
            Link::Lossy(percent) => format!("numgen random mod 100 < {percent} counter drop"),
            Link::Slow(_) => anyhow::bail!("links between hosts cannot be slow"),
        };
        let address = address_of(*from);
        writeln!(rules, "add rule inet links in ip saddr {address} {verdict}")?;
    }
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", &format!("host{member}"), "nft", "-f", "-"]);
    let output = run::run_with_input(&mut nft, &rules)?;
    output.success().with_context(|| rules).map(drop)
}

/// How many packets lossy links to `member` have lost since a link was last set.
///
/// # Errors
/// When nftables refuses.
pub fn lost(member: usize) -> Result<u64> {
    let rules = sh(&format!("ip netns exec host{member} nft list ruleset"))?.stdout;
    let counts = rules.split("counter packets ").skip(1);
    let counts = counts.filter_map(|text| text.split_whitespace().next());
    let counts: Result<Vec<u64>, _> = counts.map(str::parse).collect();
    Ok(counts.with_context(|| rules.clone())?.iter().sum())
}
