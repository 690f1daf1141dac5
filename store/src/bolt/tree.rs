//! Building one bucket's tree bottom-up, from sorted entries.
//!
//! Pages are closed as soon as the next entry does not fit, so a level needs one page in memory.
//! A page gets its id when it is closed, children before parents: a pass that only knows lengths
//! closes the same pages under the same ids as the pass that writes them.

use super::format::{ELEMENT_BUCKET, ELEMENT_LEN, FLAG_BRANCH, FLAG_LEAF, HEADER_LEN, header};
use super::writer::WriteError;

/// The count of a page is 16 bits wide, and its highest value is reserved.
const COUNT_MAX: usize = 0xFFFE;

/// One entry or one child, with or without its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) is_bucket: bool,
    pub(crate) child: u64,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    /// Empty in a pass that only measures.
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Item<'a> {
    pub(crate) fn entry(key: &'a [u8], value: &'a [u8], is_bucket: bool) -> Self {
        Self {
            is_bucket,
            child: 0,
            key_len: key.len(),
            value_len: value.len(),
            key,
            value,
        }
    }

    pub(crate) fn lengths(key_len: usize, value_len: usize, is_bucket: bool) -> Self {
        Self {
            is_bucket,
            child: 0,
            key_len,
            value_len,
            key: &[],
            value: &[],
        }
    }
}

/// Takes closed pages in the order of their ids.
pub(crate) trait Pages {
    /// Page size in bytes.
    fn page_size(&self) -> usize;
    /// Whether bytes are wanted, or only ids.
    fn is_writing(&self) -> bool;
    /// Reserves `span` pages and returns the first id.
    fn allocate(&mut self, span: u64) -> Result<u64, WriteError>;
    /// Takes the content of the page just reserved, unpadded.
    fn put(&mut self, parts: [&[u8]; 3], span: u64) -> Result<(), WriteError>;
}

#[derive(Debug, Clone, Copy)]
struct Element {
    is_bucket: bool,
    child: u64,
    key_len: u32,
    value_len: u32,
}

/// The open page of one level.
#[derive(Debug, Default)]
struct Level {
    count: usize,
    size: usize,
    first_key_len: usize,
    elements: Vec<Element>,
    data: Vec<u8>,
}

/// One bucket's tree; level 0 holds the leaves.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    levels: Vec<Level>,
    table: Vec<u8>,
}

/// How a finished tree is referred to.
#[derive(Debug)]
pub(crate) enum Finished {
    /// Its root page.
    Page(u64),
    /// Small enough to stand in its bucket's record: bytes of the page (none when measuring) and
    /// their length.
    Inline(Vec<u8>, usize),
}

impl Tree {
    /// Adds an entry above all earlier ones.
    pub(crate) fn add<P: Pages>(
        &mut self,
        item: Item<'_>,
        pages: &mut P,
    ) -> Result<(), WriteError> {
        self.push(0, item, pages)
    }

    /// Closes everything. A tree of one small leaf without buckets can stay inline.
    pub(crate) fn finish<P: Pages>(
        mut self,
        pages: &mut P,
        may_inline: bool,
    ) -> Result<Finished, WriteError> {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        if let ([leaf], true) = (self.levels.as_slice(), may_inline)
            && HEADER_LEN + leaf.size <= pages.page_size() / 4
        {
            let length = HEADER_LEN + leaf.size;
            let mut bytes = Vec::new();
            if pages.is_writing() {
                let leaf = self.levels.remove(0);
                self.element_table(0, &leaf)?;
                bytes.extend_from_slice(&header(0, FLAG_LEAF, count(&leaf)?, 0));
                bytes.extend_from_slice(&self.table);
                bytes.extend_from_slice(&leaf.data);
            }
            return Ok(Finished::Inline(bytes, length));
        }
        let mut level = 0;
        while level + 1 < self.levels.len() {
            self.close(level, pages)?;
            level += 1;
        }
        let (root, ..) = self.emit(level, pages)?;
        Ok(Finished::Page(root))
    }

    fn push<P: Pages>(
        &mut self,
        at: usize,
        item: Item<'_>,
        pages: &mut P,
    ) -> Result<(), WriteError> {
        if self.levels.len() <= at {
            self.levels.push(Level::default());
        }
        let size = ELEMENT_LEN + item.key_len + item.value_len;
        let is_full = self.levels.get(at).is_some_and(|level| {
            level.count > 0
                && (HEADER_LEN + level.size + size > pages.page_size() || level.count >= COUNT_MAX)
        });
        if is_full {
            self.close(at, pages)?;
        }
        let Some(level) = self.levels.get_mut(at) else {
            return Ok(());
        };
        if level.count == 0 {
            level.first_key_len = item.key_len;
        }
        level.count += 1;
        level.size += size;
        if pages.is_writing() {
            level.elements.push(Element {
                is_bucket: item.is_bucket,
                child: item.child,
                key_len: u32::try_from(item.key_len).map_err(|_wide| WriteError::TooLarge)?,
                value_len: u32::try_from(item.value_len).map_err(|_wide| WriteError::TooLarge)?,
            });
            level.data.extend_from_slice(item.key);
            level.data.extend_from_slice(item.value);
        }
        Ok(())
    }

    /// Ends the open page of a level and hangs it into the level above.
    fn close<P: Pages>(&mut self, at: usize, pages: &mut P) -> Result<(), WriteError> {
        let (child, key_len, key) = self.emit(at, pages)?;
        let item = Item {
            is_bucket: false,
            child,
            key_len,
            value_len: 0,
            key: &key,
            value: &[],
        };
        self.push(at + 1, item, pages)
    }

    /// Gives the open page of a level its id and hands it on; returns id and first key.
    fn emit<P: Pages>(
        &mut self,
        at: usize,
        pages: &mut P,
    ) -> Result<(u64, usize, Vec<u8>), WriteError> {
        let Some(slot) = self.levels.get_mut(at) else {
            return Err(WriteError::PlanMismatch);
        };
        let mut level = std::mem::take(slot);
        let span = u64::try_from((HEADER_LEN + level.size).div_ceil(pages.page_size()))
            .map_err(|_wide| WriteError::TooLarge)?;
        let id = pages.allocate(span)?;
        let mut first_key = Vec::new();
        if pages.is_writing() {
            first_key = level
                .data
                .get(..level.first_key_len)
                .unwrap_or_default()
                .to_vec();
            let flags = if at == 0 { FLAG_LEAF } else { FLAG_BRANCH };
            let overflow = u32::try_from(span - 1).map_err(|_wide| WriteError::TooLarge)?;
            self.element_table(at, &level)?;
            let head = header(id, flags, count(&level)?, overflow);
            pages.put([&head, &self.table, &level.data], span)?;
        }
        let key_len = level.first_key_len;
        level.elements.clear();
        level.data.clear();
        if let Some(slot) = self.levels.get_mut(at) {
            *slot = Level {
                elements: level.elements,
                data: level.data,
                ..Level::default()
            };
        }
        Ok((id, key_len, first_key))
    }

    /// Fills `table` with the elements of a page; positions count from each element's own start.
    fn element_table(&mut self, at: usize, level: &Level) -> Result<(), WriteError> {
        self.table.clear();
        let mut position = level.elements.len() * ELEMENT_LEN;
        for element in &level.elements {
            let offset = u32::try_from(position).map_err(|_wide| WriteError::TooLarge)?;
            if at == 0 {
                let flags = if element.is_bucket { ELEMENT_BUCKET } else { 0 };
                for field in [flags, offset, element.key_len, element.value_len] {
                    self.table.extend_from_slice(&field.to_le_bytes());
                }
            } else {
                self.table.extend_from_slice(&offset.to_le_bytes());
                self.table.extend_from_slice(&element.key_len.to_le_bytes());
                self.table.extend_from_slice(&element.child.to_le_bytes());
            }
            let length = u64::from(element.key_len) + u64::from(element.value_len);
            position += usize::try_from(length).map_err(|_wide| WriteError::TooLarge)?;
            position -= ELEMENT_LEN;
        }
        Ok(())
    }
}

fn count(level: &Level) -> Result<u16, WriteError> {
    u16::try_from(level.count).map_err(|_wide| WriteError::TooLarge)
}
