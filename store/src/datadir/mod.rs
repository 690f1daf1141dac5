//! The data directory: what lies where, who may open it, how it comes to be.

pub mod bootstrap;
pub mod durable;
pub mod identity;
mod layout;
mod lock;
mod marker;

pub use layout::{DirState, Layout};
pub use lock::DirLock;
pub use marker::{MARKER_VERSION, Marker};
