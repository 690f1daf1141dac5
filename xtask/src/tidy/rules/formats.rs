//! A format page names the constant that holds its version and the folder of its golden files; a
//! constant that is a version of a format has a page.

use crate::tidy::check::Finding;
use crate::tidy::rules::docs::code_spans;
use crate::tidy::source::{code_lines, has_word, is_test, parts};
use crate::tidy::tree::Tree;

const FOLDER: &str = "docs/formats/";

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".md") {
        if !path.starts_with(FOLDER) || path.ends_with("README.md") {
            continue;
        }
        let spans: Vec<&str> = code_spans(text).map(|(_, span)| span).collect();
        if !spans
            .iter()
            .any(|span| is_version(span) && is_constant(tree, span))
        {
            let text = "names no version constant of the sources, as `SOMETHING_VERSION`";
            findings.push(Finding::file(path, text));
        }
        let is_golden = |span: &&str| span.contains("fixtures/") && tree.exists(span);
        if !spans.iter().any(is_golden) {
            findings.push(Finding::file(
                path,
                "names no existing golden folder (`.../fixtures/...`)",
            ));
        }
    }
    findings.extend(without_page(tree));
    findings
}

/// Top-level number constants called `..._VERSION` that no format page names.
fn without_page(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages = || {
        tree.texts(".md")
            .filter(|(path, _)| path.starts_with(FOLDER))
    };
    for (path, text) in tree.texts(".rs").filter(|(path, _)| !is_test(path)) {
        for (number, line) in code_lines(parts(text).production) {
            let Some(name) = version_constant(line) else {
                continue;
            };
            let is_named = pages().any(|(_, page)| {
                let mut spans = code_spans(page);
                spans.any(|(_, span)| last_segment(span) == name)
            });
            if !is_named {
                let text = format!("no page in {FOLDER} names `{name}`");
                findings.push(Finding::line(path, number, text));
            }
        }
    }
    findings
}

/// The name in `pub const PART_VERSION: u32 = 1;`.
fn version_constant(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("pub ")
        .or_else(|| line.strip_prefix("pub(crate) "));
    let (name, kind) = rest
        .unwrap_or(line)
        .strip_prefix("const ")?
        .split_once(": ")?;
    let is_number = kind.starts_with("u32") || kind.starts_with("u64");
    (is_number && name.ends_with("_VERSION")).then_some(name)
}

fn is_version(span: &str) -> bool {
    let name = last_segment(span);
    name.contains("VERSION") || name.contains("MAGIC") || name.contains("FORMAT")
}

fn is_constant(tree: &Tree, span: &str) -> bool {
    let name = last_segment(span);
    let declares = |(_, line): (usize, &str)| has_word(line, "const") && has_word(line, name);
    tree.texts(".rs")
        .any(|(_, text)| code_lines(text).any(declares))
}

fn last_segment(span: &str) -> &str {
    span.rsplit("::").next().unwrap_or(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_without_a_page_is_found() {
        let source = "pub const PART_VERSION: u32 = 1;\nconst OTHER_VERSION: u64 = 1;\n\
                      const NAME_VERSION: &str = \"x\";\n    const VERSION: u64 = 1;\n";
        let tree = Tree::of(&[
            ("a/src/b.rs", source),
            ("a/tests/fixtures/v1/x", ""),
            (
                "docs/formats/part.md",
                "`b::PART_VERSION`, `a/tests/fixtures/v1`\n",
            ),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].text.contains("OTHER_VERSION"));
    }

    #[test]
    fn a_page_without_version_or_golden_folder_is_found() {
        let tree = Tree::of(&[
            ("a/src/b.rs", "pub const PART_VERSION: u32 = 1;\n"),
            ("a/tests/fixtures/v1/x", ""),
            (
                "docs/formats/part.md",
                "`b::PART_VERSION`, `a/tests/fixtures/v1`\n",
            ),
            (
                "docs/formats/bad.md",
                "`OTHER_VERSION`, `a/tests/fixtures/v2`\n",
            ),
        ]);
        let findings = check(&tree);
        assert_eq!(findings.len(), 2);
        assert!(
            findings
                .iter()
                .all(|finding| finding.path == "docs/formats/bad.md")
        );
    }
}
