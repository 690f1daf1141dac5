//! The status page: plain HTML without scripts, readable in a terminal's browser too.

use std::fmt::Write as _;

use holdfast_policies::Standing;

use crate::health::{SourceStatus, moment};
use crate::jobs::board::{JobName, JobState};
use crate::jobs::capture::Tally;
use crate::jobs::turn::Turn;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem;color:#222;background:#fff}table{border-collapse:collapse;width:100%;margin:1rem 0}\
td,th{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd;vertical-align:top}\
.met{color:#065}.missed{color:#a00;font-weight:bold}@media(prefers-color-scheme:dark){body{\
color:#ddd;background:#111}td,th{border-color:#333}.met{color:#6d9}.missed{color:#f77}}";

/// The page.
pub(super) fn render(
    evidence: &[SourceStatus],
    jobs: &[(JobName, JobState)],
    tallies: &[(String, Tally)],
    turn: Option<&Turn>,
) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
         http-equiv=\"refresh\" content=\"30\"><title>Holdfast</title><style>{STYLE}</style>\
         </head><body><h1>Holdfast</h1>"
    );
    if evidence.is_empty() {
        page.push_str("<p>The vault has not been read yet.</p>");
    }
    if let Some(turn) = turn {
        let turn = escape(&turn.to_string());
        push(&mut page, &format!("<p>This daemon: {turn}.</p>"));
    }
    for status in evidence {
        source(&mut page, status);
    }
    page.push_str("<h2>Jobs of this process</h2><table><tr><th>job<th>last run<th>next run</tr>");
    for (name, state) in jobs {
        job(&mut page, name, state);
    }
    for (source, tally) in tallies {
        capture(&mut page, source, tally);
    }
    page.push_str(
        "</table><p><a href=\"/metrics\">metrics</a> <a href=\"/healthz\">health</a> \
         <a href=\"/api/status\">the same as JSON</a></p></body></html>",
    );
    page
}

fn source(page: &mut String, status: &SourceStatus) {
    let newest = status
        .newest
        .as_ref()
        .map_or("none".to_owned(), ToString::to_string);
    let proven = status
        .newest_proven
        .as_ref()
        .map_or("none".to_owned(), ToString::to_string);
    push(page, &format!("<h2>{}</h2><table>", escape(&status.source)));
    for (name, judgement) in [
        ("what would be lost (RPO)", &status.objectives.rpo),
        ("time to be back (RTO)", &status.objectives.rto),
        ("rehearsed", &status.objectives.drill),
    ] {
        let class = match judgement.standing {
            Standing::Met => "met",
            Standing::Missed => "missed",
            Standing::NotSet => "",
        };
        let text = escape(&judgement.to_string());
        push(
            page,
            &format!("<tr><th>{name}<td class=\"{class}\">{text}</tr>"),
        );
    }
    push(
        page,
        &format!("<tr><th>newest backup<td>{}</tr>", escape(&newest)),
    );
    push(
        page,
        &format!(
            "<tr><th>newest proven by a drill<td>{}</tr>",
            escape(&proven)
        ),
    );
    push(
        page,
        &format!("<tr><th>backups in the vault<td>{}</tr>", status.backups),
    );
    if let Some(capture) = &status.capture {
        let text = escape(&capture.to_string());
        push(
            page,
            &format!("<tr><th>changes between them<td>{text}</tr>"),
        );
    }
    for alarm in &status.alarms {
        let text = escape(&alarm.to_string());
        push(
            page,
            &format!("<tr><th>alarm<td class=\"missed\">{text}</tr>"),
        );
    }
    for problem in &status.problems {
        push(
            page,
            &format!(
                "<tr><th>problem<td class=\"missed\">{}</tr>",
                escape(problem)
            ),
        );
    }
    page.push_str("</table>");
}

fn job(page: &mut String, name: &JobName, state: &JobState) {
    let class = match state.is_last_good {
        Some(false) => "missed",
        _ => "",
    };
    let last = match (state.running_since, state.last_end, &state.last_outcome) {
        (Some(since), _, _) => format!("running since {}", moment(since)),
        (None, Some(end), Some(outcome)) => format!("{}: {outcome}", moment(end)),
        _ => "not yet".to_owned(),
    };
    let next = state.next.map_or("when asked for".to_owned(), moment);
    push(
        page,
        &format!(
            "<tr><td>{} {}<td class=\"{class}\">{}<td>{next}</tr>",
            name.kind,
            escape(&name.source),
            escape(&last)
        ),
    );
}

fn capture(page: &mut String, source: &str, tally: &Tally) {
    let (class, last) = match &tally.failure {
        Some(failure) => ("missed", failure.clone()),
        None => ("", format!("{} deltas stored", tally.stored)),
    };
    push(
        page,
        &format!(
            "<tr><td>capture {}<td class=\"{class}\">{}<td>{}</tr>",
            escape(source),
            escape(&last),
            escape(&tally.now)
        ),
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn push(page: &mut String, text: &str) {
    // Writing to a String cannot fail.
    write!(page, "{text}").unwrap_or_default();
}
