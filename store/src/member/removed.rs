//! A member that is removed from its cluster: it notices, says why, and stops for good.
//!
//! The leader does not send the entry that removes a member to that member. It learns from the
//! others: they refuse its calls, and say so in a way that cannot be mistaken.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{Member, MemberOptions, start};
use crate::datadir::identity::{ClusterId, MemberId};
use crate::datadir::{Layout, Marker};
use crate::error::Error;

/// Why a removed member stops, in etcd's words.
pub(super) const REMOVED: &str = "the member has been permanently removed from the cluster";

/// How often the member looks whether it is one.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long another member may take to answer.
const ASK_MAX: Duration = Duration::from_secs(1);

/// A start with the data of a removed member.
pub(super) fn refusal(options: &MemberOptions, member: MemberId, cluster: ClusterId) -> Error {
    Error::MemberRemoved {
        path: options.data_dir.clone(),
        member: member.to_string(),
        cluster: cluster.to_string(),
    }
}

/// Stops the member once it is removed.
pub(super) async fn watch(member: Member) {
    let inner = &member.inner;
    tokio::select! {
        () = applied(&member) => {}
        () = inner.group.told_removed() => {}
    }
    tracing::warn!(member_id = %inner.member_id, cluster_id = %inner.cluster_id, "{REMOVED}");
    let layout = Layout::new(&inner.options.data_dir);
    let marked = tokio::task::spawn_blocking(move || {
        let marker = Marker::read(&layout)?;
        Marker {
            removed: true,
            ..marker
        }
        .write(&layout)
    });
    match marked.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the data directory does not say it"),
        Err(error) => tracing::warn!(%error, "the data directory does not say it"),
    }
    inner.fatal.send_replace(Some(REMOVED.to_owned()));
}

/// Returns once this member's own state says that it is removed. Without a leader the others are
/// asked for something now and then: a learner has no other reason to call them, and one that was
/// removed before its first entry came is called by nobody.
async fn applied(member: &Member) {
    let inner = &member.inner;
    let own = inner.member_id.0;
    let mut ticks = interval(LOOK_INTERVAL.max(inner.options.election_timeout));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !inner.state.is_removed(own) {
        ticks.tick().await;
        if inner.leadership.leader().is_some() {
            continue;
        }
        let members = inner.state.members().into_iter();
        let mut others: Vec<_> = members
            .map(|other| (other.id, other.peer_urls))
            .filter(|(id, _)| *id != own)
            .collect();
        if others.is_empty() {
            others = start::members_elsewhere(&inner.options).await;
            others.retain(|(id, _)| *id != own);
        }
        for (id, urls) in others {
            let calls = inner.group.calls_to(id, &urls);
            if let Err(error) = calls.read_index(ASK_MAX).await {
                tracing::debug!(%error, "another member was asked whether it knows this one");
            }
        }
    }
}

impl Member {
    /// Whether this member stopped because it was removed from its cluster.
    pub fn is_removed(&self) -> bool {
        self.inner.fatal.borrow().as_deref() == Some(REMOVED)
    }
}
