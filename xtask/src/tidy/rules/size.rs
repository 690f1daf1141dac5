//! Files stay small enough to be read at once; nothing large hides outside the fixtures.

use crate::tidy::check::Finding;
use crate::tidy::source::{is_test, parts};
use crate::tidy::tree::{Tree, is_fixture};

/// Lines of a file without its inline tests.
const PRODUCTION_MAX: usize = 600;
/// Lines of inline tests; more belong into a sibling `tests.rs`.
const INLINE_TESTS_MAX: usize = 200;
/// Lines of a file of tests.
const TEST_FILE_MAX: usize = 800;
/// Lines of a crate's `lib.rs`: docs, `mod` and `pub use`.
const LIB_MAX: usize = 150;
/// Bytes of any file that is neither a fixture nor a lock file.
const BYTES_MAX: u64 = 256 * 1024;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in tree.files() {
        if file.size > BYTES_MAX && !is_fixture(path) && !is_lock(path) {
            findings.push(Finding::file(
                path,
                format!("{} bytes, over {BYTES_MAX}", file.size),
            ));
        }
    }
    for (path, text) in tree.texts(".rs") {
        let over = |what: &str, lines: usize, max: usize| {
            let text = format!("{lines} lines of {what}, over {max}: split by subject");
            (lines > max).then(|| Finding::file(path, text))
        };
        if is_test(path) {
            findings.extend(over("tests", text.lines().count(), TEST_FILE_MAX));
            continue;
        }
        let parts = parts(text);
        findings.extend(over(
            "code",
            parts.production.lines().count(),
            PRODUCTION_MAX,
        ));
        findings.extend(over(
            "inline tests",
            parts.tests.lines().count(),
            INLINE_TESTS_MAX,
        ));
        if path.ends_with("src/lib.rs") {
            findings.extend(over("lib.rs", text.lines().count(), LIB_MAX));
        }
    }
    findings
}

fn is_lock(path: &str) -> bool {
    path.ends_with("Cargo.lock") || path.ends_with("go.sum")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found_and_its_inline_tests_count_apart() {
        let code = "fn a() {}\n".repeat(550);
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n{}}}\n",
            "    fn b() {}\n".repeat(150)
        );
        let fine = format!("{code}{tests}");
        let long = format!("{code}{code}");
        let tree = Tree::of(&[("a/src/fine.rs", &fine), ("a/src/long.rs", &long)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "a/src/long.rs");
    }

    #[test]
    fn files_of_tests_and_lib_have_their_own_limits() {
        let lines = "// x\n".repeat(700);
        let tree = Tree::of(&[("a/tests/it/b.rs", &lines), ("a/src/lib.rs", &lines)]);
        let findings = check(&tree);
        assert!(
            findings
                .iter()
                .all(|finding| finding.path == "a/src/lib.rs")
        );
        assert_eq!(findings.len(), 2, "as a file and as a lib.rs");
    }

    #[test]
    fn large_files_are_found_outside_fixtures() {
        let large = "x".repeat(300 * 1024);
        let tree = Tree::of(&[("a/x.bin", &large), ("a/fixtures/x.bin", &large)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "a/x.bin");
    }
}
