//! spool
