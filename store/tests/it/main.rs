//! Integration tests of the store, in one binary.

mod enospc;
mod kill;
mod member;
//! The store's integration tests, one binary.
#![expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests compare numbers from json"
)]

mod golden_fixture;
mod golden_history;
mod golden_hostile;
mod golden_records;
mod golden_status;
mod golden_writer;
