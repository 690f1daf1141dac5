//! Which watches are due a progress notification.

use std::collections::BTreeMap;

/// The watches of a stream that asked for progress notifications, and whether each was quiet
/// since the last tick: news of events is progress enough.
#[derive(Debug, Default)]
pub(super) struct ProgressTimer {
    quiet: BTreeMap<i64, bool>,
}

impl ProgressTimer {
    pub(super) fn add(&mut self, watch_id: i64) {
        self.quiet.insert(watch_id, true);
    }

    pub(super) fn remove(&mut self, watch_id: i64) {
        self.quiet.remove(&watch_id);
    }

    pub(super) fn saw_events(&mut self, watch_id: i64) {
        if let Some(quiet) = self.quiet.get_mut(&watch_id) {
            *quiet = false;
        }
    }

    /// The watches that were quiet; all start anew.
    pub(super) fn tick(&mut self) -> Vec<i64> {
        let due = self
            .quiet
            .iter()
            .filter(|(_, quiet)| **quiet)
            .map(|(id, _)| *id)
            .collect();
        for quiet in self.quiet.values_mut() {
            *quiet = true;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::ProgressTimer;

    #[test]
    fn a_watch_that_saw_events_skips_one_notification() {
        let mut timer = ProgressTimer::default();
        timer.add(1);
        timer.add(2);
        timer.saw_events(1);
        timer.saw_events(7);
        assert_eq!(timer.tick(), [2]);
        assert_eq!(timer.tick(), [1, 2]);
        timer.remove(2);
        assert_eq!(timer.tick(), [1]);
    }
}
