//! kill -9 of backups and restores at random points: the vault never lists half a backup, a restore
//! leaves nothing or the finished result, and doing it again works.

use std::path::Path;
use std::time::Duration;

use tokio::process::Child;
use tokio::time::Instant;

use crate::long::rounds;
use crate::support::{Client, Place, free_port};

/// Keys in the store that is backed up.
const KEYS: usize = 200;

/// Repeatable randomness: the same rounds each time, spread over the whole run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    /// A moment up to a little after the end of something that takes `whole`.
    fn moment(&mut self, whole: Duration) -> Duration {
        let whole = u64::try_from(whole.as_micros()).unwrap();
        Duration::from_micros(self.below(whole + whole / 10))
    }
}

/// The length of a run follows what else the machine does, so that both ends are seen: shorter
/// after a run that came to its end before `moment`, longer after one that did not.
fn follow(whole: Duration, moment: Duration, is_finished: bool) -> Duration {
    if is_finished {
        whole.mul_f64(0.85).max(moment / 2)
    } else {
        whole.mul_f64(1.05)
    }
}

/// A store with data, and a configuration that backs it up as an etcd cluster.
pub(crate) async fn store_with_data(place: &Place) -> Child {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let store = place.spawn_store("source", port, "store.log");
    let mut client = Client::connect(port).await;
    for number in 0..KEYS {
        client.put(&format!("/k/{number}"), &"x".repeat(1000)).await;
    }
    place.run(&["init"]).await.expect(0);
    let file = place.path().join("holdfast.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let sources = format!(
        "sources:\n    - name: bundled\n      kind: {{etcd: {{endpoints: [\"{url}\"]}}}}\n"
    );
    let text = text
        .replace("  enabled: true", "  enabled: false")
        .replace("keep_last: 10", "keep_last: 1000");
    let text = text.replace(
        "sources:\n    - name: bundled\n      kind: bundled\n",
        &sources,
    );
    std::fs::write(&file, text).unwrap();
    place.run(&["config", "check"]).await.expect(0);
    store
}

/// Starts a command and kills it after `moment`; says whether it had come to its end by then.
async fn cut_short(place: &Place, words: &[&str], moment: Duration) -> bool {
    let mut child = place.spawn(words, "killed.log");
    tokio::time::sleep(moment).await;
    let is_over = child.try_wait().unwrap().is_some();
    child.kill().await.unwrap();
    is_over
}

/// The newest backup's place in the chain; every backup listed is whole.
async fn newest(place: &Place) -> u64 {
    let listed = place
        .run(&["backup", "list", "-w", "json"])
        .await
        .expect(0)
        .json();
    let backups = listed["backups"].as_array().unwrap();
    assert!(
        backups.iter().all(|one| one["level"].is_string()),
        "half a backup: {listed}"
    );
    backups[0]["sequence"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_backups_and_restores_leave_the_whole_or_nothing() {
    let place = Place::new();
    let _store = store_with_data(&place).await;
    backups(&place).await;
    restores(&place).await;
}

async fn backups(place: &Place) {
    let began = Instant::now();
    place.run(&["backup", "now"]).await.expect(0);
    let mut whole = began.elapsed();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut before = newest(place).await;
    let mut finished = 0;
    let rounds = rounds(50, 100);
    for round in 0..rounds {
        let moment = dice.moment(whole);
        cut_short(place, &["backup", "now"], moment).await;
        let after = newest(place).await;
        assert!(
            after == before || after == before + 1,
            "round {round}: {before}, {after}"
        );
        whole = follow(whole, moment, after > before);
        finished += after - before;
        before = after;
    }
    assert!(
        finished > 0 && finished < rounds,
        "{finished} of {rounds} backups came to their end"
    );
    place.run(&["backup", "now"]).await.expect(0);
    place
        .run(&["backup", "verify", "--all", "--level", "L1"])
        .await
        .expect(0);
}

async fn restores(place: &Place) {
    let began = Instant::now();
    place
        .run(&["restore", "--latest", "--data-dir", "first"])
        .await
        .expect(0);
    let mut whole = began.elapsed();
    let mut dice = Dice(0xd1b5_4a32_d192_ed03);
    let mut cut = 0;
    let rounds = rounds(50, 100);
    for round in 0..rounds {
        let name = format!("restored-{round}");
        let words = ["restore", "--latest", "--data-dir", &name];
        let moment = dice.moment(whole);
        cut_short(place, &words, moment).await;
        let target = place.path().join(&name);
        whole = follow(whole, moment, target.exists());
        if target.exists() {
            // What is there is finished: another restore into it is refused.
            place.run(&words).await.expect(11);
        } else {
            cut += 1;
            place.run(&words).await.expect(0);
        }
        if round % 10 == 0 {
            serves_everything(place, &name).await;
        }
        std::fs::remove_dir_all(&target).unwrap();
    }
    assert!(
        cut > 0 && cut < rounds,
        "{cut} of {rounds} restores were cut short"
    );
    assert_eq!(leftovers(place.path()), Vec::<String>::new());
}

async fn serves_everything(place: &Place, name: &str) {
    let port = free_port();
    let mut store = place.spawn_store(name, port, "restored.log");
    let mut client = Client::connect(port).await;
    for number in [0, KEYS / 2, KEYS - 1] {
        let (value, _) = client.get(&format!("/k/{number}")).await;
        assert_eq!(value, Some("x".repeat(1000)), "{name}");
    }
    store.kill().await.unwrap();
}

/// Whatever a killed restore left beside its target.
fn leftovers(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names
        .filter(|name| {
            name.contains("partial") || name.contains("restored-") || name.contains("spool")
        })
        .collect()
}
