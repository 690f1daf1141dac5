//! `holdfast reference`: the pages under `docs/reference` that are made from the code.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};

use super::args::Cli;
use crate::config;
use crate::exit_code::ExitCode;
use crate::failure::{ErrorName, Failure};
use crate::output::Output;

/// The width the help texts are set in.
const WIDTH: usize = 100;

/// Write the reference pages.
#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    /// The repository's root
    root: PathBuf,
    /// Say which pages differ rather than write them
    #[arg(long)]
    check: bool,
}

/// Writes or compares every page.
pub(crate) fn run(args: &ReferenceArgs, output: Output) -> Result<ExitCode, Failure> {
    let mut stale = Vec::new();
    for (path, text) in pages()? {
        let file = args.root.join(&path);
        if args.check {
            if std::fs::read_to_string(&file).is_ok_and(|found| found == text) {
                continue;
            }
            stale.push(path);
        } else {
            write(&file, &text)?;
        }
    }
    if stale.is_empty() {
        return Ok(ExitCode::Done);
    }
    for path in &stale {
        output.say(format!("stale: {}", path.display()))?;
    }
    Ok(ExitCode::Conflict)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let fault = |e: &std::io::Error| Failure::io(format!("{} not written", file.display()), e);
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).map_err(|e| fault(&e))?;
    }
    std::fs::write(file, text).map_err(|e| fault(&e))
}

/// Every generated page with its path in the repository.
fn pages() -> Result<Vec<(PathBuf, String)>, Failure> {
    let mut pages = vec![
        (PathBuf::from("docs/reference/cli.md"), command_line()),
        (
            PathBuf::from("docs/reference/config.md"),
            config::render_reference()?,
        ),
        (PathBuf::from("docs/reference/exit-codes.md"), exit_codes()),
        (PathBuf::from("docs/reference/errors.md"), errors()),
        (PathBuf::from("docs/reference/metrics.md"), metrics()),
        (
            PathBuf::from("holdfast.example.yaml"),
            config::render_example(&config::Example::sample()),
        ),
    ];
    for name in ErrorName::ALL {
        let path = PathBuf::from(format!("docs/reference/errors/{}.md", name.slug()));
        pages.push((path, error_page(name)));
    }
    Ok(pages)
}

fn exit_codes() -> String {
    let mut page = "# Exit codes\n\nThe same for every command. Made by `holdfast reference`.\n\n\
                    | code | meaning | errors |\n|---|---|---|\n"
        .to_owned();
    for code in ExitCode::ALL {
        let names: Vec<String> = ErrorName::ALL
            .into_iter()
            .filter(|name| name.exit_code() == code)
            .map(|name| format!("[{0}](errors/{0}.md)", name.slug()))
            .collect();
        push(
            &mut page,
            &format!(
                "| {} | {} | {} |",
                code.number(),
                code.meaning(),
                names.join(", ")
            ),
        );
    }
    page
}

fn errors() -> String {
    let mut page = "# Errors\n\nEvery failure names the object, the reason and the next step, and \
                    one of these names. Made by `holdfast reference`.\n\n\
                    | name | exit code | meaning |\n|---|---|---|\n"
        .to_owned();
    for name in ErrorName::ALL {
        let (slug, code) = (name.slug(), name.exit_code().number());
        push(
            &mut page,
            &format!(
                "| [{slug}](errors/{slug}.md) | {code} | {} |",
                name.meaning()
            ),
        );
    }
    page
}

fn metrics() -> String {
    let mut page = "# Metrics\n\nIn Prometheus' text form. Made by `holdfast reference`.\n\n\
                    ## The store\n\nOn `/metrics` of the client port and of \
                    `--listen-metrics-urls`. Names that etcd has mean what they mean there; what \
                    is not measured is left out rather than invented. A metric with labels shows \
                    its samples from the first observation on.\n\n\
                    | name | type | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for metric in holdfast_store::metrics::METRICS {
        let (name, kind) = (metric.name, metric.kind.name());
        push(
            &mut page,
            &format!(
                "| `{name}` | {kind} | {} | {} |",
                metric.labels, metric.help
            ),
        );
    }
    page.push_str(&crate::admin::metrics::reference());
    page
}

fn error_page(name: ErrorName) -> String {
    format!(
        "# {}\n\nExit code {} ({}).\n\n{}\n\n## What to do\n\n{}\n",
        name.slug(),
        name.exit_code().number(),
        name.exit_code().meaning(),
        name.meaning(),
        name.next(),
    )
}

fn command_line() -> String {
    let mut page = "# The command line\n\nWhat `--help` says, for every command. Made by \
                    `holdfast reference`.\n"
        .to_owned();
    let mut command = Cli::command().term_width(WIDTH);
    command.build();
    describe(&mut page, &command, "holdfast");
    page
}

fn describe(page: &mut String, command: &Command, name: &str) {
    let help = command
        .clone()
        .term_width(WIDTH)
        .render_long_help()
        .to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    push(
        page,
        &format!(
            "\n## {name}\n\n```text\n{}\n```",
            lines.join("\n").trim_end()
        ),
    );
    for sub in command.get_subcommands() {
        if sub.get_name() != "help" && !sub.is_hide_set() {
            describe(page, sub, &format!("{name} {}", sub.get_name()));
        }
    }
}

fn push(page: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(page, "{line}").unwrap_or_default();
}
