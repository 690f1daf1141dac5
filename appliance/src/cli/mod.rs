//! The command line: one file per noun, each a `clap` type and the function that does it.

pub(crate) mod store;
