//! Restores to a point in time: an etcd is backed up and followed, and what it said of itself at
//! each revision is what comes back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_proto::etcd::rpc::HashKvRequest;
use holdfast_proto::etcd::rpc::maintenance_client::MaintenanceClient;
use holdfast_restore::delta::RunWriter;
use holdfast_restore::follow::{Follower, WatchFeed};
use holdfast_restore::{
    Catalog, EtcdSource, EtcdSpec, Identities, ReadWrite, Sealer, Signer, Source as _, Trust,
    Vault, VaultSpec,
};
use holdfast_store::etcd_file::EtcdFile;
use serde_json::Value;
use tokio::process::Child;

use crate::support::{Client, Ended, Place, free_port};

/// A store, its backups, and the changes after them, written as the daemon writes them.
pub(crate) struct History {
    pub(crate) place: Place,
    pub(crate) client: Client,
    port: u16,
    writer: Option<RunWriter>,
    /// HashKV and compaction that the store told, by revision.
    told: BTreeMap<i64, (u32, i64)>,
    _store: Child,
}

impl History {
    /// An etcd with three keys, backed up once, at revision 4.
    pub(crate) async fn begin() -> Self {
        let place = Place::new();
        let port = free_port();
        let store = place.spawn_store("source", port, "store.log");
        let client = Client::connect(port).await;
        place.run(&["init"]).await.expect(0);
        let file = place.path().join("holdfast.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.replace("  enabled: true", "  enabled: false").replace(
            "sources:\n    - name: bundled\n      kind: bundled\n",
            &format!(
                "sources:\n    - name: real\n      kind: {{etcd: {{endpoints: \
                 [\"http://127.0.0.1:{port}\"]}}}}\n"
            ),
        );
        std::fs::write(&file, text).unwrap();
        let mut history = Self {
            place,
            client,
            port,
            writer: None,
            told: BTreeMap::new(),
            _store: store,
        };
        for key in ["a", "b", "c"] {
            history.put(key, "before").await;
        }
        history.backup().await;
        history
    }

    pub(crate) async fn backup(&self) {
        self.place.run(&["backup", "now"]).await.expect(0);
    }

    /// Notes what the store says of itself now.
    async fn note(&mut self) -> i64 {
        let url = format!("http://127.0.0.1:{}", self.port);
        let mut client = MaintenanceClient::connect(url).await.unwrap();
        let told = client.hash_kv(HashKvRequest { revision: 0 }).await.unwrap();
        let told = told.into_inner();
        let revision = told.header.unwrap().revision;
        self.told
            .insert(revision, (told.hash, told.compact_revision));
        revision
    }

    pub(crate) async fn put(&mut self, key: &str, value: &str) -> i64 {
        self.client.put(key, value).await;
        self.note().await
    }

    pub(crate) async fn delete(&mut self, key: &str) -> i64 {
        self.client.delete(key).await;
        self.note().await
    }

    async fn open(&self) -> (Vault<ReadWrite>, Catalog, Signer) {
        let data = self.place.path().join("holdfast-data");
        let spec = VaultSpec::Local {
            path: data.join("vault"),
        };
        let signer = Signer::load(&data.join("keys/signing.key")).unwrap();
        let trust = Trust::in_keys([signer.verifier()]);
        let vault = Vault::<ReadWrite>::open(&spec).await.unwrap();
        let cluster = "real".parse().unwrap();
        let catalog = Catalog::load(&vault, &cluster, &trust, None).await.unwrap();
        (vault, catalog, signer)
    }

    /// Everything that happened since becomes one delta; answers when that was.
    pub(crate) async fn cut(&mut self) -> DateTime<Utc> {
        let (vault, catalog, signer) = self.open().await;
        let keys = self.place.path().join("holdfast-data/keys");
        let identities = Identities::load(&keys.join("identity.age")).unwrap();
        let sealer = Sealer::to_recipients(identities.recipients().to_vec()).unwrap();
        let first = &catalog.backups[0];
        let begun = || RunWriter::begin(&first.manifest, &first.link);
        let writer = self.writer.get_or_insert_with(begun);
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let etcd = EtcdSource::new(EtcdSpec::at([endpoint])).unwrap();
        let newest = *self.told.keys().next_back().unwrap();
        let feed = WatchFeed::open(&etcd, writer.to(), None).await.unwrap();
        let mut follower = Follower::new(feed, writer.to());
        for _ in 0..20 {
            let gathered = follower
                .gather(Duration::from_millis(100), &now)
                .await
                .unwrap();
            let told = etcd.hash_kv(gathered.to).await.unwrap();
            let sealed = writer.seal(gathered, told, (&sealer, &signer)).unwrap();
            writer.commit(&vault, &sealed).await.unwrap();
            if writer.to() == newest {
                return sealed.record.finished;
            }
        }
        panic!("at {} and not at {newest}", writer.to());
    }

    /// The deltas, in order.
    pub(crate) fn deltas(&self) -> Vec<PathBuf> {
        let folder = self
            .place
            .path()
            .join("holdfast-data/vault/clusters/real/deltas");
        let runs = std::fs::read_dir(folder).unwrap();
        let files = runs.flat_map(|run| std::fs::read_dir(run.unwrap().path()).unwrap());
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Restores for a real etcd without a bump, and compares with what the store said.
    async fn restore(&self, dir: &str, words: &[&str]) -> Value {
        let base = [
            "restore",
            "--target",
            "etcd",
            "--bump-revision",
            "0",
            "-w",
            "json",
            "--data-dir",
            dir,
        ];
        let done = self.place.run(&[&base[..], words].concat()).await.expect(0);
        let done = done.json();
        let revision = done["plan"]["revision"].as_i64().unwrap();
        assert_eq!(done["outcome"]["revision"], revision);
        let database = self.place.path().join(dir).join("member/snap/db");
        let file = EtcdFile::open(std::fs::read(database).unwrap()).unwrap();
        assert!(file.check().is_clean());
        let (hash, compacted) = self.told[&revision];
        let found = file.hash_kv_behind(revision, compacted).unwrap();
        assert_eq!((found.hash, found.current_revision), (hash, revision));
        done
    }

    async fn refused(&self, words: &[&str], code: i32) -> Value {
        let base = ["restore", "-w", "json", "--data-dir", "never"];
        let ended = self.place.run(&[&base[..], words].concat()).await;
        let ended = ended.expect(code);
        assert!(!self.place.path().join("never").exists());
        serde_json::from_str(&ended.complained).unwrap()
    }
}

fn now() -> DateTime<Utc> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test writes what the daemon writes, by the clock the commands have"
    )]
    Utc::now()
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
}

/// Two backups (4 and 8) and three deltas: to 6, to 8 and to 9.
async fn history() -> (History, [DateTime<Utc>; 3]) {
    let mut history = History::begin().await;
    history.put("d", "first").await;
    history.delete("a").await;
    let six = history.cut().await;
    history.put("a", "again").await;
    history.put("b", "changed").await;
    let eight = history.cut().await;
    history.backup().await;
    history.delete("c").await;
    let nine = history.cut().await;
    (history, [six, eight, nine])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_point_of_a_captured_history_comes_back_with_the_hash_it_had() {
    let (history, [six, eight, nine]) = history().await;
    // Nothing was drilled: the plain restore says how to go on, as it always did.
    let unproven = history.refused(&[], 10).await;
    assert!(unproven["next"].to_string().contains("--latest"));
    let newest = history.restore("newest", &["--latest"]).await;
    assert_eq!(newest["plan"]["revision"], 9);
    assert_eq!(newest["plan"]["wanted"], "newest");
    assert_eq!(newest["outcome"]["replayed"]["compared"]["revision"], 9);
    for revision in ["4", "5", "6", "7", "8", "9"] {
        let done = history.restore(revision, &["--revision", revision]).await;
        assert_eq!(done["plan"]["revision"].to_string(), revision);
    }
    for (time, revision) in [(six, 6), (eight, 8), (nine, 9)] {
        let dir = format!("at-{revision}");
        let done = history.restore(&dir, &["--at", &rfc3339(time)]).await;
        assert_eq!(done["plan"]["revision"], revision);
    }
    let ago = history.restore("ago", &["--at", "0s"]).await;
    assert_eq!(ago["plan"]["revision"], 9);
    for (key, revision) in [("a", 5), ("c", 8)] {
        let words = ["--before-delete", key];
        let done = history.restore(&format!("before-{key}"), &words).await;
        assert_eq!(done["plan"]["revision"], revision);
        assert_eq!(done["plan"]["wanted"]["before-delete"], revision + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_says_which_backup_how_many_deltas_and_until_when() {
    let (history, _) = history().await;
    let dry = ["restore", "--data-dir", "new", "--dry-run"];
    let said = |ended: Ended| ended.expect(0).said;
    let plan = said(history.place.run(&[&dry[..], &["--latest"]].concat()).await);
    assert!(
        plan.contains("1 delta after it") && plan.contains("from revision 8 to 9"),
        "{plan}"
    );
    assert!(
        plan.contains("later changes are not in the vault"),
        "{plan}"
    );
    assert!(plan.contains("9 + 1000000000"), "{plan}");
    assert!(!history.place.path().join("new").exists());
    let words = ["--revision", "7"];
    let plan = said(history.place.run(&[&dry[..], &words].concat()).await);
    assert!(plan.contains("state      revision 7"), "{plan}");
    // 9 was seen, whatever is restored.
    assert!(plan.contains("7 + 1000000002 = 1000000009"), "{plan}");
    assert!(!plan.contains("passed over"), "{plan}");
    // The backup alone is one flag away, and an id names the backup as it is.
    let listed = history.place.run(&["backup", "list", "-w", "json"]).await;
    let listed = listed.expect(0).json();
    let id = listed["backups"][1]["id"].as_str().unwrap();
    for words in [&["--latest", "--no-deltas"][..], &[id]] {
        let plan = said(history.place.run(&[&dry[..], words].concat()).await);
        assert!(!plan.contains("delta"), "{plan}");
    }
    let words = [id, "--revision", "9"];
    let plan = said(history.place.run(&[&dry[..], &words].concat()).await);
    assert!(plan.contains("from revision 4 to 9"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_point_that_is_not_there_is_refused_with_the_nearest_that_is() {
    let (history, _) = history().await;
    let old = history.refused(&["--revision", "3"], 10).await;
    assert!(old["why"].to_string().contains("at revision 4"), "{old}");
    let new = history.refused(&["--revision", "10"], 10).await;
    assert!(new["next"].to_string().contains("--revision 9"), "{new}");
    let early = history.refused(&["--at", "1d"], 10).await;
    assert!(early["why"].to_string().contains("oldest undamaged"));
    let future = history.refused(&["--at", "2999-01-01T00:00:00Z"], 2).await;
    assert!(future["what"].to_string().contains("in the future"));
    let never = history.refused(&["--before-delete", "b"], 10).await;
    assert!(never["what"].to_string().contains("deletes `b`"), "{never}");
    assert!(never["why"].to_string().contains("revision 5 to 9"));
    let both = history.place.run(&[
        "restore",
        "--data-dir",
        "never",
        "--at",
        "1m",
        "--revision",
        "5",
    ]);
    both.await.expect(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_in_the_middle_is_named_with_what_can_still_be_reached() {
    let (history, [_, eight, _]) = history().await;
    let deltas = history.deltas();
    let second = std::fs::read(&deltas[1]).unwrap();
    // A bit of the payload: the records are in order, and the replay finds it.
    let mut flipped = second.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&deltas[1], &flipped).unwrap();
    let broken = history.refused(&["--revision", "7"], 12).await;
    assert!(
        broken["next"].to_string().contains("--revision 6"),
        "{broken}"
    );
    assert!(broken["why"].to_string().contains("deltas/"), "{broken}");
    // Gone: the plan finds it, and what lies behind a later backup is not lost with it.
    std::fs::remove_file(&deltas[1]).unwrap();
    let gone = history.refused(&["--revision", "7"], 12).await;
    assert!(gone["next"].to_string().contains("--revision 6"), "{gone}");
    let at = rfc3339(eight - chrono::TimeDelta::milliseconds(1));
    let gone = history.refused(&["--at", &at], 12).await;
    assert!(gone["next"].to_string().contains("--revision 6"), "{gone}");
    for revision in ["6", "8", "9"] {
        history.restore(revision, &["--revision", revision]).await;
    }
    std::fs::write(&deltas[1], &second).unwrap();
    history.restore("whole", &["--revision", "7"]).await;
}

const MEMBERS: &str = "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:3380,m3=http://127.0.0.1:4380";

#[tokio::test(flavor = "multi_thread")]
async fn members_restored_on_their_hosts_agree_on_the_point() {
    let (mut history, _) = history().await;
    let words = [
        "restore",
        "--latest",
        "--target",
        "etcd",
        "--data-dir",
        "m1.etcd",
        "--name",
        "m1",
        "--initial-cluster",
        MEMBERS,
        "--dry-run",
    ];
    let said = history.place.run(&words).await.expect(0).said;
    let lines = said.lines().map(str::trim);
    let offered: Vec<Vec<String>> = lines
        .filter_map(|line| line.strip_prefix("holdfast restore "))
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    assert_eq!(offered.len(), 3, "{said}");
    // What is captured meanwhile changes nothing for the hosts that come later.
    let mut found = Vec::new();
    for words in &offered {
        let mut all = vec!["restore", "-w", "json"];
        all.extend(words.iter().map(String::as_str));
        let done = history.place.run(&all).await.expect(0).json();
        assert_eq!(done["plan"]["revision"], 9);
        let outcome = &done["outcome"];
        found.push((outcome["cluster_id"].clone(), outcome["hash_kv"].clone()));
        history.put("later", "change").await;
        history.cut().await;
    }
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    let words = [
        "restore",
        "--revision",
        "7",
        "--members",
        MEMBERS,
        "--data-dir",
        "all",
        "-w",
        "json",
    ];
    let done = history.place.run(&words).await.expect(0).json();
    assert_eq!(done["outcome"]["written"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_says_what_follows_each_backup_and_a_verification_reads_it() {
    let (history, [_, _, nine]) = history().await;
    let list = ["backup", "list", "-w", "json"];
    let listed = history.place.run(&list).await.expect(0).json();
    let changes = |at: usize| &listed["backups"][at]["changes"];
    assert_eq!(
        (&changes(0)["deltas"], &changes(0)["to"]),
        (&1.into(), &9.into())
    );
    assert!(changes(1)["deltas"].as_i64().unwrap() >= 3, "{listed}");
    let until: DateTime<Utc> = changes(1)["until"].as_str().unwrap().parse().unwrap();
    assert_eq!(until, nine);
    let text = history.place.run(&["backup", "list"]).await.expect(0).said;
    assert!(text.contains("1 to 9, "), "{text}");
    let shown = history.place.run(&["backup", "show"]).await.expect(0).said;
    assert!(
        shown.contains("1 deltas after it, to revision 9"),
        "{shown}"
    );

    let verify = ["backup", "verify", "--all", "-w", "json"];
    let verified = history.place.run(&verify).await.expect(0).json();
    assert_eq!(verified["deltas"]["read"], history.deltas().len());
    // The newest backup does not need what is damaged; all together do.
    let second = &history.deltas()[1];
    let whole = std::fs::read(second).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(second, flipped).unwrap();
    history.place.run(&["backup", "verify"]).await.expect(0);
    let found = history
        .place
        .run(&["backup", "verify", "--all"])
        .await
        .expect(12);
    assert!(found.said.contains("delta changed"), "{found:?}");
    std::fs::remove_file(second).unwrap();
    let found = history.place.run(&["backup", "list"]).await.expect(12);
    assert!(found.said.contains("delta missing"), "{found:?}");
    std::fs::write(second, whole).unwrap();
    history.place.run(&["backup", "list"]).await.expect(0);
    // Whoever cannot open a delta is told so, and not that it is damaged.
    let made = ["key", "generate", "--dir", "other"];
    history.place.run(&made).await.expect(0);
    let locked = ["backup", "verify", "--identity", "other/identity.age"];
    let locked = history.place.run(&locked).await.expect(13);
    assert!(
        locked
            .said
            .contains("no matching identity: clusters/real/deltas/")
    );
}

/// Rules under which only the newest backup stays, and nothing waits.
const KEEP_ONE: [&str; 10] = [
    "manual.keep_last=1",
    "manual.keep_within=null",
    "keep_last=1",
    "keep_hourly=0",
    "keep_daily=0",
    "keep_weekly=0",
    "keep_monthly=0",
    "keep_within=null",
    "keep_yearly=0",
    "trash_grace=0s",
];

#[tokio::test(flavor = "multi_thread")]
async fn deltas_go_with_the_last_backup_that_needs_them_and_no_sooner() {
    let (history, _) = history().await;
    let before = history.deltas().len();
    let prune = |more: &'static [&'static str]| {
        let rules = KEEP_ONE.map(|rule| format!("policies.retention.{rule}"));
        let mut words = vec!["backup".to_owned(), "prune".to_owned()];
        words.extend(["-w", "json"].map(str::to_owned));
        words.extend(
            rules
                .into_iter()
                .flat_map(|rule| ["--set".to_owned(), rule]),
        );
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    };
    let run = async |words: Vec<String>| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        history.place.run(&words).await.expect(0).json()
    };
    // While the first backup is there nothing of what follows it goes.
    let told = run(prune(&[])).await;
    assert_eq!(told["deltas"].as_array().unwrap().len(), 0, "{told}");
    assert_eq!(history.deltas().len(), before);
    let done = run(prune(&["--confirm"])).await;
    assert!(done["deltas_removed"].as_u64().unwrap() >= 2, "{done}");
    // What follows the one that stays is there, and nobody misses the rest.
    history.place.run(&["backup", "list"]).await.expect(0);
    history
        .place
        .run(&["backup", "verify", "--all"])
        .await
        .expect(0);
    for revision in ["8", "9"] {
        history.restore(revision, &["--revision", revision]).await;
    }
    let gone = history.refused(&["--revision", "7"], 10).await;
    assert!(gone["why"].to_string().contains("at revision 8"), "{gone}");
    let again = run(prune(&["--confirm"])).await;
    assert_eq!(again["deltas_removed"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deltas_are_merged_into_a_backup_that_stands_for_itself() {
    let (mut history, [_, _, nine]) = history().await;
    history.put("a", "later").await;
    history.cut().await;
    let merge = ["backup", "consolidate", "-w", "json"];
    let run = async |more: &[&str]| {
        let words = [&merge[..], more].concat();
        history.place.run(&words).await.expect(0).json()
    };
    let dry = run(&["--dry-run"]).await;
    assert_eq!(dry["prospect"]["revision"], 10, "{dry}");
    assert!(dry["backup"].is_null());
    let idle = run(&["--if-due"]).await;
    assert!(idle["backup"].is_null(), "without an objective: {idle}");
    let due = ["--if-due", "--set", "policies.objective.rto=1ms"];
    let done = run(&due).await;
    assert_eq!(done["backup"]["level"], "L2", "{done}");
    assert_eq!(done["backup"]["revision"], 10);
    assert_eq!(done["backup"]["hash_kv"], history.told[&10].0);
    let shown = ["backup", "show", "-w", "json"];
    let shown = history.place.run(&shown).await.expect(0).json();
    let manifest = &shown["manifest"];
    assert_eq!(manifest["source"]["kind"], "consolidation");
    let started: DateTime<Utc> = manifest["started"].as_str().unwrap().parse().unwrap();
    assert!(started > nine, "its state is from then: {started}");
    let again = run(&[]).await;
    assert!(again["prospect"].is_null(), "{again}");
    // What is captured later follows it.
    history.delete("b").await;
    history.cut().await;
    let listed = ["backup", "list", "-w", "json"];
    let listed = history.place.run(&listed).await.expect(0).json();
    assert_eq!(listed["backups"][0]["revision"], 10);
    assert_eq!(listed["backups"][0]["changes"]["to"], 11);
    for revision in ["9", "10", "11"] {
        history.restore(revision, &["--revision", revision]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_restores_the_changes_too_and_says_until_when() {
    let (history, [_, _, nine]) = history().await;
    let drill = ["drill", "run", "-w", "json"];
    let report = history.place.run(&drill).await.expect(0).json();
    assert_eq!(report["outcome"], "passed", "{report}");
    let replayed = &report["replayed"];
    assert_eq!(
        (&replayed["revision"], &replayed["compared"]),
        (&9.into(), &9.into())
    );
    let until: DateTime<Utc> = replayed["until"].as_str().unwrap().parse().unwrap();
    assert_eq!(until, nine);
    assert_eq!(report["rpo"]["revisions_missing"], 0);
    let shown = history.place.run(&["drill", "show"]).await.expect(0).said;
    assert!(shown.contains("1 deltas to revision 9, until "), "{shown}");
    // What is proven now is restored without being asked, up to the last change.
    let done = history.restore("proven", &[]).await;
    assert_eq!(
        (&done["plan"]["level"], &done["plan"]["revision"]),
        (&"L3".into(), &9.into())
    );
}
