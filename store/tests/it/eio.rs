//! The disk fails under the state file: nothing is acknowledged that is not durable elsewhere, the
//! member gives up, and the next start has every acknowledged write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use holdfast_store::Error;
use holdfast_store::member::{Member, MemberOptions, StateStorage};
use redb::StorageBackend;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::api_support::PATIENCE;
use crate::member::{get, options, put, start};

/// Which operation fails while the switch is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Sync,
    Write,
}

/// A file that fails when told to.
#[derive(Debug)]
struct Failing {
    file: File,
    fault: Fault,
    is_on: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
}

impl Failing {
    fn check(&self, fault: Fault) -> io::Result<()> {
        if fault == self.fault && self.is_on.load(Ordering::Relaxed) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            // EIO, as a failing disk says it.
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.check(Fault::Sync)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.check(Fault::Write)?;
        self.file.write_all_at(data, offset)
    }
}

/// Options of a member whose state file fails once the switch is on.
fn failing(dir: &Path, fault: Fault) -> (MemberOptions, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (is_on, failures) = (Arc::default(), Arc::default());
    let (switch, count) = (Arc::clone(&is_on), Arc::clone(&failures));
    let open = move |path: &Path| -> Result<Box<dyn StorageBackend>, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(|source| Error::Io {
            doing: "open the state file",
            source,
        })?;
        Ok(Box::new(Failing {
            file,
            fault,
            is_on: Arc::clone(&switch),
            failures: Arc::clone(&count),
        }))
    };
    let options = MemberOptions {
        state_storage: Some(StateStorage(Arc::new(open))),
        ..options(dir)
    };
    (options, is_on, failures)
}

/// Puts numbered keys until one is refused; how many were acknowledged.
async fn put_until_refused(member: &Member, from: u32) -> u32 {
    for number in from..from + 100_000 {
        let key = format!("key-{number}");
        let result = timeout(PATIENCE, member.propose(put(&key, b"value"))).await;
        if result.expect("an answer in time").is_err() {
            return number;
        }
    }
    panic!("nothing was refused");
}

async fn fails_once_and_for_all(fault: Fault) {
    let dir = TempDir::new().unwrap();
    let (failing, is_on, failures) = failing(dir.path(), fault);
    let member = start(failing).await;
    for number in 0..50 {
        member
            .propose(put(&format!("key-{number}"), b"value"))
            .await
            .unwrap();
    }
    is_on.store(true, Ordering::Relaxed);
    let acknowledged = put_until_refused(&member, 50).await;
    // A disk that is well again changes nothing: what it dropped is not known.
    is_on.store(false, Ordering::Relaxed);
    let failed = failures.load(Ordering::Relaxed);
    assert!(failed > 0);
    let reason = timeout(PATIENCE, member.failed())
        .await
        .expect("the member gives up");
    assert!(reason.contains("os error 5"), "{reason}");
    for number in 0..20 {
        let result = member
            .propose(put(&format!("late-{number}"), b"value"))
            .await;
        assert!(
            result.is_err(),
            "a write was acknowledged after the failure"
        );
    }
    assert_eq!(
        failures.load(Ordering::Relaxed),
        failed,
        "the file was used again"
    );
    assert!(
        member.stop().await.is_err(),
        "the state was not made durable"
    );

    let member = start(options(dir.path())).await;
    for number in 0..acknowledged {
        let key = format!("key-{number}");
        assert!(
            get(&member, &key).await.is_some(),
            "{key} of {acknowledged} is lost"
        );
    }
    assert_eq!(get(&member, "late-0").await, None);
    member.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_the_state_file_ends_the_member_and_loses_nothing() {
    fails_once_and_for_all(Fault::Sync).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_to_the_state_file_ends_the_member_and_loses_nothing() {
    fails_once_and_for_all(Fault::Write).await;
}
