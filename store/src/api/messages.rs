//! Counting gRPC messages as they pass, without holding them up: five bytes of prefix (a flag and
//! the length), then the message.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

const PREFIX_LEN: u8 = 5;

/// Where in a stream of messages we are.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Bytes of the prefix seen.
    prefix: u8,
    /// The length, as far as the prefix has been seen.
    length: u64,
    /// Bytes of the message to come.
    left: u64,
}

/// What passed in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Passed {
    /// Messages that began.
    pub(super) messages: u64,
    /// Bytes of messages, without their prefixes.
    pub(super) bytes: u64,
}

impl Messages {
    pub(super) fn pass(&mut self, mut data: &[u8]) -> Passed {
        let mut passed = Passed::default();
        while let Some((&first, rest)) = data.split_first() {
            if self.left > 0 {
                let whole = u64::try_from(data.len()).unwrap_or(u64::MAX);
                let taken = whole.min(self.left);
                passed.bytes += taken;
                self.left -= taken;
                data = usize::try_from(taken)
                    .ok()
                    .and_then(|taken| data.get(taken..))
                    .unwrap_or_default();
                continue;
            }
            if self.prefix > 0 {
                self.length = (self.length << 8) | u64::from(first);
            }
            self.prefix += 1;
            if self.prefix == PREFIX_LEN {
                passed.messages += 1;
                self.left = self.length;
                self.length = 0;
                self.prefix = 0;
            }
            data = rest;
        }
        passed
    }
}

/// A body whose messages are told to `tell` as they pass.
pub(super) struct Counted<B, F> {
    inner: B,
    messages: Messages,
    tell: F,
}

impl<B, F> Counted<B, F> {
    pub(super) fn new(inner: B, tell: F) -> Self {
        Self {
            inner,
            messages: Messages::default(),
            tell,
        }
    }
}

impl<B, F> HttpBody for Counted<B, F>
where
    B: HttpBody<Data = Bytes> + Unpin,
    F: FnMut(Passed) + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            let passed = self.messages.pass(data);
            (self.tell)(passed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::{Messages, Passed};

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let mut stream = Vec::new();
        for length in [0_u32, 3, 300] {
            stream.push(0);
            stream.extend_from_slice(&length.to_be_bytes());
            stream.extend(std::iter::repeat_n(b'x', usize::try_from(length).unwrap()));
        }
        for size in [1, 2, 7, 100, stream.len()] {
            let mut messages = Messages::default();
            let mut sum = Passed::default();
            for piece in stream.chunks(size) {
                let passed = messages.pass(piece);
                sum.messages += passed.messages;
                sum.bytes += passed.bytes;
            }
            assert_eq!((sum.messages, sum.bytes), (3, 303), "pieces of {size}");
        }
    }
}
