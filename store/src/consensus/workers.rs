//! Who does the work of the raft log and of the state.

/// Who writes the raft log and applies its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// Threads of their own.
    #[default]
    Threads,
    /// Tasks of the runtime the member is started on, and who brings the work. For simulations:
    /// their time stands still while a task works, and would run on while a thread does.
    Tasks,
}
