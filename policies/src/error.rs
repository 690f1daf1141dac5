//! The one error of this crate: text that does not say what it should.

/// A name, number, expression or policy that was refused. Always the writer's to correct.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An id is not in its text form.
    #[error("not a {kind} id (expected a version 7 UUID such as {EXAMPLE_ID}): {text:?}")]
    Id {
        /// What the id was to name.
        kind: &'static str,
        /// The text as given.
        text: String,
    },
    /// A cluster name that is not safe as one part of a path or an object key.
    #[error("not a cluster name ({rule}): {text:?}")]
    ClusterName {
        /// The rule it breaks.
        rule: &'static str,
        /// The text as given.
        text: String,
    },
    /// A level of proof that does not exist.
    #[error("not a level of proof (expected L0 to L5): {text:?}")]
    Level {
        /// The text as given.
        text: String,
    },
    /// A duration or size without a unit, with an unknown one, or out of range.
    #[error("not a {kind} ({rule}): {text:?}")]
    Quantity {
        /// `duration` or `size`.
        kind: &'static str,
        /// The rule it breaks.
        rule: &'static str,
        /// The text as given.
        text: String,
    },
    /// A schedule that cannot be read, or that would never run.
    #[error("not a schedule ({rule}): {text:?}")]
    Schedule {
        /// The rule it breaks.
        rule: String,
        /// The text as given.
        text: String,
    },
    /// A time zone that is not in the IANA database.
    #[error("not an IANA time zone (expected a name such as Europe/Berlin): {text:?}")]
    TimeZone {
        /// The text as given.
        text: String,
    },
    /// A setting whose value is allowed by its type and still makes no sense.
    #[error("{setting}: {rule}")]
    Policy {
        /// The setting's name, as written in the file.
        setting: &'static str,
        /// The rule it breaks.
        rule: String,
    },
}

const EXAMPLE_ID: &str = "0193a5c2-7e00-7abc-8def-0123456789ab";
