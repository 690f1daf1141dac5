//! Walks all stored records in the background, at a bounded rate, so that damage is found before
//! somebody needs what is damaged. What it meets raises the CORRUPT alarm, as a read would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::handle::Member;
use crate::backend::Walk;

/// Bytes verified between two rests.
const STEP_BYTES: u64 = 256 << 10;

/// How the background check of all records is paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Rest between the end of one walk and the start of the next; the first comes this long after
    /// the start, which has verified everything itself. Default 24 hours.
    pub interval: Duration,
    /// Most bytes verified in a second. Default 8 MiB: an eighth of a core at most.
    pub bytes_per_second: u64,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_hours(24),
            bytes_per_second: 8 << 20,
        }
    }
}

/// What the background check has done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Records verified.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Walks over everything that ended without finding damage.
    pub walks: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    rows: AtomicU64,
    bytes: AtomicU64,
    walks: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> Scrubbed {
        Scrubbed {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            walks: self.walks.load(Ordering::Relaxed),
        }
    }
}

pub(super) async fn run(member: Member) {
    let options = member.inner.options.scrub;
    loop {
        sleep(options.interval.max(Duration::from_millis(1))).await;
        walk(&member, &options).await;
    }
}

/// One walk; ends early at the first damaged record, which the state latches.
async fn walk(member: &Member, options: &ScrubOptions) {
    let counters = &member.inner.tallies.scrubbed;
    let mut walk = Walk::default();
    loop {
        let state = Arc::clone(&member.inner.state);
        let stepped = tokio::task::spawn_blocking(move || {
            let piece = state.scrub(&mut walk, STEP_BYTES);
            (walk, piece)
        });
        let (stepped, piece) = match stepped.await {
            Ok((stepped, Ok(piece))) => (stepped, piece),
            Ok((_, Err(error))) => {
                tracing::error!(%error, "the background check met a damaged record");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the background check panicked; it is tried again");
                return;
            }
        };
        walk = stepped;
        counters.rows.fetch_add(piece.rows, Ordering::Relaxed);
        counters.bytes.fetch_add(piece.bytes, Ordering::Relaxed);
        if piece.is_last {
            counters.walks.fetch_add(1, Ordering::Relaxed);
            return;
        }
        sleep(rest(piece.bytes, options.bytes_per_second)).await;
    }
}

/// How long `bytes` may take at the rate.
fn rest(bytes: u64, bytes_per_second: u64) -> Duration {
    let nanos =
        u128::from(bytes).saturating_mul(1_000_000_000) / u128::from(bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_whatever_the_piece() {
        assert_eq!(rest(8 << 20, 8 << 20), Duration::from_secs(1));
        assert_eq!(rest(256 << 10, 8 << 20), Duration::from_micros(31_250));
        assert_eq!(rest(1, 0), Duration::from_secs(1));
        assert_eq!(rest(0, 5), Duration::ZERO);
    }
}
