//! Which folder may name which: calls inside `store` go one way, and a library that would spread
//! is imported in one place.

use crate::tidy::check::Finding;
use crate::tidy::source::{code_lines, has_word, parts};
use crate::tidy::tree::Tree;

/// A name that files below `within` may not use, except below one of `allowed`.
struct Edge {
    within: &'static str,
    name: &'static str,
    allowed: &'static [&'static str],
    /// Plain data of that module which everybody may name; empty when there is none.
    vocabulary: &'static str,
    reason: &'static str,
}

const EDGES: [Edge; 12] = [
    Edge {
        within: "store/src/",
        name: "openraft",
        allowed: &["store/src/consensus/"],
        vocabulary: "",
        reason: "only the consensus folder knows the raft library",
    },
    Edge {
        within: "store/src/",
        name: "redb",
        allowed: &[
            "store/src/backend/",
            "store/src/apply/",
            "store/src/state.rs",
            "store/src/error.rs",
            // The file under the database, which keeps room on the disk.
            "store/src/consensus/state_file.rs",
            "store/src/member/start.rs",
        ],
        vocabulary: "",
        reason: "only the backend knows the database library",
    },
    Edge {
        within: "store/src/",
        name: "tonic",
        allowed: &[
            "store/src/api/",
            "store/src/watch/",
            "store/src/consensus/",
            // A client of another cluster.
            "store/src/member/discover.rs",
        ],
        vocabulary: "",
        reason: "only the api, the peer transport and discovery know gRPC",
    },
    Edge {
        within: "store/src/",
        name: "crate::api",
        allowed: &["store/src/api/", "store/src/metrics/", "store/src/lib.rs"],
        vocabulary: "",
        reason: "calls go from the api down, never up",
    },
    Edge {
        within: "store/src/mvcc/",
        name: "crate::apply",
        allowed: &[],
        vocabulary: "",
        reason: "apply calls mvcc, never the other way",
    },
    Edge {
        within: "store/src/backend/",
        name: "crate::apply",
        allowed: &[],
        vocabulary: "LogPosition",
        reason: "the backend is below the state machine",
    },
    Edge {
        within: "store/src/backend/",
        name: "crate::mvcc",
        allowed: &[],
        vocabulary: "",
        reason: "the backend is below mvcc",
    },
    Edge {
        within: "store/src/apply/",
        name: "crate::consensus",
        allowed: &[],
        vocabulary: "",
        reason: "consensus calls apply, never the other way",
    },
    Edge {
        within: "store/src/bolt/",
        name: "crate::mvcc",
        allowed: &[],
        vocabulary: "",
        reason: "the file format knows pages, not keys",
    },
    Edge {
        within: "restore/src/",
        name: "object_store",
        allowed: &["restore/src/vault/", "restore/src/error.rs"],
        vocabulary: "",
        reason: "only the vault knows the object store library",
    },
    Edge {
        within: "restore/src/",
        name: "age",
        allowed: &["restore/src/seal", "restore/src/key", "restore/src/spool"],
        vocabulary: "",
        reason: "only sealing and keys know the encryption library",
    },
    Edge {
        within: "policies/src/",
        name: "tokio",
        allowed: &[],
        vocabulary: "",
        reason: "decisions are pure",
    },
];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        for edge in EDGES {
            let is_allowed = edge.allowed.iter().any(|folder| path.starts_with(folder));
            if !path.starts_with(edge.within) || is_allowed || path.ends_with("/tests.rs") {
                continue;
            }
            for (number, line) in code_lines(parts(text).production) {
                let is_plain = !edge.vocabulary.is_empty() && has_word(line, edge.vocabulary);
                if uses(line, edge.name) && !is_plain {
                    let text = format!("`{}` here: {}", edge.name, edge.reason);
                    findings.push(Finding::line(path, number, text));
                }
            }
        }
    }
    findings
}

/// Whether `line` uses the crate or module `name` as a path.
fn uses(line: &str, name: &str) -> bool {
    let is_path = |suffix: &str| has_word(line, name) && line.contains(&format!("{name}{suffix}"));
    is_path("::") || (line.trim_start().starts_with("use ") && is_path(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_edge_is_found_and_an_allowed_one_passes() {
        let text = "use openraft::Raft;\n";
        let tree = Tree::of(&[
            ("store/src/consensus/a.rs", text),
            ("store/src/member.rs", text),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "store/src/member.rs");
    }

    #[test]
    fn a_call_upwards_is_found() {
        let tree = Tree::of(&[("store/src/mvcc/a.rs", "use crate::apply::Applier;\n")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn a_word_that_is_no_path_passes() {
        let tree = Tree::of(&[(
            "restore/src/a.rs",
            "let age = 3;\nlet page = image::new();\n",
        )]);
        assert!(check(&tree).is_empty());
    }
}
