//! What the rules need to know of a Rust file without parsing it.

/// A Rust file cut where its inline tests begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// Everything before the inline tests.
    pub(super) production: &'a str,
    /// The inline tests, empty when there are none.
    pub(super) tests: &'a str,
}

/// Cuts `text` before `#[cfg(test)]` of an inline `mod tests {`.
pub(super) fn parts(text: &str) -> Parts<'_> {
    let mut from = 0;
    while let Some(found) = text
        .get(from..)
        .and_then(|rest| rest.find("#[cfg(test)]\n"))
    {
        let at = from + found;
        let (production, tests) = text.split_at(at);
        let is_inline = |line: &str| line.trim_start().starts_with("mod ") && line.ends_with('{');
        let after = tests
            .lines()
            .skip(1)
            .find(|line| !line.trim_start().starts_with("#["));
        if after.is_some_and(is_inline) {
            return Parts { production, tests };
        }
        from = at + 1;
    }
    Parts {
        production: text,
        tests: "",
    }
}

/// Whether `path` is Rust that only tests run.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("interop/")
}

/// Numbered lines of `text` that are code: no comment lines, and comments at the end cut off.
pub(super) fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = |line: &'_ str| match line.find("// ") {
        Some(at) => line.split_at(at).0.len(),
        None => line.len(),
    };
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(move |(number, line)| (number, line.split_at(code(line)).0))
}

/// Whether `line` holds `word` with no letter, digit or underscore on either side.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, found)| {
        let (before, rest) = line.split_at(at);
        let after = rest.split_at(found.len()).1;
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_tests_are_cut_off() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(parts(text).production, "fn a() {}\n\n");
        assert_eq!(parts(text).tests.lines().count(), 3);
    }

    #[test]
    fn a_sibling_test_file_or_a_test_only_item_is_not_an_inline_test() {
        let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn a() {}\n";
        assert_eq!(
            parts(text),
            Parts {
                production: text,
                tests: ""
            }
        );
    }

    #[test]
    fn comments_are_not_code() {
        let lines: Vec<_> = code_lines("//! HashMap\nlet a = 1; // HashMap\n").collect();
        assert_eq!(lines, [(2, "let a = 1; ")]);
    }

    #[test]
    fn a_word_is_found_only_whole() {
        assert!(has_word("use std::HashMap;", "HashMap"));
        assert!(!has_word("use std::MyHashMapper;", "HashMap"));
    }
}
