//! Integration tests of the store, in one binary.

mod enospc;
mod golden_fixture;
mod golden_history;
mod golden_hostile;
mod golden_records;
mod golden_status;
mod golden_writer;
mod kill;
mod member;
