//! What the system allows this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of open files to what the process may raise it to, as Go programs do at their
/// start: the usual limit of 1,024 is one client connection each.
pub(crate) fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // Where it is not allowed, the lower limit holds: connections over it wait.
        setrlimit(Resource::Nofile, raised).unwrap_or_default();
    }
}
