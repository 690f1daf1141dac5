//! The scenes, in order. Each runs real commands and checks from outside that they did it.

use std::path::PathBuf;

use super::client::{Client, Told};
use super::commands::{Daemon, Holdfast};
use super::peer::{Etcd, RunningEtcd, free_port};
use super::stage::Stage;
use super::tamper;
use crate::failure::{Failure, OrFail as _};

/// A value that must never be readable in the vault.
const SECRET: &str = "the-launch-code-is-0000";

/// Keys that go in.
const KEYS: i64 = 500;

/// Something done to a copy of the vault.
type Trick = fn(&std::path::Path) -> Result<(), Failure>;

/// What the story is played with.
#[derive(Debug)]
pub(super) struct Tale {
    pub(super) stage: Stage,
    pub(super) holdfast: Holdfast,
    pub(super) folder: PathBuf,
    /// Where the bundled store listens.
    pub(super) endpoint: String,
    pub(super) rto: Option<String>,
    pub(super) rpo: Option<String>,
    pub(super) skipped: Vec<String>,
}

/// What the store held before the disaster.
struct Before {
    revision: i64,
    hash: u32,
    keys: i64,
}

impl Tale {
    /// Plays every scene.
    pub(super) async fn play(&mut self, etcd: Etcd) -> Result<(), Failure> {
        self.set_up().await?;
        let (daemon, before) = self.fill().await?;
        self.back_up(&before).await?;
        self.tamper().await?;
        self.drill().await?;
        self.disaster(daemon).await?;
        self.come_back(&before).await?;
        self.real_etcd(etcd).await
    }

    async fn set_up(&mut self) -> Result<(), Failure> {
        self.stage.scene("A configuration and keys")?;
        self.holdfast.show(&self.stage, &["init", "."], 4).await?;
        let mut lines = vec![
            ("  admin:", "  admin:\n    enabled: false".to_owned()),
            ("http://127.0.0.1:2379", self.endpoint.clone()),
            ("    schedule: \"@hourly\"", "    schedule: null".to_owned()),
            (
                "    schedule: \"30 3 * * SUN\"",
                "    schedule: null".to_owned(),
            ),
        ];
        for (old, new) in lines.drain(..) {
            tamper::edit(&self.folder.join("holdfast.yaml"), old, &new)?;
        }
        let mode = file_mode(&self.folder.join("holdfast-data/keys/identity.age"))?;
        self.stage.check(
            mode == 0o600,
            "the age identity is readable by its owner alone",
        )
    }

    async fn fill(&mut self) -> Result<(Daemon, Before), Failure> {
        self.stage.scene("A store, and data in it")?;
        self.stage.command("holdfast run &")?;
        let (daemon, client) = self.holdfast.start_daemon(&self.endpoint).await?;
        self.stage.command(&format!(
            "etcdctl put ...    ({KEYS} keys, a lease, deletes)"
        ))?;
        for number in 0..KEYS {
            client
                .put(
                    &format!("/registry/pods/p{number}"),
                    &format!("pod {number}"),
                    0,
                )
                .await?;
        }
        client.put("/secret", SECRET, 0).await?;
        let lease = client.grant(3600).await?;
        client
            .put("/registry/leases/node-1", "alive", lease)
            .await?;
        for number in 0..10 {
            client.delete(&format!("/registry/pods/p{number}")).await?;
        }
        let revision = client.revision().await?;
        let before = Before {
            revision,
            hash: client.hash_kv(revision).await?,
            keys: client.count("/").await?,
        };
        let holds = before.keys == KEYS + 2 - 10;
        let text = format!(
            "{} keys at revision {revision}, HashKV {}",
            before.keys, before.hash
        );
        self.stage.check(holds, text)?;
        Ok((daemon, before))
    }

    async fn back_up(&mut self, before: &Before) -> Result<(), Failure> {
        self.stage.scene("A sealed backup, read back and proven")?;
        self.holdfast
            .show(&self.stage, &["backup", "now"], 8)
            .await?;
        let shown = self.holdfast.ask(&self.stage, &["backup", "show"]).await?;
        let content = shown
            .pointer("/manifest/content")
            .cloned()
            .unwrap_or_default();
        let hash = content.get("hash_kv").and_then(serde_json::Value::as_u64);
        let is_same = hash == Some(u64::from(before.hash))
            && content.get("revision").and_then(serde_json::Value::as_i64) == Some(before.revision);
        self.stage.check(
            is_same,
            "HashKV recomputed from the backup equals the running store's",
        )?;
        let level = shown.get("level").and_then(serde_json::Value::as_str);
        self.stage
            .check(level == Some("L2"), "it stands at L2: every byte read back")?;
        let is_readable = tamper::is_readable_in(&self.vault(), SECRET)?;
        self.stage
            .check(!is_readable, "no file of the vault shows a value in clear")
    }

    async fn tamper(&mut self) -> Result<(), Failure> {
        self.stage
            .scene("Tampering is caught (on copies of the vault)")?;
        let tricks: [(&str, Trick); 3] = [
            ("one flipped bit in a part", |vault| {
                tamper::flip_a_bit(&tamper::last_in(vault, "parts")?)
            }),
            ("a part that is gone", |vault| {
                let part = tamper::last_in(vault, "parts")?;
                std::fs::remove_file(&part).or_fail("the part was not removed")
            }),
            ("an edited manifest", |vault| {
                tamper::edit(
                    &tamper::last_in(vault, "manifests")?,
                    "\"keys\":",
                    "\"keys\":1",
                )
            }),
        ];
        for (number, (name, trick)) in tricks.into_iter().enumerate() {
            let copy = self.folder.join(format!("tampered-{number}"));
            tamper::copy_folder(&self.vault(), &copy)?;
            trick(&copy)?;
            let set = format!("restore.vault.local.path={}", copy.display());
            let words = ["backup", "verify", "--all", "--set", &set];
            let ended = self.holdfast.run(&self.stage, &words).await?;
            let told = ended
                .said
                .lines()
                .find(|line| line.contains("flaw") || line.contains("problem"));
            self.stage.quote(told.unwrap_or(&ended.complained), 1)?;
            self.stage.check(
                ended.code == 12,
                format!("{name}: refused with exit code 12"),
            )?;
        }
        let ended = self
            .holdfast
            .run(&self.stage, &["backup", "verify", "--all"])
            .await?;
        self.stage
            .check(ended.code == 0, "the vault itself is whole")
    }

    async fn drill(&mut self) -> Result<(), Failure> {
        self.stage
            .scene("A drill: the restore rehearsed and measured, in a scratch folder")?;
        self.holdfast
            .show(&self.stage, &["drill", "run"], 14)
            .await?;
        let shown = self.holdfast.ask(&self.stage, &["drill", "show"]).await?;
        let text = |place: &str| {
            shown
                .pointer(place)
                .and_then(serde_json::Value::as_str)
                .map(str::to_owned)
        };
        (self.rto, self.rpo) = (text("/rto"), text("/rpo/age"));
        let is_passed = text("/outcome").as_deref() == Some("passed");
        self.stage
            .check(is_passed, "the signed report in the vault says: passed")?;
        let shown = self.holdfast.ask(&self.stage, &["backup", "show"]).await?;
        let level = shown.get("level").and_then(serde_json::Value::as_str);
        self.stage.check(
            level == Some("L3"),
            "the backup now stands at L3: restored and served",
        )
    }

    async fn disaster(&mut self, daemon: Daemon) -> Result<(), Failure> {
        self.stage.scene("A disaster")?;
        self.stage
            .command("kill -9 ...; rm -r holdfast-data/store")?;
        daemon.kill().await?;
        let store = self.folder.join("holdfast-data/store");
        std::fs::remove_dir_all(&store).or_fail("the store was not deleted")?;
        self.stage
            .check(!store.exists(), "the store's data directory is gone")
    }

    async fn come_back(&mut self, before: &Before) -> Result<(), Failure> {
        self.stage.scene("One command brings it back")?;
        let words = ["restore", "--data-dir", "holdfast-data/store"];
        self.holdfast.show(&self.stage, &words, 24).await?;
        self.stage.command("holdfast run &")?;
        let (daemon, client) = self.holdfast.start_daemon(&self.endpoint).await?;
        self.check_return(&client, before).await?;
        self.holdfast
            .show(&self.stage, &["backup", "now"], 3)
            .await?;
        let ended = self.holdfast.run(&self.stage, &["status"]).await?;
        self.stage.quote(&ended.said, 8)?;
        self.stage
            .check(ended.code == 0, "backups go on, and every objective is met")?;
        daemon.kill().await
    }

    async fn check_return(&mut self, client: &Client, before: &Before) -> Result<(), Failure> {
        let keys = client.count("/").await?;
        self.stage
            .check(keys == before.keys, format!("all {keys} keys are back"))?;
        let secret = client.get("/secret").await?;
        self.stage
            .check(secret.as_deref() == Some(SECRET), "with their values")?;
        let revision = client.revision().await?;
        let holds = revision > before.revision;
        let text = format!(
            "the revision went on: {} became {revision}",
            before.revision
        );
        self.stage.check(holds, text)?;
        let told = client
            .watch_from("/registry/pods/p42", before.revision)
            .await?;
        let is_told = matches!(told, Told::Compacted(_));
        self.stage.check(
            is_told,
            "a watcher of the old cluster is told \"compacted\", and starts anew",
        )?;
        let after = client.put("/registry/pods/new", "life goes on", 0).await?;
        self.stage.check(
            after > revision,
            format!("a new write gets revision {after}"),
        )
    }

    async fn real_etcd(&mut self, etcd: Etcd) -> Result<(), Failure> {
        self.stage.scene("A real etcd as second source")?;
        let program = match etcd.program().await {
            Ok(program) => program,
            Err(reason) => {
                self.stage.remark(&format!("SKIPPED: {reason}"))?;
                self.skipped
                    .push(format!("a real etcd as second source: {reason}"));
                return Ok(());
            }
        };
        let peer_url = format!("http://127.0.0.1:{}", free_port()?);
        let (data, log) = (self.folder.join("etcd"), self.folder.join("etcd.log"));
        self.stage.command("etcd --data-dir etcd &")?;
        let (running, client) = RunningEtcd::start(&program, &data, &log, &peer_url).await?;
        for number in 0..100 {
            client
                .put(&format!("/etcd/{number}"), "from a real etcd", 0)
                .await?;
        }
        let revision = client.revision().await?;
        let hash = client.hash_kv(revision).await?;
        let config = self.folder.join("holdfast.yaml");
        let new = format!(
            "sources:\n    - name: real\n      kind:\n        etcd:\n          endpoints: [\"{}\"]",
            running.endpoint
        );
        tamper::edit(&config, "sources:", &new)?;
        self.holdfast
            .show(&self.stage, &["backup", "now", "--source", "real"], 8)
            .await?;
        let shown = self
            .holdfast
            .ask(&self.stage, &["backup", "show", "--source", "real"])
            .await?;
        let found = shown
            .pointer("/manifest/content/hash_kv")
            .and_then(serde_json::Value::as_u64);
        self.stage.check(
            found == Some(u64::from(hash)),
            "its HashKV equals etcd's own",
        )?;
        running.kill().await?;
        self.real_etcd_returns(&program, &peer_url, revision).await
    }

    async fn real_etcd_returns(
        &mut self,
        program: &std::path::Path,
        peer_url: &str,
        revision: i64,
    ) -> Result<(), Failure> {
        let cluster = format!("default={peer_url}");
        let words = [
            "restore",
            "--source",
            "real",
            "--latest",
            "--target",
            "etcd",
            "--data-dir",
            "etcd-restored",
            "--initial-cluster",
            &cluster,
        ];
        self.holdfast.show(&self.stage, &words, 4).await?;
        let (data, log) = (
            self.folder.join("etcd-restored"),
            self.folder.join("etcd-restored.log"),
        );
        let (running, client) = RunningEtcd::start(program, &data, &log, peer_url).await?;
        let keys = client.count("/etcd/").await?;
        self.stage.check(
            keys == 100,
            "a real etcd starts from the restored directory with all keys",
        )?;
        let told = client.watch_from("/etcd/1", revision).await?;
        let is_told = matches!(told, Told::Compacted(_));
        self.stage
            .check(is_told, "and tells an old watcher \"compacted\"")?;
        running.kill().await
    }

    fn vault(&self) -> PathBuf {
        self.folder.join("holdfast-data/vault")
    }
}

fn file_mode(file: &std::path::Path) -> Result<u32, Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(file).or_fail(format!("{} is not there", file.display()))?;
    Ok(metadata.permissions().mode() & 0o777)
}
