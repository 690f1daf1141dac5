//! The way to other members.
//!
//! A group of one has none: every call says unreachable. Each call of openraft's network trait
//! is written out, because two of its defaults would be wrong once there are peers: a pre-vote
//! that is always granted, and a leader transfer that reports success to nobody.

use std::io;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::snapshot::RaftSnapshot;
use super::types::{NodeId, PeerNode, TypeConfig, Vote};

/// Makes connections to peers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peers;

/// A connection to one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    id: NodeId,
    urls: Vec<String>,
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &PeerNode) -> Peer {
        Peer {
            id: target,
            urls: node.peer_urls.clone(),
        }
    }
}

impl Peer {
    fn unreachable(&self) -> Unreachable<TypeConfig> {
        let text = format!(
            "no transport to member {:x} at {}",
            self.id,
            self.urls.join(",")
        );
        Unreachable::new(&io::Error::new(io::ErrorKind::NotConnected, text))
    }
}

impl RaftNetworkV2<TypeConfig> for Peer {
    type SnapshotData = RaftSnapshot;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: SnapshotOf<TypeConfig, RaftSnapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(self.unreachable()))
    }

    async fn transfer_leader(
        &mut self,
        _request: TransferLeaderRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(self.unreachable()))
    }
}
