//! Every file says first what it is for.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let is_documented = |text: &str| {
        let first = text
            .lines()
            .find(|line| !line.starts_with("#![") && !line.is_empty());
        first.is_none_or(|line| line.starts_with("//!"))
    };
    tree.texts(".rs")
        .filter(|(path, text)| !path.ends_with("/tests.rs") && !is_documented(text))
        .map(|(path, _)| Finding::file(path, "starts without `//!`: say what it is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_docs_is_found() {
        let tree = Tree::of(&[
            ("a/src/b.rs", "use x;\n"),
            ("a/src/c.rs", "//! Does c.\nuse x;\n"),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "a/src/b.rs");
    }
}
