//! Whether the members hold the same data: hashes of the key-value history, compared as etcd does.
//!
//! A hash that cannot be had says nothing; only two that differ at the same revision and
//! compaction do. The member that differs is named in the CORRUPT alarm.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use holdfast_proto::etcd::rpc::AlarmType;
use tokio::time::sleep;

use super::handle::Member;
use super::tasks::report;
use crate::datadir::identity::MemberId;
use crate::error::Error;
use crate::state::HashKv;

/// When the members' data are compared. [`Default`]: never, as etcd.
#[derive(Debug, Clone, Default)]
pub struct IntegrityOptions {
    /// Before clients are served (etcd's gate `InitialCorruptCheck`).
    pub at_start: bool,
    /// The leader compares the newest state this often (`--corrupt-check-time`).
    pub periodic: Option<Duration>,
    /// The leader compares the hashes of compactions this often (etcd's gate `CompactHashCheck`).
    pub compactions: Option<Duration>,
}

/// What another member answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    member: MemberId,
    hash: Option<HashKv>,
}

/// What the hashes of one compaction say.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// All that answered agree; whether that is everyone.
    Equal { is_complete: bool },
    /// These differ from the majority.
    Divergent(Vec<MemberId>),
    /// They differ, and nobody has a majority.
    Undecided,
}

/// The first member whose state cannot be that of this leader's.
///
/// `before` was taken before the others were asked, `after` once everything acknowledged by then
/// was applied here.
fn divergent(own: MemberId, before: HashKv, after: HashKv, peers: &[Answer]) -> Option<MemberId> {
    let is_same_place = after.hash_revision == before.hash_revision
        && after.compact_revision == before.compact_revision;
    if is_same_place && after.hash != before.hash {
        return Some(own);
    }
    let found = peers.iter().find(|peer| {
        peer.hash.is_some_and(|hash| {
            hash.current_revision > after.current_revision
                || hash.compact_revision > after.compact_revision
                || (hash.compact_revision == before.compact_revision && hash.hash != before.hash)
        })
    });
    found.map(|peer| peer.member)
}

/// Compares the hash of one compaction.
fn judge(own: MemberId, hash: HashKv, peers: &[Answer]) -> Verdict {
    let mut by_hash = BTreeMap::from([(hash.hash, vec![own])]);
    let mut checked = 0;
    for peer in peers {
        let found = peer
            .hash
            .filter(|found| found.compact_revision == hash.compact_revision);
        if let Some(found) = found {
            checked += 1;
            by_hash.entry(found.hash).or_default().push(peer.member);
        }
    }
    if by_hash.len() == 1 {
        let is_complete = checked == peers.len();
        return Verdict::Equal { is_complete };
    }
    let quorum = peers.len().saturating_add(1) / 2 + 1;
    let majority = by_hash
        .iter()
        .find(|(_, members)| members.len() >= quorum)
        .map(|(hash, _)| *hash);
    match majority {
        Some(majority) => {
            by_hash.remove(&majority);
            Verdict::Divergent(by_hash.into_values().flatten().collect())
        }
        None => Verdict::Undecided,
    }
}

impl Member {
    async fn own_hash(&self) -> Result<HashKv, Error> {
        let state = self.state().clone();
        let hashed = tokio::task::spawn_blocking(move || state.hash_kv(0)).await;
        hashed.map_err(|error| Error::Io {
            doing: "hash the key-value history",
            source: std::io::Error::other(error),
        })?
    }

    /// The hashes of the other members at `revision`.
    async fn peer_hashes(&self, revision: i64) -> Vec<Answer> {
        let own = self.id();
        let patience = self.request_timeout();
        let members = self.state().members();
        let others = members.iter().filter(|known| known.id != own.0);
        join_all(others.map(|known| async move {
            let asked = match self.inner.group.member_calls(known.id) {
                Ok(peer) => peer.hash_kv(revision, patience).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &asked {
                let member = format!("{:x}", known.id);
                tracing::warn!(member, revision, %error, "no hash of a member");
            }
            Answer {
                member: MemberId(known.id),
                hash: asked.ok().map(|hash| HashKv {
                    hash: hash.hash,
                    compact_revision: hash.compact_revision,
                    hash_revision: hash.hash_revision,
                    current_revision: hash.current_revision,
                }),
            }
        }))
        .await
    }

    /// Compares this member's data with the others' before it serves.
    ///
    /// # Errors
    /// `Corrupt` when they differ.
    pub(super) async fn compare_at_start(&self) -> Result<(), Error> {
        let own = self.own_hash().await?;
        for peer in self.peer_hashes(own.hash_revision).await {
            let Some(hash) = peer.hash else { continue };
            let is_comparable = hash.compact_revision == own.compact_revision
                && hash.hash_revision == own.hash_revision;
            if is_comparable && hash.hash != own.hash {
                tracing::error!(
                    member = %peer.member,
                    revision = own.hash_revision,
                    "the data of this member and of another one differ: it is not served"
                );
                return Err(Error::Corrupt);
            }
        }
        tracing::info!("the data of this member was compared with the others'");
        Ok(())
    }

    async fn compare_now(&self) -> Result<(), Error> {
        let before = self.own_hash().await?;
        let peers = self.peer_hashes(before.hash_revision).await;
        self.linearizable().await?;
        let after = self.own_hash().await?;
        if let Some(member) = divergent(self.id(), before, after, &peers) {
            self.raise_corrupt(member).await?;
        }
        Ok(())
    }

    /// Compares the newest compaction that all members still know; where it stands.
    async fn compare_compactions(&self, checked: i64) -> Result<i64, Error> {
        for hash in self.state().compaction_hashes() {
            if hash.hash_revision <= checked {
                break;
            }
            let peers = self.peer_hashes(hash.hash_revision).await;
            match judge(self.id(), hash, &peers) {
                Verdict::Equal { is_complete: true } => return Ok(hash.hash_revision),
                Verdict::Equal { is_complete: false } => {}
                Verdict::Divergent(members) => {
                    for member in members {
                        self.raise_corrupt(member).await?;
                    }
                    break;
                }
                // It concerns the whole cluster, which has no id: etcd says 0.
                Verdict::Undecided => {
                    self.raise_corrupt(MemberId(0)).await?;
                    break;
                }
            }
        }
        Ok(checked)
    }

    async fn raise_corrupt(&self, member: MemberId) -> Result<(), Error> {
        tracing::error!(%member, "the members' data differ; raise the CORRUPT alarm");
        self.raise_for(member, AlarmType::Corrupt).await
    }
}

/// Compares the newest state, while this member leads.
pub(super) async fn compare_periodically(member: Member) {
    let Some(interval) = member.options().integrity.periodic else {
        return;
    };
    loop {
        sleep(interval).await;
        if member.is_leader() {
            report("compare the members' data", member.compare_now().await);
        }
    }
}

/// Compares the hashes that compactions left, while this member leads.
pub(super) async fn compare_compactions(member: Member) {
    let Some(interval) = member.options().integrity.compactions else {
        return;
    };
    let mut checked = 0;
    loop {
        sleep(interval).await;
        if !member.is_leader() {
            continue;
        }
        match member.compare_compactions(checked).await {
            Ok(at) => checked = at,
            Err(error) => report("compare the members' compactions", Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(hash: u32, compact_revision: i64, current_revision: i64) -> HashKv {
        HashKv {
            hash,
            compact_revision,
            hash_revision: 10,
            current_revision,
        }
    }

    fn answer(member: u64, hash: Option<HashKv>) -> Answer {
        let member = MemberId(member);
        Answer { member, hash }
    }

    #[test]
    fn a_member_that_is_ahead_or_differs_is_found_and_one_that_is_silent_is_not() {
        let (own, before, after) = (MemberId(1), hash(7, 3, 10), hash(8, 3, 12));
        let after = HashKv {
            hash_revision: 12,
            ..after
        };
        let judge = |peer| divergent(own, before, after, &[answer(2, peer)]);
        assert_eq!(judge(None), None);
        assert_eq!(judge(Some(hash(7, 3, 11))), None);
        assert_eq!(judge(Some(hash(9, 2, 11))), None, "compacted elsewhere");
        assert_eq!(judge(Some(hash(9, 3, 11))), Some(MemberId(2)));
        assert_eq!(judge(Some(hash(7, 3, 13))), Some(MemberId(2)), "ahead");
        assert_eq!(
            judge(Some(hash(7, 4, 11))),
            Some(MemberId(2)),
            "compacted ahead"
        );
        let changed = divergent(own, before, hash(8, 3, 10), &[]);
        assert_eq!(changed, Some(own), "its own past changed");
    }

    #[test]
    fn who_differs_from_the_majority_is_named_and_without_one_nobody_is() {
        let own = MemberId(1);
        let judge = |peers: &[Answer]| judge(own, hash(7, 3, 10), peers);
        let good = |member| answer(member, Some(hash(7, 3, 10)));
        let bad = |member, value| answer(member, Some(hash(value, 3, 10)));
        let is_complete = true;
        assert_eq!(judge(&[good(2), good(3)]), Verdict::Equal { is_complete });
        let is_complete = false;
        assert_eq!(
            judge(&[good(2), answer(3, None)]),
            Verdict::Equal { is_complete }
        );
        let elsewhere = answer(3, Some(hash(9, 2, 10)));
        assert_eq!(judge(&[good(2), elsewhere]), Verdict::Equal { is_complete });
        assert_eq!(
            judge(&[good(2), bad(3, 9)]),
            Verdict::Divergent(vec![MemberId(3)])
        );
        let others = [bad(2, 9), bad(3, 9)];
        assert_eq!(judge(&others), Verdict::Divergent(vec![own]));
        assert_eq!(judge(&[bad(2, 9), bad(3, 8)]), Verdict::Undecided);
        assert_eq!(judge(&[bad(2, 9)]), Verdict::Undecided, "one against one");
    }
}
