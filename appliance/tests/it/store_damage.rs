//! A damaged state file under `holdfast store`: the process ends with the code for damage, names
//! the file and the way back, and never serves a wrong value.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_store::Error;
use holdfast_store::apply::{Applier, NoEvents, StateOptions};

use crate::store_process::Running;
use crate::support::{Ended, Place};

const PAGE: usize = 4096;
const MARK: &[u8] = b"a value that is found in the file by its text";

/// The state file of a store that was stopped in order.
async fn closed(place: &Place) -> PathBuf {
    let store = Running::start(place, &[]).await;
    let mut client = store.client().await;
    for number in 0..200 {
        client.put(&format!("key-{number:03}"), "some value").await;
    }
    client
        .put("marked", std::str::from_utf8(MARK).unwrap())
        .await;
    drop(client);
    store.stop().await;
    place.path().join("m0/state.redb")
}

async fn start_again(place: &Place) -> Ended {
    Running::run_to_its_end(place, &[]).await
}

fn is_told(ended: &Ended, file: &Path) {
    assert_eq!(ended.code, 12, "{ended:#?}");
    let data_dir = file
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    for part in [data_dir, "holdfast restore", "corrupt"] {
        assert!(ended.complained.contains(part), "{part}: {ended:#?}");
    }
}

/// A page header whose damage makes the database library panic, found by trying copies.
fn page_that_panics(bytes: &[u8], copy: &Path) -> Option<usize> {
    (0..bytes.len() / PAGE)
        .map(|page| page * PAGE + 3)
        .find(|&at| {
            // The high byte of a page's count of entries.
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x40;
            std::fs::write(copy, damaged).unwrap();
            let opened = Applier::open(copy, &StateOptions::default(), Arc::new(NoEvents));
            matches!(opened, Err(Error::BackendPanic { .. }))
        })
}

#[tokio::test]
async fn a_page_that_makes_its_reader_panic_ends_the_process_with_the_way_back() {
    let place = Place::new();
    let file = closed(&place).await;
    let mut bytes = std::fs::read(&file).unwrap();
    let copy = place.path().join("copy.redb");
    let at = page_that_panics(&bytes, &copy).expect("some page header matters");
    bytes[at] ^= 0x40;
    std::fs::write(&file, bytes).unwrap();
    let ended = start_again(&place).await;
    is_told(&ended, &file);
    assert!(ended.complained.contains("state.redb"), "{ended:#?}");
    assert!(
        ended
            .complained
            .contains("the state file is damaged; the process ends"),
        "{ended:#?}"
    );
}

#[tokio::test]
async fn a_record_damaged_while_the_store_was_down_refuses_the_start() {
    let place = Place::new();
    let file = closed(&place).await;
    let mut bytes = std::fs::read(&file).unwrap();
    for at in 0..bytes.len() - MARK.len() {
        if bytes[at..].starts_with(MARK) {
            bytes[at] ^= 1;
        }
    }
    std::fs::write(&file, bytes).unwrap();
    let ended = start_again(&place).await;
    is_told(&ended, &file);
    assert!(
        ended.complained.contains("damaged record in table key"),
        "{ended:#?}"
    );
}
