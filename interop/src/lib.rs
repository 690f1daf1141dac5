//! Real peers for tests: etcd, etcdctl, etcdutl, bbolt, an S3 server and a Go client, started on
//! free loopback ports in temporary folders and ended by process id when the test is over.
//!
//! The peers are Go modules pinned in `interop/peers`; [`peers::Peers`] builds them once into
//! `target/peers/bin`. Without Go a test prints `SKIPPED` and passes, except with `CI=true`.

pub mod client;
pub mod clouds;
pub mod cluster;
pub mod etcdctl;
pub mod failpoints;
pub mod golden;
pub mod history;
pub mod holdfast;
pub mod hosts;
pub mod http;
pub mod mesh;
pub mod names;
pub mod peers;
pub mod ports;
pub mod process;
pub mod recorder;
pub mod run;
pub mod s3;
pub mod server;
pub mod usage;
pub mod wait;
