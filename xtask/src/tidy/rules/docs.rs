//! What the docs name exists: linked pages, files, modules and items in code spans.

use crate::tidy::check::Finding;
use crate::tidy::source::has_word;
use crate::tidy::tree::Tree;

/// Endings by which a code span is taken for a file of this repository.
const FILES: [&str; 4] = [".rs", ".proto", ".toml", ".md"];
/// Folders by which a code span is taken for a path of this repository.
const FOLDERS: [&str; 11] = [
    "appliance",
    "docs",
    "drills",
    "interop",
    "policies",
    "proto",
    "restore",
    "simulation",
    "store",
    "xtask",
    ".ci",
];
/// Characters of patterns, placeholders and commands, which name no single file.
const NOT_A_PATH: [char; 12] = ['*', '<', '>', '{', '}', ' ', '$', '=', '"', ':', '(', '~'];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".md") {
        for (line, span) in code_spans(text) {
            if is_missing_path(tree, span) {
                findings.push(Finding::line(
                    path,
                    line,
                    format!("`{span}` does not exist"),
                ));
            }
            if is_missing_item(tree, span) {
                findings.push(Finding::line(
                    path,
                    line,
                    format!("no `{span}` in the sources"),
                ));
            }
        }
        for (line, link) in links(text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let resolved = if target.is_empty() {
                path.to_owned()
            } else {
                resolve(path, target)
            };
            if !tree.exists(&resolved) {
                findings.push(Finding::line(
                    path,
                    line,
                    format!("link to missing {target}"),
                ));
            } else if !anchor.is_empty() && !has_heading(tree, &resolved, anchor) {
                let text = format!("no heading #{anchor} in {resolved}");
                findings.push(Finding::line(path, line, text));
            }
        }
    }
    findings
}

/// Numbered code spans of a page, without fenced blocks.
pub(super) fn code_spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        line.split('`')
            .skip(1)
            .step_by(2)
            .map(move |span| (number, span))
    })
}

fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// Whether a page has the heading that `anchor` means.
fn has_heading(tree: &Tree, page: &str, anchor: &str) -> bool {
    let text = tree.text(page).unwrap_or_default();
    prose(text)
        .filter_map(|(_, line)| {
            line.trim_start_matches('#')
                .strip_prefix(' ')
                .filter(|_| line.starts_with('#'))
        })
        .any(|heading| slug(heading) == anchor)
}

/// A heading as an anchor: lowercase, spaces as hyphens, other signs left out.
fn slug(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Numbered relative link targets of a page, with their anchors.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let targets = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        targets
            .filter(|target| !target.contains("://"))
            .map(move |target| (number, target))
    })
}

fn is_missing_path(tree: &Tree, span: &str) -> bool {
    if span.contains(NOT_A_PATH) || span.contains("..") || span.starts_with('/') {
        return false;
    }
    let top = span.split('/').next().unwrap_or_default();
    if span.contains('/') && FOLDERS.contains(&top) {
        return !tree.exists_below(span);
    }
    FILES
        .iter()
        .any(|ending| span.ends_with(ending) && span.len() > ending.len())
        && !tree.exists_below(span)
}

/// Whether `span` is a Rust path into one of our crates whose last name no source of it has.
fn is_missing_item(tree: &Tree, span: &str) -> bool {
    let is_path_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let Some((top, _)) = span
        .split_once("::")
        .filter(|_| span.chars().all(is_path_char))
    else {
        return false;
    };
    let folder = top.trim_start_matches("holdfast_");
    if !FOLDERS.contains(&folder) {
        return false;
    }
    let item = span.rsplit("::").next().unwrap_or_default();
    let sources = format!("{folder}/src/");
    let mut texts = tree
        .texts(".rs")
        .filter(|(path, _)| path.starts_with(&sources));
    !texts.any(|(path, text)| has_word(path, item) || has_word(text, item))
}

/// The path that `link` on the page `page` means.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("store/src/api/kv.rs", "pub struct Kv;\n"),
            ("docs/a.md", page),
            ("docs/sub/b.md", ""),
        ]);
        check(&tree)
            .into_iter()
            .map(|finding| finding.text)
            .collect()
    }

    #[test]
    fn paths_that_exist_may_be_short() {
        let page = "`store/src/api/kv.rs` `api/kv.rs` `store/src/api` `store/src/{a,b}.rs` `a.b`\n";
        assert_eq!(findings(page), Vec::<String>::new());
    }

    #[test]
    fn missing_paths_items_and_links_are_found() {
        let page = "`store/src/gone` `gone.rs` `store::api::Kv` `store::Gone`\n[x](sub/c.md)\n";
        assert_eq!(
            findings(page),
            [
                "`store/src/gone` does not exist",
                "`gone.rs` does not exist",
                "no `store::Gone` in the sources",
                "link to missing sub/c.md",
            ]
        );
    }

    #[test]
    fn anchors_have_to_be_headings_of_the_page() {
        let page = "# One and two\n[a](#one-and-two) [b](#three) [c](sub/b.md#x)\n";
        assert_eq!(
            findings(page),
            [
                "no heading #three in docs/a.md",
                "no heading #x in docs/sub/b.md"
            ]
        );
    }

    #[test]
    fn fenced_blocks_and_addresses_are_left_alone() {
        let page = "```\n`gone.rs`\n```\n[x](https://example.org/gone.md) [y](sub/b.md)\n";
        assert_eq!(findings(page), Vec::<String>::new());
    }
}
