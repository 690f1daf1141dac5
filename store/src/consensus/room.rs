//! The rules by which data is let in while a disk fills up. Pure.
//!
//! Room is what the disk has free, and the reserve file.

use std::time::Duration;

use tokio::time::Instant;

/// How long space is short before writes are refused rather than kept waiting: longer than the
/// member takes to notice and to give up what it does not need.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What is known when data may be let in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// Bytes of the disk that may still be taken, the reserve file's among them.
    pub(super) room: u64,
    /// Bytes kept for what must not fail.
    pub(super) reserve: u64,
    /// The most that what was let in will still take, and what asks to be.
    pub(super) needed: u64,
    /// Whether data is refused now.
    pub(super) is_low: bool,
}

impl Facts {
    /// Whether what is not needed any more has to go at once.
    pub(super) fn is_tight(&self) -> bool {
        self.room < self.above(4)
    }

    /// Whether data is refused. The way back needs more than the way in, so that the edge does
    /// not flap.
    pub(super) fn refuses(&self) -> bool {
        self.room < self.above(if self.is_low { 3 } else { 2 })
    }

    fn above(&self, reserves: u64) -> u64 {
        let kept = self.reserve.saturating_mul(reserves);
        kept.saturating_add(self.needed)
    }

    /// The most that may wait for a checkpoint: less and less on the way to the edge, so that a
    /// checkpoint always has room.
    pub(super) fn undurable_max(&self) -> u64 {
        let quarter = self.reserve / 4;
        quarter.max(self.room.saturating_sub(self.reserve) / 4)
    }
}

/// For how long space is short.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    since: Option<Instant>,
}

impl Shortage {
    /// Notes whether it is.
    pub(super) fn note(&mut self, is_short: bool, now: Instant) {
        self.since = is_short.then(|| self.since.unwrap_or(now));
    }

    /// Whether it is, for so long that space does not come back by itself.
    pub(super) fn is_long(&self, now: Instant) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_long_only_when_it_had_no_break() {
        let start = Instant::now();
        let almost = PATIENCE.saturating_sub(Duration::from_millis(1));
        let mut shortage = Shortage::default();
        assert!(!shortage.is_long(start + 2 * PATIENCE));
        shortage.note(true, start);
        assert!(!shortage.is_long(start + almost));
        // Told again, for another reason, it does not start anew.
        shortage.note(true, start + almost);
        assert!(shortage.is_long(start + PATIENCE));
        shortage.note(false, start + PATIENCE);
        assert!(!shortage.is_long(start + PATIENCE));
        shortage.note(true, start + PATIENCE);
        assert!(!shortage.is_long(start + PATIENCE + almost));
        assert!(shortage.is_long(start + 2 * PATIENCE));
    }

    const MIB: u64 = 1 << 20;

    fn facts(room: u64, is_low: bool) -> Facts {
        Facts {
            room: room * MIB,
            reserve: 16 * MIB,
            needed: MIB,
            is_low,
        }
    }

    #[test]
    fn the_way_back_needs_more_room_than_the_way_in() {
        assert!(!facts(33, false).refuses());
        assert!(facts(32, false).refuses());
        assert!(facts(33, true).refuses());
        assert!(!facts(49, true).refuses());
    }

    #[test]
    fn space_is_given_back_before_and_while_data_is_refused() {
        assert!(!facts(65, false).is_tight());
        for room in [0, 32, 49, 64] {
            assert!(facts(room, true).is_tight(), "{room}");
        }
    }

    #[test]
    fn a_checkpoint_has_room_at_any_distance_from_the_edge() {
        for room in 32..1000 {
            let facts = facts(room, false);
            let left = facts.room - facts.undurable_max();
            assert!(left >= facts.reserve, "{room}");
        }
    }
}
