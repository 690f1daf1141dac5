//! Waiting for a condition of another process, with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a peer may take to be ready on a busy machine.
pub const READY_MAX: Duration = Duration::from_mins(1);

/// The time between two looks at the condition.
const PAUSE: Duration = Duration::from_millis(20);

/// The time now, for deadlines of other processes.
#[expect(
    clippy::disallowed_methods,
    reason = "real processes live in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// The date and time now, for backups of other processes.
#[expect(
    clippy::disallowed_methods,
    reason = "real processes live in real time"
)]
pub fn clock() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Gives the processor away for `time`.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is polled, there is no event"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Polls `look` until it gives a value, for at most `max`.
///
/// # Errors
/// Names `what` when the time is over, and passes on an error of `look`.
pub fn until<T>(
    what: &str,
    max: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = now() + max;
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if now() > end {
            bail!("{what}: not within {max:?}");
        }
        pause(PAUSE);
    }
}
