//! Runs every rule and prints what it found.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use super::rules;
use super::tree::Tree;

/// One broken rule in one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    /// The file, relative to the root of the workspace.
    pub(super) path: String,
    /// The line, from 1; 0 when the whole file is meant.
    pub(super) line: usize,
    /// What is wrong and what to do instead.
    pub(super) text: String,
}

impl Finding {
    /// A finding about a whole file.
    pub(super) fn file(path: &str, text: impl Into<String>) -> Self {
        Self::line(path, 0, text)
    }

    /// A finding about a line.
    pub(super) fn line(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// A rule over the tracked files.
type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule; the names are for people who read the output.
const RULES: [(&str, Rule); 17] = [
    ("size", rules::size::check),
    ("line width", rules::width::check),
    ("replicated code", rules::determinism::check),
    ("module edges", rules::module_edges::check),
    ("file names", rules::names::check),
    ("open ends", rules::todo::check),
    ("ascii", rules::ascii::check),
    ("reachable", rules::reachable::check),
    ("module docs", rules::module_docs::check),
    ("docs", rules::docs::check),
    ("formats", rules::formats::check),
    ("decisions", rules::decisions::check),
    ("reference", rules::reference::check),
    ("changes", rules::changes::check),
    ("generated", rules::generated::check),
    ("foreign names", rules::foreign_names::check),
    ("failpoints", rules::failpoints::check),
];

/// Checks the workspace around this crate.
///
/// # Errors
/// When the files cannot be listed or read.
#[expect(clippy::print_stdout, reason = "this is the command's output")]
pub(crate) fn run() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Tree::read(&root)?;
    let mut broken = 0;
    let mut report = |rule: &str, mut findings: Vec<Finding>| {
        findings.sort();
        broken += findings.len();
        for finding in findings {
            println!("{finding} [{rule}]");
        }
    };
    for (name, rule) in RULES {
        report(name, rule(&tree));
    }
    report("crate edges", rules::crate_edges::check(&root)?);
    println!(
        "tidy: {} files, {} rules, {broken} findings",
        tree.len(),
        RULES.len() + 1
    );
    Ok(if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
