//! A change of the membership on its way to the leader.

use holdfast_proto::peer::v1 as proto;
use proto::reconfigure_request::Change as Wire;

use super::super::reconfigure::Change;

/// The request that asks the leader for `change`.
pub(super) fn to_request(change: &Change) -> proto::ReconfigureRequest {
    let change = match change.clone() {
        Change::Add {
            id,
            peer_urls,
            is_learner,
        } => Wire::Add(proto::AddMember {
            peer_urls,
            is_learner,
            id,
        }),
        Change::Remove { id } => Wire::Remove(proto::RemoveMember { id }),
        Change::Update { id, peer_urls } => Wire::Update(proto::UpdateMember { id, peer_urls }),
        Change::Promote { id } => Wire::Promote(proto::PromoteMember { id }),
    };
    proto::ReconfigureRequest {
        change: Some(change),
    }
}

/// The change that a member asks for; `None`: one that this version does not know.
pub(crate) fn from_request(request: proto::ReconfigureRequest) -> Option<Change> {
    Some(match request.change? {
        Wire::Add(add) => Change::Add {
            id: add.id,
            peer_urls: add.peer_urls,
            is_learner: add.is_learner,
        },
        Wire::Remove(remove) => Change::Remove { id: remove.id },
        Wire::Update(update) => Change::Update {
            id: update.id,
            peer_urls: update.peer_urls,
        },
        Wire::Promote(promote) => Change::Promote { id: promote.id },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_arrives_as_it_was_asked_for() {
        let peer_urls = || vec!["http://h:1".to_owned()];
        for change in [
            Change::Add {
                id: 7,
                peer_urls: peer_urls(),
                is_learner: true,
            },
            Change::Promote { id: 7 },
            Change::Remove { id: 7 },
            Change::Update {
                id: 7,
                peer_urls: peer_urls(),
            },
        ] {
            assert_eq!(from_request(to_request(&change)), Some(change));
        }
        assert_eq!(
            from_request(proto::ReconfigureRequest { change: None }),
            None
        );
    }
}
