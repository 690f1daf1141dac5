//! How far a long operation has come.

/// What a long operation is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Choosing a member of the source.
    Connecting,
    /// Reading the source, sealing and storing.
    Capturing,
    /// Reading the copy's revision and hash.
    Inspecting,
    /// Reading back what was stored.
    ReadingBack,
    /// Reading parts from the vault.
    Fetching,
    /// Checking structure and hash.
    Checking,
    /// Writing the data directory.
    Building,
    /// Copying from one vault to another.
    Copying,
    /// Comparing two vaults.
    Comparing,
}

/// A report of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Plain bytes done in this phase.
    pub done: u64,
    /// Plain bytes in all, once known.
    pub total: Option<u64>,
}

/// Called from the task that works: must return at once.
pub type ProgressFn<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// For callers that do not show progress.
pub fn silent(_progress: Progress) {}
