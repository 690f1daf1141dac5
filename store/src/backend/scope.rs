//! Says whether a thread is inside the database library right now, and over which files.
//!
//! redb panics on some damaged pages. In a build whose panics abort nobody can catch that, so the
//! program's panic hook asks here whether the panic means a damaged state file.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// State files that are remembered; one process opens few.
const FILES_MAX: usize = 64;

thread_local! {
    static DOING: Cell<Option<&'static str>> = const { Cell::new(None) };
}

static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What the present thread is doing inside the database library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InBackend {
    /// The work, as a verb.
    pub doing: &'static str,
    /// The state files this process has opened.
    pub files: Vec<PathBuf>,
}

/// What the present thread is doing inside the database library; `None` when it is elsewhere.
/// For a panic hook: takes no lock that the panicking thread could hold.
pub fn in_backend() -> Option<InBackend> {
    let doing = DOING.try_with(Cell::get).ok().flatten()?;
    let files = FILES.try_lock().map(|files| files.clone());
    Some(InBackend {
        doing,
        files: files.unwrap_or_default(),
    })
}

/// Marks the thread until dropped.
pub(super) struct Scope {
    outer: Option<&'static str>,
}

impl Scope {
    pub(super) fn enter(doing: &'static str) -> Self {
        let outer = DOING.replace(Some(doing));
        Self { outer }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        DOING.set(self.outer);
    }
}

/// Remembers a state file by name.
pub(super) fn opening(path: &Path) {
    let mut files = FILES.lock();
    if files.len() < FILES_MAX && !files.iter().any(|known| known == path) {
        files.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_from_entering_to_leaving_and_others_are_not() {
        assert_eq!(in_backend(), None);
        let scope = Scope::enter("read");
        opening(Path::new("somewhere/state.redb"));
        let inner = Scope::enter("write");
        assert_eq!(in_backend().map(|inside| inside.doing), Some("write"));
        drop(inner);
        let inside = in_backend().expect("still inside");
        assert_eq!(inside.doing, "read");
        let is_named = |path: &PathBuf| path.ends_with("somewhere/state.redb");
        assert!(inside.files.iter().any(is_named));
        let other = std::thread::spawn(in_backend).join();
        assert_eq!(other.expect("it answers"), None);
        drop(scope);
        assert_eq!(in_backend(), None);
    }
}
