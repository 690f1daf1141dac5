//! Until when the caller of the work under way waits for it: a client's `grpc-timeout`, or that of
//! the member which asks for its client. What waits inside looks here, so that nobody works longer
//! than somebody waits, and says so when it asks another member.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Does the work until `deadline`; `None`: it was over first, and the work is dropped.
pub(crate) async fn within<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    if is_past(deadline) {
        return None;
    }
    let work = DEADLINE.scope(deadline, work);
    timeout_at(deadline, work).await.ok()
}

/// Until when the caller waits, if it said so.
pub(crate) fn current() -> Option<Instant> {
    DEADLINE.try_with(|deadline| *deadline).ok()
}

/// `patience`, or what is left until the caller's deadline if that is less.
pub(crate) fn shorten(patience: Duration) -> Duration {
    shorten_to(current(), patience)
}

/// The same for a deadline that was taken along.
pub(crate) fn shorten_to(deadline: Option<Instant>, patience: Duration) -> Duration {
    deadline.map_or(patience, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        patience.min(left)
    })
}

/// Whether nobody waits any more.
pub(crate) fn is_over() -> bool {
    current().is_some_and(is_past)
}

/// Whether it is later than `deadline`.
pub(crate) fn is_past(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn work_within_a_deadline_knows_what_is_left_and_is_dropped_after_it() {
        let (own, minute) = (Duration::from_secs(7), Duration::from_mins(1));
        assert_eq!((current(), shorten(own)), (None, own));
        let start = Instant::now();
        let left = within(start + minute, async {
            assert_eq!(shorten(own), own);
            shorten(2 * minute)
        });
        let left = left.await.unwrap();
        assert!(
            left <= minute && left + start.elapsed() >= minute,
            "{left:?}"
        );
        let held = Arc::new(());
        let work = Arc::clone(&held);
        let late = within(start + Duration::from_millis(50), async move {
            std::future::pending::<()>().await;
            drop(work);
        });
        assert_eq!(late.await, None);
        assert_eq!(Arc::strong_count(&held), 1, "the work is dropped");
    }

    #[tokio::test]
    async fn work_whose_deadline_is_over_is_not_begun() {
        let begun = within(Instant::now(), async { panic!("it is begun") }).await;
        assert_eq!(begun, None);
    }
}
