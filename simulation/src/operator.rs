//! Who changes the membership: asks a member for it, as an operator would, and starts and stops
//! nothing. What was decided is found in the members' own states (`roster`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::Error;
use holdfast_store::member::{Change, Member};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::sleep;

use crate::invariants::Place;
use crate::world::{Role, World, url};

/// Pause between two looks for something to do.
const PAUSE: Duration = Duration::from_millis(100);
/// Attempts to promote a learner that has not caught up yet.
const PROMOTIONS_MAX: usize = 20;
/// Voters that are left.
const VOTERS_MIN: usize = 3;

/// A change that is wanted; of whom is found out when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// A spare host gets a member.
    Add {
        /// Whether it only learns until it is promoted.
        is_learner: bool,
    },
    /// A learner gets its vote.
    Promote,
    /// A member goes.
    Remove,
    /// A member goes, and one with new data comes on its host.
    Replace,
}

/// Makes what changes there are to make through this member, until its host goes down.
pub async fn work(world: Arc<World>, place: Place, member: Member, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ 0x0b3a_7041);
    loop {
        sleep(PAUSE).await;
        if member.is_learner() {
            continue;
        }
        let Some(intent) = world.orders.lock().pop_front() else {
            continue;
        };
        let done = make(&world, &member, intent, &mut random).await;
        let at = world.observer.now();
        tracing::info!(?intent, ?done, place, at, "a change of the membership");
    }
}

async fn make(
    world: &World,
    member: &Member,
    intent: Intent,
    random: &mut StdRng,
) -> Result<(), Error> {
    // Nothing is decided on what was true some time ago.
    member.linearizable().await?;
    drop(world.hear());
    match intent {
        Intent::Add { is_learner } => {
            let place = spare(world);
            add(member, place, is_learner, random).await
        }
        Intent::Promote => promote(world, member).await,
        Intent::Remove => remove(world, member, random).await.map(drop),
        Intent::Replace => {
            let place = remove(world, member, random).await?;
            add(member, place, random.random_bool(0.3), random).await
        }
    }
}

/// A host that no member has.
fn spare(world: &World) -> Option<Place> {
    let taken: BTreeSet<Place> = world.roster.lock().places();
    let is_free = |place: &Place| {
        let seat = world.seat(*place).lock();
        !taken.contains(place) && (seat.role == Role::Spare || seat.has_ended)
    };
    (0..world.seats.len()).find(is_free)
}

async fn add(
    member: &Member,
    place: Option<Place>,
    is_learner: bool,
    random: &mut StdRng,
) -> Result<(), Error> {
    let Some(place) = place else { return Ok(()) };
    let change = Change::Add {
        id: random.random_range(1..=u64::MAX),
        peer_urls: vec![url(place)],
        is_learner,
    };
    member.reconfigure(change).await
}

async fn promote(world: &World, member: &Member) -> Result<(), Error> {
    let learner = {
        let roster = world.roster.lock();
        let mut listed = roster.listed();
        listed.find(|(_, listed)| listed.is_learner)
    };
    let Some((id, _)) = learner else {
        return Ok(());
    };
    for _ in 0..PROMOTIONS_MAX {
        match member.reconfigure(Change::Promote { id }).await {
            Err(Error::LearnerNotReady) => sleep(PAUSE).await,
            result => return result,
        }
    }
    Err(Error::LearnerNotReady)
}

/// Removes some member, and says where it was.
async fn remove(
    world: &World,
    member: &Member,
    random: &mut StdRng,
) -> Result<Option<Place>, Error> {
    let chosen = {
        let mut roster = world.roster.lock();
        let may_lose_voter = roster.voters() > VOTERS_MIN;
        let can_go: Vec<_> = roster
            .listed()
            .filter(|(_, listed)| listed.is_learner || may_lose_voter)
            .collect();
        if can_go.is_empty() {
            return Ok(None);
        }
        let chosen = can_go.get(random.random_range(0..can_go.len())).copied();
        roster.unwanted.extend(chosen.map(|(id, _)| id));
        chosen
    };
    let Some((id, listed)) = chosen else {
        return Ok(None);
    };
    member.reconfigure(Change::Remove { id }).await?;
    Ok(Some(listed.place))
}
