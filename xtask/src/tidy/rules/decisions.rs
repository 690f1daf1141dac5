//! Decisions are dated, short, and say what was weighed.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

const FOLDER: &str = "docs/decisions/";
const SECTIONS: [&str; 4] = [
    "## Context",
    "## Decision",
    "## Consequences",
    "## Alternatives",
];
/// Lines of a page.
const LINES_MAX: usize = 60;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".md") {
        let Some(name) = path
            .strip_prefix(FOLDER)
            .filter(|name| *name != "README.md")
        else {
            continue;
        };
        if !is_dated(name) {
            findings.push(Finding::file(path, "name it YYYY-MM-DD-slug.md"));
        }
        let missing = SECTIONS
            .iter()
            .filter(|section| !text.lines().any(|line| line == **section));
        findings.extend(missing.map(|section| Finding::file(path, format!("no `{section}`"))));
        if text.lines().count() > LINES_MAX {
            findings.push(Finding::file(
                path,
                format!("over {LINES_MAX} lines: one page"),
            ));
        }
    }
    findings
}

/// Whether `name` is `YYYY-MM-DD-slug.md`.
fn is_dated(name: &str) -> bool {
    let mut parts = name.splitn(4, '-');
    let mut is_number = |length| {
        let part = parts.next().unwrap_or_default();
        part.len() == length && part.chars().all(|c| c.is_ascii_digit())
    };
    let is_date = is_number(4) && is_number(2) && is_number(2);
    is_date && parts.next().is_some_and(|slug| slug.len() > ".md".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_date_or_section_is_found() {
        let whole = "# A\n## Context\n## Decision\n## Consequences\n## Alternatives\n";
        let tree = Tree::of(&[
            ("docs/decisions/2026-11-30-good.md", whole),
            ("docs/decisions/bad.md", whole),
            (
                "docs/decisions/2026-11-30-short.md",
                "# A\n## Context\n## Decision\n",
            ),
        ]);
        let findings = check(&tree);
        assert_eq!(
            findings
                .iter()
                .filter(|f| f.path.ends_with("bad.md"))
                .count(),
            1
        );
        assert_eq!(
            findings
                .iter()
                .filter(|f| f.path.ends_with("short.md"))
                .count(),
            2
        );
        assert_eq!(findings.len(), 3);
    }
}
