//! Opening a file and finding buckets and keys in it.

use bytes::Bytes;

use super::check::{self, Report};
use super::cursor::{Cursor, Entry, EntryRef, Iter};
use super::error::{Error, Fault};
use super::format::{
    BUCKET_LEN, DEPTH_MAX, FLAG_FREELIST, HEADER_LEN, Meta, NO_FREELIST, PAGE_BYTES_MAX, u16_at,
    u32_at, u64_at,
};
use super::page::{Kind, Page};
use super::source::ReadAt;

/// An open bbolt file, as of its newest valid meta page.
#[derive(Debug)]
pub struct Bolt<R> {
    source: R,
    meta: Meta,
    spare_meta: Option<Error>,
}

/// Where a bucket's tree starts.
#[derive(Debug, Clone)]
pub(crate) enum Root {
    Page(u64),
    Inline(Page),
}

/// One bucket of an open file.
#[derive(Debug)]
pub struct Bucket<'a, R> {
    pub(crate) bolt: &'a Bolt<R>,
    pub(crate) root: Root,
    sequence: u64,
}

impl<R: ReadAt> Bolt<R> {
    /// Reads the meta pages. Nothing else is looked at until it is asked for.
    pub fn open(source: R) -> Result<Self, Error> {
        let (meta, spare_meta) = Meta::find(&source)?;
        let held = source.len() / u64::from(meta.page_size);
        if meta.pages > held {
            return Err(Error::page(
                meta.txid % 2,
                Fault::HighWater {
                    pages: meta.pages,
                    held,
                },
            ));
        }
        Ok(Self {
            source,
            meta,
            spare_meta,
        })
    }

    /// Page size in bytes.
    pub fn page_size(&self) -> u32 {
        self.meta.page_size
    }

    /// One more than the highest page id in use.
    pub fn page_count(&self) -> u64 {
        self.meta.pages
    }

    /// The transaction that wrote the meta page in use.
    pub fn transaction_id(&self) -> u64 {
        self.meta.txid
    }

    /// Bytes up to the end of the last page in use: what etcd calls the size of a snapshot.
    pub fn size(&self) -> u64 {
        self.meta.pages * u64::from(self.meta.page_size)
    }

    /// What is wrong with the meta page that is not in use; a torn write of it is harmless.
    pub fn spare_meta(&self) -> Option<&Error> {
        self.spare_meta.as_ref()
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// The bucket whose entries are the top-level buckets.
    pub fn root(&self) -> Bucket<'_, R> {
        Bucket {
            bolt: self,
            root: Root::Page(self.meta.root),
            sequence: self.meta.sequence,
        }
    }

    /// Names of the top-level buckets, ascending.
    pub fn buckets(&self) -> Result<Vec<Bytes>, Error> {
        self.root()
            .iter()
            .filter(|entry| entry.as_ref().map_or(true, |entry| entry.is_bucket))
            .map(|entry| entry.map(|entry| entry.key))
            .collect()
    }

    /// The top-level bucket `name`.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'_, R>>, Error> {
        self.root().bucket(name)
    }

    /// Walks every page: each reachable or free exactly once, keys ascending, bounds kept.
    pub fn check(&self) -> Report {
        self.check_each(|_bucket, _entry| {})
    }

    /// As [`Bolt::check`], and hands on what it passes: each entry of the list of buckets (without
    /// a name), then each entry of that bucket (with the bucket's name), in order, until something
    /// is found wrong. What is inside nested buckets, which etcd does not have, is left out.
    pub fn check_each<F>(&self, visit: F) -> Report
    where
        F: FnMut(Option<&[u8]>, EntryRef<'_>),
    {
        check::run(self, visit)
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// How many pages `id` spans, after checking its header against the file.
    fn raw(&self, id: u64) -> Result<Bytes, Error> {
        let fail = |fault| Error::page(id, fault);
        if id < 2 || id >= self.meta.pages {
            return Err(fail(Fault::OutOfBounds(self.meta.pages)));
        }
        let page_size = u64::from(self.meta.page_size);
        let offset = id * page_size;
        let read = |length: u64| {
            let length = usize::try_from(length).unwrap_or(HEADER_LEN);
            self.source
                .shared_at(offset, length)
                .map_err(|source| Error::Read { offset, source })
        };
        let data = read(page_size)?;
        if u64_at(&data, 0) != Some(id) {
            return Err(fail(Fault::WrongId(u64_at(&data, 0).unwrap_or_default())));
        }
        let overflow = u32_at(&data, 12).unwrap_or_default();
        if u64::from(overflow) >= self.meta.pages - id {
            return Err(fail(Fault::Overflow(overflow)));
        }
        let length = (u64::from(overflow) + 1) * page_size;
        if length > PAGE_BYTES_MAX {
            return Err(fail(Fault::TooLarge(length)));
        }
        if overflow > 0 { read(length) } else { Ok(data) }
    }

    /// Loads a branch or leaf page; also says how many pages it spans.
    pub(crate) fn page(&self, id: u64) -> Result<(Page, u64), Error> {
        let data = self.raw(id)?;
        let span = u64::from(u32_at(&data, 12).unwrap_or_default()) + 1;
        Ok((Page::new(id, data)?, span))
    }

    /// The ids on the stored freelist and the pages it takes itself, or `None` when the file
    /// stores none, as etcd's do.
    pub(crate) fn freelist(&self) -> Result<Option<(Vec<u64>, u64)>, Error> {
        let id = self.meta.freelist;
        if id == NO_FREELIST {
            return Ok(None);
        }
        let data = self.raw(id)?;
        let fail = |fault| Error::page(id, fault);
        match u16_at(&data, 8) {
            Some(FLAG_FREELIST) => {}
            flags => return Err(fail(Fault::NotAFreelist(flags.unwrap_or_default()))),
        }
        let short = u16_at(&data, 10).unwrap_or_default();
        let (start, count) = if short == u16::MAX {
            (
                HEADER_LEN + 8,
                u64_at(&data, HEADER_LEN).unwrap_or_default(),
            )
        } else {
            (HEADER_LEN, u64::from(short))
        };
        let ids = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(8))
            .and_then(|length| data.get(start..)?.get(..length))
            .ok_or_else(|| fail(Fault::FreelistLength(count)))?;
        let ids = ids
            .chunks_exact(8)
            .filter_map(|bytes| u64_at(bytes, 0))
            .collect();
        Ok(Some((
            ids,
            u64::from(u32_at(&data, 12).unwrap_or_default()) + 1,
        )))
    }

    /// Decodes the record of a bucket that stands in `page`.
    pub(crate) fn bucket_record(
        page: &Page,
        index: u16,
        value: (usize, usize),
    ) -> Result<(Root, u64), Error> {
        let bytes = page.bytes(value);
        let fail = || Error::page(page.id, Fault::BucketRecord(index));
        let root = u64_at(bytes, 0).ok_or_else(fail)?;
        let sequence = u64_at(bytes, 8).ok_or_else(fail)?;
        if root != 0 {
            return Ok((Root::Page(root), sequence));
        }
        let inline = page.shared((value.0.saturating_add(BUCKET_LEN), value.1));
        let inline = Page::new(page.id, inline)?;
        if inline.kind != Kind::Leaf {
            return Err(fail());
        }
        Ok((Root::Inline(inline), sequence))
    }
}

impl<'a, R: ReadAt> Bucket<'a, R> {
    /// The bucket's own counter; etcd does not use it.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A cursor before the first entry: borrowed access, for loops over everything.
    pub fn cursor(&self) -> Cursor<'a, R> {
        Cursor::new(self.bolt, self.root.clone())
    }

    /// All entries in key order.
    pub fn iter(&self) -> Iter<'a, R> {
        Iter::new(self.cursor())
    }

    /// Entries from the first key that is at or above `key`.
    pub fn iter_from(&self, key: &[u8]) -> Result<Iter<'a, R>, Error> {
        let mut cursor = self.cursor();
        cursor.seek(key)?;
        Ok(Iter::new(cursor))
    }

    /// The value of `key`, unless it is absent or a bucket.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let Some((page, index)) = self.find(key)? else {
            return Ok(None);
        };
        let span = page.leaf_span(index)?;
        Ok((!span.is_bucket).then(|| page.shared(span.value)))
    }

    /// The entry with the highest key.
    pub fn last(&self) -> Result<Option<Entry>, Error> {
        let mut page = self.start()?;
        for _ in 0..DEPTH_MAX {
            match (page.kind, page.count.checked_sub(1)) {
                (Kind::Branch, Some(last)) => page = self.bolt.page(page.branch(last)?.1)?.0,
                (Kind::Leaf, Some(last)) => {
                    let span = page.leaf_span(last)?;
                    return Ok(Some(Entry {
                        key: page.shared(span.key),
                        value: page.shared(span.value),
                        is_bucket: span.is_bucket,
                    }));
                }
                // An empty leaf: the last entry, if any, is in a leaf before it.
                (_, None) => return self.iter().last().transpose(),
            }
        }
        Err(Error::page(page.id, Fault::TooDeep(DEPTH_MAX)))
    }

    fn start(&self) -> Result<Page, Error> {
        match &self.root {
            Root::Page(id) => Ok(self.bolt.page(*id)?.0),
            Root::Inline(page) => Ok(page.clone()),
        }
    }

    /// The bucket stored under `name` in this one.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'a, R>>, Error> {
        let Some((page, index)) = self.find(name)? else {
            return Ok(None);
        };
        let span = page.leaf_span(index)?;
        if !span.is_bucket {
            return Ok(None);
        }
        let (root, sequence) = Bolt::<R>::bucket_record(&page, index, span.value)?;
        Ok(Some(Bucket {
            bolt: self.bolt,
            root,
            sequence,
        }))
    }

    /// The leaf and index of exactly `key`. Bounded by the depth, so cycles end.
    fn find(&self, key: &[u8]) -> Result<Option<(Page, u16)>, Error> {
        let mut page = self.start()?;
        for _ in 0..DEPTH_MAX {
            let index = page.lower_bound(key)?;
            let is_exact = index < page.count && page.key(index)? == key;
            match page.kind {
                Kind::Leaf => return Ok(is_exact.then_some((page, index))),
                Kind::Branch => {
                    let at = if is_exact {
                        index
                    } else {
                        index.saturating_sub(1)
                    };
                    let (_, child) = page.branch(at)?;
                    page = self.bolt.page(child)?.0;
                }
            }
        }
        Err(Error::page(page.id, Fault::TooDeep(DEPTH_MAX)))
    }
}

impl<'a, R: ReadAt> IntoIterator for &Bucket<'a, R> {
    type Item = Result<Entry, Error>;
    type IntoIter = Iter<'a, R>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
