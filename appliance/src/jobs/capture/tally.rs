//! What capturing came to in this process, for the status page and the metrics.
//!
//! It is not evidence: until when a source is captured is read from the vault, never from here.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_restore::delta::Stored;
use parking_lot::Mutex;

/// Counts of one source since the start of this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// What is done now, in a few words.
    pub(crate) now: String,
    /// Deltas stored.
    pub(crate) stored: u64,
    /// Their bytes in the vault.
    pub(crate) bytes: u64,
    /// Changes in them.
    pub(crate) events: u64,
    /// Gaps recorded.
    pub(crate) gaps: u64,
    /// What went wrong, each time it did.
    pub(crate) failures: u64,
    /// What went wrong last, until something is stored.
    pub(crate) failure: Option<String>,
}

/// Those of all sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tallies(Arc<Mutex<BTreeMap<String, Tally>>>);

/// That of one source.
#[derive(Debug, Clone)]
pub(crate) struct Counter {
    tallies: Tallies,
    source: String,
}

impl Tallies {
    /// The place of one source, made at its first mention.
    pub(crate) fn of(&self, source: &str) -> Counter {
        self.0.lock().entry(source.to_owned()).or_default();
        Counter {
            tallies: self.clone(),
            source: source.to_owned(),
        }
    }

    /// All of them as they stand.
    pub(crate) fn snapshot(&self) -> Vec<(String, Tally)> {
        let tallies = self.0.lock();
        let of_one = |(source, tally): (&String, &Tally)| (source.clone(), tally.clone());
        tallies.iter().map(of_one).collect()
    }
}

impl Counter {
    /// What is done now.
    pub(super) fn now(&self, what: impl Into<String>) {
        self.change(|tally| tally.now = what.into());
    }

    /// Another daemon's turn.
    pub(super) fn stand_by(&self) {
        self.now("another daemon's turn");
    }

    /// A delta is in the vault.
    pub(super) fn stored(&self, stored: &Stored) {
        self.change(|tally| {
            tally.stored = tally.stored.saturating_add(1);
            tally.bytes = tally.bytes.saturating_add(stored.bytes);
            tally.events = tally.events.saturating_add(stored.events);
            tally.failure = None;
        });
    }

    /// A gap was recorded.
    pub(super) fn gap(&self) {
        self.change(|tally| tally.gaps = tally.gaps.saturating_add(1));
    }

    /// Something went wrong.
    pub(super) fn failed(&self, why: &str) {
        self.change(|tally| {
            tally.failures = tally.failures.saturating_add(1);
            tally.failure = Some(why.to_owned());
        });
    }

    fn change(&self, change: impl FnOnce(&mut Tally)) {
        if let Some(tally) = self.tallies.0.lock().get_mut(&self.source) {
            change(tally);
        }
    }
}
