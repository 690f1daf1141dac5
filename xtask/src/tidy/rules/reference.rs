//! The reference knows every error, exit code and metric there is, and none that is not. Command
//! lines and configuration keys are whole pages made by `holdfast reference`, which a test of the
//! appliance compares with the program.

use std::collections::BTreeSet;

use crate::tidy::check::Finding;
use crate::tidy::rules::docs::code_spans;
use crate::tidy::source::{code_lines, is_test, parts};
use crate::tidy::tree::Tree;

const ERROR_PAGES: &str = "docs/reference/errors/";
const ERROR_LIST: &str = "docs/reference/errors.md";
const ERROR_NAMES: &str = "appliance/src/failure/name.rs";
const CODE_LIST: &str = "docs/reference/exit-codes.md";
const CODES: &str = "appliance/src/exit_code.rs";
const METRICS: &str = "docs/reference/metrics.md";
/// What the name of a metric begins with: etcd's own names, and ours.
const METRIC_PREFIXES: [&str; 2] = ["etcd_", "holdfast_"];
/// Endings that the text form adds to the name of a metric.
const METRIC_SUFFIXES: [&str; 4] = ["_total", "_bucket", "_sum", "_count"];

pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = errors(tree);
    findings.extend(exit_codes(tree));
    findings.extend(metrics(tree));
    findings
}

/// Findings for what stands on one side only.
fn compare(
    (code, known): (&str, &BTreeSet<String>),
    (page, documented): (&str, &BTreeSet<String>),
) -> Vec<Finding> {
    let missing = known.difference(documented);
    let stale = documented.difference(known);
    let missing = missing.map(|name| Finding::file(page, format!("`{name}` of {code} is missing")));
    let stale = stale.map(|name| Finding::file(page, format!("`{name}` is not in {code}")));
    missing.chain(stale).collect()
}

fn errors(tree: &Tree) -> Vec<Finding> {
    let names = tree.text(ERROR_NAMES).map(slugs).unwrap_or_default();
    let pages: BTreeSet<String> = tree
        .texts(".md")
        .filter_map(|(path, _)| path.strip_prefix(ERROR_PAGES)?.strip_suffix(".md"))
        .map(str::to_owned)
        .collect();
    let mut findings = compare((ERROR_NAMES, &names), (ERROR_PAGES, &pages));
    let list = tree.text(ERROR_LIST).unwrap_or_default();
    let listed: BTreeSet<String> = first_cells(list)
        .filter_map(|cell| cell.strip_prefix('[')?.split(']').next())
        .map(str::to_owned)
        .collect();
    findings.extend(compare((ERROR_NAMES, &names), (ERROR_LIST, &listed)));
    findings
}

/// The strings of arms like `Self::NotFound => "not-found",` within `fn slug`.
fn slugs(source: &str) -> BTreeSet<String> {
    arms(source, "fn slug")
        .filter_map(|value| value.strip_prefix('"')?.split('"').next())
        .map(str::to_owned)
        .collect()
}

fn exit_codes(tree: &Tree) -> Vec<Finding> {
    let numbers = |source| {
        arms(source, "fn number")
            .map(|value| value.trim_end_matches(',').to_owned())
            .collect()
    };
    let known: BTreeSet<String> = tree.text(CODES).map(numbers).unwrap_or_default();
    let page = tree.text(CODE_LIST).unwrap_or_default();
    let documented: BTreeSet<String> = first_cells(page)
        .filter(|cell| cell.chars().all(|c| c.is_ascii_digit()))
        .map(str::to_owned)
        .collect();
    compare((CODES, &known), (CODE_LIST, &documented))
}

/// What stands after the arrow of each one-line arm of the first function called `name`.
fn arms<'a>(source: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let body = source.split_once(name).map_or("", |(_, rest)| rest);
    body.lines()
        .take_while(|line| *line != "    }")
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once("=> "))
        .map(|(_, value)| value)
}

/// The first cell of each row of a page's tables.
fn first_cells(page: &str) -> impl Iterator<Item = &str> {
    page.lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
}

fn metrics(tree: &Tree) -> Vec<Finding> {
    // The page comes with the change that makes it; from then on it has to be whole.
    let Some(page) = tree.text(METRICS) else {
        return Vec::new();
    };
    let mut known = BTreeSet::new();
    for (path, text) in tree.texts(".rs") {
        if is_metrics_file(path) && !is_test(path) {
            let literals = code_lines(parts(text).production)
                .flat_map(|(_, line)| line.split('"').skip(1).step_by(2));
            known.extend(literals.filter(|text| is_metric(text)).map(stem));
        }
    }
    let documented = code_spans(page)
        .map(|(_, span)| span)
        .filter(|span| is_metric(span))
        .map(stem)
        .collect();
    compare(("the sources", &known), (METRICS, &documented))
}

/// Whether a file declares metrics: it is called so, or lies in a folder that is.
fn is_metrics_file(path: &str) -> bool {
    path.contains("/src/")
        && path
            .split('/')
            .any(|part| part == "metrics" || part == "metrics.rs")
}

fn is_metric(text: &str) -> bool {
    METRIC_PREFIXES
        .iter()
        .any(|prefix| text.len() > prefix.len() && text.starts_with(prefix))
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn stem(name: &str) -> String {
    let cut = METRIC_SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    cut.unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "impl N {\n    fn slug(self) -> &'static str {\n        match self {\n            \
                         Self::A => \"a-a\",\n            Self::B => \"b\",\n        }\n    }\n    \
                         fn other(self) {\n            Self::A => \"x\",\n    }\n}\n";
    const NUMBERS: &str = "impl C {\n    fn number(self) -> u8 {\n        match self {\n            \
                           Self::A => 0,\n            Self::B => 12,\n        }\n    }\n}\n";
    const GOOD: [(&str, &str); 6] = [
        (ERROR_NAMES, NAMES),
        (CODES, NUMBERS),
        ("docs/reference/errors/a-a.md", "# a-a\n"),
        ("docs/reference/errors/b.md", "# b\n"),
        (
            ERROR_LIST,
            "| name | code |\n|---|---|\n| [a-a](errors/a-a.md) | 1 |\n| [b](errors/b.md) | 2 |\n",
        ),
        (CODE_LIST, "| code |\n|---|\n| 0 | done |\n| 12 | bad |\n"),
    ];

    fn found(changes: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut files = GOOD.to_vec();
        files.retain(|(path, _)| changes.iter().all(|(changed, _)| changed != path));
        files.extend(changes.iter().filter(|(_, text)| !text.is_empty()));
        let findings = check(&Tree::of(&files));
        findings
            .into_iter()
            .map(|finding| format!("{}: {}", finding.path, finding.text))
            .collect()
    }

    #[test]
    fn pages_that_say_what_the_code_says_pass() {
        assert_eq!(found(&[]), Vec::<String>::new());
    }

    #[test]
    fn an_error_without_a_page_and_a_page_without_an_error_are_found() {
        let removed = found(&[("docs/reference/errors/b.md", "")]);
        assert_eq!(
            removed,
            [format!("{ERROR_PAGES}: `b` of {ERROR_NAMES} is missing")]
        );
        let stale = found(&[("docs/reference/errors/gone.md", "# gone\n")]);
        assert_eq!(
            stale,
            [format!("{ERROR_PAGES}: `gone` is not in {ERROR_NAMES}")]
        );
        assert_eq!(found(&[(ERROR_LIST, "| [a-a](x) |\n")]).len(), 1);
    }

    #[test]
    fn an_exit_code_that_is_missing_or_made_up_is_found() {
        let changed = found(&[(CODE_LIST, "| 0 | done |\n| 13 | bad |\n")]);
        assert_eq!(
            changed,
            [
                format!("{CODE_LIST}: `12` of {CODES} is missing"),
                format!("{CODE_LIST}: `13` is not in {CODES}"),
            ]
        );
    }

    #[test]
    fn a_metric_that_is_missing_or_made_up_is_found() {
        let source = "let a = (\"etcd_puts\", \"Puts.\");\nlet b = \"holdfast_x_bytes\";\n\
                      // \"etcd_comment\"\n#[cfg(test)]\nmod tests {\n    \"etcd_test\"\n}\n";
        let declared = ("store/src/metrics/mod.rs", source);
        let whole = "`etcd_puts_total`, `holdfast_x_bytes`\n";
        assert_eq!(found(&[declared, (METRICS, whole)]), Vec::<String>::new());
        let wrong = "`etcd_puts_total`, `etcd_gone`\n";
        assert_eq!(
            found(&[declared, (METRICS, wrong)]),
            [
                format!("{METRICS}: `holdfast_x_bytes` of the sources is missing"),
                format!("{METRICS}: `etcd_gone` is not in the sources"),
            ]
        );
    }
}
