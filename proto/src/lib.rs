//! The wire: messages and services generated from `proto/proto` at build time.
//!
//! [`etcd`] holds etcd's v3 API and the records etcd stores; [`store`] holds what the bundled store
//! puts into its raft log, [`peer`] what its members say to each other, [`grpc`] gRPC's own health
//! protocol. Nothing here has behaviour, but for how messages become bytes ([`codec`]).

pub mod codec;

/// The generated modules, nested as the packages are (generated paths rely on it).
mod generated {
    #![allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all)]
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    pub mod authpb {
        tonic::include_proto!("authpb");
    }
    pub mod leasepb {
        tonic::include_proto!("leasepb");
    }
    pub mod raftpb {
        tonic::include_proto!("raftpb");
    }
    pub mod walpb {
        tonic::include_proto!("walpb");
    }
    pub mod snappb {
        tonic::include_proto!("snappb");
    }
    pub mod grpc {
        pub mod health {
            pub mod v1 {
                tonic::include_proto!("grpc.health.v1");
            }
        }
    }
    pub mod holdfast {
        pub mod peer {
            pub mod v1 {
                tonic::include_proto!("holdfast.peer.v1");
            }
        }
        pub mod store {
            pub mod v1 {
                tonic::include_proto!("holdfast.store.v1");
            }
        }
    }
}

/// etcd's v3 client API and the records etcd stores.
pub mod etcd {
    /// Users, roles and permissions.
    pub use crate::generated::authpb as auth;
    /// Services and requests.
    pub use crate::generated::etcdserverpb as rpc;
    /// Lease records.
    pub use crate::generated::leasepb as lease;
    /// Key-value pairs and events.
    pub use crate::generated::mvccpb as kv;
    /// Raft records of a real etcd's data directory.
    pub use crate::generated::raftpb as raft;
    /// The wrapper of a raft snapshot file.
    pub use crate::generated::snappb as snap;
    /// Write-ahead-log records of a real etcd.
    pub use crate::generated::walpb as wal;
}

/// gRPC's own health protocol.
pub mod grpc {
    /// Whether a service is ready for calls.
    pub use crate::generated::grpc::health::v1 as health;
}

/// Messages between the members of a cluster of the bundled store.
pub mod peer {
    /// The calls of the peer URLs.
    pub use crate::generated::holdfast::peer::v1;
}

/// Messages of the bundled store.
pub mod store {
    /// The replicated command.
    pub use crate::generated::holdfast::store::v1;
}
