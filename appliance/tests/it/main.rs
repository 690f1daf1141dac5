//! The appliance from outside: the built program, run as its users run it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test's helpers fail by panicking, as tests do"
)]

mod daemon;
mod exit_codes;
mod fencing;
mod in_use;
mod kill;
mod reference;
mod shapes;
mod store_damage;
mod store_process;
mod support;
