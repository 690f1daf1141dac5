//! What happens to a cluster: drawn from the seed before anything runs.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::invariants::Place;
use crate::operator::Intent;

/// Something that is done to members or to the links between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A member ends at once, with the loss of what it had not synced.
    Crash(Place),
    /// The same in the midst of a sync, after so many more of them.
    CrashInSync(Place, u64),
    /// A crashed member is started from what is on its disk.
    Restart(Place),
    /// Nothing passes between two members.
    Cut(Place, Place),
    /// Nothing passes from the first to the second.
    CutOneWay(Place, Place),
    /// All that was cut between two members is mended.
    Mend(Place, Place),
    /// What passes between two members waits.
    Hold(Place, Place),
    /// What waited arrives.
    Release(Place, Place),
    /// From now on a message takes up to this long.
    Delay(Duration),
    /// From now on a member's disk acknowledges syncs of the log without doing them.
    Lie(Place),
    /// The membership is to change.
    Change(Intent),
    /// Members that were removed are started again, with the data they had.
    StartEnded,
}

/// A fault and when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// After the start of the simulation.
    pub at: Duration,
    /// What comes.
    pub fault: Fault,
}

/// How long a fault lasts, at most.
const FAULT_MS_MAX: u64 = 6000;
/// The pause between two faults, at most.
const PAUSE_MS_MAX: u64 = 1500;
/// The pause between two changes of the membership, at most.
const CHANGE_PAUSE_MS_MAX: u64 = 4000;
/// How long disks lie before the loss of power that shows it.
const LIE_LASTS: Duration = Duration::from_millis(600);
/// How long a loss of power lasts.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// The delay of a message on a good day.
pub const DELAY_DEFAULT: Duration = Duration::from_millis(2);

/// Draws the faults of a cluster of `members` between `from` and `to`, in the order of time.
///
/// Everything that was broken is mended by `to`, except that a member may be down: it is the
/// runner's to start it.
pub fn plan(seed: u64, members: usize, from: Duration, to: Duration) -> Vec<Planned> {
    let mut draw = Draw {
        random: StdRng::seed_from_u64(seed),
        members,
        busy_links: Vec::new(),
        busy_members: Vec::new(),
        planned: Vec::new(),
        end: to,
    };
    let mut at = from;
    while at < to {
        draw.busy_links.retain(|(_, until)| *until > at);
        draw.busy_members.retain(|(_, until)| *until > at);
        draw.one(at);
        at += Duration::from_millis(draw.random.random_range(0..PAUSE_MS_MAX));
    }
    draw.planned.sort_by_key(|planned| planned.at);
    draw.planned
}

/// Draws the changes of the membership between `from` and `to`.
pub fn plan_changes(seed: u64, from: Duration, to: Duration) -> Vec<Planned> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x00c4_a09e);
    let mut planned = Vec::new();
    let mut at = from;
    while at < to {
        let fault = match random.random_range(0..100) {
            0..20 => Fault::Change(Intent::Add { is_learner: true }),
            20..40 => Fault::Change(Intent::Add { is_learner: false }),
            40..55 => Fault::Change(Intent::Promote),
            55..75 => Fault::Change(Intent::Remove),
            75..90 => Fault::Change(Intent::Replace),
            _ => Fault::StartEnded,
        };
        planned.push(Planned { at, fault });
        at += Duration::from_millis(random.random_range(100..CHANGE_PAUSE_MS_MAX));
    }
    planned
}

/// All members lose their power at once, and are started again; their disks have lied for a while,
/// when they do.
pub fn power_loss(members: usize, from: Duration, to: Duration, is_lie: bool) -> Vec<Planned> {
    let of_all = |at, fault: fn(Place) -> Fault| {
        (0..members).map(move |member| Planned {
            at,
            fault: fault(member),
        })
    };
    let middle = from + to.saturating_sub(from) / 2;
    let mut planned = Vec::new();
    if is_lie {
        planned.extend(of_all(middle.saturating_sub(LIE_LASTS), Fault::Lie));
    }
    planned.extend(of_all(middle, Fault::Crash));
    planned.extend(of_all(middle + RESTART_PAUSE, Fault::Restart));
    planned
}

struct Draw {
    random: StdRng,
    members: usize,
    /// Links with a fault, and until when: a link has one at a time.
    busy_links: Vec<((Place, Place), Duration)>,
    busy_members: Vec<(Place, Duration)>,
    planned: Vec<Planned>,
    end: Duration,
}

impl Draw {
    fn one(&mut self, at: Duration) {
        let lasts = Duration::from_millis(self.random.random_range(50..FAULT_MS_MAX));
        let until = (at + lasts).min(self.end);
        let first = self.random.random_range(0..self.members);
        let second = (first + self.random.random_range(1..self.members)) % self.members;
        match self.random.random_range(0..100) {
            0..15 => self.crash(at, until, first, Fault::Crash(first)),
            15..25 => {
                let syncs = self.random.random_range(0..40);
                self.crash(at, until, first, Fault::CrashInSync(first, syncs));
            }
            25..40 => self.link(at, until, (first, second), Fault::Cut(first, second)),
            40..55 => self.link(at, until, (first, second), Fault::CutOneWay(first, second)),
            55..65 => {
                // All links of one member.
                for other in (0..self.members).filter(|other| *other != first) {
                    self.link(at, until, (first, other), Fault::Cut(first, other));
                }
            }
            65..75 => self.link(at, until, (first, second), Fault::Hold(first, second)),
            75..85 => self.flap(at, until, (first, second)),
            85..90 => {
                // All at once.
                for member in 0..self.members {
                    self.crash(at, until, member, Fault::Crash(member));
                }
            }
            _ => {
                let delay = Duration::from_millis(self.random.random_range(0..300));
                self.add(at, Fault::Delay(delay));
                self.add(until, Fault::Delay(DELAY_DEFAULT));
            }
        }
    }

    fn add(&mut self, at: Duration, fault: Fault) {
        self.planned.push(Planned { at, fault });
    }

    fn crash(&mut self, at: Duration, until: Duration, member: Place, fault: Fault) {
        if self.busy_members.iter().any(|(busy, _)| *busy == member) {
            return;
        }
        self.busy_members.push((member, until));
        self.add(at, fault);
        self.add(until, Fault::Restart(member));
    }

    fn link(&mut self, at: Duration, until: Duration, ends: (Place, Place), fault: Fault) {
        if !self.take_link(ends, until) {
            return;
        }
        let (a, b) = ends;
        let end = match fault {
            Fault::Hold(..) => Fault::Release(a, b),
            _ => Fault::Mend(a, b),
        };
        self.add(at, fault);
        self.add(until, end);
    }

    /// A link that is cut and mended many times.
    fn flap(&mut self, at: Duration, until: Duration, ends: (Place, Place)) {
        if !self.take_link(ends, until) {
            return;
        }
        let (a, b) = ends;
        let mut now = at;
        while now < until {
            self.add(now, Fault::Cut(a, b));
            now += Duration::from_millis(self.random.random_range(20..600));
            self.add(now.min(until), Fault::Mend(a, b));
            now += Duration::from_millis(self.random.random_range(20..600));
        }
    }

    fn take_link(&mut self, (a, b): (Place, Place), until: Duration) -> bool {
        let link = (a.min(b), a.max(b));
        if self.busy_links.iter().any(|(busy, _)| *busy == link) {
            return false;
        }
        self.busy_links.push((link, until));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again_and_mends_what_it_cuts() {
        let (from, to) = (Duration::from_secs(3), Duration::from_secs(30));
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let faults = plan(seed, 5, from, to);
            assert_eq!(faults, plan(seed, 5, from, to));
            let mut broken = Vec::new();
            for planned in &faults {
                assert!(planned.at >= from && planned.at <= to, "{planned:?}");
                let kind = format!("{:?}", planned.fault);
                kinds.insert(kind.split_once('(').unwrap().0.to_owned());
                match planned.fault {
                    Fault::Cut(a, b) | Fault::CutOneWay(a, b) | Fault::Hold(a, b) => {
                        let link = (a.min(b), a.max(b));
                        assert!(!broken.contains(&link), "{planned:?} is the second");
                        broken.push(link);
                    }
                    Fault::Mend(a, b) | Fault::Release(a, b) => {
                        broken.retain(|link| *link != (a.min(b), a.max(b)));
                    }
                    _ => {}
                }
            }
            assert!(broken.is_empty(), "seed {seed} leaves {broken:?}");
        }
        assert_eq!(kinds.len(), 9, "{kinds:?}");
    }

    #[test]
    fn a_seed_draws_the_same_changes_of_the_membership_again_and_every_kind_of_them() {
        let (from, to) = (Duration::from_secs(3), Duration::from_secs(30));
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let changes = plan_changes(seed, from, to);
            assert_eq!(changes, plan_changes(seed, from, to));
            kinds.extend(changes.iter().map(|planned| format!("{:?}", planned.fault)));
        }
        assert_eq!(kinds.len(), 6, "{kinds:?}");
    }
}
