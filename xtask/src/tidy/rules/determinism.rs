//! Replicated and deciding code gives the same answer everywhere: no container whose order differs
//! between two runs, no clock, no randomness.

use crate::tidy::check::Finding;
use crate::tidy::source::{code_lines, has_word, parts};
use crate::tidy::tree::Tree;

/// Folders whose code must be a function of its arguments.
const PURE: [&str; 3] = ["store/src/apply/", "store/src/mvcc/", "policies/src/"];

/// What may not be named there, and what to use.
const BANNED: [(&str, &str); 6] = [
    ("HashMap", "BTreeMap"),
    ("HashSet", "BTreeSet"),
    ("SystemTime", "an argument `now`"),
    ("Instant", "an argument `now`"),
    ("getrandom", "a value from the command"),
    ("rand", "a value from the command"),
];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_pure = |path: &str| PURE.iter().any(|folder| path.starts_with(folder));
    for (path, text) in tree.texts(".rs").filter(|(path, _)| is_pure(path)) {
        if path.ends_with("/tests.rs") {
            continue;
        }
        for (number, line) in code_lines(parts(text).production) {
            for (word, instead) in BANNED {
                if has_word(line, word) {
                    let text = format!("`{word}` in pure code: use {instead}");
                    findings.push(Finding::line(path, number, text));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_map_is_found_in_pure_code_only() {
        let text = "use std::collections::HashMap;\n";
        let tree = Tree::of(&[("store/src/mvcc/a.rs", text), ("store/src/api/a.rs", text)]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "store/src/mvcc/a.rs");
    }

    #[test]
    fn comments_and_inline_tests_may_name_one() {
        let text = "//! No HashMap here.\n#[cfg(test)]\nmod tests {\n    use x::HashMap;\n}\n";
        assert!(check(&Tree::of(&[("policies/src/a.rs", text)])).is_empty());
    }
}
