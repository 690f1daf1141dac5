//! What a panic does to the process. Inside the database library it means that the state file is
//! damaged: the process says which file and what to do, and ends with the code for damage. Any
//! other panic is a fault of the program and takes its usual way.

use std::panic::PanicHookInfo;

use holdfast_store::InBackend;

use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure};
use crate::output::{self, Format};

/// What to do about a damaged state file.
pub(crate) const NEXT_STEP: &str = "keep the data directory for inspection and bring the newest proven backup up in a new one: \
     `holdfast restore --data-dir NEW`; a member of a larger cluster is removed instead and joins \
     again with an empty directory";

/// Installs the hook; call it first.
pub(crate) fn install() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match holdfast_store::in_backend().filter(|_| !is_ours(panic)) {
            Some(inside) => end(&inside, panic),
            None => usual(panic),
        }
    }));
}

/// Whether the panic comes from this program's own code, called back by the library.
fn is_ours(panic: &PanicHookInfo<'_>) -> bool {
    let file = panic.location().map(std::panic::Location::file);
    file.is_some_and(|file| file.starts_with("store/src/"))
}

#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "a panicking thread has nobody to return an exit code to, and nothing may be written \
              any more"
)]
fn end(inside: &InBackend, panic: &PanicHookInfo<'_>) -> ! {
    let failure = failure(inside, &panic.to_string());
    tracing::error!(
        state_file = files(inside),
        doing = inside.doing,
        panic = %panic,
        next = NEXT_STEP,
        "the state file is damaged; the process ends"
    );
    output::write_failure(&failure, Format::Text);
    std::process::exit(i32::from(ExitCode::Corrupt.number()))
}

fn failure(inside: &InBackend, panic: &str) -> Failure {
    let what = format!("the state file {} is damaged", files(inside));
    Failure::new(ErrorName::Corrupt, what)
        .because_of(format!(
            "a page of it made its reader panic while it was to {}: {}",
            inside.doing,
            panic.replace('\n', " ")
        ))
        .next(NEXT_STEP)
}

fn files(inside: &InBackend) -> String {
    let names: Vec<String> = inside
        .files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    names.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_named_with_the_work_and_the_next_step() {
        let inside = InBackend {
            doing: "read",
            files: vec!["/data/m0/state.redb".into()],
        };
        let failure = failure(&inside, "panicked at tree.rs:\nindex out of range");
        assert_eq!(failure.exit_code(), ExitCode::Corrupt);
        let text = failure.to_string();
        for part in [
            "/data/m0/state.redb",
            "to read",
            "index out of range",
            "holdfast restore",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
