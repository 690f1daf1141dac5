//! The wire: messages and services generated from `proto/proto` at build time.
//!
//! `etcd` holds etcd's v3 API and the records etcd stores; `store` holds what the bundled store
//! puts into its raft log. Nothing here has behaviour.

/// etcd's v3 client API and stored records.
pub mod etcd {
    /// Services and requests (`etcdserverpb`).
    pub mod rpc {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("etcdserverpb");
    }
    /// Key-value pairs and events (`mvccpb`).
    pub mod kv {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("mvccpb");
    }
    /// Users, roles and permissions (`authpb`).
    pub mod auth {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("authpb");
    }
    /// Lease records (`leasepb`).
    pub mod lease {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("leasepb");
    }
    /// Raft records of a real etcd's data directory (`raftpb`).
    pub mod raft {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("raftpb");
    }
    /// Write-ahead-log records of a real etcd (`walpb`).
    pub mod wal {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("walpb");
    }
    /// The wrapper of a raft snapshot file (`snappb`).
    pub mod snap {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("snappb");
    }
}

/// Messages of the bundled store.
pub mod store {
    /// The replicated command.
    pub mod v1 {
        #![allow(missing_docs, clippy::all, clippy::pedantic)]
        tonic::include_proto!("holdfast.store.v1");
    }
}
