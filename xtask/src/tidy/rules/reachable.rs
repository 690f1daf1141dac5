//! A Rust file that no module declares is never compiled, and a test in it never runs.

use crate::tidy::check::Finding;
use crate::tidy::source::{code_lines, has_word};
use crate::tidy::tree::Tree;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.texts(".rs") {
        let Some((folder, name)) = path.rsplit_once('/') else {
            continue;
        };
        let stem = name.trim_end_matches(".rs");
        let (folder, module) = match stem {
            "mod" => folder.rsplit_once('/').unwrap_or(("", folder)),
            _ => (folder, stem),
        };
        if is_root(folder, module) {
            continue;
        }
        let parents = [
            format!("{folder}/mod.rs"),
            format!("{folder}/lib.rs"),
            format!("{folder}/main.rs"),
            format!("{folder}.rs"),
        ];
        let declares = |parent: &String| {
            let text = tree.text(parent).unwrap_or_default();
            code_lines(text).any(|(_, line)| has_word(line, "mod") && has_word(line, module))
        };
        if !parents.iter().any(declares) {
            let text = format!("no `mod {module};` declares it: it is never compiled");
            findings.push(Finding::file(path, text));
        }
    }
    findings
}

/// Whether cargo itself compiles the file.
fn is_root(folder: &str, module: &str) -> bool {
    let is_target_folder = |name| folder.ends_with(name);
    let targets = [
        "/tests",
        "/src/bin",
        "/examples",
        "/benches",
        "/fuzz_targets",
    ];
    matches!(module, "lib" | "main" | "build") || targets.into_iter().any(is_target_folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_file_is_found() {
        let tree = Tree::of(&[
            (
                "a/src/lib.rs",
                "mod b;\npub(crate) mod c;\n// mod forgotten;\n",
            ),
            ("a/src/b.rs", "mod d;\n"),
            ("a/src/b/d.rs", ""),
            ("a/src/c/mod.rs", "mod e;\n"),
            ("a/src/c/e.rs", ""),
            ("a/src/forgotten.rs", ""),
            ("a/tests/it/main.rs", "mod f;\n"),
            ("a/tests/it/f.rs", ""),
            ("a/tests/it/g.rs", ""),
            ("a/build.rs", ""),
        ]);
        let paths: Vec<_> = check(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(paths, ["a/src/forgotten.rs", "a/tests/it/g.rs"]);
    }
}
