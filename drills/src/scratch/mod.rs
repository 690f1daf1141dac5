//! Where a drill works, and the member it boots there.

mod child;
mod dir;
mod etcd;
mod member;
mod order;
mod pass;

pub use child::run_scratch_member;
pub use dir::clean_leftovers;
pub use order::MemberCommand;

pub(crate) use dir::{ScratchDir, watch_budget};
pub(crate) use member::ScratchMember;
pub(crate) use order::{MemberOrder, Program};
pub(crate) use pass::Pass;

#[cfg(test)]
pub(crate) mod tests;
