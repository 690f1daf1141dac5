//! A state machine in a temporary folder.
#![expect(
    clippy::unwrap_used,
    clippy::panic_in_result_fn,
    reason = "a test says what it expects and stops when it is not so"
)]

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::store::v1::Command;
use holdfast_proto::store::v1::command::Request;
use holdfast_store::apply::{
    Applier, Entry, EntryPayload, LogPosition, Membership, NoEvents, Outcome, Seat, StateOptions,
};
use holdfast_store::bolt::FileSource;
use holdfast_store::etcd_file::EtcdFile;
use holdfast_store::state::State;
use tempfile::TempDir;

pub(super) struct Harness {
    folder: TempDir,
    index: u64,
    pub(super) applier: Option<Applier>,
    pub(super) state: Arc<State>,
}

impl Harness {
    pub(super) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let (applier, state) = open(&folder);
        Self {
            folder,
            index: 0,
            applier: Some(applier),
            state,
        }
    }

    pub(super) fn apply(&mut self, request: Request) -> Outcome {
        self.index += 1;
        let position = LogPosition {
            term: 1,
            node: 1,
            index: self.index,
        };
        let command = Command {
            id: self.index,
            request: Some(request),
        };
        let entry = Entry {
            position,
            payload: EntryPayload::Command(command),
        };
        let applier = self.applier.as_mut().unwrap();
        let outcome = applier.apply(vec![entry]).unwrap().pop().unwrap();
        assert_eq!(applier.applied(), Some(position));
        outcome
    }

    /// Closes the file and opens it again.
    pub(super) fn reopen(&mut self) {
        let applied = self.applier.take().unwrap().applied();
        // The state holds the file as well.
        let empty = Applier::open_with_backend(
            redb::backends::InMemoryBackend::new(),
            &StateOptions::default(),
            Arc::new(NoEvents),
        );
        self.state = empty.unwrap().1;
        let (applier, state) = open(&self.folder);
        assert_eq!(applier.applied(), applied);
        self.applier = Some(applier);
        self.state = state;
    }

    /// The state as an etcd database file.
    pub(super) fn snapshot(&self) -> EtcdFile<FileSource> {
        let path = self.folder.path().join("snapshot.db");
        self.write_snapshot(&path);
        EtcdFile::open(FileSource::open(&path).unwrap()).unwrap()
    }

    fn write_snapshot(&self, path: &std::path::Path) {
        let mut export = self.state.export().unwrap();
        let size = export.measure().unwrap();
        let mut file = std::fs::File::create(path).unwrap();
        assert_eq!(export.write_to(&mut file).unwrap(), size);
        assert_eq!(file.metadata().unwrap().len(), size);
    }

    /// Replaces the state by its own snapshot.
    pub(super) fn reinstall(&mut self) {
        let path = self.folder.path().join("install.db");
        self.write_snapshot(&path);
        self.index += 1;
        let at = LogPosition {
            term: 1,
            node: 1,
            index: self.index,
        };
        let seat = Seat {
            id: 1,
            peer_urls: vec!["http://peer".to_owned()],
            is_learner: false,
        };
        let membership = Membership {
            encoded: Bytes::from_static(b"m"),
            seats: vec![seat],
        };
        let applier = self.applier.as_mut().unwrap();
        applier.install(&path, at, membership.clone()).unwrap();
        assert_eq!(applier.applied(), Some(at));
        assert_eq!(applier.durable(), Some(at));
        assert_eq!(applier.membership(), Some(membership));
    }
}

fn open(folder: &TempDir) -> (Applier, Arc<State>) {
    let options = StateOptions {
        load_threads: 2,
        ..StateOptions::default()
    };
    Applier::open(&folder.path().join("state"), &options, Arc::new(NoEvents)).unwrap()
}
