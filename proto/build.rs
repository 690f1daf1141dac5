//! Compiles the `.proto` files with `protox`, so that no `protoc` is needed.

use std::error::Error;

const FILES: [&str; 10] = [
    "etcd/kv.proto",
    "etcd/auth.proto",
    "etcd/rpc.proto",
    "etcd/lease.proto",
    "etcd/raft.proto",
    "etcd/wal.proto",
    "etcd/snap.proto",
    "store/command.proto",
    "peer/peer.proto",
    "grpc/health.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::MessageCodec")
        .build_client(true)
        .build_server(true)
        .compile_fds(descriptors)?;
    Ok(())
}
