//! What somebody must be told before it becomes a loss: named, so that a monitor can match it.

use std::fmt;

use serde::Serialize;

/// What an alarm is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AlarmName {
    /// A prune could not remove, or not even look.
    PruneFailed,
    /// Backups are let go and the vault does not shrink.
    RetentionNoEffect,
    /// Retention refuses, since clocks or times of backups disagree.
    ClockDisagreement,
    /// Changes between two backups were not captured.
    CaptureGap,
    /// Capture is configured, and no change has come to the vault for too long.
    CaptureStalled,
}

impl AlarmName {
    /// Every alarm.
    pub(crate) const ALL: [Self; 5] = [
        Self::PruneFailed,
        Self::RetentionNoEffect,
        Self::ClockDisagreement,
        Self::CaptureGap,
        Self::CaptureStalled,
    ];

    /// The name in JSON and in the metrics.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::PruneFailed => "prune_failed",
            Self::RetentionNoEffect => "retention_no_effect",
            Self::ClockDisagreement => "clock_disagreement",
            Self::CaptureGap => "capture_gap",
            Self::CaptureStalled => "capture_stalled",
        }
    }
}

/// An alarm that is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Alarm {
    /// Which.
    pub(crate) name: AlarmName,
    /// What exactly, and what to do.
    pub(crate) text: String,
}

impl Alarm {
    /// An alarm that is on for this reason.
    pub(crate) fn new(name: AlarmName, text: String) -> Self {
        Self { name, text }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name.text(), self.text)
    }
}
