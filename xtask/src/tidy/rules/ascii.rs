//! Sources are ASCII: what a reader sees is what the compiler reads. Bytes outside of it are
//! written as escapes.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

const SOURCES: [&str; 6] = [".rs", ".toml", ".proto", ".go", ".ci/run", ".gitignore"];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for suffix in SOURCES {
        for (path, text) in tree.texts(suffix) {
            for (number, line) in (1..).zip(text.lines()) {
                if let Some(found) = line.chars().find(|c| !c.is_ascii()) {
                    let text = format!("`{}` is not ASCII", found.escape_unicode());
                    findings.push(Finding::line(path, number, text));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_outside_ascii_is_found_with_its_code() {
        let findings = check(&Tree::of(&[("a/src/b.rs", "ok\n// \u{e9}\n")]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
        assert!(findings[0].text.contains("\\u{e9}"));
    }
}
