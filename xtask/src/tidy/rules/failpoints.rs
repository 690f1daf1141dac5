//! A release has no failpoints: whatever is compiled for them asks for debug assertions as well, a
//! release has none of these, and their names and variables stay in the folder that is left out.

use crate::tidy::check::Finding;
use crate::tidy::source::{code_lines, is_test};
use crate::tidy::tree::Tree;

/// The only folder that may know of them, and the tool that looks for them in a program.
const HOMES: [&str; 2] = ["store/src/failpoint/", "xtask/src/"];
/// The condition under which they are compiled.
const CONDITION: &str = "all(feature = \"failpoints\", debug_assertions";

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        if is_test(path) || path.starts_with("xtask/") {
            continue;
        }
        let is_home = HOMES.iter().any(|home| path.starts_with(home));
        for (number, line) in code_lines(text) {
            let asks = line.contains("feature = \"failpoints\"");
            if asks && !(is_home && line.contains(CONDITION)) {
                let text = format!("failpoints are compiled with `cfg({CONDITION}))` alone");
                findings.push(Finding::line(path, number, text));
            }
            if line.contains("GOFAIL_") && !is_home {
                let text = "only `store/src/failpoint` drives failpoints: a release must not";
                findings.push(Finding::line(path, number, text));
            }
        }
    }
    if tree.text("Cargo.toml").is_some_and(has_assertions) {
        let text = "a release profile with debug assertions would have failpoints";
        findings.push(Finding::file("Cargo.toml", text));
    }
    findings
}

/// Whether another profile than those for development switches debug assertions on.
fn has_assertions(manifest: &str) -> bool {
    let mut is_release = false;
    manifest.lines().any(|line| {
        if let Some(profile) = line.strip_prefix("[profile.") {
            is_release = !(profile.starts_with("dev") || profile.starts_with("test"));
        }
        let setting: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        is_release && setting == "debug-assertions=true"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_a_release_would_have_is_found() {
        let careless = "#[cfg(feature = \"failpoints\")]\nmod live;\n";
        let careful = "#[cfg(all(feature = \"failpoints\", debug_assertions))]\nmod live;\n";
        let tree = Tree::of(&[
            ("store/src/failpoint/mod.rs", careless),
            ("store/src/failpoint/table.rs", careful),
            ("store/src/api/kv.rs", careful),
            ("store/src/main.rs", "let name = \"GOFAIL_HTTP\";\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|found| found.path).collect();
        let expected = [
            "store/src/api/kv.rs",
            "store/src/failpoint/mod.rs",
            "store/src/main.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn debug_assertions_belong_to_development() {
        let check = |text: &str| check(&Tree::of(&[("Cargo.toml", text)])).len();
        assert_eq!(check("[profile.release]\ndebug-assertions = true\n"), 1);
        assert_eq!(check("[profile.dev]\ndebug-assertions = true\n"), 0);
        assert_eq!(check("[profile.release]\noverflow-checks = true\n"), 0);
    }
}
