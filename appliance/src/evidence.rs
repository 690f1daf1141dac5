//! What the daemon tells of the vault: read anew after each job and every minute, and judged anew
//! when it cannot be read, so that an alarm never goes out with the vault.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use holdfast_policies::Objective;
use holdfast_restore::waiting::Waiting;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::{Settings, Source};
use crate::failure::Failure;
use crate::health::{self, SourceStatus};
use crate::jobs::board::Board;
use crate::{jobs, keys};

/// How often the vault is read for the status page and the metrics, at least.
const PERIOD: Duration = Duration::from_mins(1);

/// Longest wait for one reading, the judging of what is known not to wait for a vault that hangs.
const READ_TIMEOUT: Duration = Duration::from_mins(5);

/// How each source stood when the vault was last read, by name.
type Known = BTreeMap<String, SourceStatus>;

/// Keeps the status of every source until `stop`.
pub(crate) async fn keep(
    settings: Arc<Settings>,
    clock: Clock,
    board: Board,
    (evidence, mut asked): (watch::Sender<Vec<SourceStatus>>, watch::Receiver<()>),
    stop: CancellationToken,
) -> Result<(), Failure> {
    let objective = settings.policies()?.objective;
    let mut known = Known::new();
    loop {
        let mut all = Vec::new();
        for source in &settings.config.restore.sources {
            let read = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                read = read(&settings, source, &clock) => read,
            };
            let now = clock.now();
            let read = read.map(|status| status.with_tries(&board.failing(), now));
            let mut status = told(&mut known, source, read, &objective, now);
            status.with_waiting(waiting(&settings, source).await);
            all.push(status);
        }
        evidence.send_replace(all);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(PERIOD) => {}
            Ok(()) = asked.changed() => {}
        }
    }
}

async fn read(settings: &Settings, source: &Source, clock: &Clock) -> Result<SourceStatus, String> {
    let reading = health::gather(settings, source, clock.now());
    match tokio::time::timeout(READ_TIMEOUT, reading).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(failure)) => Err(failure.line()),
        Err(_elapsed) => Err("it does not answer in time".to_owned()),
    }
}

/// What waits on this host, also and above all while the vault cannot be read.
async fn waiting(settings: &Settings, source: &Source) -> Result<Option<Waiting>, String> {
    let trust = keys::trust(settings).map_err(|failure| failure.line())?;
    let looked = jobs::waiting::look(settings, source, &trust).await;
    looked.map_err(|failure| failure.line())
}

/// What is told of a source: what was just read, else what is known of it, judged now.
fn told(
    known: &mut Known,
    source: &Source,
    read: Result<SourceStatus, String>,
    objective: &Objective,
    now: DateTime<Utc>,
) -> SourceStatus {
    let name = source.name.as_str();
    match read {
        Ok(status) => {
            known.insert(name.to_owned(), status.clone());
            status
        }
        Err(failure) => {
            tracing::warn!(
                source = name,
                failure,
                "the vault was not read for the status page"
            );
            let last = known.get(name).cloned();
            last.unwrap_or_else(|| SourceStatus::unknown(name, objective, now))
                .judged_without_the_vault(objective, now, &failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use holdfast_policies::objective::BackupPoint;
    use holdfast_policies::{Evidence, Level, Standing};
    use holdfast_restore::source::SourceSpec;

    use super::*;

    fn source() -> Source {
        Source {
            name: "prod".parse().unwrap(),
            kind: SourceSpec::Bundled,
        }
    }

    fn fresh(objective: &Objective, now: DateTime<Utc>) -> SourceStatus {
        let evidence = Evidence {
            newest: Some(BackupPoint {
                id: "01980f3e-0000-7000-8000-000000000000".parse().unwrap(),
                time: now,
                revision: 5,
                level: Level::L2,
            }),
            ..Evidence::default()
        };
        SourceStatus {
            read: Some(now),
            objectives: objective.judge(&evidence, now),
            evidence,
            ..SourceStatus::unknown("prod", objective, now)
        }
    }

    #[test]
    fn a_vault_that_stops_answering_leaves_ages_that_grow_until_they_alarm() {
        let objective = Objective::default();
        let (begin, mut known) = (DateTime::UNIX_EPOCH, Known::new());
        let read = Ok(fresh(&objective, begin));
        let status = told(&mut known, &source(), read, &objective, begin);
        assert_eq!(status.objectives.rpo.standing, Standing::Met);
        assert!(status.problems.is_empty());
        for (hours, standing) in [(1, Standing::Met), (3, Standing::Missed)] {
            let now = begin + TimeDelta::hours(hours);
            let read = Err("no answer".to_owned());
            let status = told(&mut known, &source(), read, &objective, now);
            assert_eq!(status.objectives.rpo.standing, standing, "{status}");
            assert_eq!(status.objectives.at, now);
            assert_eq!(status.read, Some(begin), "the evidence stands still");
            assert_eq!(status.problems.len(), 1, "{status}");
            assert!(status.problems[0].contains("no answer"), "{status}");
        }
    }

    #[test]
    fn a_vault_that_never_answered_is_a_missed_objective_and_a_problem() {
        let (objective, now) = (Objective::default(), DateTime::UNIX_EPOCH);
        let read = Err("no answer".to_owned());
        let status = told(&mut Known::new(), &source(), read, &objective, now);
        assert_eq!(status.objectives.overall(), Standing::Missed);
        assert_eq!(status.read, None);
        assert!(status.problems[0].contains("never been read"), "{status}");
    }
}
