//! The port for people and monitors: a plain status page, `/healthz`, `/metrics`, `/api/status`.

pub(crate) mod metrics;
mod page;
mod server;

pub(crate) use server::{Admin, Shared};
