//! Who alone may write the backups of a source now, where somebody other than the vault decides
//! that: the members of a store that elect a leader.
//!
//! The vault's claims alone keep the history in one line, because manifests are create-only. This
//! keeps one that lost its office from finishing a backup that its successor has begun anew.

use std::fmt::Debug;

use futures::future::BoxFuture;

/// An office held for a time. Asked once more right before a manifest is written.
pub trait Office: Debug + Send + Sync {
    /// Whether it is still held, confirmed and not only remembered; else why not.
    fn still_held(&self) -> BoxFuture<'_, Result<(), String>>;
}
