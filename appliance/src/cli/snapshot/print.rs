//! The answers of `snapshot status` and `hashkv`, byte for byte as etcdutl 3.7.3 prints them:
//! scripts cut them at commas and columns. `text` says more, for people.

use holdfast_restore::offline::{DigestState, SnapshotHashKv, SnapshotStatus};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Format, Output, write_out};

/// The units of a size, each a thousand of the one before.
const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

/// A value under its two names: as a column of a table, and as a field.
struct Column {
    title: &'static str,
    field: &'static str,
    cell: String,
    value: String,
}

impl Column {
    /// The same text in both.
    fn new(title: &'static str, field: &'static str, value: &dyn ToString) -> Self {
        let value = value.to_string();
        Self {
            title,
            field,
            cell: value.clone(),
            value,
        }
    }

    /// Another text in tables.
    fn shown_as(mut self, cell: String) -> Self {
        self.cell = cell;
        self
    }
}

/// Prints what `snapshot status` found; that the file has no digest goes to standard error, because
/// etcdutl has no place for it.
pub(super) fn status(status: &SnapshotStatus, output: Output) -> Result<(), Failure> {
    let columns = [
        Column::new("hash", "Hash", &status.hash).shown_as(format!("{:x}", status.hash)),
        Column::new("revision", "Revision", &status.revision),
        Column::new("total keys", "Keys", &status.total_key),
        Column::new("total size", "Size", &status.total_size)
            .shown_as(rounded_size(status.total_size)),
        Column::new("version", "Version", &status.version),
    ];
    let format = output.format_or(Format::Simple);
    if format != Format::Text && status.digest == DigestState::Missing {
        output.note(format!("note: digest {}", digest_text(status.digest)));
    }
    show(format, status, &columns, status_text)
}

/// Prints what `snapshot hashkv` computed.
pub(super) fn hash_kv(hash: SnapshotHashKv, output: Output) -> Result<(), Failure> {
    let columns = [
        Column::new("hash", "Hash", &hash.hash),
        Column::new("hash revision", "Hash revision", &hash.hash_revision),
        Column::new(
            "compact revision",
            "Compact revision",
            &hash.compact_revision,
        ),
    ];
    show(output.format_or(Format::Simple), &hash, &columns, |hash| {
        format!(
            "hash              {}\nhash revision     {}\ncompact revision  {}",
            hash.hash, hash.hash_revision, hash.compact_revision
        )
    })
}

/// What `snapshot status` found, for people.
pub(super) fn status_text(status: &SnapshotStatus) -> String {
    let version = if status.version.is_empty() {
        "before 3.6"
    } else {
        &status.version
    };
    format!(
        "hash        {:x}\nrevision    {}\nkeys        {}\nsize        {} bytes\nversion     {version}\n\
         digest      {}",
        status.hash,
        status.revision,
        status.total_key,
        status.total_size,
        digest_text(status.digest),
    )
}

fn digest_text(digest: DigestState) -> &'static str {
    match digest {
        DigestState::Valid => "valid",
        DigestState::Missing => "missing (a copied database, not a saved snapshot)",
    }
}

fn show<T: Serialize>(
    format: Format,
    answer: &T,
    columns: &[Column],
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    match format {
        Format::Text => write_out(&text(answer)),
        Format::Json => {
            let json = serde_json::to_string(answer)
                .map_err(|e| Failure::unexpected("the answer could not be written", &e))?;
            write_out(&json)
        }
        Format::Simple => {
            let cells: Vec<&str> = columns.iter().map(|column| column.cell.as_str()).collect();
            write_out(&cells.join(", "))
        }
        Format::Table => write_out(&table(columns)),
        Format::Fields => {
            let lines = columns
                .iter()
                .map(|column| format!("\"{}\" : {}\n", column.field, column.value));
            write_out(&lines.collect::<String>())
        }
    }
}

/// One row under its titles, in box-drawing characters: titles in capitals and centred, cells to
/// the right.
fn table(columns: &[Column]) -> String {
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| column.title.len().max(column.cell.len()))
        .collect();
    let rule = |left: char, between: &str, right: char| {
        let bars: Vec<String> = widths
            .iter()
            .map(|width| "\u{2500}".repeat(width.saturating_add(2)))
            .collect();
        format!("{left}{}{right}\n", bars.join(between))
    };
    let row = |cells: Vec<String>| format!("\u{2502} {} \u{2502}\n", cells.join(" \u{2502} "));
    let pairs = || columns.iter().zip(&widths);
    let titles = pairs()
        .map(|(column, &width)| format!("{:^width$}", column.title.to_uppercase()))
        .collect();
    let cells = pairs()
        .map(|(column, &width)| format!("{:>width$}", column.cell))
        .collect();
    [
        rule('\u{250c}', "\u{252c}", '\u{2510}'),
        row(titles),
        rule('\u{251c}', "\u{253c}", '\u{2524}'),
        row(cells),
        rule('\u{2514}', "\u{2534}", '\u{2518}'),
    ]
    .concat()
}

/// A size in thousands, with one digit behind the point below ten, as etcdutl rounds it: first to
/// tenths, half up, then to whole units, half to even.
fn rounded_size(bytes: u64) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let bytes = u128::from(bytes);
    let mut unit = 1_u128;
    let mut name = "B";
    for next in UNITS.iter().skip(1) {
        if bytes < unit * 1000 {
            break;
        }
        unit *= 1000;
        name = next;
    }
    let tenths = (bytes * 20 + unit) / (unit * 2);
    let (whole, rest) = (tenths / 10, tenths % 10);
    if tenths < 100 {
        return format!("{whole}.{rest} {name}");
    }
    let is_up = rest > 5 || (rest == 5 && whole % 2 == 1);
    format!("{} {name}", whole + u128::from(is_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_etcdutl_rounds_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (9_940, "9.9 kB"),
            (9_950, "10 kB"),
            (159_744, "160 kB"),
            (324_500, "324 kB"),
            (325_500, "326 kB"),
            (999_999, "1000 kB"),
            (1_073_741_824, "1.1 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(rounded_size(bytes), text, "{bytes}");
        }
    }
}
