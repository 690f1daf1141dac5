//! Which state is restored: what the flags say, found in the vault.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use chrono::{DateTime, Utc};
use clap::Args;
use holdfast_policies::{SnapshotId, Span};
use holdfast_restore::delta::run::{self, Deletion, Runs};
use holdfast_restore::plan::{Moment, state_at};
use holdfast_restore::{Catalog, Keys, Pick, ReadOnly, Upto, Vault, Wanted};

use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::health::moment;
use crate::vaults;

/// What of the history is wanted.
#[derive(Debug, Args)]
pub(crate) struct PointArgs {
    /// The backup, by the beginning of its id: as it is, or with a point in time as what to begin
    /// from
    #[arg(conflicts_with = "latest")]
    pub(super) id: Option<String>,
    /// The newest backup, proven or not, and the changes after it
    #[arg(long)]
    latest: bool,
    /// The state at this time (RFC 3339), or a span ago: 10m
    #[arg(long, value_name = "TIME", value_parser = When::parse, help_heading = "Point in time",
        conflicts_with_all = ["latest", "revision", "before_delete"])]
    pub(super) at: Option<When>,
    /// The state at exactly this revision
    #[arg(long, value_name = "REVISION", help_heading = "Point in time",
        value_parser = clap::value_parser!(i64).range(1..),
        conflicts_with_all = ["latest", "before_delete"])]
    pub(super) revision: Option<i64>,
    /// The state just before this key was last deleted
    #[arg(
        long,
        value_name = "KEY",
        help_heading = "Point in time",
        conflicts_with = "latest"
    )]
    pub(super) before_delete: Option<OsString>,
    /// Leave the changes after backups out: with --at the newest backup begun by then, with
    /// --revision the newest that is not above it
    #[arg(long, help_heading = "Point in time", conflicts_with = "before_delete")]
    no_deltas: bool,
}

/// A moment as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    At(DateTime<Utc>),
    Ago(Span),
}

impl When {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        text.parse().map(Self::Ago).map_err(|error| {
            format!("give a time such as 2026-11-30T08:00:00Z, or a span ago such as 10m ({error})")
        })
    }

    fn at(self, now: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::At(time) => time,
            Self::Ago(span) => now - span.as_delta(),
        }
    }
}

/// Where it is looked for.
pub(super) struct History<'a> {
    pub(super) vault: &'a Vault<ReadOnly>,
    pub(super) catalog: &'a Catalog,
    pub(super) runs: &'a Runs,
    pub(super) keys: &'a Keys,
    pub(super) now: DateTime<Utc>,
}

impl PointArgs {
    /// Whether every run with these words restores the same, whatever is in the vault by then.
    pub(super) fn is_pinned(&self) -> bool {
        self.id.is_some() && self.at.is_none() && self.before_delete.is_none()
    }

    /// What is restored, and what question that answers.
    pub(super) async fn find(&self, history: &History<'_>) -> Result<(Upto, Wanted), Failure> {
        let id = match &self.id {
            Some(text) => Some(vaults::pick(history.catalog, Some(text))?.id()),
            None => None,
        };
        if self.no_deltas {
            return self.backup(id, history.now);
        }
        if let Some(revision) = self.revision {
            let upto = id.map_or(Upto::Revision(revision), |id| Upto::After(id, revision));
            return Ok((upto, Wanted::Revision));
        }
        if let Some(when) = self.at {
            let time = past(when, history)?;
            return Ok((at(history, id, time).await?, Wanted::Time(time)));
        }
        if let Some(key) = &self.before_delete {
            let found = deletion(history, key).await?;
            let before = found.revision.saturating_sub(1);
            let upto = id.map_or(Upto::Point(found.generation, before), |id| {
                Upto::After(id, before)
            });
            return Ok((upto, Wanted::BeforeDelete(found.revision)));
        }
        Ok(match (id, self.latest) {
            (Some(id), _) => (Upto::Backup(Pick::Id(id)), Wanted::Backup),
            (None, true) => (Upto::Newest(Pick::Latest), Wanted::Newest),
            (None, false) => (Upto::Newest(Pick::LatestProven), Wanted::Newest),
        })
    }

    /// A backup as it is.
    fn backup(
        &self,
        id: Option<SnapshotId>,
        now: DateTime<Utc>,
    ) -> Result<(Upto, Wanted), Failure> {
        let pick = match (id, self.revision, self.at) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
                return Err(Failure::usage(
                    "a backup and a point in time are given, and --no-deltas",
                    "leave one of the three out",
                ));
            }
            (Some(id), ..) => Pick::Id(id),
            (None, Some(revision), _) => Pick::Revision(revision),
            (None, None, Some(when)) => Pick::Time(when.at(now)),
            (None, None, None) if self.latest => Pick::Latest,
            (None, None, None) => Pick::LatestProven,
        };
        Ok((Upto::Backup(pick), Wanted::Backup))
    }
}

/// A time that has been.
fn past(when: When, history: &History<'_>) -> Result<DateTime<Utc>, Failure> {
    let time = when.at(history.now);
    if time <= history.now {
        return Ok(time);
    }
    let (time, now) = (moment(time), moment(history.now));
    Err(Failure::usage(
        format!("--at {time} is in the future: it is {now}"),
        "leave --at out to restore the newest state that is known",
    ))
}

/// The state at a time.
async fn at(
    history: &History<'_>,
    id: Option<SnapshotId>,
    time: DateTime<Utc>,
) -> Result<Upto, Failure> {
    let what = format!("the state of {} cannot be found", moment(time));
    let found = state_at(history.catalog, history.runs, time).or_fail(what.clone())?;
    let (generation, revision) = match found {
        Moment::Backup(backup) => {
            let revision = backup.manifest.content.revision;
            return Ok(match id {
                Some(id) if id != backup.id() => Upto::After(id, revision),
                _ => Upto::Backup(Pick::Id(backup.id())),
            });
        }
        Moment::Point(generation, revision) => (generation, revision),
        Moment::Within(head) => {
            let read = run::revision_at(history.vault, head, time, history.keys).await;
            let revision = read.or_fail(what).map_err(|failure| {
                let before = head.record.from;
                failure.next(format!(
                    "`--revision {before}` restores the state before the delta"
                ))
            })?;
            (head.record.generation, revision)
        }
    };
    Ok(id.map_or(Upto::Point(generation, revision), |id| {
        Upto::After(id, revision)
    }))
}

/// The last delete of a key.
async fn deletion(history: &History<'_>, key: &OsString) -> Result<Deletion, Failure> {
    let shown = key.display();
    let (runs, keys) = (history.runs, history.keys);
    let found = run::last_delete(history.vault, runs, key.as_bytes(), keys);
    let found = found
        .await
        .or_fail(format!("the last delete of `{shown}` cannot be found"))?;
    found.ok_or_else(|| {
        let what = format!("no change in the vault deletes `{shown}`");
        let failure = Failure::new(ErrorName::NotFound, what);
        let failure = runs.runs.iter().fold(failure, |failure, run| {
            failure.because_of(format!(
                "looked at the changes of revision {} to {}, until {}",
                run.from().saturating_add(1),
                run.to(),
                run.until().map_or_else(String::new, moment)
            ))
        });
        let failure = runs.flaws.iter().fold(failure, |failure, flaw| {
            failure.because_of(format!("not looked at: {flaw}"))
        });
        failure.next(
            "see that the key is written as etcdctl shows it; what was deleted before changes were \
             captured comes back with `--at TIME` or a backup's id",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_a_span_before_now() {
        let now: DateTime<Utc> = "2026-11-30T08:00:00Z".parse().unwrap();
        let at = |text: &str| When::parse(text).map(|when| when.at(now).to_rfc3339());
        assert_eq!(at("10m").unwrap(), "2026-11-30T07:50:00+00:00");
        assert_eq!(
            at("2026-11-30T08:30:00+01:00").unwrap(),
            "2026-11-30T07:30:00+00:00"
        );
        for odd in ["", "yesterday", "10", "2026-11-30"] {
            assert!(at(odd).unwrap_err().contains("such as 10m"), "{odd}");
        }
    }
}
