//! The whole pipeline on real peers: from a real etcd into a vault, locally and on a real S3
//! server, damaged in every way, and back into both kinds of cluster.

mod appliance;
mod bumped;
mod capturing;
mod clouds;
mod daily;
mod damage;
mod doctor;
mod following;
mod kills;
mod locks;
mod round_trip;
mod stage;
mod tampering;
mod unattended;
