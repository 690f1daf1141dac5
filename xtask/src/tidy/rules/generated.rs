//! Generated code is made at build time. A generated file in the tree would grow stale unseen;
//! pages of the reference are compared with the program by a test.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

/// What generators write at the top, in parts, so that this file is not one of theirs.
const MARKS: [[&str; 2]; 3] = [
    ["@gener", "ated"],
    ["DO NOT ", "EDIT"],
    ["This file was auto", "matically"],
];
/// Lines in which a generator would have said so.
const TOP: usize = 10;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = [".rs", ".proto", ".go"];
    let texts = sources.iter().flat_map(|ending| tree.texts(ending));
    let marked = texts.filter(|(_, text)| {
        let mut top = text.lines().take(TOP);
        top.any(|line| MARKS.iter().any(|mark| line.contains(&mark.concat())))
    });
    marked
        .map(|(path, _)| Finding::file(path, "is generated: make it at build time"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_says_it_is_generated_is_found() {
        for mark in MARKS {
            let text = format!("// {}\nfn a() {{}}\n", mark.concat());
            let tree = Tree::of(&[("a/src/b.rs", &text), ("a/src/c.rs", "fn a() {}\n")]);
            let findings = check(&tree);
            assert_eq!(findings.len(), 1, "{mark:?}");
            assert_eq!(findings[0].path, "a/src/b.rs");
        }
    }
}
