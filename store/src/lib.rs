//! One member of an etcd-compatible replicated store.

pub mod bolt;
