//! What users notice is told: a fragment for each issue, in a form that a release can gather.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

const FOLDER: &str = "docs/changes/";

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fragments = 0;
    for (path, text) in tree.texts(".md") {
        let Some(name) = path.strip_prefix(FOLDER) else {
            continue;
        };
        fragments += 1;
        if !is_named(name) {
            findings.push(Finding::file(path, "name it ISSUE-slug.md"));
        }
        if text.trim().is_empty() {
            findings.push(Finding::file(path, "says nothing"));
        }
    }
    if fragments == 0 {
        let text = "no fragment: write what this issue changes for users into ISSUE-slug.md";
        findings.push(Finding::file(FOLDER, text));
    }
    findings
}

/// Whether `name` is `ISSUE-slug.md`.
fn is_named(name: &str) -> bool {
    let Some((issue, slug)) = name
        .strip_suffix(".md")
        .and_then(|stem| stem.split_once('-'))
    else {
        return false;
    };
    let is_slug = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !issue.is_empty()
        && issue.chars().all(|c| c.is_ascii_digit())
        && !slug.is_empty()
        && slug.chars().all(is_slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_of_an_issue_passes() {
        let tree = Tree::of(&[(
            "docs/changes/12-faster-restores.md",
            "- Restores are faster.\n",
        )]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn no_fragment_a_wrong_name_and_an_empty_one_are_found() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        for (path, text) in [
            ("docs/changes/notes.md", "- x\n"),
            ("docs/changes/12-Big.md", "- x\n"),
            ("docs/changes/12-slug.md", "\n"),
        ] {
            assert_eq!(check(&Tree::of(&[(path, text)])).len(), 1, "{path}");
        }
    }
}
