//! Comments fit side by side with other text. Code is rustfmt's, and a string that it cannot break
//! may be as long as what it says.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

/// Columns of a comment line in Rust.
const WIDTH_MAX: usize = 100;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        for (number, line) in (1..).zip(text.lines()) {
            let width = line.chars().count();
            let is_comment = line.trim_start().starts_with("//");
            if is_comment && width > WIDTH_MAX && !line.contains("://") {
                let text = format!("{width} columns, over {WIDTH_MAX}");
                findings.push(Finding::line(path, number, text));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_comment_is_found_unless_it_holds_an_address() {
        let long = "x".repeat(101);
        let text = format!("short\n// {long}\n// https://{long}\nlet a = \"{long}\";\n");
        let findings = check(&Tree::of(&[("a/src/b.rs", &text)]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
    }
}
