//! Walking a bucket in key order.

use bytes::Bytes;

use super::error::{Error, Fault};
use super::format::DEPTH_MAX;
use super::page::{Kind, LeafSpan, Page};
use super::reader::{Bolt, Root};
use super::source::ReadAt;
use super::visited::Visited;

/// One entry of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value; for a bucket its record, which is of no use by itself.
    pub value: Bytes,
    /// Whether the entry is a bucket inside this one.
    pub is_bucket: bool,
}

/// One entry of a bucket, borrowed from its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; for a bucket its record, which is of no use by itself.
    pub value: &'a [u8],
    /// Whether the entry is a bucket inside this one.
    pub is_bucket: bool,
}

/// A position in a bucket. Holds one page a level; each page is read at most once, so that a walk
/// ends whatever the file says.
#[derive(Debug)]
pub struct Cursor<'a, R> {
    bolt: &'a Bolt<R>,
    start: Option<Root>,
    stack: Vec<Frame>,
    visited: Visited,
    /// Last key of the leaf before the current one.
    previous_last: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Frame {
    page: Page,
    next: u16,
}

impl<'a, R: ReadAt> Cursor<'a, R> {
    pub(crate) fn new(bolt: &'a Bolt<R>, root: Root) -> Self {
        Self {
            bolt,
            start: Some(root),
            stack: Vec::new(),
            visited: Visited::new(bolt.page_count()),
            previous_last: None,
        }
    }

    /// The next entry.
    pub fn advance(&mut self) -> Result<Option<EntryRef<'_>>, Error> {
        let Some(span) = self.step()? else {
            return Ok(None);
        };
        let Some(frame) = self.stack.last() else {
            return Ok(None);
        };
        Ok(Some(EntryRef {
            key: frame.page.bytes(span.key),
            value: frame.page.bytes(span.value),
            is_bucket: span.is_bucket,
        }))
    }

    /// As [`Cursor::advance`], sharing the page instead of borrowing it.
    pub fn advance_shared(&mut self) -> Result<Option<Entry>, Error> {
        let Some(span) = self.step()? else {
            return Ok(None);
        };
        let Some(frame) = self.stack.last() else {
            return Ok(None);
        };
        Ok(Some(Entry {
            key: frame.page.shared(span.key),
            value: frame.page.shared(span.value),
            is_bucket: span.is_bucket,
        }))
    }

    /// Moves before the first entry at or above `key`. Only a fresh cursor can seek.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<(), Error> {
        let Some(root) = self.start.take() else {
            return Ok(());
        };
        self.enter(root)?;
        while let Some(frame) = self.stack.last_mut() {
            let index = frame.page.lower_bound(key)?;
            if frame.page.kind == Kind::Leaf {
                frame.next = index;
                return Ok(());
            }
            let is_exact = index < frame.page.count && frame.page.key(index)? == key;
            let at = if is_exact {
                index
            } else {
                index.saturating_sub(1)
            };
            let (_, child) = frame.page.branch(at)?;
            frame.next = at + 1;
            self.enter(Root::Page(child))?;
        }
        Ok(())
    }

    /// Steps to the next element of a leaf, which is then on top of the stack.
    fn step(&mut self) -> Result<Option<LeafSpan>, Error> {
        if let Some(root) = self.start.take() {
            self.enter(root)?;
        }
        loop {
            let Some(frame) = self.stack.last_mut() else {
                return Ok(None);
            };
            if frame.next >= frame.page.count {
                self.leave()?;
                continue;
            }
            let index = frame.next;
            frame.next += 1;
            if frame.page.kind == Kind::Branch {
                let (_, child) = frame.page.branch(index)?;
                self.enter(Root::Page(child))?;
                continue;
            }
            let span = frame.page.leaf_span(index)?;
            let key = frame.page.bytes(span.key);
            let is_ascending = match index.checked_sub(1) {
                Some(before) => frame.page.key(before)? < key,
                None => self.previous_last.as_deref().is_none_or(|last| last < key),
            };
            if !is_ascending {
                return Err(Error::page(frame.page.id, Fault::KeyOrder(index)));
            }
            return Ok(Some(span));
        }
    }

    /// Drops the page on top, keeping the last key of a leaf.
    fn leave(&mut self) -> Result<(), Error> {
        if let Some(frame) = self.stack.pop()
            && frame.page.kind == Kind::Leaf
            && let Some(last) = frame.page.count.checked_sub(1)
        {
            let key = frame.page.key(last)?;
            let kept = self.previous_last.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(key);
        }
        Ok(())
    }

    fn enter(&mut self, root: Root) -> Result<(), Error> {
        let page = match root {
            Root::Inline(page) => page,
            Root::Page(id) => {
                if self.stack.len() >= DEPTH_MAX {
                    return Err(Error::page(id, Fault::TooDeep(DEPTH_MAX)));
                }
                let (page, span) = self.bolt.page(id)?;
                for part in id..id + span {
                    if !self.visited.insert(part) {
                        return Err(Error::page(part, Fault::ReachedTwice));
                    }
                }
                page
            }
        };
        self.stack.push(Frame { page, next: 0 });
        Ok(())
    }
}

/// All entries of a bucket in key order; ends after the first error.
#[derive(Debug)]
pub struct Iter<'a, R> {
    cursor: Option<Cursor<'a, R>>,
}

impl<'a, R> Iter<'a, R> {
    pub(crate) fn new(cursor: Cursor<'a, R>) -> Self {
        Self {
            cursor: Some(cursor),
        }
    }
}

impl<R: ReadAt> Iterator for Iter<'_, R> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.cursor.as_mut()?.advance_shared().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.cursor = None;
        }
        item
    }
}
