//! A file is named after what it holds; these names hold anything.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

const NAMES: [&str; 8] = [
    "utils", "util", "common", "helpers", "helper", "misc", "manager2", "stuff",
];
const ENDINGS: [&str; 3] = ["_new", "_v2", "_old"];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.texts(".rs") {
        let parts = path.trim_end_matches(".rs").split('/');
        for part in parts {
            if NAMES.contains(&part) || ENDINGS.iter().any(|ending| part.ends_with(ending)) {
                let text = format!("`{part}` says nothing: name it after what it holds");
                findings.push(Finding::file(path, text));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_nothing_are_found_as_files_and_folders() {
        let tree = Tree::of(&[
            ("a/src/utils.rs", ""),
            ("a/src/common/x.rs", ""),
            ("a/src/part_v2.rs", ""),
            ("a/src/utility.rs", ""),
        ]);
        assert_eq!(check(&tree).len(), 3);
    }
}
