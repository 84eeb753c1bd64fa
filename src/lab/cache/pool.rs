//! Pages of keys, values and indexer keys, a free list, and reference counts.

use crate::lab::model::{HEAD, LAYERS, SPARSE_LAYERS};

/// Tokens in a page.
pub const PAGE: usize = 64;
/// Numbers of one head for one page.
const BLOCK: usize = PAGE * HEAD;
const KEYS: usize = LAYERS * BLOCK;
const VALUES: usize = 2 * LAYERS * BLOCK;
const PAGE_LEN: usize = VALUES + SPARSE_LAYERS.len() * BLOCK;

/// Numbers in a page: keys, values and indexer keys of all layers.
pub const PAGE_NUMBERS: usize = PAGE_LEN;

/// Which parts of a page are put into place when it comes from another server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    /// All of it.
    #[default]
    All,
    /// Keys and values; the indexer keys stay what the page held before.
    WithoutIndex,
}

/// Index of a page in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(u32);

/// All pages of one server. Memory for a page is taken when it is first used.
#[derive(Debug)]
pub struct Pool {
    pages: Vec<Box<[f32]>>,
    references: Vec<u32>,
    free: Vec<u32>,
    capacity: usize,
}

impl Pool {
    /// A pool of `tokens / 64` pages.
    pub fn new(tokens: usize) -> Self {
        Self { pages: Vec::new(), references: Vec::new(), free: Vec::new(), capacity: tokens / PAGE }
    }

    /// Pages that can still be allocated.
    pub fn available(&self) -> usize {
        self.capacity - self.used()
    }

    /// Pages that someone refers to.
    pub fn used(&self) -> usize {
        self.pages.len() - self.free.len()
    }

    /// All pages there may be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// A page with one reference, its content left as it was; `None` when the pool is full.
    pub fn allocate(&mut self) -> Option<PageId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.pages.len() < self.capacity => {
                self.pages.push(vec![0.0; PAGE_LEN].into_boxed_slice());
                self.references.push(0);
                self.pages.len() as u32 - 1
            }
            None => return None,
        };
        self.references[id as usize] = 1;
        Some(PageId(id))
    }

    /// One more user of a page.
    pub fn retain(&mut self, id: PageId) {
        self.references[id.0 as usize] += 1;
    }

    /// One user less; the last one frees the page.
    pub fn release(&mut self, id: PageId) {
        let count = &mut self.references[id.0 as usize];
        debug_assert!(*count > 0, "a page is released once for every reference");
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.free.push(id.0);
        }
    }

    /// How many users a page has.
    pub fn references(&self, id: PageId) -> u32 {
        self.references[id.0 as usize]
    }

    /// Everything that a page holds.
    pub fn content(&self, id: PageId) -> &[f32] {
        &self.pages[id.0 as usize]
    }

    /// Puts what another page held into this one; `content` has [`PAGE_NUMBERS`] numbers.
    pub fn put(&mut self, id: PageId, content: &[f32], parts: Parts) {
        let end = match parts {
            Parts::All => PAGE_LEN,
            Parts::WithoutIndex => VALUES,
        };
        self.pages[id.0 as usize][..end].copy_from_slice(&content[..end]);
    }

    /// Keys of a layer, `[dimension, slot]`.
    pub fn keys(&self, id: PageId, layer: usize) -> &[f32] {
        &self.pages[id.0 as usize][layer * BLOCK..(layer + 1) * BLOCK]
    }

    /// Values of a layer, `[slot, dimension]`.
    pub fn values(&self, id: PageId, layer: usize) -> &[f32] {
        &self.pages[id.0 as usize][KEYS + layer * BLOCK..KEYS + (layer + 1) * BLOCK]
    }

    /// Indexer keys of a sparse layer (0 or 1), `[dimension, slot]`.
    pub fn index_keys(&self, id: PageId, sparse: usize) -> &[f32] {
        &self.pages[id.0 as usize][VALUES + sparse * BLOCK..VALUES + (sparse + 1) * BLOCK]
    }

    /// Stores key and value of one token.
    pub fn write(&mut self, id: PageId, layer: usize, slot: usize, key: &[f32], value: &[f32]) {
        let page = &mut self.pages[id.0 as usize];
        store(&mut page[layer * BLOCK..(layer + 1) * BLOCK], slot, key);
        let at = KEYS + layer * BLOCK + slot * HEAD;
        page[at..at + HEAD].copy_from_slice(value);
    }

    /// Stores the indexer key of one token.
    pub fn write_index(&mut self, id: PageId, sparse: usize, slot: usize, key: &[f32]) {
        let page = &mut self.pages[id.0 as usize];
        store(&mut page[VALUES + sparse * BLOCK..VALUES + (sparse + 1) * BLOCK], slot, key);
    }
}

fn store(block: &mut [f32], slot: usize, key: &[f32]) {
    for (d, k) in key.iter().enumerate() {
        block[d * PAGE + slot] = *k;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_pool_says_so_and_recovers() {
        let mut pool = Pool::new(128);
        let (a, b) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        assert_eq!(pool.allocate(), None);
        pool.retain(a);
        pool.release(a);
        assert_eq!(pool.available(), 0);
        pool.release(a);
        pool.release(b);
        assert_eq!(pool.available(), 2);
        assert_eq!(pool.allocate(), Some(b));
    }

    #[test]
    fn what_is_written_is_read_at_its_place() {
        let mut pool = Pool::new(64);
        let page = pool.allocate().unwrap();
        let key: Vec<f32> = (0..HEAD).map(|d| d as f32).collect();
        pool.write(page, 3, 5, &key, &key);
        pool.write_index(page, 1, 6, &key);
        assert_eq!(pool.keys(page, 3)[7 * PAGE + 5], 7.0);
        assert_eq!(pool.values(page, 3)[5 * HEAD + 7], 7.0);
        assert_eq!(pool.index_keys(page, 1)[7 * PAGE + 6], 7.0);
        assert!(pool.keys(page, 2).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn a_page_is_moved_whole_or_without_its_index() {
        let (mut from, mut to) = (Pool::new(64), Pool::new(64));
        let (a, b) = (from.allocate().unwrap(), to.allocate().unwrap());
        let (key, old) = ([1.0; HEAD], [7.0; HEAD]);
        from.write(a, 3, 5, &key, &key);
        from.write_index(a, 1, 6, &key);
        to.write_index(b, 1, 6, &old);
        to.put(b, from.content(a), Parts::WithoutIndex);
        assert_eq!((to.keys(b, 3), to.values(b, 3)), (from.keys(a, 3), from.values(a, 3)));
        assert_eq!(to.index_keys(b, 1)[6], 7.0);
        to.put(b, from.content(a), Parts::All);
        assert_eq!(to.content(b), from.content(a));
    }

    proptest! {
        #[test]
        fn no_page_is_lost_or_given_twice(steps in proptest::collection::vec(0..3_u8, 0..200)) {
            let mut pool = Pool::new(10 * PAGE);
            let mut held = Vec::new();
            for step in steps {
                match step {
                    0 => held.extend(pool.allocate()),
                    1 => if let Some(id) = held.first().copied() { pool.retain(id); held.push(id); },
                    _ => if let Some(id) = held.pop() { pool.release(id); },
                }
                let mut distinct = held.clone();
                distinct.sort();
                distinct.dedup();
                prop_assert_eq!(pool.used(), distinct.len());
            }
        }
    }
}
