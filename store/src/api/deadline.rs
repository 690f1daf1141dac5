//! How long a caller waits: the `grpc-timeout` of its request, and the answer when that is over.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use tokio::time::Instant;
use tonic::Status;

use super::front::Inner;
use super::status::status;
use crate::deadline;
use crate::error::Error;

const HEADER: &str = "grpc-timeout";
/// Digits that the value may have.
const DIGITS_MAX: usize = 8;

/// Until when the caller waits, if it says so.
///
/// # Errors
/// `INTERNAL` for a time that cannot be read, as Go has it.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Instant>, Status> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    // One that no clock counts to is none.
    parse(value.as_bytes())
        .map(|patience| Instant::now().checked_add(patience))
        .map_err(|reason| Status::internal(format!("malformed grpc-timeout: {reason}")))
}

/// The answer to one whose time cannot be read, as Go gives it.
pub(super) fn refusal(status: Status) -> Response<Body> {
    let mut refused = status.into_http::<Body>();
    *refused.status_mut() = StatusCode::BAD_REQUEST;
    refused
}

/// At most eight digits and a unit: hours, minutes, seconds, or a part of a second.
fn parse(value: &[u8]) -> Result<Duration, &'static str> {
    let (unit, digits) = value.split_last().ok_or("it is empty")?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return Err("it is not one to eight digits and a unit");
    }
    let count = digits.iter().fold(0_u64, |count, digit| {
        count * 10 + u64::from(digit.wrapping_sub(b'0'))
    });
    Ok(match unit {
        b'H' => Duration::from_secs(count.saturating_mul(3600)),
        b'M' => Duration::from_secs(count.saturating_mul(60)),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return Err("its unit is none of H, M, S, m, u and n"),
    })
}

/// What is said when the time is over.
pub(super) fn over() -> Status {
    status(&Error::DeadlineExceeded)
}

/// Answers until `deadline`, and that it is over from then on.
pub(super) async fn answer(
    deadline: Option<Instant>,
    answer: impl Future<Output = Response<Inner>>,
) -> Response<Inner> {
    let Some(deadline) = deadline else {
        return answer.await;
    };
    match deadline::within(deadline, answer).await {
        // What was given up inside for want of the caller's time is not this member's failure.
        Some(response) if !(has_failed(&response) && deadline::is_past(deadline)) => response,
        _ => over().into_http::<Body>().map(Inner::Http),
    }
}

fn has_failed(response: &Response<Inner>) -> bool {
    let code = response.headers().get("grpc-status");
    code.is_some_and(|code| code != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        let cases = [
            ("1S", Duration::from_secs(1)),
            ("99999999H", Duration::from_hours(99_999_999)),
            ("2M", Duration::from_mins(2)),
            ("0m", Duration::ZERO),
            ("00000250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("12345678n", Duration::from_nanos(12_345_678)),
        ];
        for (text, patience) in cases {
            assert_eq!(parse(text.as_bytes()), Ok(patience), "{text}");
        }
        for wrong in [
            "",
            "S",
            "1",
            "1s",
            "123456789S",
            "-1S",
            "+1S",
            "1 S",
            "1.5S",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_timeout_that_cannot_be_read_is_refused_as_go_refuses_it() {
        let mut headers = HeaderMap::new();
        assert!(matches!(read(&headers), Ok(None)));
        headers.insert(HEADER, "soon".parse().unwrap());
        let refused = refusal(read(&headers).unwrap_err());
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        let said = Status::from_header_map(refused.headers()).unwrap();
        assert_eq!(said.code(), tonic::Code::Internal);
        assert!(
            said.message().starts_with("malformed grpc-timeout"),
            "{said}"
        );
    }
}
