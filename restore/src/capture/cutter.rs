//! Cuts a stream of chunks into parts and watches its digest trailer on the way.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::part::PARTS_MAX;
use crate::source::TrailerCheck;

/// What is known once the stream has ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) bytes: u64,
    pub(super) digest: Digest,
}

/// Parts of a stream, in order.
pub(super) struct Cutter {
    chunks: BoxStream<'static, Result<Bytes>>,
    endpoint: String,
    part_bytes: usize,
    trailer: TrailerCheck,
    part: Vec<u8>,
    rest: Bytes,
    has_ended: bool,
    parts: usize,
}

impl Cutter {
    pub(super) fn new(
        chunks: BoxStream<'static, Result<Bytes>>,
        endpoint: String,
        part_bytes: usize,
    ) -> Self {
        Self {
            chunks,
            endpoint,
            part_bytes,
            trailer: TrailerCheck::default(),
            part: Vec::new(),
            rest: Bytes::new(),
            has_ended: false,
            parts: 0,
        }
    }

    /// Plain bytes taken so far.
    pub(super) fn bytes(&self) -> u64 {
        self.trailer.bytes()
    }

    /// The next part; `None` at the end. May be dropped while waiting without losing bytes.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let room = self.part_bytes.saturating_sub(self.part.len());
            let piece = self.rest.split_to(room.min(self.rest.len()));
            self.part.extend_from_slice(&piece);
            if self.part.len() == self.part_bytes || (self.has_ended && !self.part.is_empty()) {
                self.parts += 1;
                if self.parts > PARTS_MAX {
                    let limit = u64::try_from(PARTS_MAX).unwrap_or(u64::MAX);
                    return Err(Error::TooLarge {
                        object: "number of parts".to_owned(),
                        limit,
                    });
                }
                return Ok(Some(std::mem::take(&mut self.part)));
            }
            if self.has_ended {
                return Ok(None);
            }
            match self.chunks.next().await {
                None => self.has_ended = true,
                Some(chunk) => {
                    let chunk = chunk?;
                    self.trailer.update(&chunk);
                    self.rest = chunk;
                }
            }
        }
    }

    /// The verdict on the whole stream.
    pub(super) fn finish(self) -> Result<Whole> {
        let whole = Whole {
            bytes: self.trailer.bytes(),
            digest: self.trailer.whole(),
        };
        match self.trailer.finish() {
            Ok(()) => Ok(whole),
            Err(reason) => Err(Error::BadStream {
                endpoint: self.endpoint,
                reason,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART_BYTES: usize = 1000;

    async fn cut(chunks: Vec<Vec<u8>>) -> Result<(Vec<usize>, Whole)> {
        let chunks = futures::stream::iter(chunks)
            .map(|chunk| Ok(Bytes::from(chunk)))
            .boxed();
        let mut cutter = Cutter::new(chunks, "e".to_owned(), PART_BYTES);
        let mut sizes = Vec::new();
        while let Some(part) = cutter.next().await? {
            sizes.push(part.len());
        }
        cutter.finish().map(|whole| (sizes, whole))
    }

    #[tokio::test]
    async fn every_part_but_the_last_is_full() {
        let database = vec![3_u8; 2 * PART_BYTES + 48];
        let digest = Digest::of(&database).as_bytes().to_vec();
        let mut chunks: Vec<Vec<u8>> = database
            .chunks(PART_BYTES / 2 + 999)
            .map(<[u8]>::to_vec)
            .collect();
        chunks.push(digest);
        let (sizes, whole) = cut(chunks).await.unwrap();
        assert_eq!(sizes, [PART_BYTES, PART_BYTES, 48 + 32]);
        assert_eq!(whole.bytes, u64::try_from(2 * PART_BYTES + 80).unwrap());
    }

    #[tokio::test]
    async fn a_stream_without_its_digest_is_refused() {
        assert!(matches!(
            cut(vec![vec![0; 4096]]).await,
            Err(Error::BadStream { .. })
        ));
        assert!(matches!(cut(vec![]).await, Err(Error::BadStream { .. })));
    }
}
