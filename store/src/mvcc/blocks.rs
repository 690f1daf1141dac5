//! Keys in order, packed into blocks of bytes: most keys take little more than their own bytes.
//!
//! A block is a run of entries in ascending order. An entry is a byte that holds its kind (two
//! bits) and the length of its numbers (six bits), then the length of the key, the key and the
//! numbers. Lengths and numbers are LEB128. Blocks are short: a walk through one costs less than
//! the cache misses of a tree with a pointer for each key.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::OnceLock;

use super::key_index::Found;
use super::revision::Revision;

/// Bytes at which a block is cut in two; one entry may be larger.
const BLOCK_BYTES_MAX: usize = 1024;
/// Room that a block gets beyond what it needs now.
const BLOCK_BYTES_SPARE: usize = 96;
/// Room for all of an entry but its key; numbers may take more.
const ENTRY_BYTES_USUAL: usize = 16;

/// A key put once, in the first change of its revision: the revision alone.
const FRESH: u8 = 0;
/// Main and sub revision, creation, version.
const ONE: u8 = 1;
/// A place in the table of longer histories.
const MANY: u8 = 2;
const KIND_SHIFT: u32 = 6;
const LENGTH_MASK: u8 = (1 << KIND_SHIFT) - 1;

/// What is held for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// One open generation of one known revision.
    One(Found),
    /// Anything else: a place in the table of longer histories.
    Many(usize),
}

/// The keys.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Each under a key that is not after its first one and after all of the block before; the
    /// first block of all under the empty key.
    blocks: BTreeMap<Box<[u8]>, Block>,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Found out when it is asked for first, forgotten with each change.
    newest: OnceLock<Newest>,
}

/// The last change of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    /// Its main revision.
    pub(super) main: i64,
    /// Whether the key exists since then.
    pub(super) is_live: bool,
}

/// What the keys of a block are after the last change of any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Newest {
    main: i64,
    live: usize,
}

/// One entry of a block, and where in it.
#[derive(Debug, Clone, Copy)]
struct Entry<'block> {
    key: &'block [u8],
    kind: u8,
    numbers: &'block [u8],
    start: usize,
    end: usize,
}

impl Entry<'_> {
    fn held(&self) -> Held {
        let mut numbers = self.numbers;
        let mut next = || take_number(&mut numbers);
        match self.kind {
            FRESH => Held::One(Found::created_at(Revision::new(next().cast_signed(), 0))),
            ONE => {
                let [main, sub, created, version] = [next(), next(), next(), next()];
                Held::One(Found {
                    modified: Revision::new(main.cast_signed(), sub.cast_signed()),
                    created: created.cast_signed(),
                    version: version.cast_signed(),
                })
            }
            _ => Held::Many(usize::try_from(next()).unwrap_or(usize::MAX)),
        }
    }
}

impl Block {
    const fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            newest: OnceLock::new(),
        }
    }

    /// The entry at `start`; `None` behind the last one.
    fn entry(&self, start: usize) -> Option<Entry<'_>> {
        let bytes = self.bytes.get(start..)?;
        let (&first, mut rest) = bytes.split_first()?;
        let key_len = usize::try_from(take_number(&mut rest)).ok()?;
        let (key, rest) = rest.split_at_checked(key_len)?;
        let (numbers, rest) = rest.split_at_checked(usize::from(first & LENGTH_MASK))?;
        Some(Entry {
            key,
            kind: first >> KIND_SHIFT,
            numbers,
            start,
            end: start + (bytes.len() - rest.len()),
        })
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let entry = self.entry(at)?;
            at = entry.end;
            Some(entry)
        })
    }

    /// The entry of `key`, or where it would stand.
    fn find(&self, key: &[u8]) -> Result<Entry<'_>, usize> {
        for entry in self.entries() {
            match entry.key.cmp(key) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(entry),
                Ordering::Greater => return Err(entry.start),
            }
        }
        Err(self.bytes.len())
    }

    /// Puts an entry in the place of the bytes from `start` to `end`.
    fn replace(&mut self, start: usize, end: usize, key: &[u8], held: Held) {
        let mut encoded = Vec::with_capacity(key.len() + ENTRY_BYTES_USUAL);
        encode(key, held, &mut encoded);
        let grows = encoded.len().saturating_sub(end - start);
        if self.bytes.capacity() - self.bytes.len() < grows {
            self.bytes.reserve_exact(grows + BLOCK_BYTES_SPARE);
        }
        drop(self.bytes.splice(start..end, encoded));
        self.newest = OnceLock::new();
    }

    /// Cuts off the upper half, or only the entry at `newest` when that is the last: keys that
    /// come in order leave full blocks behind. `None` when there is one entry only.
    fn cut(&mut self, newest: usize) -> Option<(Box<[u8]>, Self)> {
        let middle = self.bytes.len() / 2;
        let newest = self.entry(newest)?;
        let upper = if newest.end == self.bytes.len() {
            newest
        } else {
            let from_middle = self.entries().find(|entry| entry.start >= middle);
            from_middle.or_else(|| self.entries().last())?
        };
        let (key, at) = (Box::from(upper.key), upper.start);
        if at == 0 {
            return None;
        }
        let upper = Self::new(self.bytes.split_off(at));
        self.bytes.shrink_to(at + BLOCK_BYTES_SPARE);
        self.newest = OnceLock::new();
        Some((key, upper))
    }

    /// The number of keys that exist at `at`, when no change is newer.
    fn live(&self, at: i64, last: impl Fn(Held) -> Option<Last>) -> Option<usize> {
        let newest = self.newest.get_or_init(|| {
            let mut newest = Newest { main: 0, live: 0 };
            for last in self.entries().filter_map(|entry| last(entry.held())) {
                newest.main = newest.main.max(last.main);
                newest.live += usize::from(last.is_live);
            }
            newest
        });
        (newest.main <= at).then_some(newest.live)
    }
}

impl Blocks {
    /// What is held for `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<Held> {
        let (_, block) = self.blocks.range::<[u8], _>(upto(key)).next_back()?;
        block.find(key).ok().map(|entry| entry.held())
    }

    /// Sets what is held for a key, known or new.
    pub(super) fn set(&mut self, key: &[u8], held: Held) {
        let Some((_, block)) = self.blocks.range_mut::<[u8], _>(upto(key)).next_back() else {
            let mut block = Block::default();
            block.replace(0, 0, key, held);
            self.blocks.insert(Box::default(), block);
            return;
        };
        let (start, end) = match block.find(key) {
            Ok(entry) => (entry.start, entry.end),
            Err(gap) => (gap, gap),
        };
        block.replace(start, end, key, held);
        if block.bytes.len() > BLOCK_BYTES_MAX
            && let Some((first, upper)) = block.cut(start)
        {
            self.blocks.insert(first, upper);
        }
    }

    /// Says that what stands in the place held for a key is another now.
    pub(super) fn changed(&mut self, key: &[u8]) {
        if let Some((_, block)) = self.blocks.range_mut::<[u8], _>(upto(key)).next_back() {
            block.newest = OnceLock::new();
        }
    }

    /// Calls `visit` with each key from `start` on, in order, until it answers `false`.
    pub(super) fn visit(&self, start: Bound<&[u8]>, mut visit: impl FnMut(&[u8], Held) -> bool) {
        let mut start = start;
        for (_, block) in self.blocks.range::<[u8], _>(self.reach(start)) {
            for entry in block.entries() {
                if is_before(entry.key, start) {
                    continue;
                }
                start = Bound::Unbounded;
                if !visit(entry.key, entry.held()) {
                    return;
                }
            }
        }
    }

    /// Counts the keys of `reach` that exist at `at`: of a block that lies within it and has no
    /// newer change, by what is known of it. Stops at the end of a block after `steps` blocks
    /// and keys looked at; answers the count and where to go on. `last` says what happened last
    /// to a key, `is_there` whether it exists at `at`.
    pub(super) fn count(
        &self,
        (start, end): (Bound<&[u8]>, Option<&[u8]>),
        at: i64,
        steps: usize,
        last: impl Fn(Held) -> Option<Last>,
        is_there: impl Fn(Held) -> bool,
    ) -> (usize, Option<Box<[u8]>>) {
        let (mut total, mut looked) = (0, 0);
        let mut start = start;
        let mut blocks = self.blocks.range::<[u8], _>(self.reach(start)).peekable();
        while let Some((first, block)) = blocks.next() {
            let next = blocks.peek().map(|(next, _)| &***next);
            let begins_inside = !is_before(first, start);
            let ends_inside = end.is_none_or(|end| next.is_some_and(|next| next <= end));
            looked += 1;
            let known = (begins_inside && ends_inside).then(|| block.live(at, &last));
            if let Some(live) = known.flatten() {
                total += live;
            } else {
                for entry in block.entries() {
                    if end.is_some_and(|end| entry.key >= end) {
                        return (total, None);
                    }
                    looked += 1;
                    if !is_before(entry.key, start) {
                        total += usize::from(is_there(entry.held()));
                    }
                }
            }
            start = Bound::Unbounded;
            if looked >= steps
                && let Some(next) = next
            {
                return (total, Some(next.into()));
            }
        }
        (total, None)
    }

    /// Asks `decide` what is held from now on for each key after `after`; for `None` the key goes.
    /// Stops at the end of a block once `steps` keys were asked about; answers where to go on.
    pub(super) fn rewrite(
        &mut self,
        after: Option<&[u8]>,
        steps: usize,
        mut decide: impl FnMut(Held) -> Option<Held>,
    ) -> Option<Box<[u8]>> {
        let mut start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let from = self.reach(start).0.map(Box::<[u8]>::from);
        let reach = (as_slice(&from), Bound::Unbounded);
        let mut empty = Vec::new();
        let (mut asked, mut last, mut is_done) = (0, None, true);
        for (first, block) in self.blocks.range_mut::<[u8], _>(reach) {
            if asked >= steps {
                is_done = false;
                break;
            }
            let mut left = Vec::with_capacity(block.bytes.len());
            for entry in block.entries() {
                let mut held = Some(entry.held());
                if !is_before(entry.key, start) {
                    start = Bound::Unbounded;
                    asked += 1;
                    held = held.and_then(&mut decide);
                }
                if let Some(held) = held {
                    encode(entry.key, held, &mut left);
                }
            }
            last = block
                .entries()
                .last()
                .map(|entry| entry.key.into())
                .or(last);
            if left != block.bytes {
                left.shrink_to(left.len() + BLOCK_BYTES_SPARE);
                block.bytes = left;
            }
            block.newest = OnceLock::new();
            if block.bytes.is_empty() && !first.is_empty() {
                empty.push(first.clone());
            }
        }
        for first in empty {
            self.blocks.remove(&first);
        }
        last.filter(|_| !is_done)
    }

    /// The blocks that may hold keys from `start` on.
    fn reach(&self, start: Bound<&[u8]>) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let from = match start {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => {
                let block = self.blocks.range::<[u8], _>(upto(key)).next_back();
                block.map(|(first, _)| &**first)
            }
        };
        (
            from.map_or(Bound::Unbounded, Bound::Included),
            Bound::Unbounded,
        )
    }
}

/// Takes keys in ascending order.
#[derive(Debug, Default)]
pub(super) struct Builder {
    done: Vec<(Box<[u8]>, Block)>,
    first: Box<[u8]>,
    bytes: Vec<u8>,
    entry: Vec<u8>,
}

impl Builder {
    pub(super) fn push(&mut self, key: &[u8], held: Held) {
        self.entry.clear();
        encode(key, held, &mut self.entry);
        if !self.bytes.is_empty() && self.bytes.len() + self.entry.len() > BLOCK_BYTES_MAX {
            self.end_block(key.into());
        }
        self.bytes.extend_from_slice(&self.entry);
    }

    fn end_block(&mut self, next: Box<[u8]>) {
        let first = std::mem::replace(&mut self.first, next);
        self.done
            .push((first, Block::new(self.bytes.as_slice().into())));
        self.bytes.clear();
    }

    pub(super) fn finish(mut self) -> Blocks {
        if !self.bytes.is_empty() {
            self.end_block(Box::default());
        }
        Blocks {
            blocks: self.done.into_iter().collect(),
        }
    }
}

fn upto(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

fn as_slice(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

fn is_before(key: &[u8], start: Bound<&[u8]>) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(start) => key < start,
        Bound::Excluded(start) => key <= start,
    }
}

fn encode(key: &[u8], held: Held, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.push(0);
    put_number(bytes, u64::try_from(key.len()).unwrap_or(u64::MAX));
    bytes.extend_from_slice(key);
    let numbers = bytes.len();
    let kind = match held {
        Held::One(found) => {
            let Found {
                modified,
                created,
                version,
            } = found;
            put_number(bytes, modified.main.cast_unsigned());
            if found == Found::created_at(Revision::new(modified.main, 0)) {
                FRESH
            } else {
                for number in [modified.sub, created, version] {
                    put_number(bytes, number.cast_unsigned());
                }
                ONE
            }
        }
        Held::Many(place) => {
            put_number(bytes, u64::try_from(place).unwrap_or(u64::MAX));
            MANY
        }
    };
    // At most four numbers of ten bytes.
    let length = u8::try_from(bytes.len() - numbers).unwrap_or(LENGTH_MASK);
    if let Some(first) = bytes.get_mut(start) {
        *first = kind << KIND_SHIFT | length;
    }
}

/// Appends a number in LEB128.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            bytes.push(low & 0x7f);
            return;
        }
        bytes.push(low | 0x80);
    }
}

/// Takes a number that [`put_number`] wrote off the front.
pub(super) fn take_number(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests;
