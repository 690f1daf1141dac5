//! Answers of several streams in one write.
//!
//! A write to a socket costs more than most answers. When other streams of the connection are
//! under way, a small write is put off once, behind the tasks that are ready to run now: those
//! that answer meanwhile go out with it (as Go's gRPC server does). Nothing waits for time to pass.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::task::TaskTracker;

/// A write of as many bytes is not put off: there is enough to do.
const SMALL_BYTES_MAX: usize = 4 << 10;

/// The streams of one connection that are not answered yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Streams(Arc<AtomicUsize>);

impl Streams {
    fn begin(&self) -> Stream {
        self.0.fetch_add(1, Ordering::Relaxed);
        Stream(Arc::clone(&self.0))
    }

    fn are_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// One stream; over when dropped.
struct Stream(Arc<AtomicUsize>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs the streams of one HTTP/2 connection as tasks that a stop waits for, and counts them.
#[derive(Clone)]
pub(super) struct Tracked {
    pub(super) tasks: TaskTracker,
    pub(super) streams: Streams,
}

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let counted = self.streams.begin();
        drop(self.tasks.spawn(async move {
            stream.await;
            drop(counted);
        }));
    }
}

/// A connection whose small writes wait for the other streams' answers.
#[derive(Debug)]
pub(super) struct Gathering<T> {
    inner: T,
    /// What was read already and comes first.
    said: Bytes,
    streams: Streams,
    /// Whether the next write was put off already.
    was_put_off: bool,
}

impl<T> Gathering<T> {
    /// A connection on which the other side has `said` something already.
    pub(super) fn new(inner: T, said: Bytes, streams: Streams) -> Self {
        Self {
            inner,
            said,
            streams,
            was_put_off: false,
        }
    }

    /// Whether a write of `bytes` is to come again later; its task is woken for it.
    fn puts_off(&mut self, bytes: usize, cx: &Context<'_>) -> bool {
        let puts_off = !self.was_put_off && bytes < SMALL_BYTES_MAX && self.streams.are_under_way();
        self.was_put_off = puts_off;
        if puts_off {
            cx.waker().wake_by_ref();
        }
        puts_off
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathering<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.puts_off(bytes.len(), cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if self.puts_off(bytes, cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gathering<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.said.is_empty() {
            let length = self.said.len().min(buffer.remaining());
            buffer.put_slice(&self.said.split_to(length));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn write(to: &mut Gathering<Vec<u8>>, bytes: &[u8]) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(to).poll_write(&mut cx, bytes) {
            Poll::Ready(written) => {
                assert_eq!(written.unwrap(), bytes.len());
                true
            }
            Poll::Pending => false,
        }
    }

    #[test]
    fn a_small_write_is_put_off_once_while_other_streams_are_under_way() {
        let streams = Streams::default();
        let mut connection = Gathering::new(Vec::new(), Bytes::new(), streams.clone());
        assert!(write(&mut connection, b"alone"));
        let other = streams.begin();
        assert!(!write(&mut connection, b"first"));
        assert!(write(&mut connection, b"firstsecond"));
        assert!(!write(&mut connection, b"third"));
        drop(other);
        assert!(write(&mut connection, b"third"));
        assert_eq!(connection.inner, b"alonefirstsecondthird");
    }

    #[tokio::test]
    async fn what_was_said_already_is_read_first() {
        use tokio::io::AsyncReadExt as _;
        let said = Bytes::from_static(b"one ");
        let mut connection = Gathering::new(&b"two"[..], said, Streams::default());
        let mut text = String::new();
        connection.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "one two");
    }

    #[test]
    fn a_large_write_is_not_put_off() {
        let streams = Streams::default();
        let _other = streams.begin();
        let mut connection = Gathering::new(Vec::new(), Bytes::new(), streams);
        assert!(write(&mut connection, &[7; SMALL_BYTES_MAX]));
    }
}
