//! Real etcdctl against one server.

use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use crate::peers::{Peer, Peers};
use crate::run::{self, Output};

/// etcdctl bound to an endpoint.
#[derive(Debug, Clone)]
pub struct Etcdctl {
    peers: Peers,
    endpoint: String,
}

impl Etcdctl {
    /// etcdctl that talks to `endpoint`.
    pub fn new(peers: &Peers, endpoint: &str) -> Self {
        Self {
            peers: peers.clone(),
            endpoint: endpoint.to_owned(),
        }
    }

    /// Runs a command line, without standard input.
    ///
    /// # Errors
    /// When etcdctl cannot be run to its end; its own failure is in the output.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        run::run(&mut self.command(arguments)?)
    }

    /// Runs a command line that reads `input`.
    ///
    /// # Errors
    /// When etcdctl cannot be run to its end; its own failure is in the output.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<Output> {
        run::run_with_input(&mut self.command(arguments)?, input)
    }

    /// Runs a command line that must succeed, and gives its JSON.
    ///
    /// # Errors
    /// When it fails or prints something else.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut arguments = arguments.to_vec();
        arguments.extend(["-w", "json"]);
        self.run(&arguments)?.json()
    }

    /// The command itself, for one that runs on.
    ///
    /// # Errors
    /// When etcdctl cannot be built.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.peers.command(Peer::Etcdctl)?;
        command
            .env("ETCDCTL_ENDPOINTS", &self.endpoint)
            .args(arguments);
        Ok(command)
    }
}
