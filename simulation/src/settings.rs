//! What a simulation is made of.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// What a simulation is made of; all of it follows from the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// Members that found the cluster.
    pub members: usize,
    /// Hosts that stand by to be added; without any the membership stays as it is.
    pub spares: usize,
    /// Clients of each member.
    pub clients: usize,
    /// Entries after which a log is purged, and how many are kept behind that.
    pub log_entries: (u64, u64),
    /// Whether each host's clock runs at a rate of its own.
    pub is_skewed: bool,
    /// Whether clients compact, defragment, purge logs and raise alarms.
    pub has_upkeep: bool,
    /// When the first fault may come.
    pub faults_from: Duration,
    /// When everything is mended.
    pub faults_to: Duration,
    /// The drawn faults, or those of a control.
    pub control: Option<Control>,
}

/// Faults that a simulation must find, instead of drawn ones that a store must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// All members lose their power at once, on honest disks. Nothing is to be found.
    PowerLoss,
    /// The same, on disks that acknowledge the syncs of the log without doing them.
    LyingDisks,
}

impl Settings {
    /// Those of `seed`.
    pub fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5e77_1265);
        let faults_from = Duration::from_millis(random.random_range(0..4000));
        let members = if random.random_bool(0.6) { 3 } else { 5 };
        let clients = random.random_range(1..4);
        // Short logs strand members that were away: they need a snapshot.
        let log_entries = if random.random_bool(0.5) {
            (random.random_range(20..200), random.random_range(1..50))
        } else {
            (10_000, 5_000)
        };
        // Drawn apart, so that a seed from before these were there has the same faults still.
        let mut random = StdRng::seed_from_u64(seed ^ 0x0e87_7a50);
        Self {
            seed,
            members,
            spares: if random.random_bool(0.5) { 2 } else { 0 },
            clients,
            log_entries,
            is_skewed: random.random_bool(0.5),
            has_upkeep: random.random_bool(0.5),
            faults_from,
            faults_to: faults_from + Duration::from_secs(20),
            control: None,
        }
    }

    /// Those of a control: three members, and a loss of power for all of them.
    pub fn of_control(seed: u64, control: Control) -> Self {
        Self {
            members: 3,
            spares: 0,
            log_entries: (10_000, 5_000),
            is_skewed: false,
            has_upkeep: false,
            faults_from: Duration::from_secs(5),
            faults_to: Duration::from_secs(12),
            control: Some(control),
            ..Self::of(seed)
        }
    }
}
