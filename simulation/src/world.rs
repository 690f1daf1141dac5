//! What all hosts of one simulation share, and what outlives a crash of one.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::consensus::Workers;
use holdfast_store::member::{ClusterState, IntegrityOptions, Member, MemberOptions};
use parking_lot::Mutex;

use crate::clients::Book;
use crate::disk::Disk;
use crate::invariants::Place;
use crate::network::{PEER_PORT, SimulatedDialer};
use crate::observer::Observer;
use crate::operator::Intent;
use crate::roster::Roster;
use crate::settings::Settings;
use crate::watchers::Watches;

/// Bytes of a log segment: small, so that the log rolls over often.
const SEGMENT_BYTES: u64 = 64 << 10;

/// The members compare their data all the time; they must never find a difference.
const INTEGRITY: IntegrityOptions = IntegrityOptions {
    at_start: true,
    periodic: Some(Duration::from_secs(2)),
    compactions: Some(Duration::from_secs(1)),
};

/// How a host came to its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It founded the cluster.
    Founder,
    /// It has none yet.
    Spare,
    /// It was added to the running cluster.
    Joiner,
}

/// What outlives a crash of one host.
#[derive(Debug)]
pub struct Seat {
    /// The data directory of the present start.
    pub folder: PathBuf,
    /// Its disk.
    pub disk: Disk,
    /// Starts so far.
    pub starts: u64,
    /// How it came to its member.
    pub role: Role,
    /// The member's id, once it is known.
    pub id: Option<u64>,
    /// The member, while it runs.
    pub member: Option<Member>,
    /// Whether it serves clients.
    pub is_ready: bool,
    /// Whether the host is up.
    pub is_up: bool,
    /// Whether the member has ended for good: it was removed.
    pub has_ended: bool,
}

/// What all hosts of one simulation share.
#[derive(Debug)]
pub struct World {
    /// What the simulation is made of.
    pub settings: Settings,
    /// Who looks on.
    pub observer: Arc<Observer>,
    /// What clients asked and were told.
    pub book: Arc<Book>,
    /// What watches saw.
    pub watches: Arc<Watches>,
    /// Who the members are.
    pub roster: Mutex<Roster>,
    /// Changes of the membership that are to be made.
    pub orders: Mutex<VecDeque<Intent>>,
    /// The hosts.
    pub seats: Vec<Mutex<Seat>>,
}

/// The name of a host, of its member, and in its peer URL.
pub fn name(place: Place) -> String {
    format!("m{place}")
}

/// Where the member of a host is reached.
pub fn url(place: Place) -> String {
    format!("http://{}:{PEER_PORT}", name(place))
}

impl World {
    /// What the member at `place` is started with.
    pub fn options(&self, place: Place) -> MemberOptions {
        let seat = self.seat(place).lock();
        let mut options = MemberOptions::new(name(place), seat.folder.clone());
        options.peer_urls = vec![url(place)];
        let mut named: Vec<Place> = (0..self.settings.members).collect();
        if seat.role == Role::Joiner {
            options.cluster_state = ClusterState::Existing;
            named = self.roster.lock().places().into_iter().collect();
        }
        let named = named.into_iter();
        options.initial_cluster = named.map(|at| (name(at), vec![url(at)])).collect();
        options.log_segment_bytes = SEGMENT_BYTES;
        options.reserve_bytes = 0;
        (options.snapshot_count, options.catch_up_entries) = self.settings.log_entries;
        if self.settings.has_upkeep {
            options.integrity = INTEGRITY;
        }
        options.log_io = Arc::new(seat.disk.clone());
        options.state_storage = Some(seat.disk.state_storage());
        options.workers = Workers::Tasks;
        options.peer_dialer = Arc::new(SimulatedDialer);
        options
    }

    /// The host at `place`.
    ///
    /// # Panics
    /// When there is none.
    #[expect(
        clippy::indexing_slicing,
        reason = "places come from the number of seats"
    )]
    pub fn seat(&self, place: Place) -> &Mutex<Seat> {
        &self.seats[place]
    }

    /// The host with this peer URL.
    pub fn place_of(&self, peer_url: &str) -> Option<Place> {
        (0..self.seats.len()).find(|place| url(*place) == peer_url)
    }

    /// Accuses the member, unless its disk has no power: it is about to crash then.
    pub fn accuse(&self, place: Place, disk: &Disk, what: &str) {
        if !disk.is_off() {
            self.observer.accuse(format!("member {place} {what}"));
        }
    }

    /// Hears from the running members who the members are, and says on which hosts one is to be
    /// started that never was.
    pub fn hear(&self) -> Vec<(u64, Place)> {
        let mut roster = self.roster.lock();
        for seat in &self.seats {
            if let Some(member) = &seat.lock().member {
                roster.update(member.state(), |url| self.place_of(url));
            }
        }
        let listed = roster.listed();
        let is_new = |(id, place): &(u64, Place)| {
            let seat = self.seat(*place).lock();
            // A founder that never started is the one that is listed.
            seat.id != Some(*id) && (seat.role != Role::Founder || seat.id.is_some())
        };
        listed
            .map(|(id, listed)| (id, listed.place))
            .filter(is_new)
            .collect()
    }

    /// Whether every member serves and whoever is none has ended.
    pub fn is_settled(&self) -> bool {
        let roster = self.roster.lock();
        let is_settled = |seat: &Mutex<Seat>| {
            let seat = seat.lock();
            match seat.id {
                Some(id) if roster.is_listed(id) => seat.is_ready,
                Some(_) => seat.has_ended,
                None => seat.role == Role::Spare,
            }
        };
        roster.voters() > 0 && self.seats.iter().all(is_settled)
    }

    /// How far everybody is, in words.
    pub fn describe(&self) -> String {
        let roster = self.roster.lock();
        let seats = self.seats.iter().enumerate().map(|(place, seat)| {
            let seat = seat.lock();
            let id = seat.id.unwrap_or(0);
            let listed = if roster.is_listed(id) { "" } else { ", none" };
            let doing = if seat.has_ended {
                "ended"
            } else if seat.is_ready {
                "ready"
            } else if seat.member.is_some() {
                "started"
            } else if seat.is_up {
                "starting"
            } else {
                "down"
            };
            let status = seat.member.as_ref().map(Member::status);
            format!("{place}: {id:x}{listed}, {doing} {status:?}")
        });
        seats.collect::<Vec<_>>().join("; ")
    }

    /// The members that run.
    pub fn members(&self) -> Vec<(Place, Member)> {
        let seats = self.seats.iter().enumerate();
        seats
            .filter_map(|(place, seat)| Some((place, seat.lock().member.clone()?)))
            .collect()
    }
}
