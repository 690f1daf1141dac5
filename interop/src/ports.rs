//! Free loopback ports below the range from which the kernel takes ports for outgoing connections.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

const FIRST: u16 = 21_000;
const COUNT: u16 = 11_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A loopback port that nobody listens on; never the same one twice in a process.
///
/// # Errors
/// When no port of the range is free.
pub fn free() -> Result<u16> {
    // Test processes that run at the same time start at different places of the range.
    let start = u16::try_from(u32::from(COUNT).min(std::process::id() % u32::from(COUNT)))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_mul(7).wrapping_add(step)) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free loopback port in {FIRST}..{}", FIRST + COUNT)
}
