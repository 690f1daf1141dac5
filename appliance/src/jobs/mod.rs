//! What the daemon does again and again: when it is due, once at a time, with its outcome on a
//! board.

pub(crate) mod acceptance;
pub(crate) mod backup;
pub(crate) mod board;
pub(crate) mod checkup;
pub(crate) mod consolidation;
pub(crate) mod control;
pub(crate) mod copies;
pub(crate) mod drill;
pub(crate) mod prune;
pub(crate) mod prune_log;
pub(crate) mod rehearsal;
pub(crate) mod scheduler;
mod shop;
pub(crate) mod turn;
pub(crate) mod waiting;

pub(crate) use shop::{Doors, Shop, answer_all};
