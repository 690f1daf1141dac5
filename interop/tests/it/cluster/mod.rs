//! Several members: what operators and clients see of ours and of real etcd, and what they survive.

mod faults;
mod membership;
mod nemesis;
mod script;
mod verdict;
