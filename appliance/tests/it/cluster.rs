//! Three daemons on one vault, each beside a member of one store: one of them runs the jobs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::daemon::http_get;
use crate::fencing::copy_keys;
use crate::support::{Client, Place, eventually, free_port};

/// One daemon's place.
struct Seat {
    place: Place,
    client: u16,
    admin: u16,
    /// Where its failpoints are driven, if they are; its drills would want the same place.
    points: Option<u16>,
    flags: Vec<String>,
    daemon: Option<Child>,
    starts: usize,
}

/// Three of them, with one vault and the same keys.
struct Trio {
    seats: Vec<Seat>,
}

impl Trio {
    async fn start(schedule: &str) -> Self {
        Self::start_with(schedule, false).await
    }

    async fn start_with(schedule: &str, has_points: bool) -> Self {
        let mut seats: Vec<Seat> = Vec::new();
        let peers: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let named = |at: usize| format!("m{}=http://127.0.0.1:{}", at + 1, peers[at]);
        let cluster = [named(0), named(1), named(2)].join(", ");
        for (at, peer) in peers.iter().enumerate() {
            let (place, client, admin) = (Place::new(), free_port(), free_port());
            if let Some(first) = seats.first() {
                let keys = "holdfast-data/keys";
                copy_keys(&first.place.path().join(keys), &place.path().join(keys));
                let config = std::fs::read_to_string(first.place.path().join("holdfast.yaml"));
                place.write("holdfast.yaml", &config.unwrap());
            } else {
                place.init(client, schedule, "null").await;
                let file = place.path().join("holdfast.yaml");
                let text = std::fs::read_to_string(&file).unwrap();
                let shared = place.path().join("shared-vault").display().to_string();
                std::fs::write(&file, text.replace("holdfast-data/vault", &shared)).unwrap();
            }
            let flags = [
                format!("store.name=m{}", at + 1),
                format!("store.listen_client_urls=[http://127.0.0.1:{client}]"),
                format!("store.peer_urls=[http://127.0.0.1:{peer}]"),
                format!("store.initial_cluster=[{cluster}]"),
                format!("appliance.admin.listen=127.0.0.1:{admin}"),
            ];
            seats.push(Seat {
                place,
                client,
                admin,
                points: has_points.then(free_port),
                flags: flags.to_vec(),
                daemon: None,
                starts: 0,
            });
        }
        let mut trio = Self { seats };
        for at in 0..3 {
            trio.spawn(at);
        }
        trio
    }

    fn spawn(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.starts += 1;
        let mut words = vec!["run", "--log-format", "text"];
        for flag in &seat.flags {
            words.extend(["--set", flag]);
        }
        let log = seat
            .place
            .path()
            .join(format!("daemon-{}.log", seat.starts));
        let mut command = seat.place.command(&words);
        if let Some(port) = seat.points {
            command.env("GOFAIL_HTTP", format!("127.0.0.1:{port}"));
        }
        let log = std::fs::File::create(log).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        seat.daemon = Some(command.spawn().unwrap());
    }

    fn signal(&self, at: usize, signal: Signal) {
        let daemon = self.seats[at].daemon.as_ref().unwrap();
        let id = i32::try_from(daemon.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Asks the daemon at `at` for a backup; what becomes of it.
    fn ask_for_backup(&self, at: usize) -> JoinSet<Output> {
        let mut command: Command = self.seats[at].place.command(&["backup", "now"]);
        let mut asked = JoinSet::new();
        asked.spawn(async move { command.output().await.unwrap() });
        asked
    }

    /// The member that the backup of the daemon at `at` reads.
    async fn read_by(&self, at: usize) -> usize {
        eventually("a follower is read", || async {
            let log = self.log(at);
            let line = log
                .lines()
                .find(|line| line.contains("a follower is read"))?;
            let is_named = |at: &usize| line.contains(&format!(":{}", self.seats[*at].client));
            (0..3).find(is_named)
        })
        .await
    }

    async fn kill(&mut self, at: usize) {
        let mut daemon = self.seats[at].daemon.take().unwrap();
        daemon.kill().await.unwrap();
    }

    fn log(&self, at: usize) -> String {
        let seat = &self.seats[at];
        let file = seat
            .place
            .path()
            .join(format!("daemon-{}.log", seat.starts));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    fn admin_ports(&self) -> Vec<u16> {
        self.seats.iter().map(|seat| seat.admin).collect()
    }

    /// The one that is active, other than `but`.
    async fn active(&self, but: Option<usize>) -> usize {
        let ports = self.admin_ports();
        eventually("one daemon is active", || async {
            let active = active_among(&ports).await;
            active.into_iter().find(|at| Some(*at) != but)
        })
        .await
    }

    /// Every backup in the vault, oldest first.
    fn manifests(&self) -> Vec<Value> {
        let folder: PathBuf = self.seats[0].place.path().join("shared-vault");
        let folder = folder.join("clusters/bundled/manifests");
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .map(|entries| entries.map(|one| one.unwrap().path()).collect())
            .unwrap_or_default();
        files.sort();
        let read = |file: &PathBuf| {
            let text = std::fs::read_to_string(file).unwrap();
            let line = text.lines().next().unwrap();
            let mut signed: Value = serde_json::from_str(line).unwrap();
            signed["record"].take()
        };
        files.iter().map(read).collect()
    }

    async fn backups(&self, count: usize) {
        eventually("more backups", || async {
            (self.manifests().len() >= count).then_some(())
        })
        .await;
    }
}

/// `None` also for one that stands still.
async fn health(port: u16) -> Option<Value> {
    let asked = tokio::time::timeout(Duration::from_secs(2), http_get(port, "/healthz"));
    let text = asked.await.ok()??;
    let (_, body) = text.split_once("\r\n\r\n")?;
    serde_json::from_str(body).ok()
}

async fn active_among(ports: &[u16]) -> Vec<usize> {
    let asked = ports.iter().map(|port| health(*port));
    let told = futures::future::join_all(asked).await;
    let is_active = |told: &Option<Value>| {
        let role = told.as_ref().map(|told| told["turn"]["role"].clone());
        role == Some("active".into())
    };
    (0..ports.len())
        .filter(|at| is_active(&told[*at]))
        .collect()
}

/// Looks at all of them until told to end; the most that were active at once.
async fn watch_roles(ports: Vec<u16>, end: Arc<Notify>) -> usize {
    let mut most = 0;
    loop {
        most = most.max(active_among(&ports).await.len());
        let pause = tokio::time::timeout(Duration::from_millis(50), end.notified());
        if pause.await.is_ok() {
            return most;
        }
    }
}

/// One chain without forks, and how its generations went.
fn judge(manifests: &[Value]) -> BTreeSet<u64> {
    let mut generations = BTreeSet::new();
    let mut last = 0;
    for (at, manifest) in manifests.iter().enumerate() {
        assert_eq!(manifest["sequence"], at + 1, "{manifest}");
        let generation = manifest["generation"].as_u64().unwrap();
        assert!(generation >= last, "{manifest}");
        last = generation;
        generations.insert(generation);
        let before = &manifest["predecessor"]["id"];
        let wanted = at.checked_sub(1).map(|at| &manifests[at]["id"]);
        assert_eq!(before, wanted.unwrap_or(&Value::Null));
    }
    generations
}

#[tokio::test(flavor = "multi_thread")]
async fn one_chain_of_backups_goes_on_while_the_leader_is_killed_and_never_two_are_active() {
    let mut trio = Trio::start("\"@every 3s\"").await;
    let mut client = Client::connect(trio.seats[0].client).await;
    client.put("k", "v").await;
    let end = Arc::new(Notify::new());
    let mut watching = JoinSet::new();
    watching.spawn(watch_roles(trio.admin_ports(), Arc::clone(&end)));
    let first = trio.active(None).await;
    trio.backups(2).await;

    trio.kill(first).await;
    let second = trio.active(Some(first)).await;
    let taken = trio.manifests().len();
    trio.backups(taken + 2).await;

    // Back again, it stands by and is healthy, and says who is active.
    trio.spawn(first);
    let turn = eventually("the one that came back stands by", || async {
        let told = health(trio.seats[first].admin).await?;
        let is_told = told["is_healthy"] == true && told["turn"]["active"].is_string();
        is_told.then(|| told["turn"].clone())
    })
    .await;
    assert_eq!(turn["role"], "standby", "{turn}");
    let name = format!("m{}", second + 1);
    assert_eq!(turn["active"], name.as_str(), "{turn}");
    let seat = &trio.seats[first];
    let metrics = http_get(seat.admin, "/metrics").await.unwrap();
    assert!(metrics.contains("holdfast_appliance_active 0"), "{metrics}");
    let status = seat.place.run(&["status"]).await;
    let told = format!("standby, {name} is active");
    assert!(status.said.contains(&told), "{status:?}");
    let refused = seat.place.run(&["backup", "now"]).await.expect(11);
    assert!(refused.complained.contains(&told), "{refused:?}");
    let active = &trio.seats[second].place;
    active.run(&["backup", "now"]).await.expect(0);
    // The drill boots as many members as the source has.
    let drill = active.run(&["drill", "run", "-w", "json"]).await.expect(0);
    let drill = drill.json();
    assert_eq!(drill["restored"]["members"], 3, "{drill}");
    let status = active.run(&["status", "-w", "json"]).await.json();
    assert_eq!(status[0]["turn"]["role"], "active", "{status}");

    end.notify_one();
    let most = watching.join_all().await;
    assert_eq!(most, [1], "never two were active");
    let manifests = trio.manifests();
    let generations = judge(&manifests);
    assert_eq!(generations.len(), 2, "each turn has one: {generations:?}");
    active.run(&["backup", "list"]).await.expect(0);
}

/// Puts so many megabytes of nothing that packs well: a stream of it is to take its time.
async fn fill(client: &mut Client, megabytes: u32) {
    let value = |number: u32| {
        let mut word = number;
        let next = |_| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from((word >> 24) % 90).unwrap())
        };
        (0..1_000_000).map(next).collect::<String>()
    };
    for number in 0..megabytes {
        client.put(&format!("k{number}"), &value(number)).await;
    }
}

/// A request to a daemon's failpoints; the answer's body.
async fn points(port: u16, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_done = head.split(' ').nth(1)?.starts_with('2');
    is_done.then(|| body.trim().to_owned())
}

/// The last word before a manifest is a quorum's. This daemon gets it, and stands still before it
/// hears it, for as long as another one takes to become the active one.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_stopped_at_the_end_of_a_backup_wakes_commits_nothing_and_says_why() {
    // Passed by a linearizable read when the quorum has answered.
    const CONFIRMED: &str = "/bugReadJoinsOldRound";
    let trio = Trio::start_with("null", true).await;
    let mut client = Client::connect(trio.seats[0].client).await;
    fill(&mut client, 60).await;
    let stopped = trio.active(None).await;
    let mut asked = trio.ask_for_backup(stopped);
    trio.read_by(stopped).await;
    let port = trio.seats[stopped].points.unwrap();
    points(port, "PUT", CONFIRMED, "sleep(5000)").await.unwrap();
    eventually("the lead is confirmed", || async {
        let count = points(port, "GET", &format!("{CONFIRMED}/count"), "").await?;
        (count != "0").then_some(())
    })
    .await;
    assert_eq!(trio.manifests().len(), 0, "it is confirmed before");
    trio.signal(stopped, Signal::STOP);
    let next = trio.active(Some(stopped)).await;
    let seat = &trio.seats[next];
    seat.place.run(&["backup", "now"]).await.expect(0);
    trio.signal(stopped, Signal::CONT);

    let ended = asked.join_next().await.unwrap().unwrap();
    let complained = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success(), "{complained}");
    // By what it noticed first.
    let reasons = [
        "this process is no longer the one that backs up",
        "another one has become the active one",
    ];
    assert!(
        reasons.iter().any(|reason| complained.contains(reason)),
        "{complained}"
    );
    let name = format!("m{}", next + 1);
    eventually("it stands by and knows for whom", || async {
        let turn = health(trio.seats[stopped].admin).await?["turn"].take();
        (turn["role"] == "standby" && turn["active"] == name.as_str()).then_some(())
    })
    .await;
    seat.place.run(&["backup", "now"]).await.expect(0);
    let manifests = trio.manifests();
    assert_eq!(manifests.len(), 2);
    // The first one was claimed by the one that was stopped.
    assert_eq!(judge(&manifests), BTreeSet::from([2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_goes_on_with_another_member_when_the_one_it_reads_is_killed() {
    let mut trio = Trio::start("null").await;
    let mut client = Client::connect(trio.seats[0].client).await;
    fill(&mut client, 60).await;
    let leader = trio.active(None).await;
    let mut asked = trio.ask_for_backup(leader);
    let read = trio.read_by(leader).await;
    assert_ne!(read, leader, "there is a follower");
    trio.kill(read).await;
    let ended = asked.join_next().await.unwrap().unwrap();
    let log = trio.log(leader);
    assert!(ended.status.success(), "{ended:?}\n{log}");
    let manifests = trio.manifests();
    judge(&manifests);
    assert_eq!(manifests.len(), 1);
    assert!(log.contains("trying another member"), "{log}");
    let endpoint = manifests[0]["source"]["endpoint"].as_str().unwrap();
    let other = 3 - leader - read;
    let wanted = trio.seats[other].client.to_string();
    assert!(endpoint.ends_with(&wanted), "{endpoint}, not {wanted}");
}
