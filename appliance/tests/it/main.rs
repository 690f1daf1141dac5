//! The appliance from outside: the built program, run as its users run it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test's helpers fail by panicking, as tests do"
)]

mod cluster;
mod copies;
mod daemon;
mod exit_codes;
mod fencing;
mod full_disk;
mod in_use;
mod kill;
#[path = "../../../store/tests/it/long.rs"]
mod long;
mod outage;
mod points;
mod reference;
mod restoring;
mod retention;
mod shapes;
#[path = "../../../store/tests/it/small_disk.rs"]
#[expect(dead_code, reason = "the tests of the store use more of it")]
mod small_disk;
mod store_damage;
mod store_flags;
mod store_floods;
mod store_process;
mod support;
