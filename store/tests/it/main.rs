//! Integration tests of the store, in one binary.

mod enospc;
mod kill;
mod member;
