//! The snapshot stream of one member, checked message by message.
//!
//! Every message says how many bytes of the database remain behind it; after the last one comes
//! the SHA-256 digest, with nothing remaining. A stream that breaks this arithmetic is refused.
//! The digest itself is checked by whoever reads all the bytes.

use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use holdfast_proto::etcd::rpc::SnapshotResponse;
use tokio::time::Instant;

use super::super::TRAILER_BYTES;
use super::dial::answered;
use crate::error::{Error, Result};

/// Where the messages come from.
pub(super) trait Messages: Send + 'static {
    /// The next message, `None` at the end.
    fn next(
        &mut self,
    ) -> impl Future<Output = std::result::Result<Option<SnapshotResponse>, tonic::Status>> + Send;
}

impl Messages for tonic::Streaming<SnapshotResponse> {
    async fn next(&mut self) -> std::result::Result<Option<SnapshotResponse>, tonic::Status> {
        self.message().await
    }
}

/// How fast and how slow a stream may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// Without bytes for this long it has failed.
    pub(super) idle: Duration,
    /// Bytes read in a second, at most. The member's side waits: HTTP/2 holds it back.
    pub(super) rate: Option<u64>,
}

/// The bytes of `messages`. The stall clock runs on bytes: empty messages do not stop it.
pub(super) fn chunks(
    messages: impl Messages,
    endpoint: String,
    pace: Pace,
) -> impl Stream<Item = Result<Bytes>> + Send {
    let now = Instant::now();
    let reader = Reader {
        messages,
        endpoint,
        pace,
        not_before: now,
        deadline: now + pace.idle,
        remaining: None,
        trailer: None,
    };
    futures::stream::try_unfold(reader, |mut reader| async move {
        Ok(reader.next().await?.map(|chunk| (chunk, reader)))
    })
}

struct Reader<M> {
    messages: M,
    endpoint: String,
    pace: Pace,
    /// The rate allows no byte earlier.
    not_before: Instant,
    deadline: Instant,
    remaining: Option<u64>,
    trailer: Option<usize>,
}

impl<M: Messages> Reader<M> {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.slow_down().await;
        loop {
            let next = tokio::time::timeout_at(self.deadline, self.messages.next()).await;
            let message = match next {
                Err(_elapsed) => {
                    let endpoint = self.endpoint.clone();
                    return Err(Error::Stalled {
                        endpoint,
                        idle: self.pace.idle,
                    });
                }
                Ok(Err(status)) => return Err(answered(&self.endpoint, &status)),
                Ok(Ok(message)) => message,
            };
            let Some(message) = message else {
                return self.check_end().map(|()| None);
            };
            self.account(&message)?;
            if !message.blob.is_empty() {
                self.took(crate::part::length(&message.blob));
                return Ok(Some(message.blob));
            }
        }
    }

    /// Waits until the rate allows the next byte. That is our waiting, not the member's.
    async fn slow_down(&mut self) {
        let now = Instant::now();
        if self.not_before > now {
            tokio::time::sleep_until(self.not_before).await;
            self.deadline = Instant::now() + self.pace.idle;
        }
    }

    fn took(&mut self, bytes: u64) {
        let now = Instant::now();
        self.deadline = now + self.pace.idle;
        if let Some(rate) = self.pace.rate {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.not_before = self.not_before.max(now) + took;
        }
    }

    fn account(&mut self, message: &SnapshotResponse) -> Result<()> {
        let size = crate::part::length(&message.blob);
        match self.remaining {
            None => {
                if message.remaining_bytes > i64::MAX.unsigned_abs() {
                    return self.broken("negative number of remaining bytes");
                }
                self.remaining = Some(message.remaining_bytes);
            }
            Some(0) => {
                let so_far = self.trailer.unwrap_or(0);
                let total = so_far.saturating_add(message.blob.len());
                if message.remaining_bytes != 0 || total > TRAILER_BYTES {
                    return self.broken("more bytes than announced");
                }
                self.trailer = Some(total);
            }
            Some(before) => {
                if before.checked_sub(size) != Some(message.remaining_bytes) {
                    return self.broken("remaining bytes do not fit the bytes sent");
                }
                self.remaining = Some(message.remaining_bytes);
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<()> {
        match (self.remaining, self.trailer) {
            (Some(0), Some(TRAILER_BYTES)) => Ok(()),
            (Some(0), _) => self.broken("ended without the digest"),
            (Some(_), _) => self.broken("ended before the announced bytes"),
            (None, _) => self.broken("sent nothing"),
        }
    }

    fn broken(&self, reason: &str) -> Result<()> {
        Err(Error::BadStream {
            endpoint: self.endpoint.clone(),
            reason: reason.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
