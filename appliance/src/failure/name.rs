//! The stable names of failures: each has an exit code and a page under `docs/reference/errors`.

use crate::exit_code::ExitCode;

/// Why a command could not do what it was asked; people search for this word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorName {
    /// Nobody foresaw it.
    Unexpected,
    /// The words on the command line do not make sense together.
    Usage,
    /// The configuration file cannot be read as one.
    ConfigInvalid,
    /// Neither recipients nor an explicit `encryption: none`.
    EncryptionNotConfigured,
    /// A named file, backup, drill or source does not exist.
    NotFound,
    /// The vault holds no backup that fits the request.
    NoBackup,
    /// The directory or file to be written exists already.
    TargetExists,
    /// Another process holds it, or a newer owner has taken over.
    InUse,
    /// Clocks, or times of backups, disagree, and something would be removed by them.
    ClocksDisagree,
    /// The source is another cluster than the one in the vault.
    ClusterChanged,
    /// Bytes differ from what was written.
    Corrupt,
    /// A key is missing or is not the right one.
    Denied,
    /// The other side does not answer.
    Unavailable,
    /// No room is left for what has to be written.
    Exhausted,
    /// A step of the demonstration or a check of a drill did not hold.
    DrillFailed,
    /// An objective is missed.
    ObjectiveMissed,
}

impl ErrorName {
    /// Every name, in the order of the reference page.
    pub(crate) const ALL: [Self; 16] = [
        Self::Unexpected,
        Self::Usage,
        Self::ConfigInvalid,
        Self::EncryptionNotConfigured,
        Self::NotFound,
        Self::NoBackup,
        Self::TargetExists,
        Self::InUse,
        Self::ClocksDisagree,
        Self::ClusterChanged,
        Self::Corrupt,
        Self::Denied,
        Self::Unavailable,
        Self::Exhausted,
        Self::DrillFailed,
        Self::ObjectiveMissed,
    ];

    /// The name as it is printed and as its page is called.
    pub(crate) const fn slug(self) -> &'static str {
        match self {
            Self::Unexpected => "unexpected",
            Self::Usage => "usage",
            Self::ConfigInvalid => "config-invalid",
            Self::EncryptionNotConfigured => "encryption-not-configured",
            Self::NotFound => "not-found",
            Self::NoBackup => "no-backup",
            Self::TargetExists => "target-exists",
            Self::InUse => "in-use",
            Self::ClocksDisagree => "clocks-disagree",
            Self::ClusterChanged => "cluster-changed",
            Self::Corrupt => "corrupt",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::Exhausted => "exhausted",
            Self::DrillFailed => "drill-failed",
            Self::ObjectiveMissed => "objective-missed",
        }
    }

    /// The exit code a script sees.
    pub(crate) const fn exit_code(self) -> ExitCode {
        match self {
            Self::Unexpected => ExitCode::Unexpected,
            Self::Usage | Self::ConfigInvalid | Self::EncryptionNotConfigured => ExitCode::Usage,
            Self::NotFound | Self::NoBackup => ExitCode::NotFound,
            Self::TargetExists | Self::InUse | Self::ClocksDisagree | Self::ClusterChanged => {
                ExitCode::Conflict
            }
            Self::Corrupt => ExitCode::Corrupt,
            Self::Denied => ExitCode::Denied,
            Self::Unavailable | Self::Exhausted => ExitCode::Unavailable,
            Self::DrillFailed => ExitCode::DrillFailed,
            Self::ObjectiveMissed => ExitCode::ObjectiveMissed,
        }
    }

    /// What it means, one paragraph for its page.
    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Unexpected => {
                "Something happened that no other name covers. Nothing was swallowed: the lines \
                 under `why` are the whole chain of causes."
            }
            Self::Usage => "The command line asks for something that does not make sense.",
            Self::ConfigInvalid => {
                "The configuration file has an unknown key, a value of the wrong form, or two \
                 settings that contradict each other. Nothing was started."
            }
            Self::EncryptionNotConfigured => {
                "A configuration file is in use and says nothing about encryption. Holdfast never \
                 guesses here: it would otherwise write in clear what you believe to be sealed."
            }
            Self::NotFound => "A file, backup, drill or source that was named does not exist.",
            Self::NoBackup => {
                "The vault can be read, and no backup in it fits the request: it is empty, or \
                 nothing has reached the proof level or the point asked for."
            }
            Self::TargetExists => {
                "A restore, `init` or `key generate` never writes over something that exists. The \
                 existing thing was not touched."
            }
            Self::InUse => {
                "Another process holds the directory, or a newer owner has taken over the vault \
                 and this one stopped rather than write beside it."
            }
            Self::ClocksDisagree => {
                "The clock of this host, that of the vault and the times that signed backups claim \
                 do not fit together: a clock was set, or a time is forged. Retention would remove \
                 the wrong backups by them, so it removes none."
            }
            Self::ClusterChanged => {
                "The source is not the cluster whose backups are in the vault: the store was lost \
                 (or is not mounted) and an empty one would take its place, an address is wrong, or \
                 the cluster was rebuilt on purpose. Nothing was written."
            }
            Self::Corrupt => {
                "A digest, signature, chain link or structure does not hold. What was read has \
                 not been used."
            }
            Self::Denied => {
                "A key or credential is missing or does not fit: the age identity does not open \
                 the backup, the signing key is unknown, or the other side refuses the login."
            }
            Self::Unavailable => {
                "A source, a vault or a member does not answer, or not in time. Trying again is \
                 safe: nothing half-done counts."
            }
            Self::Exhausted => {
                "A disk, a quota or a byte budget is full. What was being written has been \
                 abandoned; the store and the existing backups are untouched."
            }
            Self::DrillFailed => {
                "A rehearsal of the restore was made and did not hold. The report says which check \
                 failed, what was expected and what was found."
            }
            Self::ObjectiveMissed => {
                "The newest backup is older than the RPO allows, or the last measured restore took \
                 longer than the RTO allows, or there is no evidence at all."
            }
        }
    }

    /// What to do, for its page and where the failing place knows nothing better.
    pub(crate) const fn next(self) -> &'static str {
        match self {
            Self::Unexpected => "run it again with --log-level debug and report what it says",
            Self::Usage => "`holdfast <command> --help` shows the forms that work, with examples",
            Self::ConfigInvalid => {
                "correct what `why` names; `holdfast config print` shows what is in force and \
                 docs/reference/config.md lists every key"
            }
            Self::EncryptionNotConfigured => {
                "add `policies: {encryption: {recipients: [age1...]}}` (`holdfast key show` prints \
                 yours), or `policies: {encryption: none}` if clear backups are what you want"
            }
            Self::NotFound => "`holdfast backup list` and `holdfast drill list` show what is there",
            Self::NoBackup => {
                "`holdfast backup list` shows what is there; `holdfast backup now` makes one"
            }
            Self::TargetExists => "name another place, or move the existing one away first",
            Self::InUse => "stop the other process, or use another directory",
            Self::ClocksDisagree => {
                "set the clocks right; where the times of the backups were looked at and may count, \
                 `holdfast backup prune --confirm-times PLACE --confirm` says so for good"
            }
            Self::ClusterChanged => {
                "`holdfast restore --data-dir DIR` brings the cluster in the vault back; where the \
                 new one is meant, give --accept-new-cluster once"
            }
            Self::Corrupt => {
                "`holdfast backup verify --all` says which backups are whole; restore from one of \
                 those and keep the damaged one for inspection"
            }
            Self::Denied => "`holdfast key show` says which keys are in use here",
            Self::Unavailable => "`holdfast vault check` and `holdfast status` say what answers",
            Self::Exhausted => "free some space, or raise the limit, then run it again",
            Self::DrillFailed => "`holdfast drill show` prints the report of the last drill",
            Self::ObjectiveMissed => {
                "`holdfast status` says which; `holdfast backup now` and `holdfast drill run` \
                 bring fresh evidence"
            }
        }
    }
}
