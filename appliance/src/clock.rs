//! The only place that reads the wall clock; everything else is handed the time.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};

/// Says what time it is. Cheap to clone; tests hand in their own.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    pub(crate) fn system() -> Self {
        Self(Arc::new(Utc::now))
    }

    /// Now, in UTC.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
