//! The rules, one a file, each with tests of what it catches and what it lets pass.

pub(super) mod ascii;
pub(super) mod changes;
pub(super) mod crate_edges;
pub(super) mod decisions;
pub(super) mod determinism;
pub(super) mod docs;
pub(super) mod failpoints;
pub(super) mod foreign_names;
pub(super) mod formats;
pub(super) mod generated;
pub(super) mod module_docs;
pub(super) mod module_edges;
pub(super) mod names;
pub(super) mod reachable;
pub(super) mod reference;
pub(super) mod size;
pub(super) mod todo;
pub(super) mod width;
