//! The data directory: what lies where, who may open it, how it comes to be.

pub mod identity;
