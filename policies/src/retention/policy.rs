//! The rules, as written in the configuration file.

use serde::{Deserialize, Serialize};

use crate::schedule::TimeZone;
use crate::{Error, Level, Pool, Span};

/// Which backups of one pool stay. A backup stays when any rule keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepRules {
    /// The newest so many. Default for manual ones: 10.
    pub keep_last: u32,
    /// The newest of each of the last so many hours that have any. Default: 0.
    pub keep_hourly: u32,
    /// The same for days. Default: 0.
    pub keep_daily: u32,
    /// The same for weeks, Monday to Sunday. Default: 0.
    pub keep_weekly: u32,
    /// The same for months. Default: 0.
    pub keep_monthly: u32,
    /// The same for years. Default: 0.
    pub keep_yearly: u32,
    /// Everything at most so much older than the newest backup of any pool. Default for manual
    /// ones: `30d`.
    pub keep_within: Option<Span>,
}

impl Default for KeepRules {
    fn default() -> Self {
        Self {
            keep_last: 10,
            keep_hourly: 0,
            keep_daily: 0,
            keep_weekly: 0,
            keep_monthly: 0,
            keep_yearly: 0,
            keep_within: Some(Span::from_secs(30 * 86_400)),
        }
    }
}

impl KeepRules {
    fn keeps_nothing(&self) -> bool {
        let counts = [
            self.keep_last,
            self.keep_hourly,
            self.keep_daily,
            self.keep_weekly,
            self.keep_monthly,
            self.keep_yearly,
        ];
        let keeps_within = self.keep_within.is_some_and(|span| span > Span::ZERO);
        counts.iter().all(|count| *count == 0) && !keeps_within
    }
}

/// Which backups stay. A backup stays when any rule keeps it. The `keep_` rules here are for
/// scheduled backups, those of `manual` for the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionPolicy {
    /// The newest so many. Default: 6.
    pub keep_last: u32,
    /// The newest of each of the last so many hours that have any. Default: 24.
    pub keep_hourly: u32,
    /// The same for days. Default: 7.
    pub keep_daily: u32,
    /// The same for weeks, Monday to Sunday. Default: 5.
    pub keep_weekly: u32,
    /// The same for months. Default: 12.
    pub keep_monthly: u32,
    /// The same for years. Default: 0.
    pub keep_yearly: u32,
    /// Everything at most so much older than the newest, verified or not. Default: not set.
    pub keep_within: Option<Span>,
    /// Whatever is needed to go back to any captured moment of so much time before the newest: its
    /// backups, of any pool, and the one that its beginning is reached from. Default: not set.
    pub recovery_window: Option<Span>,
    /// The rules for backups that somebody asked for. They take no place of a scheduled one, and
    /// none takes theirs.
    pub manual: KeepRules,
    /// The newest so many backups that were restored in a drill (L3 or more) stay, always; while
    /// there are fewer, the best proven others stay in their place. Default: 1, at least 1.
    pub min_proven: u32,
    /// Level from which a backup counts for the rules. Default: `L2`. Where no identity is at
    /// hand to decrypt with, nothing passes L0; say `L0` there, and let another host prove. One
    /// that does not count yet and is not damaged stays while the rules would keep it if it
    /// counted, in nobody's place.
    pub count_from: Level,
    /// Zone whose hours, days, weeks, months and years are meant. Default: `UTC`.
    pub time_zone: TimeZone,
    /// At most so many are released by one run; the rest waits for the next. Default: 100.
    pub max_deletions: u32,
    /// What is let go stays in the trash so much longer, no longer offered, and can be brought
    /// back. Whoever reads it with credentials that cannot mark it as in use has that long to
    /// finish. `0s` removes at once, for good. Default: `3d`.
    #[serde(alias = "grace")]
    pub trash_grace: Span,
    /// Clocks that differ by more than this make a run refuse. Default: `10m`.
    pub clock_tolerance: Span,
    /// A longer silence between two backups looks like a clock that was set; a run refuses until
    /// an operator says that it was one. Default: `31d`.
    pub gap_max: Span,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self {
            keep_last: 6,
            keep_hourly: 24,
            keep_daily: 7,
            keep_weekly: 5,
            keep_monthly: 12,
            keep_yearly: 0,
            keep_within: None,
            recovery_window: None,
            manual: KeepRules::default(),
            min_proven: 1,
            count_from: Level::L2,
            time_zone: TimeZone::UTC,
            max_deletions: 100,
            trash_grace: Span::from_secs(3 * 86_400),
            clock_tolerance: Span::from_secs(600),
            gap_max: Span::from_secs(31 * 86_400),
        }
    }
}

impl RetentionPolicy {
    /// The rules that count backups of `pool`.
    pub fn rules(&self, pool: Pool) -> KeepRules {
        match pool {
            Pool::Manual => self.manual,
            Pool::Scheduled => KeepRules {
                keep_last: self.keep_last,
                keep_hourly: self.keep_hourly,
                keep_daily: self.keep_daily,
                keep_weekly: self.keep_weekly,
                keep_monthly: self.keep_monthly,
                keep_yearly: self.keep_yearly,
                keep_within: self.keep_within,
            },
        }
    }

    /// Refuses rules that keep nothing or release nothing by mistake.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |setting, rule: &str| {
            Err(Error::Policy {
                setting,
                rule: rule.to_owned(),
            })
        };
        for (pool, setting) in [
            (Pool::Scheduled, "policies.retention"),
            (Pool::Manual, "policies.retention.manual"),
        ] {
            if self.rules(pool).keeps_nothing() {
                return refuse(
                    setting,
                    "every keep_ rule is 0: it would keep nothing but the last proven backup; \
                     write keep_last: 1 if one is enough",
                );
            }
        }
        if self.min_proven == 0 {
            return refuse("policies.retention.min_proven", "at least 1");
        }
        if self.max_deletions == 0 {
            return refuse("policies.retention.max_deletions", "at least 1");
        }
        if self.clock_tolerance == Span::ZERO {
            return refuse(
                "policies.retention.clock_tolerance",
                "no two clocks agree exactly",
            );
        }
        if self.gap_max == Span::ZERO {
            return refuse(
                "policies.retention.gap_max",
                "there is time between any two backups",
            );
        }
        Ok(())
    }
}
