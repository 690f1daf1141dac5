//! What the process tells the shell: one number per kind of outcome, the same for every command.
//!
//! Scripts branch on these, so a number never changes its meaning; `docs/reference/exit-codes.md`
//! is generated from [`ExitCode::ALL`].

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExitCode {
    /// Everything asked for was done.
    Done,
    /// Something nobody foresaw; the text says what.
    Unexpected,
    /// The command line or the configuration does not make sense.
    Usage,
    /// What was named does not exist.
    NotFound,
    /// The target exists already, or somebody else holds it.
    Conflict,
    /// Bytes are not what they should be: digest, signature, chain or structure.
    Corrupt,
    /// Not allowed, or no key that fits.
    Denied,
    /// A source, vault or member does not answer; trying again may help.
    Unavailable,
    /// A drill ran and at least one of its checks did not hold.
    DrillFailed,
    /// An objective (RPO or RTO) is missed.
    ObjectiveMissed,
}

impl ExitCode {
    /// Every code, in order of its number.
    pub(crate) const ALL: [Self; 10] = [
        Self::Done,
        Self::Unexpected,
        Self::Usage,
        Self::NotFound,
        Self::Conflict,
        Self::Corrupt,
        Self::Denied,
        Self::Unavailable,
        Self::DrillFailed,
        Self::ObjectiveMissed,
    ];

    /// The number the shell sees.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Unexpected => 1,
            Self::Usage => 2,
            Self::NotFound => 10,
            Self::Conflict => 11,
            Self::Corrupt => 12,
            Self::Denied => 13,
            Self::Unavailable => 14,
            Self::DrillFailed => 20,
            Self::ObjectiveMissed => 21,
        }
    }

    /// One line for the reference page and `--help`.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unexpected => "unexpected failure",
            Self::Usage => "the command line or the configuration is wrong",
            Self::NotFound => "what was named does not exist",
            Self::Conflict => "the target exists, or somebody else holds it",
            Self::Corrupt => "corrupt: a digest, signature, chain or structure does not hold",
            Self::Denied => "denied, or no key that fits",
            Self::Unavailable => "a source, vault or member does not answer",
            Self::DrillFailed => "a drill failed",
            Self::ObjectiveMissed => "an objective is missed",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode;

    #[test]
    fn numbers_are_the_documented_ones_and_never_move() {
        let numbers = ExitCode::ALL.map(ExitCode::number);
        assert_eq!(numbers, [0, 1, 2, 10, 11, 12, 13, 14, 20, 21]);
    }
}
