//! Tests of the decisions from outside: an oracle, random histories, golden texts.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests may fail by panicking"
)]

mod decide;
mod golden;
mod histories;
#[path = "../../../store/tests/it/long.rs"]
mod long;
mod oracle;
mod promises;
mod random;
