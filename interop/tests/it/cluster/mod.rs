//! Clusters of several members: what they answer and what they survive.

mod faults;
mod nemesis;
mod verdict;
