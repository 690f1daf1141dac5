//! Walking every page of a file, once: what is wrong with it, and what it holds.

use super::cursor::EntryRef;
use super::error::{Error, Fault};
use super::format::DEPTH_MAX;
use super::page::{Kind, LeafSpan, Page};
use super::reader::{Bolt, Root};
use super::source::ReadAt;
use super::visited::Visited;

/// How many problems a [`Report`] lists; the walk stops looking after that.
pub const PROBLEMS_MAX: usize = 100;

/// What a walk over every page found.
#[derive(Debug, Default)]
pub struct Report {
    /// Pages in use or free, the two meta pages included.
    pub pages: u64,
    /// Branch pages, without their overflow.
    pub branch_pages: u64,
    /// Leaf pages, without their overflow.
    pub leaf_pages: u64,
    /// Pages that continue a branch, a leaf or the freelist.
    pub overflow_pages: u64,
    /// Pages that hold nothing.
    pub free_pages: u64,
    /// Buckets, inline and nested ones included.
    pub buckets: u64,
    /// Entries that are not buckets.
    pub keys: u64,
    /// Everything that is wrong, in the order it was found, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Error>,
    /// How many of the problems are in buckets; the others are about free pages.
    pub bucket_problems: usize,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

struct Walk<'a, R, F> {
    bolt: &'a Bolt<R>,
    visited: Visited,
    report: Report,
    visit: F,
}

/// Whose entries a page holds.
#[derive(Clone, Copy)]
enum Holder<'a> {
    /// The list of buckets.
    List,
    /// A bucket of the list.
    Bucket(&'a [u8]),
    /// A bucket inside a bucket.
    Nested,
}

/// What a page may hold: keys from `low` to below `high`.
#[derive(Clone, Copy)]
struct Range<'a> {
    holder: Holder<'a>,
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    fn all(holder: Holder<'a>) -> Self {
        Self {
            holder,
            low: None,
            high: None,
        }
    }
}

/// Walks everything; `visit` is given each entry of the list of buckets (without a name) and each
/// entry of these buckets (with the bucket's name), in order, as long as nothing is wrong.
pub(crate) fn run<R, F>(bolt: &Bolt<R>, visit: F) -> Report
where
    R: ReadAt,
    F: FnMut(Option<&[u8]>, EntryRef<'_>),
{
    let mut walk = Walk {
        bolt,
        visited: Visited::new(bolt.page_count()),
        report: Report::default(),
        visit,
    };
    walk.report.pages = bolt.page_count();
    for meta in 0..2 {
        walk.visited.insert(meta);
    }
    walk.subtree(bolt.meta().root, Range::all(Holder::List), 0);
    walk.report.bucket_problems = walk.report.problems.len();
    walk.free_pages();
    walk.report
}

impl<R, F> Walk<'_, R, F>
where
    R: ReadAt,
    F: FnMut(Option<&[u8]>, EntryRef<'_>),
{
    fn is_full(&self) -> bool {
        self.report.problems.len() >= PROBLEMS_MAX
    }

    fn problem(&mut self, error: Error) {
        if !self.is_full() {
            self.report.problems.push(error);
        }
    }

    /// Marks a page and its overflow; false when one of them was reached before.
    fn mark(&mut self, id: u64, span: u64) -> bool {
        for part in id..id.saturating_add(span) {
            if !self.visited.insert(part) {
                self.problem(Error::page(part, Fault::ReachedTwice));
                return false;
            }
        }
        self.report.overflow_pages += span - 1;
        true
    }

    /// Walks the tree under page `id`; `depth` counts levels of this tree and of those around it.
    fn subtree(&mut self, id: u64, range: Range<'_>, depth: usize) {
        if self.is_full() {
            return;
        }
        if depth >= DEPTH_MAX {
            return self.problem(Error::page(id, Fault::TooDeep(DEPTH_MAX)));
        }
        match self.bolt.page(id) {
            Err(error) => self.problem(error),
            Ok((page, span)) => {
                if self.mark(id, span) {
                    match page.kind {
                        Kind::Branch => self.report.branch_pages += 1,
                        Kind::Leaf => self.report.leaf_pages += 1,
                    }
                    self.content(&page, range, depth);
                }
            }
        }
    }

    /// Walks the elements of a page that is already marked.
    fn content(&mut self, page: &Page, range: Range<'_>, depth: usize) {
        if let Err(error) = keys_in_order(page, range) {
            return self.problem(error);
        }
        match page.kind {
            Kind::Branch => {
                for index in 0..page.count {
                    self.child(page, index, range, depth);
                }
            }
            Kind::Leaf => {
                for index in 0..page.count {
                    match page.leaf_span(index) {
                        Err(error) => self.problem(error),
                        Ok(span) => self.entry(page, index, span, (range.holder, depth)),
                    }
                }
            }
        }
    }

    fn child(&mut self, page: &Page, index: u16, range: Range<'_>, depth: usize) {
        let high = match index.checked_add(1).filter(|next| *next < page.count) {
            Some(next) => page.key(next).ok(),
            None => range.high,
        };
        match page.branch(index) {
            Err(error) => self.problem(error),
            Ok((key, child)) => {
                self.subtree(
                    child,
                    Range {
                        low: Some(key),
                        high,
                        ..range
                    },
                    depth + 1,
                );
            }
        }
    }

    fn entry(&mut self, page: &Page, index: u16, span: LeafSpan, at: (Holder<'_>, usize)) {
        let (holder, depth) = at;
        let key = page.bytes(span.key);
        let entry = EntryRef {
            key,
            value: page.bytes(span.value),
            is_bucket: span.is_bucket,
        };
        match holder {
            _ if !self.report.is_clean() => {}
            Holder::List => (self.visit)(None, entry),
            Holder::Bucket(name) => (self.visit)(Some(name), entry),
            Holder::Nested => {}
        }
        if !span.is_bucket {
            self.report.keys += 1;
            return;
        }
        self.report.buckets += 1;
        if depth + 1 >= DEPTH_MAX {
            return self.problem(Error::page(page.id, Fault::TooDeep(DEPTH_MAX)));
        }
        let inside = Range::all(match holder {
            Holder::List => Holder::Bucket(key),
            Holder::Bucket(_) | Holder::Nested => Holder::Nested,
        });
        match Bolt::<R>::bucket_record(page, index, span.value) {
            Err(error) => self.problem(error),
            Ok((Root::Page(id), _)) => self.subtree(id, inside, depth + 1),
            Ok((Root::Inline(inline), _)) => self.content(&inline, inside, depth + 1),
        }
    }

    /// Every page that was not reached must be free, and no free one reached.
    fn free_pages(&mut self) {
        let listed = match self.bolt.freelist() {
            Err(error) => return self.problem(error),
            Ok(None) => {
                self.report.free_pages = self.report.pages.saturating_sub(self.visited.count());
                return;
            }
            Ok(Some((listed, span))) => {
                self.mark(self.bolt.meta().freelist, span);
                listed
            }
        };
        let mut free = Visited::new(self.report.pages);
        for id in listed {
            if id < 2 || !free.insert(id) {
                self.problem(Error::page(self.bolt.meta().freelist, Fault::FreeId(id)));
            } else if self.visited.contains(id) {
                self.problem(Error::page(id, Fault::ReachableAndFree));
            }
        }
        for id in 2..self.report.pages {
            if self.is_full() {
                return;
            }
            if !free.contains(id) && !self.visited.contains(id) {
                self.problem(Error::page(id, Fault::Lost));
            }
        }
        self.report.free_pages = free.count();
    }
}

/// Keys of one page ascend strictly and stay within the parent's range.
fn keys_in_order(page: &Page, range: Range<'_>) -> Result<(), Error> {
    let mut previous: Option<&[u8]> = None;
    for index in 0..page.count {
        let key = page.key(index)?;
        if previous.is_some_and(|previous| previous >= key) {
            return Err(Error::page(page.id, Fault::KeyOrder(index)));
        }
        if range.low.is_some_and(|low| key < low) || range.high.is_some_and(|high| key >= high) {
            return Err(Error::page(page.id, Fault::KeyRange(index)));
        }
        previous = Some(key);
    }
    Ok(())
}
