//! Writing a whole file from sorted input, in two passes.
//!
//! The first pages of a file name its root and its size, and the sink cannot be rewound. So a
//! first pass over the lengths ([`Measure`]) finds both, and a second one ([`Writer`]) writes the
//! pages in order. The file depends on the input alone.

use std::io::{self, BufWriter, Write};

use super::format::{
    BUCKET_LEN, DEFAULT_PAGE_SIZE, Meta, NO_FREELIST, PAGE_SIZE_MAX, PAGE_SIZE_MIN,
};
use super::tree::{Finished, Item, Pages, Tree};

/// Bytes collected before the sink is called.
const SINK_BUFFER: usize = 256 << 10;
/// The transaction the first meta page names; the second one names the one before.
const TRANSACTION: u64 = 2;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The sink failed.
    #[error("cannot write the database file")]
    Sink(#[from] io::Error),
    /// Names or keys are not strictly ascending.
    #[error("input is not in ascending order")]
    Order,
    /// An entry came before the first bucket.
    #[error("an entry without a bucket")]
    NoBucket,
    /// A key or value, or a page of them, is larger than the format can say.
    #[error("an entry is too large for the format")]
    TooLarge,
    /// The page size is not a power of two within the limits.
    #[error("impossible page size {0}")]
    PageSize(u32),
    /// The second pass saw other lengths than the first; the output is not valid.
    #[error("the input changed between the two passes")]
    PlanMismatch,
}

/// What the first pass found: enough to write the first pages of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    page_size: u32,
    root: u64,
    pages: u64,
}

impl Plan {
    /// Length of the file in bytes, without a digest behind it.
    pub fn size(&self) -> u64 {
        self.pages * u64::from(self.page_size)
    }

    /// Page size in bytes.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }
}

/// The two trees that are open at a time: the list of buckets, and the bucket being filled.
#[derive(Debug, Default)]
struct Forest {
    root: Tree,
    open: Option<(Vec<u8>, Tree)>,
}

impl Forest {
    fn bucket<P: Pages>(&mut self, name: &[u8], pages: &mut P) -> Result<(), WriteError> {
        if self
            .open
            .as_ref()
            .is_some_and(|(last, _)| last.as_slice() >= name)
        {
            return Err(WriteError::Order);
        }
        self.close(pages)?;
        self.open = Some((name.to_vec(), Tree::default()));
        Ok(())
    }

    fn add<P: Pages>(&mut self, item: Item<'_>, pages: &mut P) -> Result<(), WriteError> {
        match &mut self.open {
            Some((_, tree)) => tree.add(item, pages),
            None => Err(WriteError::NoBucket),
        }
    }

    /// Ends the open bucket and lists it in the root.
    fn close<P: Pages>(&mut self, pages: &mut P) -> Result<(), WriteError> {
        let Some((name, tree)) = self.open.take() else {
            return Ok(());
        };
        let sequence = 0_u64.to_le_bytes();
        let (root, inline, length) = match tree.finish(pages, true)? {
            Finished::Page(root) => (root, Vec::new(), 0),
            Finished::Inline(bytes, length) => (0, bytes, length),
        };
        if pages.is_writing() {
            let record = [root.to_le_bytes().as_slice(), &sequence, &inline].concat();
            self.root.add(Item::entry(&name, &record, true), pages)
        } else {
            self.root
                .add(Item::lengths(name.len(), BUCKET_LEN + length, true), pages)
        }
    }

    fn finish<P: Pages>(mut self, pages: &mut P) -> Result<u64, WriteError> {
        self.close(pages)?;
        match self.root.finish(pages, false)? {
            Finished::Page(root) => Ok(root),
            Finished::Inline(..) => Err(WriteError::PlanMismatch),
        }
    }
}

/// Hands out ids and forgets the pages.
#[derive(Debug)]
struct Counter {
    page_size: u32,
    next: u64,
}

impl Counter {
    fn new(page_size: u32) -> Self {
        Self { page_size, next: 2 }
    }
}

impl Pages for Counter {
    fn page_size(&self) -> usize {
        usize::try_from(self.page_size).unwrap_or(usize::MAX)
    }

    fn is_writing(&self) -> bool {
        false
    }

    fn allocate(&mut self, span: u64) -> Result<u64, WriteError> {
        let id = self.next;
        self.next = id.checked_add(span).ok_or(WriteError::TooLarge)?;
        Ok(id)
    }

    fn put(&mut self, _parts: [&[u8]; 3], _span: u64) -> Result<(), WriteError> {
        Ok(())
    }
}

/// The first pass: buckets in ascending order of name, entries in ascending order of key.
#[derive(Debug)]
pub struct Measure {
    forest: Forest,
    counter: Counter,
}

impl Default for Measure {
    fn default() -> Self {
        Self {
            forest: Forest::default(),
            counter: Counter::new(DEFAULT_PAGE_SIZE),
        }
    }
}

impl Measure {
    /// Starts for files with pages of `page_size` bytes; `default` takes etcd's.
    pub fn with_page_size(page_size: u32) -> Result<Self, WriteError> {
        if !page_size.is_power_of_two() || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_size) {
            return Err(WriteError::PageSize(page_size));
        }
        Ok(Self {
            forest: Forest::default(),
            counter: Counter::new(page_size),
        })
    }

    /// Starts the bucket `name`, which may stay empty.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.forest.bucket(name, &mut self.counter)
    }

    /// Notes an entry by its lengths.
    pub fn entry(&mut self, key_len: usize, value_len: usize) -> Result<(), WriteError> {
        self.forest
            .add(Item::lengths(key_len, value_len, false), &mut self.counter)
    }

    /// Ends the pass.
    pub fn finish(mut self) -> Result<Plan, WriteError> {
        let root = self.forest.finish(&mut self.counter)?;
        Ok(Plan {
            page_size: self.counter.page_size,
            root,
            pages: self.counter.next,
        })
    }
}

/// Writes pages in order, padded.
#[derive(Debug)]
struct Sink<W: Write> {
    counter: Counter,
    out: BufWriter<W>,
    padding: Vec<u8>,
}

impl<W: Write> Pages for Sink<W> {
    fn page_size(&self) -> usize {
        self.counter.page_size()
    }

    fn is_writing(&self) -> bool {
        true
    }

    fn allocate(&mut self, span: u64) -> Result<u64, WriteError> {
        self.counter.allocate(span)
    }

    fn put(&mut self, parts: [&[u8]; 3], span: u64) -> Result<(), WriteError> {
        let mut length = 0;
        for part in parts {
            self.out.write_all(part)?;
            length += part.len();
        }
        let whole = usize::try_from(span)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.page_size());
        let missing = whole
            .checked_sub(length)
            .and_then(|missing| self.padding.get(..missing));
        self.out
            .write_all(missing.ok_or(WriteError::PlanMismatch)?)?;
        Ok(())
    }
}

/// The second pass: the same buckets and entries as the first, with their bytes.
#[derive(Debug)]
pub struct Writer<W: Write> {
    plan: Plan,
    forest: Forest,
    sink: Sink<W>,
    last_key: Option<Vec<u8>>,
}

impl<W: Write> Writer<W> {
    /// Writes the two meta pages of `plan`.
    pub fn new(plan: Plan, out: W) -> Result<Self, WriteError> {
        let counter = Counter::new(plan.page_size);
        let padding = vec![0; counter.page_size()];
        let mut sink = Sink {
            counter,
            out: BufWriter::with_capacity(SINK_BUFFER, out),
            padding,
        };
        for id in 0..2 {
            let meta = Meta {
                page_size: plan.page_size,
                root: plan.root,
                sequence: 0,
                freelist: NO_FREELIST,
                pages: plan.pages,
                txid: TRANSACTION - id,
            };
            sink.put([&meta.encode(id), &[], &[]], 1)?;
        }
        Ok(Self {
            plan,
            forest: Forest::default(),
            sink,
            last_key: None,
        })
    }

    /// Starts the bucket `name`.
    pub fn bucket(&mut self, name: &[u8]) -> Result<(), WriteError> {
        self.last_key = None;
        self.forest.bucket(name, &mut self.sink)
    }

    /// Adds an entry to the bucket started last.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        if self.last_key.as_deref().is_some_and(|last| last >= key) {
            return Err(WriteError::Order);
        }
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.forest
            .add(Item::entry(key, value, false), &mut self.sink)
    }

    /// Writes what is left and gives the sink back, flushed but not synced.
    pub fn finish(mut self) -> Result<W, WriteError> {
        let root = self.forest.finish(&mut self.sink)?;
        if root != self.plan.root || self.sink.counter.next != self.plan.pages {
            return Err(WriteError::PlanMismatch);
        }
        self.sink.out.flush()?;
        self.sink
            .out
            .into_inner()
            .map_err(|error| WriteError::Sink(error.into_error()))
    }
}
