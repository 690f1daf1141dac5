//! Whether the changes after a backup are to be merged into a new one: when a restore with them
//! would take longer than the objective allows.

use std::time::Duration;

use serde::Serialize;

use crate::{Rto, Span};

/// What a restore has to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RestoreLoad {
    /// Bytes of the backup's content.
    pub backup_bytes: u64,
    /// Deltas that are replayed onto it.
    pub deltas: u64,
    /// Bytes of their content.
    pub delta_bytes: u64,
}

/// How fast a restore is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RestoreRates {
    /// Bytes of content fetched, checked and written in a second.
    pub bytes_per_second: u64,
    /// Milliseconds that fetching one delta takes beside its bytes.
    pub delta_ms: u64,
}

impl RestoreRates {
    /// What is assumed where nothing was measured: a slow disk and a vault far away.
    pub const ASSUMED: Self = Self {
        bytes_per_second: 20_000_000,
        delta_ms: 10,
    };

    /// What a drill measured: `bytes` of a backup restored in `took`. A drill too small to tell
    /// leaves what is assumed.
    pub fn measured(bytes: u64, took: Span) -> Self {
        let millis = u64::try_from(took.as_duration().as_millis()).unwrap_or(u64::MAX);
        let rate = bytes.saturating_mul(1000).checked_div(millis);
        match rate.filter(|rate| bytes >= MEASURED_BYTES_MIN && *rate > 0) {
            Some(bytes_per_second) => Self {
                bytes_per_second,
                ..Self::ASSUMED
            },
            None => Self::ASSUMED,
        }
    }

    /// How long a restore takes, about.
    pub fn estimate(self, load: RestoreLoad) -> Span {
        // The changes are read twice: once to measure the new file, once to write it.
        let bytes = load.delta_bytes.saturating_mul(2);
        let bytes = bytes.saturating_add(load.backup_bytes);
        let reading = bytes.saturating_mul(1000) / self.bytes_per_second.max(1);
        let fetching = load.deltas.saturating_mul(self.delta_ms);
        Span::from(Duration::from_millis(reading.saturating_add(fetching)))
    }
}

/// Least bytes of a backup whose restore says something of the next one's time.
const MEASURED_BYTES_MIN: u64 = 1 << 20;

/// Whether to consolidate, with the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ConsolidationVerdict {
    /// It is due.
    pub is_due: bool,
    /// How long a restore takes now.
    pub now: Span,
    /// How long it would take without deltas.
    pub then: Span,
    /// What it may take.
    pub objective: Option<Span>,
}

/// Decides: due when the objective is passed and merging saves at least a tenth of it. Without an
/// objective it is never due.
pub fn consolidation(
    load: RestoreLoad,
    rates: RestoreRates,
    rto: Option<Rto>,
) -> ConsolidationVerdict {
    let now = rates.estimate(load);
    let then = rates.estimate(RestoreLoad {
        deltas: 0,
        delta_bytes: 0,
        ..load
    });
    let is_due = rto.is_some_and(|Rto(limit)| {
        let saved = now.as_duration().saturating_sub(then.as_duration());
        now > limit && saved >= limit.as_duration() / 10
    });
    ConsolidationVerdict {
        is_due,
        now,
        then,
        objective: rto.map(|rto| rto.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: RestoreRates = RestoreRates {
        bytes_per_second: 1_000_000,
        delta_ms: 10,
    };

    fn load(megabytes: u64, deltas: u64) -> RestoreLoad {
        RestoreLoad {
            backup_bytes: megabytes * 1_000_000,
            deltas,
            delta_bytes: deltas * 10_000,
        }
    }

    fn verdict(megabytes: u64, deltas: u64, rto: u64) -> ConsolidationVerdict {
        let rto = Some(Rto(Span::from_secs(rto)));
        consolidation(load(megabytes, deltas), RATES, rto)
    }

    #[test]
    fn deltas_that_make_a_restore_too_slow_are_due_and_not_before() {
        // Each delta takes 10 ms and 2 times 10 kB: 30 ms.
        assert!(!verdict(30, 900, 60).is_due, "57 s");
        let due = verdict(30, 1100, 60);
        assert!(due.is_due);
        assert_eq!(
            (due.now, due.then),
            (Span::from_secs(63), Span::from_secs(30))
        );
    }

    #[test]
    fn a_backup_that_is_too_large_by_itself_is_not_helped() {
        assert!(!verdict(80, 100, 60).is_due, "3 s would be saved of 83");
        assert!(verdict(80, 300, 60).is_due);
    }

    #[test]
    fn without_an_objective_nothing_is_due() {
        assert!(!consolidation(load(1, 1_000_000), RATES, None).is_due);
    }

    #[test]
    fn a_measured_rate_counts_unless_the_backup_was_too_small() {
        let measured = RestoreRates::measured(50_000_000, Span::from_secs(10));
        assert_eq!(measured.bytes_per_second, 5_000_000);
        for (bytes, seconds) in [(1000, 10), (50_000_000, 0)] {
            let rates = RestoreRates::measured(bytes, Span::from_secs(seconds));
            assert_eq!(rates, RestoreRates::ASSUMED);
        }
    }
}
