//! Watches see every change.

use super::{Invariant, Sight};
use crate::history::{Timeline, check_watch};

/// What a watch was given is every change of its keys, once, in order, in whole revisions, from
/// the first revision it asked for on, over all the members it was on; one that lasted to the end
/// has seen the last.
#[derive(Debug, Default)]
pub struct WatchesSeeEveryChange;

impl Invariant for WatchesSeeEveryChange {
    fn name(&self) -> &'static str {
        "watches see every change"
    }

    fn see(&mut self, sight: &Sight<'_>) -> Result<(), String> {
        let Sight::Watched {
            watch,
            is_whole,
            base,
            changes,
        } = sight
        else {
            return Ok(());
        };
        let timeline = Timeline::replay(*base, changes).map_err(|error| error.to_string())?;
        let seen = check_watch(&timeline, watch).map_err(|error| error.to_string())?;
        let (from, keys) = (watch.from, watch.keys);
        let meant = changes
            .iter()
            .filter(|change| change.revision >= from && (keys.0..keys.1).contains(&change.key));
        let meant = meant.count();
        if *is_whole && seen < meant {
            return Err(format!(
                "a watch of {keys:?} from {from} on was given {seen} changes of {meant}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, Key, Shown, Watch, WatchAnswer};

    fn put(revision: i64, key: Key) -> Event {
        let shown = Shown {
            value: revision.unsigned_abs(),
            created: revision,
            modified: revision,
            version: 1,
            lease: 0,
        };
        Event {
            revision,
            key,
            shown: Some(shown),
        }
    }

    fn see(given: &[Event], is_whole: bool) -> Result<(), String> {
        let watch = Watch {
            from: 2,
            keys: (0, 5),
            answers: given
                .iter()
                .map(|event| WatchAnswer {
                    revision: event.revision,
                    events: vec![*event],
                })
                .collect(),
        };
        WatchesSeeEveryChange.see(&Sight::Watched {
            watch: &watch,
            is_whole,
            base: 1,
            changes: &[put(2, 0), put(3, 1), put(4, 7), put(5, 2)],
        })
    }

    #[test]
    fn a_change_that_a_watch_lacks_or_is_given_twice_is_found() {
        let all = [put(2, 0), put(3, 1), put(5, 2)];
        see(&all, true).unwrap();
        see(&all[..2], false).unwrap();
        assert!(see(&all[..2], true).is_err(), "the last one is missing");
        assert!(see(&[all[0], all[2]], false).is_err(), "one is missing");
        assert!(see(&[all[0], all[0]], false).is_err(), "one came twice");
        assert!(see(&[all[1], all[0]], false).is_err(), "the order");
    }
}
