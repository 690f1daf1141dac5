//! Ours and real etcd in turn, on the same machine, with etcd's own load generator: a table of
//! ratios. Only ratios are comparable between machines. Run it by `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use holdfast_interop::peers::Peers;
use holdfast_interop::server::Kind;

mod cluster;
mod dataset;
mod figures;
mod load;
mod machine;
mod pipeline;

use figures::Figures;
use machine::Section;

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Requests of a test with one client.
    pub(crate) single: u32,
    /// Requests of a test with many clients.
    pub(crate) many: u32,
    /// Keys of 1 KiB in the large data set.
    pub(crate) keys: u32,
    /// The same that a follower of a cluster misses.
    pub(crate) missed: u32,
}

/// Bytes of such a key and of its value.
const KEY_BYTES: u32 = 16;
const VALUE_BYTES: u32 = 1024;

const FULL: Scale = Scale {
    single: 10_000,
    many: 200_000,
    keys: 850_000,
    // 1 GiB of keys and values.
    missed: (1 << 30) / (KEY_BYTES + VALUE_BYTES),
};
const QUICK: Scale = Scale {
    single: 1_000,
    many: 20_000,
    keys: 20_000,
    missed: 20_000,
};

#[expect(clippy::print_stdout, reason = "the table is the output")]
fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let scale = if has("--quick") { QUICK } else { FULL };
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        Some(
            arguments
                .get(at + 1)
                .with_context(|| format!("{flag} needs a value")),
        )
    };
    let page = value("--write").transpose()?.map(PathBuf::from);
    let members = match value("--members").transpose()? {
        Some(members) => members.parse().context("--members")?,
        None => 1_usize,
    };
    let peers = Peers::get().context("Go is needed to build etcd's load generator")?;
    let missed_bytes = u64::from(scale.missed) * u64::from(KEY_BYTES + VALUE_BYTES);
    // In whole MiB, the nearest number of them.
    let mut figures = Figures::new((missed_bytes + (1 << 19)) >> 20);
    for kind in [Kind::Etcd, Kind::Holdfast] {
        if members > 1 {
            cluster::measure(&peers, kind, members, scale, &mut figures)?;
        } else {
            load::measure(&peers, kind, scale, &mut figures)?;
            dataset::measure(&peers, kind, scale, &mut figures)?;
        }
    }
    let section = if members > 1 {
        Section::Cluster
    } else {
        Section::Single
    };
    let machine = machine::describe();
    let table = figures.table();
    println!("{machine}\n\n{table}");
    if members > 1 {
        figures.ensure_complete()?;
    }
    if let Some(path) = page {
        let text = std::fs::read_to_string(&path)?;
        let new = machine::replace_section(&text, section, &format!("{machine}\n\n{table}"))?;
        std::fs::write(&path, new)?;
    }
    Ok(())
}

/// Says on standard error what is being done: a full run takes many minutes.
#[expect(clippy::print_stderr, reason = "progress of a command")]
pub(crate) fn progress(kind: Kind, what: &str) {
    eprintln!("{kind:?}: {what}");
}
