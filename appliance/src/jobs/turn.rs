//! Whose turn it is to work: with the bundled store in a cluster, exactly one of its daemons runs
//! the jobs, and the others stand by.
//!
//! The store's own election decides, and its term names the turn: whoever leads is active. A new
//! leader waits until the one before it has noticed on its own, cut off as it may be, that it
//! leads no more; so no two are active at once. What a clock cannot promise the vault does: right
//! before a manifest is written the lead is confirmed with a quorum ([`Office`]), and each turn
//! claims a generation of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use holdfast_restore::office::Office;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::{ErrorName, Failure};
use crate::stores::RunningMember;

/// How often the lead is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a daemon does in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// It runs the jobs.
    Active,
    /// Another one does, or will once there is a leader.
    Standby,
}

/// Whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    /// What this daemon does.
    pub(crate) role: Role,
    /// The member whose daemon is active, when one is known.
    pub(crate) active: Option<String>,
    /// The term of the store's election; `None` for a daemon that has nobody beside it.
    pub(crate) term: Option<u64>,
}

impl Turn {
    /// Of a daemon that has nobody beside it.
    pub(crate) const ALONE: Self = Self {
        role: Role::Active,
        active: None,
        term: None,
    };

    /// The answer to a wish that only the active daemon can fulfil.
    fn refusal(&self) -> Failure {
        let what = format!("this daemon does not run jobs now: {self}");
        Failure::new(ErrorName::InUse, what).next(
            "ask on the host of the active member; while nobody is active, the store has no \
             leader or a new one is about to take over",
        )
    }

    /// The office that a quorum confirms, in a cluster.
    pub(crate) fn office(&self, member: Option<&RunningMember>) -> Option<Arc<dyn Office>> {
        let (term, member) = (self.term?, member?.clone());
        Some(Arc::new(Term { member, term }))
    }

    /// Whether this daemon runs the jobs.
    pub(crate) fn is_active(&self) -> bool {
        self.role == Role::Active
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active = self.active.as_deref().unwrap_or("nobody");
        match (self.role, self.term) {
            (Role::Active, None) => f.write_str("active"),
            (Role::Active, Some(term)) => write!(f, "active, in term {term}"),
            (Role::Standby, _) => write!(f, "standby, {active} is active"),
        }
    }
}

/// What a look at the store showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    term: u64,
    /// A quorum acknowledged this leader lately.
    is_leader: bool,
    /// Another member leads.
    is_led: bool,
    /// Nobody else has a vote.
    is_alone: bool,
}

/// Since when this member leads in which term, and when a quorum last said so.
#[derive(Debug, Clone, Copy, Default)]
struct Lead {
    held: Option<Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    term: u64,
    since: Instant,
    heard: Instant,
    is_turn: bool,
}

impl Lead {
    /// Whether it is this daemon's turn.
    ///
    /// `patience` is how long a turn outlasts a quorum's silence: a moment without an answer is no
    /// reason to give up a backup, which is not committed unconfirmed. A new leader waits for as
    /// long and for `lease`, after which raft's leader of before counts as none, so that turns
    /// never meet.
    fn is_turn(
        &mut self,
        look: Look,
        now: Instant,
        (lease, patience): (Duration, Duration),
    ) -> bool {
        let held = self
            .held
            .filter(|held| held.term == look.term && !look.is_led);
        self.held = match held {
            Some(held) if look.is_leader => Some(Held { heard: now, ..held }),
            None if look.is_leader => Some(Held {
                term: look.term,
                since: now,
                heard: now,
                is_turn: look.is_alone,
            }),
            Some(held) if held.is_turn && now.duration_since(held.heard) < patience => Some(held),
            _ => None,
        };
        let Some(held) = &mut self.held else {
            return false;
        };
        held.is_turn |= now.duration_since(held.since) >= lease + patience;
        held.is_turn
    }
}

/// Follows whose turn it is until `stop`; without a store in a cluster it is always this one's.
pub(crate) async fn follow(
    member: Option<RunningMember>,
    told: watch::Sender<Turn>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let Some(member) = member.filter(RunningMember::is_clustered) else {
        stop.cancelled().await;
        return Ok(());
    };
    let mut lead = Lead::default();
    let waits = (member.lease(), member.lease());
    loop {
        let turn = look(&member, &mut lead, waits);
        let is_changed = told.send_if_modified(|last| {
            let is_changed = *last != turn;
            last.clone_from(&turn);
            is_changed
        });
        if is_changed {
            tracing::info!(active = turn.active, term = turn.term, "{turn}");
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

fn look(member: &RunningMember, lead: &mut Lead, waits: (Duration, Duration)) -> Turn {
    let is_leader = member.is_leader();
    let look = Look {
        term: member.term(),
        is_leader,
        is_led: !is_leader && member.has_leader(),
        is_alone: member.is_alone(),
    };
    let is_turn = lead.is_turn(look, Instant::now(), waits);
    let active = match (is_turn, is_leader) {
        (true, _) => Some(member.name()),
        // It leads and its turn is still to come.
        (false, true) => None,
        (false, false) => member.leader_name(),
    };
    Turn {
        role: if is_turn { Role::Active } else { Role::Standby },
        active,
        term: Some(look.term),
    }
}

/// Where the first turn begins, before the store was looked at.
pub(crate) fn first(member: Option<&RunningMember>) -> Turn {
    match member.filter(|member| member.is_clustered()) {
        Some(member) => Turn {
            role: Role::Standby,
            active: None,
            term: Some(member.term()),
        },
        None => Turn::ALONE,
    }
}

/// Waits for a turn of this daemon and answers requests with `refuse` meanwhile; `None` at `stop`.
pub(crate) async fn next<R>(
    turn: &mut watch::Receiver<Turn>,
    requests: &mut mpsc::Receiver<R>,
    mut refuse: impl FnMut(R, Failure),
    stop: &CancellationToken,
) -> Option<Turn> {
    loop {
        let now = turn.borrow_and_update().clone();
        if stop.is_cancelled() {
            return None;
        }
        if now.is_active() {
            return Some(now);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            Ok(()) = turn.changed() => {}
            Some(request) = requests.recv() => refuse(request, now.refusal()),
            else => {
                stop.cancelled().await;
                return None;
            }
        }
    }
}

/// Works for as long as the turn is `held`; what is under way is told by `shift` that it is over.
pub(crate) async fn during(
    turn: &mut watch::Receiver<Turn>,
    held: &Turn,
    shift: &CancellationToken,
    work: impl Future<Output = ()>,
) {
    let end = async {
        over(turn, held).await;
        shift.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = work => {}
        () = end => {}
    }
}

/// Returns once `turn` is another than `held`.
async fn over(turn: &mut watch::Receiver<Turn>, held: &Turn) {
    // The sender lives as long as the daemon; without it there is nothing to wait for.
    let is_over = |now: &Turn| !now.is_active() || now.term != held.term;
    if turn.wait_for(is_over).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The turn of one term, as an office that a quorum confirms.
#[derive(Debug, Clone)]
struct Term {
    /// The member that leads.
    member: RunningMember,
    /// Its term.
    term: u64,
}

impl Office for Term {
    fn still_held(&self) -> BoxFuture<'_, Result<(), String>> {
        async move {
            let confirmed = self.member.confirm_lead(self.term).await;
            confirmed.map_err(|error| format!("term {} is not confirmed: {error}", self.term))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);
    const WAITS: (Duration, Duration) = (LEASE, LEASE);

    fn leads(term: u64) -> Look {
        Look {
            term,
            is_leader: true,
            is_led: false,
            is_alone: false,
        }
    }

    #[test]
    fn a_new_leader_is_active_once_the_one_before_must_have_noticed() {
        let (mut lead, now) = (Lead::default(), Instant::now());
        assert!(!lead.is_turn(leads(4), now, WAITS));
        assert!(!lead.is_turn(leads(4), now + LEASE, WAITS));
        assert!(lead.is_turn(leads(4), now + 2 * LEASE, WAITS));
        // Another term is another turn.
        assert!(!lead.is_turn(leads(6), now + 2 * LEASE, WAITS));
        let follows = Look {
            is_leader: false,
            is_led: true,
            ..leads(6)
        };
        assert!(!lead.is_turn(follows, now + 4 * LEASE, WAITS));
        assert!(!lead.is_turn(leads(6), now + 5 * LEASE, WAITS));
    }

    #[test]
    fn a_moment_without_an_answer_of_the_quorum_does_not_end_a_turn() {
        let (mut lead, now) = (Lead::default(), Instant::now());
        let silent = Look {
            is_leader: false,
            ..leads(4)
        };
        lead.is_turn(leads(4), now, WAITS);
        let begun = now + 2 * LEASE;
        assert!(lead.is_turn(leads(4), begun, WAITS));
        assert!(lead.is_turn(silent, begun + LEASE / 2, WAITS));
        assert!(lead.is_turn(leads(4), begun + LEASE / 2, WAITS));
        assert!(!lead.is_turn(silent, begun + 2 * LEASE, WAITS));
        // Nor is one begun by silence.
        assert!(!lead.is_turn(leads(4), begun + 3 * LEASE, WAITS));
        assert!(!lead.is_turn(silent, begun + 4 * LEASE, WAITS));
    }

    #[test]
    fn a_member_that_votes_alone_need_not_wait() {
        let alone = Look {
            is_alone: true,
            ..leads(2)
        };
        assert!(Lead::default().is_turn(alone, Instant::now(), WAITS));
    }
}
