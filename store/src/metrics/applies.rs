//! How long entries of the log take to apply, by what they ask for.

use std::time::Duration;

use super::{Counter, Exposition, Outcomes, READ_BOUNDS};
use crate::apply::Operation;

const SECONDS: &str = "etcd_server_apply_duration_seconds";
/// etcd's default of `--warning-apply-duration`.
const SLOW: Duration = Duration::from_millis(100);

/// Durations by operation.
#[derive(Debug)]
pub(super) struct Applies {
    by_operation: [Outcomes; Operation::ALL.len()],
    slow: Counter,
}

impl Applies {
    pub(super) fn new() -> Applies {
        Applies {
            by_operation: Operation::ALL.map(|_| Outcomes::new(&READ_BOUNDS)),
            slow: Counter::default(),
        }
    }

    pub(super) fn observe(&self, operation: Operation, is_success: bool, elapsed: Duration) {
        let all = Operation::ALL.iter().zip(&self.by_operation);
        for (_, outcomes) in all.filter(|(each, _)| **each == operation) {
            outcomes.observe(is_success, elapsed);
        }
        if elapsed > SLOW {
            self.slow.add(1);
        }
    }

    pub(super) fn write(&self, out: &mut Exposition) {
        out.counter("etcd_server_slow_apply_total", self.slow.get());
        out.family(SECONDS);
        for (operation, outcomes) in Operation::ALL.iter().zip(&self.by_operation) {
            let labels = [("op", operation.name()), ("version", "v3")];
            outcomes.write(out, SECONDS, &labels);
        }
    }
}
