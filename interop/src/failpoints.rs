//! Driving a member's failpoints, by gofail's protocol.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::http;

/// How often a point is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The failpoints of one process.
#[derive(Debug, Clone, Copy)]
pub struct Failpoints {
    address: SocketAddr,
}

impl Failpoints {
    /// Those that are driven at `address` (`GOFAIL_HTTP`).
    pub fn at(address: SocketAddr) -> Self {
        Self { address }
    }

    /// All points with what they are told.
    ///
    /// # Errors
    /// When nobody answers: the process has none.
    pub fn list(&self) -> Result<BTreeMap<String, String>> {
        let (status, body) = http::get(self.address, "/")?;
        ensure!(status == 200, "{status}: {body}");
        let pairs = body.lines().filter_map(|line| line.split_once('='));
        Ok(pairs
            .map(|(name, terms)| (name.to_owned(), terms.to_owned()))
            .collect())
    }

    /// Tells a point what to do.
    ///
    /// # Errors
    /// When there is no such point, or the terms are none.
    pub fn set(&self, point: &str, terms: &str) -> Result<()> {
        let (status, body) = http::put(self.address, &format!("/{point}"), terms)?;
        ensure!(status == 204, "{point}={terms}: {status} {body}");
        Ok(())
    }

    /// Tells a point to do nothing any more.
    ///
    /// # Errors
    /// When it was told nothing.
    pub fn clear(&self, point: &str) -> Result<()> {
        let (status, body) = http::delete(self.address, &format!("/{point}"))?;
        ensure!(status == 204, "{point}: {status} {body}");
        Ok(())
    }

    /// How often a point did something since it was set.
    ///
    /// # Errors
    /// When it was told nothing.
    pub fn count(&self, point: &str) -> Result<u64> {
        let (status, body) = http::get(self.address, &format!("/{point}/count"))?;
        ensure!(status == 200, "{point}: {status} {body}");
        body.trim().parse().context("no count")
    }

    /// Waits until a point did something.
    ///
    /// # Errors
    /// When it did not within `max`.
    pub async fn wait_hit(&self, point: &str, max: Duration) -> Result<()> {
        let end = tokio::time::Instant::now() + max;
        while self.count(point)? == 0 {
            ensure!(
                tokio::time::Instant::now() < end,
                "{point} was not passed within {max:?}"
            );
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}
