//! Refusals of a vault that have a plain reason, put into words.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};

use crate::error::Error;

/// The form in which S3 repeats a request's time.
const REQUEST_TIME: &str = "%Y%m%dT%H%M%SZ";

/// An operation that failed, with its plain reason where there is one.
pub(super) fn explain(action: &'static str, object: String, source: object_store::Error) -> Error {
    let cause: Option<&(dyn std::error::Error + 'static)> = Some(&source);
    let mut causes = std::iter::successors(cause, |cause| cause.source());
    // S3's code for it in the answer's text is the only trace.
    let skewed = causes.find_map(|cause| {
        let text = cause.to_string();
        text.contains("RequestTimeTooSkewed")
            .then(|| skew_in(&text))
    });
    match skewed {
        Some(ahead) => Error::ClockSkewed { object, ahead },
        None => Error::Vault {
            action,
            object,
            source: Box::new(source),
        },
    }
}

/// How far our clock is ahead of the server's, as its refusal tells.
fn skew_in(text: &str) -> Option<TimeDelta> {
    let ours = time(super::probe::element(text, "RequestTime")?)?;
    let theirs = time(super::probe::element(text, "ServerTime")?)?;
    Some(ours - theirs)
}

fn time(text: &str) -> Option<DateTime<Utc>> {
    let plain = NaiveDateTime::parse_from_str(text, REQUEST_TIME).ok();
    let plain = plain.map(|plain| plain.and_utc());
    plain.or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up4_a_refusal_for_the_clock_names_how_far_it_is_off() {
        let text = "<Code>RequestTimeTooSkewed</Code><RequestTime>20260101T120000Z</RequestTime>\
                    <ServerTime>2026-01-01T11:30:00Z</ServerTime>";
        let source = object_store::Error::Generic {
            store: "S3",
            source: text.into(),
        };
        let error = explain("store", "x".to_owned(), source);
        let told = error.to_string();
        assert!(told.contains("1800 s ahead"), "{told}");
    }
}
