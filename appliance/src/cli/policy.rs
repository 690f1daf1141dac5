//! `holdfast policy`: what the schedules and the retention rules will do, before they do it.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use holdfast_policies::retention::{Scenario, SimulatedDay, simulate};
use holdfast_policies::{ByteSize, Refusal, RetentionPlan, Schedule, Span};
use holdfast_restore::RoundTrip;
use serde::Serialize;

use super::dispatch::Context;
use crate::config::Settings;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure, OrFail as _};
use crate::jobs::prune;
use crate::{keys, vaults};

const CHECK_EXAMPLES: &str = "\
Examples:
  holdfast policy check                                        the next five runs of each schedule
  holdfast policy check --count 20 --set 'policies.backup.schedule=0 */6 * * *'
  holdfast policy check --set policies.backup.time_zone=Europe/Berlin";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  holdfast policy explain                        why each backup stays or goes
  holdfast policy explain --set policies.retention.keep_daily=3     ... under other rules";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  holdfast policy simulate                       a year of this policy
  holdfast policy simulate --for 90d --size 250MiB
  holdfast policy simulate --manual @weekly      ... with a `backup now` every week";

/// Check and explain schedules and retention.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check the policies and show the next runs in their time zone
    Check(CheckArgs),
    /// Say for each backup in the vault why it stays or goes; nothing is removed
    Explain(ExplainArgs),
    /// Say what a stretch of this policy would keep
    Simulate(SimulateArgs),
}

/// Check the policies and show the next runs.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// How many runs of each schedule to show
    #[arg(long, default_value_t = 5, value_name = "N")]
    count: u16,
}

/// Say why each backup stays or goes.
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The source, where there are several
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

/// Say what a stretch of this policy would keep.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub(crate) struct SimulateArgs {
    /// How long
    #[arg(long = "for", default_value = "1y", value_name = "TIME")]
    length: Span,
    /// Backups somebody asks for besides, as often as this says: `@weekly`, `@every 3d`
    #[arg(long, value_name = "SCHEDULE")]
    manual: Option<String>,
    /// The size of one backup in the vault
    #[arg(long, default_value = "100MiB", value_name = "SIZE")]
    size: ByteSize,
}

#[derive(Serialize)]
struct Checked {
    /// For whom backups are sealed; `null` is in clear.
    sealed_for: Option<Vec<Sealed>>,
    backup: Runs,
    drill: Runs,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct Sealed {
    recipient: String,
    is_proven: bool,
}

#[derive(Serialize)]
struct Runs {
    schedule: Option<String>,
    time_zone: String,
    next: Vec<String>,
}

#[derive(Serialize)]
struct Simulated {
    taken: usize,
    most_kept: usize,
    most_stored: usize,
    most_bytes: u64,
    kept_at_the_end: usize,
    is_cut_short: bool,
    days: Vec<SimulatedDay>,
}

/// Does one of them.
pub(crate) async fn run(command: &PolicyCommand, context: &Context) -> Result<ExitCode, Failure> {
    match command {
        PolicyCommand::Check(args) => check(args, context),
        PolicyCommand::Explain(args) => explain(args, context).await,
        PolicyCommand::Simulate(args) => simulation(args, context),
    }
}

fn check(args: &CheckArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let policies = settings.policies()?;
    let now = context.clock.now();
    let invalid = "the schedule cannot be used";
    let shape = Checked {
        sealed_for: sealed_for(&settings)?,
        backup: runs(
            policies.backup.schedule().or_fail(invalid)?.as_ref(),
            now,
            args.count,
        ),
        drill: runs(
            policies.drill.schedule().or_fail(invalid)?.as_ref(),
            now,
            args.count,
        ),
        remarks: policies.remarks(),
    };
    context.output.show(&shape, |shape| {
        let mut text = String::new();
        match &shape.sealed_for {
            None => push(
                &mut text,
                "sealed for nobody: in clear (`encryption: none`)",
            ),
            Some(all) => all.iter().for_each(|one| {
                let proof = if one.is_proven {
                    "proven: an identity here opens what is sealed to it"
                } else {
                    "unproven: its identity is not here"
                };
                push(
                    &mut text,
                    &format!("sealed for {} ({proof})", one.recipient),
                );
            }),
        }
        for (name, runs) in [("backups", &shape.backup), ("drills", &shape.drill)] {
            match &runs.schedule {
                None => push(&mut text, &format!("{name}: only when asked for")),
                Some(schedule) => {
                    push(
                        &mut text,
                        &format!("{name}: {schedule} ({})", runs.time_zone),
                    );
                    for run in &runs.next {
                        push(&mut text, &format!("  {run}"));
                    }
                }
            }
        }
        for remark in &shape.remarks {
            push(&mut text, &format!("note: {remark}"));
        }
        text
    })?;
    Ok(ExitCode::Done)
}

/// Nobody yet where the keys are made at the first start.
fn sealed_for(settings: &Settings) -> Result<Option<Vec<Sealed>>, Failure> {
    if settings.makes_keys() && !settings.identity_file().exists() {
        return Ok(Some(Vec::new()));
    }
    let tried = keys::prove(settings)?;
    let sealed = |one: RoundTrip| Sealed {
        recipient: one.fingerprint,
        is_proven: one.is_proven,
    };
    Ok(tried.map(|all| all.into_iter().map(sealed).collect()))
}

fn runs(schedule: Option<&Schedule>, now: DateTime<Utc>, count: u16) -> Runs {
    let next = schedule.map(|schedule| schedule.preview(now, usize::from(count)));
    Runs {
        schedule: schedule.map(ToString::to_string),
        time_zone: schedule
            .map(|schedule| schedule.zone().to_string())
            .unwrap_or_default(),
        next: next
            .unwrap_or_default()
            .iter()
            .map(DateTime::to_rfc3339)
            .collect(),
    }
}

async fn explain(args: &ExplainArgs, context: &Context) -> Result<ExitCode, Failure> {
    let settings = context.settings()?;
    let source = settings.source(args.source.as_deref())?;
    let catalog = vaults::catalog(&settings, &source.name).await?;
    let clocks = (context.clock.now(), None);
    let plan: RetentionPlan = prune::plan(&settings, &catalog, clocks, None)?;
    context.output.show(&plan, ToString::to_string)?;
    Ok(ExitCode::Done)
}

fn simulation(args: &SimulateArgs, context: &Context) -> Result<ExitCode, Failure> {
    let policies = context.settings()?.policies()?;
    let invalid = "the schedule cannot be used";
    let schedule = policies
        .backup
        .schedule()
        .or_fail(invalid)?
        .ok_or_else(|| {
            Failure::usage(
                "there is no backup schedule to simulate",
                "set `policies.backup.schedule`",
            )
        })?;
    let drills = policies.drill.schedule().or_fail(invalid)?;
    let zone = policies.backup.time_zone;
    let manual = args.manual.as_ref().map(|text| Schedule::parse(text, zone));
    let manual = manual.transpose().or_fail("--manual is not a schedule")?;
    let scenario = Scenario {
        schedule: &schedule,
        drills: drills.as_ref(),
        manual: manual.as_ref(),
        start: context.clock.now(),
        length: args.length,
        size: args.size,
    };
    let simulated = simulate(&policies.retention, scenario).map_err(|refusal| refused(&refusal))?;
    let stored_max = u64::try_from(simulated.stored_max).unwrap_or(u64::MAX);
    let shape = Simulated {
        taken: simulated.taken,
        most_kept: simulated.kept_max,
        most_stored: simulated.stored_max,
        most_bytes: args.size.bytes().saturating_mul(stored_max),
        kept_at_the_end: simulated.remaining.len(),
        is_cut_short: simulated.is_cut_short,
        days: simulated.days,
    };
    context.output.show(&shape, |shape| text_of(shape, args))?;
    Ok(ExitCode::Done)
}

/// About a dozen lines, whatever the length.
fn text_of(shape: &Simulated, args: &SimulateArgs) -> String {
    let mut text = String::new();
    let stride = (shape.days.len() / 12).max(1);
    push(&mut text, "day         kept  manual  trash  oldest");
    let last = shape.days.len().saturating_sub(1);
    for (place, day) in shape.days.iter().enumerate() {
        if place % stride == 0 || place == last {
            push(
                &mut text,
                &format!(
                    "{}  {:>4}  {:>6}  {:>5}  {}",
                    day.day, day.kept, day.manual, day.trash, day.oldest
                ),
            );
        }
    }
    let most = ByteSize::new(shape.most_bytes).rounded();
    push(
        &mut text,
        &format!(
            "{} taken in {}, at most {} kept at once, {} with the trash ({most} at {} each), {} \
             at the end",
            shape.taken,
            args.length,
            shape.most_kept,
            shape.most_stored,
            args.size,
            shape.kept_at_the_end
        ),
    );
    if shape.is_cut_short {
        push(&mut text, "note: cut short, the schedule is very dense");
    }
    text
}

/// A plan that was refused, for a person.
pub(crate) fn refused(refusal: &Refusal) -> Failure {
    Failure::new(
        ErrorName::InUse,
        "nothing can be decided about what to keep",
    )
    .because(refusal)
    .next("look at what the reason names; nothing is removed until it is cleared")
}

fn push(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(text, "{line}").unwrap_or_default();
}
