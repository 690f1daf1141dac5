//! Every key of the member, page by page.

use bytes::Bytes;
use holdfast_proto::etcd::{kv, rpc};
use tonic::Status;

use crate::client::{Client, answer};

/// Pages are sized to come out at about this many bytes.
const PAGE_BYTES: usize = 4 << 20;

/// Most keys in a page.
const PAGE_KEYS_MAX: i64 = 10_000;

/// Reads all keys at one revision, ascending.
pub(super) struct Pages<'a> {
    client: &'a Client,
    revision: i64,
    from: Option<Bytes>,
    limit: i64,
}

impl<'a> Pages<'a> {
    pub(super) fn new(client: &'a Client, revision: i64) -> Self {
        Self {
            client,
            revision,
            from: Some(Bytes::from_static(b"\0")),
            limit: 64,
        }
    }

    /// The next page; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<kv::KeyValue>>, Status> {
        let Some(from) = self.from.take() else {
            return Ok(None);
        };
        let request = rpc::RangeRequest {
            key: from.clone(),
            range_end: Bytes::from_static(b"\0"),
            limit: self.limit,
            revision: self.revision,
            ..rpc::RangeRequest::default()
        };
        let page = answer(self.client.kv().range(request)).await?;
        if let Some(last) = page.kvs.last().filter(|_| page.more) {
            // A page that does not move on would be asked for again and again.
            if last.key < from {
                return Err(Status::data_loss("a page goes back"));
            }
            let mut next = Vec::with_capacity(last.key.len() + 1);
            next.extend_from_slice(&last.key);
            next.push(0);
            self.from = Some(next.into());
        }
        let bytes: usize = page
            .kvs
            .iter()
            .map(|one| one.key.len() + one.value.len())
            .sum();
        self.limit = match bytes {
            0..PAGE_BYTES => self.limit.saturating_mul(2).min(PAGE_KEYS_MAX),
            _ => (self.limit / 2).max(1),
        };
        Ok(Some(page.kvs))
    }
}
