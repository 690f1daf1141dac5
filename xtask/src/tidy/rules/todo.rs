//! What is left to do has an issue that somebody can find.

use crate::tidy::check::Finding;
use crate::tidy::source::has_word;
use crate::tidy::tree::Tree;

// In two pieces, so that this file does not find itself.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for suffix in [".rs", ".toml", ".proto", ".md", ".go", ".ci/run"] {
        for (path, text) in tree.texts(suffix) {
            for (number, line) in (1..).zip(text.lines()) {
                let open = MARKS
                    .iter()
                    .find(|mark| has_word(line, mark) && !names_issue(line, mark));
                if let Some(mark) = open {
                    let text = format!("write `{mark}(#issue)`, or do it now");
                    findings.push(Finding::line(path, number, text));
                }
            }
        }
    }
    findings
}

/// Whether the mark is followed by an issue number in brackets.
fn names_issue(line: &str, mark: &str) -> bool {
    let after = line.split_once(mark).map_or("", |(_, after)| after);
    let number = after
        .strip_prefix("(#")
        .and_then(|rest| rest.split_once(')'));
    number
        .is_some_and(|(digits, _)| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_end_needs_an_issue() {
        let [todo, fixme, _] = MARKS;
        let text = format!("// {todo}: later\n// {todo}(#12): later\n// {fixme}\n");
        let findings = check(&Tree::of(&[("a/src/b.rs", &text)]));
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
