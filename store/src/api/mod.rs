//! What clients reach: etcd's gRPC services and HTTP paths. Translates and nothing else; one file
//! for each service.

mod cluster;
mod connections;
mod context;
mod deadline;
mod front;
mod gather;
mod health;
mod http;
mod kv;
mod lease;
mod listen;
mod maintenance;
mod messages;
mod observe;
mod peer;
mod peer_tls;
mod quota;
mod server;
mod snapshot;
mod stats;
mod status;
mod validate;
mod watch;
mod words;

pub(crate) use observe::CallCounters;
pub use peer::peer_routes;
pub use server::StoreServer;
pub use status::status;
