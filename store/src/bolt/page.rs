//! One page: bounds checked at every access.

use bytes::Bytes;

use super::error::{Error, Fault};
use super::format::{
    ELEMENT_BUCKET, ELEMENT_LEN, FLAG_BRANCH, FLAG_LEAF, HEADER_LEN, u16_at, u32_at, u64_at,
};

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Branch,
    Leaf,
}

/// A branch or leaf page with its overflow, or the page inside an inline bucket.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// The page's id; for an inline page, the page its bucket record stands in.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) count: u16,
    data: Bytes,
}

/// Where an element's key and value lie in the page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafSpan {
    pub(crate) is_bucket: bool,
    pub(crate) key: (usize, usize),
    pub(crate) value: (usize, usize),
}

impl Page {
    /// Takes `data`, a page with its overflow, whose header is already known to name `id`.
    pub(crate) fn new(id: u64, data: Bytes) -> Result<Self, Error> {
        let fail = |fault| Error::page(id, fault);
        let flags = u16_at(&data, 8).ok_or_else(|| fail(Fault::Truncated))?;
        let count = u16_at(&data, 10).ok_or_else(|| fail(Fault::Truncated))?;
        let kind = match flags {
            FLAG_BRANCH => Kind::Branch,
            FLAG_LEAF => Kind::Leaf,
            other => return Err(fail(Fault::WrongType(other))),
        };
        if kind == Kind::Branch && count == 0 {
            return Err(fail(Fault::EmptyBranch));
        }
        let page = Self {
            id,
            kind,
            count,
            data,
        };
        if page.table_end() > page.data.len() {
            return Err(fail(Fault::ElementTable(count)));
        }
        Ok(page)
    }

    fn table_end(&self) -> usize {
        HEADER_LEN + usize::from(self.count) * ELEMENT_LEN
    }

    fn element(&self, index: u16) -> Result<(usize, &[u8]), Error> {
        let start = HEADER_LEN + usize::from(index) * ELEMENT_LEN;
        match self.data.get(start..start + ELEMENT_LEN) {
            Some(bytes) if index < self.count => Ok((start, bytes)),
            _ => Err(self.bounds(index)),
        }
    }

    fn bounds(&self, index: u16) -> Error {
        Error::page(self.id, Fault::ElementBounds(index))
    }

    /// Start and end of `length` bytes that lie `position` bytes after an element.
    fn span(&self, element: usize, position: u32, length: u32) -> Option<(usize, usize)> {
        let start = element.checked_add(usize::try_from(position).ok()?)?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (start >= self.table_end() && end <= self.data.len()).then_some((start, end))
    }

    /// The bytes between two offsets that [`Page::leaf_span`] gave.
    pub(crate) fn bytes(&self, (start, end): (usize, usize)) -> &[u8] {
        self.data.get(start..end).unwrap_or_default()
    }

    /// As [`Page::bytes`], shared instead of borrowed.
    pub(crate) fn shared(&self, (start, end): (usize, usize)) -> Bytes {
        if start <= end && end <= self.data.len() {
            self.data.slice(start..end)
        } else {
            Bytes::new()
        }
    }

    /// Element `index` of a leaf.
    pub(crate) fn leaf_span(&self, index: u16) -> Result<LeafSpan, Error> {
        let (start, bytes) = self.element(index)?;
        let field = |at| u32_at(bytes, at).ok_or_else(|| self.bounds(index));
        let (flags, position, key_len, value_len) = (field(0)?, field(4)?, field(8)?, field(12)?);
        if flags & !ELEMENT_BUCKET != 0 {
            return Err(Error::page(self.id, Fault::ElementFlags(index)));
        }
        let key = self
            .span(start, position, key_len)
            .ok_or_else(|| self.bounds(index))?;
        let value = key_len
            .checked_add(position)
            .and_then(|after| self.span(start, after, value_len))
            .ok_or_else(|| self.bounds(index))?;
        Ok(LeafSpan {
            is_bucket: flags & ELEMENT_BUCKET != 0,
            key,
            value,
        })
    }

    /// Key and child of element `index` of a branch.
    pub(crate) fn branch(&self, index: u16) -> Result<(&[u8], u64), Error> {
        let (start, bytes) = self.element(index)?;
        let field = |at| u32_at(bytes, at).ok_or_else(|| self.bounds(index));
        let key = self
            .span(start, field(0)?, field(4)?)
            .ok_or_else(|| self.bounds(index))?;
        let child = u64_at(bytes, 8).ok_or_else(|| self.bounds(index))?;
        Ok((self.bytes(key), child))
    }

    /// The key of element `index`, whatever the kind.
    pub(crate) fn key(&self, index: u16) -> Result<&[u8], Error> {
        match self.kind {
            Kind::Branch => self.branch(index).map(|(key, _)| key),
            Kind::Leaf => self.leaf_span(index).map(|span| self.bytes(span.key)),
        }
    }

    /// Index of the first element whose key is not below `key`, by bisection.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Result<u16, Error> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle)? < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
