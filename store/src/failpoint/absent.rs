//! What a release has in place of failpoints: nothing.

use std::future::{Ready, ready};
use std::io;

use futures::Stream;

use super::Point;
use crate::error::Error;

/// Does nothing.
///
/// # Errors
/// Never.
pub fn start() -> Result<(), Error> {
    Ok(())
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a point costs nothing, in any release"
)]
pub(crate) const fn is_armed() -> bool {
    false
}

#[inline(always)]
pub(crate) const fn hit(_point: Point) {}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a point costs nothing, in any release"
)]
pub(crate) const fn is_on(_point: Point) -> bool {
    false
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a point costs nothing, in any release"
)]
pub(crate) fn pause(_point: Point) -> Ready<bool> {
    ready(false)
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "a point costs nothing, in any release"
)]
pub(crate) fn before_each<S: Stream>(_point: Point, stream: S) -> S {
    stream
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    clippy::unnecessary_wraps,
    reason = "a point costs nothing, in any release; elsewhere it fails"
)]
pub(crate) const fn failure(_point: Point, _kind: io::ErrorKind) -> io::Result<()> {
    Ok(())
}
