//! Everything between a source and bytes at rest, both ways: a snapshot exists only if this crate
//! can read it back.
//!
//! A *source* ([`source`]) streams the bytes of an etcd snapshot. [`capture()`] cuts them into
//! parts, seals them and stores them in a *vault* ([`vault`]); the signed [`manifest`] comes last
//! and makes the backup. [`verify()`] proves it level by level, [`plan`] and [`rebuild()`] turn
//! it into a new cluster, [`prune`] lets it go.
//!
//! Invariants:
//! - a backup exists when its manifest does; manifests are create-only, signed and chained;
//! - nothing is in clear on disk or in the vault unless encryption was switched off explicitly;
//! - nothing acts on decrypted bytes before the end of their stream;
//! - what a backup says of itself was read from the bytes backed up;
//! - a restore never touches an existing path, and leaves the result or nothing.

pub mod capture;
mod chain;
pub mod claim;
pub mod confirmation;
pub mod consolidate;
pub mod content;
pub mod copy;
pub mod delta;
pub mod digest;
pub mod envelope;
pub mod error;
pub mod etcd_datadir;
pub mod flaw;
pub mod follow;
pub mod in_use;
mod inspect;
pub mod key;
pub mod ledger;
pub mod locks;
pub mod manifest;
pub mod office;
pub mod offline;
mod opening;
pub mod part;
pub mod pin;
pub mod plan;
pub mod progress;
pub mod proof;
pub mod prune;
pub mod rebuild;
pub mod release;
mod replay;
pub mod rewrap;
mod roundtrip;
pub mod seal;
pub mod sign;
pub mod source;
mod spool;
mod staging;
pub mod store_datadir;
mod unique;
pub mod vault;
pub mod verify;
pub mod waiting;

pub use capture::{CaptureOptions, Captured, ReadBack, capture};
pub use digest::Digest;
pub use error::{Error, ErrorKind, Result};
pub use flaw::{Flaw, FlawKind};
pub use key::{Identities, Keys, Recipient, Signer, Trust, Verifier};
pub use ledger::{Ledger, Observation};
pub use manifest::Manifest;
pub use opening::unopenable;
pub use plan::{
    Bump, Pick, RestoreOptions, RestorePlan, Target, Upto, Wanted, plan_replay, plan_restore,
};
pub use progress::{Phase, Progress, ProgressFn};
pub use proof::{Evidence, Proof};
pub use prune::execute_prune;
pub use rebuild::{Restored, rebuild, rebuild_with_content};
pub use replay::{Replayed, Told};
pub use roundtrip::{RoundTrip, round_trip};
pub use seal::Sealer;
pub use source::{BundledSource, EtcdSource, EtcdSpec, FileSource, Source, SourceSpec};
pub use unique::UniqueId;
pub use vault::{Backup, Catalog, ReadOnly, ReadWrite, Vault, VaultSpec};
pub use verify::{VerifyOptions, verify};
