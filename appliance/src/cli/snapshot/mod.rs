//! `holdfast snapshot`: work on snapshot files with etcdutl's flags and JSON fields. The file
//! that is read is never modified.

mod act;
mod args;
mod print;

pub(crate) use act::run;
pub(crate) use args::SnapshotCommand;
