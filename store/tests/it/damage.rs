//! A bit of the state file flips under a running store: what clients see of it.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_proto::etcd::rpc;
use holdfast_store::options::StoreOptions;
use tonic::Code;

use crate::api_support::{Store, eventually, range};

/// So small that a row is read from the file again.
const CACHE_BYTES: usize = 16 << 10;
const MARK: &[u8] = b"a value that is found in the file by its text";

fn small(options: &mut StoreOptions) {
    options.limits.cache_bytes = CACHE_BYTES;
}

/// A store with a marked key among others, everything in its file.
async fn filled(change: impl FnOnce(&mut StoreOptions)) -> Store {
    let store = Store::start_with(|options| {
        small(options);
        change(options);
    })
    .await;
    store.put_bytes("marked", MARK.to_vec()).await;
    for number in 0..64 {
        store
            .put_bytes(&format!("other-{number:02}"), vec![b'x'; 2048])
            .await;
    }
    store.server.member().checkpoint().await.unwrap();
    store
}

fn state_file(store: &Store) -> PathBuf {
    store.directory.path().join("data/state.redb")
}

/// Flips a bit of the marked value wherever the file holds it.
fn damage(store: &Store) {
    use std::os::unix::fs::FileExt as _;
    let path = state_file(store);
    let bytes = std::fs::read(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let places: Vec<usize> = bytes
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK)
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "the value is not in the file");
    for at in places {
        let offset = u64::try_from(at).unwrap();
        file.write_all_at(&[bytes[at] ^ 1], offset).unwrap();
    }
}

/// Reads the other keys, so that no page of the marked one is cached.
async fn forget(store: &Store) {
    let others = store.range(range("other-", "other.")).await;
    assert_eq!(others.count, 64);
}

async fn alarms(store: &Store) -> Vec<rpc::AlarmType> {
    let get = rpc::AlarmRequest::default();
    let answer = store.maintenance().alarm(get).await.unwrap().into_inner();
    answer.alarms.iter().map(rpc::AlarmMember::alarm).collect()
}

async fn is_corrupt(store: &Store) -> bool {
    alarms(store).await == [rpc::AlarmType::Corrupt]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_data_loss_for_its_key_and_a_corrupt_alarm_for_all() {
    let store = filled(|_| {}).await;
    damage(&store);
    forget(&store).await;
    let status = store.kv().range(range("marked", "")).await.unwrap_err();
    assert_eq!(status.code(), Code::DataLoss, "{status:?}");
    assert!(
        status.message().contains("damaged record in table key"),
        "{status:?}"
    );

    eventually(|| is_corrupt(&store)).await;
    // As in etcd under this alarm: what is whole is read, nothing is written.
    assert_eq!(store.get("other-07").await.unwrap().value.len(), 2048);
    let put = rpc::PutRequest {
        key: "new".into(),
        ..rpc::PutRequest::default()
    };
    let status = store.kv().put(put).await.unwrap_err();
    assert_eq!(status.code(), Code::DataLoss);
    assert_eq!(status.message(), "etcdserver: corrupt cluster");
    let (code, body) = store.http("GET", "/readyz").await;
    assert_eq!(code, 503);
    assert!(
        body.contains("[-]data_corruption failed: alarm activated: CORRUPT"),
        "{body}"
    );
    assert_eq!(store.http("GET", "/health").await.0, 503);
    let (_, metrics) = store.http("GET", "/metrics").await;
    assert!(
        metrics.contains("\nholdfast_store_damaged 1\n"),
        "{metrics}"
    );
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_background_check_finds_damage_that_nobody_reads() {
    let store = filled(|options| {
        options.scrub.interval = Duration::from_millis(20);
        options.scrub.bytes_per_second = 64 << 20;
    })
    .await;
    let member = store.server.member().clone();
    eventually(|| async { member.scrubbed().walks > 0 }).await;
    let whole = member.scrubbed();
    assert!(whole.rows > 64 && whole.bytes > 64 * 2048, "{whole:?}");
    assert_eq!(alarms(&store).await, []);
    damage(&store);
    eventually(|| is_corrupt(&store)).await;
    assert_eq!(store.get("other-07").await.unwrap().value.len(), 2048);
    store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_closed_file_was_damaged_does_not_start() {
    let store = filled(|_| {}).await;
    let directory = store.stop().await;
    let path = directory.path().join("data/state.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(MARK.len())
        .position(|window| window == MARK)
        .unwrap();
    for place in at..bytes.len() - MARK.len() {
        if bytes[place..].starts_with(MARK) {
            bytes[place] ^= 1;
        }
    }
    std::fs::write(&path, bytes).unwrap();
    let any_port = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let options = StoreOptions::single("one", &directory.path().join("data"), any_port);
    let error = holdfast_store::api::StoreServer::start(options)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), holdfast_store::ErrorKind::Corrupt, "{error}");
}
