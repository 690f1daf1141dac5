//! Which pages a walk has seen.

/// One bit a page.
#[derive(Debug)]
pub(crate) struct Visited {
    words: Vec<u64>,
    count: u64,
}

impl Visited {
    /// Room for `pages` page ids; the caller has bounded it by the file's length.
    pub(crate) fn new(pages: u64) -> Self {
        let words = usize::try_from(pages.div_ceil(64)).unwrap_or(usize::MAX);
        Self {
            words: vec![0; words],
            count: 0,
        }
    }

    /// Marks `page`; false when it was marked before or there is no such page.
    pub(crate) fn insert(&mut self, page: u64) -> bool {
        let Some(word) = usize::try_from(page / 64)
            .ok()
            .and_then(|at| self.words.get_mut(at))
        else {
            return false;
        };
        let bit = 1_u64 << (page % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    pub(crate) fn contains(&self, page: u64) -> bool {
        usize::try_from(page / 64)
            .ok()
            .and_then(|at| self.words.get(at))
            .is_some_and(|word| word & (1_u64 << (page % 64)) != 0)
    }

    /// How many pages are marked.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
