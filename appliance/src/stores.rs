//! The bundled store inside the daemon: started from our settings, stopped last.

use crate::config::Settings;
use crate::failure::Failure;

/// A running store.
#[derive(Debug)]
pub(crate) struct RunningStore {
    member: RunningMember,
}

/// The member of a running store; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RunningMember {}

impl RunningStore {
    pub(crate) async fn start(_settings: &Settings) -> Result<Self, Failure> {
        std::future::ready(()).await;
        Err(Failure::usage("no store yet", "wait"))
    }

    pub(crate) fn member(&self) -> &RunningMember {
        &self.member
    }

    pub(crate) async fn stop(self) -> Result<(), Failure> {
        std::future::ready(()).await;
        Ok(())
    }
}

impl RunningMember {
    pub(crate) fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) fn source(&self) -> Box<dyn holdfast_restore::Source> {
        unreachable!()
    }

    pub(crate) async fn failed(&self) -> String {
        std::future::pending().await
    }
}
