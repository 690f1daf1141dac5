//! Lines fit side by side, comments too; rustfmt leaves long comments and strings alone.

use crate::tidy::check::Finding;
use crate::tidy::tree::Tree;

/// Columns of a line of Rust.
const WIDTH_MAX: usize = 100;

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(".rs") {
        for (number, line) in (1..).zip(text.lines()) {
            let width = line.chars().count();
            if width > WIDTH_MAX && !line.contains("://") {
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
    fn a_long_line_is_found_unless_it_holds_an_address() {
        let long = "x".repeat(101);
        let address = format!("// https://{long}");
        let text = format!("short\n{long}\n{address}\n");
        let findings = check(&Tree::of(&[("a/src/b.rs", &text)]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
    }
}
