//! The `keep_` rules, applied to the backups of one pool.

use std::collections::BTreeSet;

use super::bucket::Calendar;
use super::plan::Kept;
use super::{KeepReason, KeepRules, RetentionPolicy};
use crate::{BackupFact, Pool};

/// What the rules of one pool see.
pub(super) struct View<'a> {
    pub(super) policy: &'a RetentionPolicy,
    pub(super) rules: KeepRules,
    pub(super) pool: Pool,
    /// The newest that counts, of any pool: what an age is measured from.
    pub(super) newest: &'a BackupFact,
    /// Every backup, oldest first.
    pub(super) chain: &'a [&'a BackupFact],
}

/// A length of calendar, how many of it are kept, the reason given for the n-th, and its name.
type CalendarRule = (Calendar, u32, fn(u32) -> KeepReason, &'static str);

impl View<'_> {
    /// `keep_last` and `keep_within`. A backup that does not count yet stays while a rule would
    /// keep it if it counted, and takes nobody's place.
    pub(super) fn apply_rules(&self, kept: &mut Kept) {
        let mut places = 0;
        for (fact, counts) in self.newest_first() {
            if places >= self.rules.keep_last {
                break;
            }
            if counts {
                places += 1;
                kept.add(fact.id, KeepReason::Last(places));
            } else {
                kept.add_unverified(fact.id, "keep_last");
            }
        }
        let Some(within) = self.rules.keep_within else {
            return;
        };
        let own = self.chain.iter().filter(|fact| fact.pool == self.pool);
        for fact in own.filter(|fact| fact.is_signed) {
            if self.newest.time - fact.time <= within.as_delta() {
                kept.add(fact.id, KeepReason::Within);
            }
        }
    }

    /// The rules by length of calendar, in the same way.
    pub(super) fn apply_calendar(&self, kept: &mut Kept) {
        let rules = self.rules;
        let (hours, days) = (rules.keep_hourly, rules.keep_daily);
        let (weeks, months, years) = (rules.keep_weekly, rules.keep_monthly, rules.keep_yearly);
        let rules: [CalendarRule; 5] = [
            (Calendar::Hour, hours, KeepReason::Hourly, "keep_hourly"),
            (Calendar::Day, days, KeepReason::Daily, "keep_daily"),
            (Calendar::Week, weeks, KeepReason::Weekly, "keep_weekly"),
            (Calendar::Month, months, KeepReason::Monthly, "keep_monthly"),
            (Calendar::Year, years, KeepReason::Yearly, "keep_yearly"),
        ];
        let zone = self.policy.time_zone.tz();
        for (calendar, count, reason, name) in rules {
            let (mut seen, mut places) = (BTreeSet::new(), 0);
            for (fact, counts) in self.newest_first() {
                if places >= count {
                    break;
                }
                let bucket = calendar.bucket(fact.time, zone);
                if !counts && !seen.contains(&bucket) {
                    kept.add_unverified(fact.id, name);
                } else if counts && seen.insert(bucket) {
                    places += 1;
                    kept.add(fact.id, reason(places));
                }
            }
        }
    }

    /// Signed and undamaged ones of the pool, and whether they count. What is newer than the newest
    /// that counts, of any pool, awaits verification in any case.
    fn newest_first(&self) -> impl Iterator<Item = (&BackupFact, bool)> {
        let (count_from, pool, newest) = (self.policy.count_from, self.pool, self.newest.sequence);
        self.chain
            .iter()
            .rev()
            .filter(move |fact| fact.pool == pool && fact.sequence <= newest)
            .filter(|fact| fact.is_signed && !fact.is_damaged)
            .map(move |fact| (*fact, fact.holds_at(count_from)))
    }
}
