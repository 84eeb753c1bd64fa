//! The radix tree of reusable prefixes, whole pages at a time.
//!
//! A node is one page of tokens; its children are the pages that followed it in some request.
//! Each name space (cache salt) has a tree of its own. The tree holds one reference to each of its
//! pages; leaves that nobody else uses are evicted, the longest unused first.

use std::collections::HashMap;

use super::pool::{PAGE, PageId, Pool};

#[derive(Debug)]
struct Node {
    page: PageId,
    parent: Parent,
    key: Box<[u16]>,
    children: HashMap<Box<[u16]>, usize>,
    used: u64,
}

#[derive(Clone, Debug)]
enum Parent {
    Root(String),
    Node(usize),
}

/// All reusable prefixes.
#[derive(Debug, Default)]
pub struct Radix {
    roots: HashMap<String, HashMap<Box<[u16]>, usize>>,
    nodes: Vec<Option<Node>>,
    vacant: Vec<usize>,
    clock: u64,
}

impl Radix {
    /// Pages in the tree.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cached pages of the longest known prefix of `tokens`, each with a reference for the caller.
    pub fn lookup(&mut self, pool: &mut Pool, salt: &str, tokens: &[u16]) -> Vec<PageId> {
        self.clock += 1;
        let mut pages = Vec::new();
        let Some(mut children) = self.roots.get(salt) else { return pages };
        let mut touched = Vec::new();
        for key in tokens.chunks_exact(PAGE) {
            let Some(index) = children.get(key).copied() else { break };
            let Some(node) = &self.nodes[index] else { break };
            pool.retain(node.page);
            pages.push(node.page);
            touched.push(index);
            children = &node.children;
        }
        for index in touched {
            if let Some(node) = &mut self.nodes[index] {
                node.used = self.clock;
            }
        }
        pages
    }

    /// Adds the whole pages of `tokens`; pages that the tree already has are left as they are.
    pub fn insert(&mut self, pool: &mut Pool, salt: &str, tokens: &[u16], pages: &[PageId]) {
        self.clock += 1;
        let mut parent = Parent::Root(salt.to_owned());
        for (key, page) in tokens.chunks_exact(PAGE).zip(pages) {
            let known = match &parent {
                Parent::Root(salt) => self.roots.get(salt).and_then(|c| c.get(key)).copied(),
                Parent::Node(p) => self.nodes[*p].as_ref().and_then(|n| n.children.get(key)).copied(),
            };
            let index = known.unwrap_or_else(|| {
                pool.retain(*page);
                self.add(&parent, key, *page)
            });
            if let Some(node) = &mut self.nodes[index] {
                node.used = self.clock;
            }
            parent = Parent::Node(index);
        }
    }

    fn add(&mut self, parent: &Parent, key: &[u16], page: PageId) -> usize {
        let node = Node { page, parent: parent.clone(), key: key.into(), children: HashMap::new(), used: self.clock };
        let index = if let Some(index) = self.vacant.pop() {
            self.nodes[index] = Some(node);
            index
        } else {
            self.nodes.push(Some(node));
            self.nodes.len() - 1
        };
        if let Some(children) = self.children_of(parent) {
            children.insert(key.into(), index);
        }
        index
    }

    fn children_of(&mut self, parent: &Parent) -> Option<&mut HashMap<Box<[u16]>, usize>> {
        match parent {
            Parent::Root(salt) => Some(self.roots.entry(salt.clone()).or_default()),
            Parent::Node(index) => self.nodes[*index].as_mut().map(|n| &mut n.children),
        }
    }

    /// Frees at least `wanted` pages if it can; returns how many it freed.
    pub fn evict(&mut self, pool: &mut Pool, wanted: usize) -> usize {
        let mut freed = 0;
        while freed < wanted {
            let leaf = self.nodes.iter().enumerate().filter_map(|(i, n)| n.as_ref().map(|n| (i, n)));
            let oldest = leaf
                .filter(|(_, n)| n.children.is_empty() && pool.references(n.page) == 1)
                .min_by_key(|(i, n)| (n.used, *i))
                .map(|(i, _)| i);
            let Some(index) = oldest else { break };
            self.remove(pool, index);
            freed += 1;
        }
        freed
    }

    fn remove(&mut self, pool: &mut Pool, index: usize) {
        let Some(node) = self.nodes[index].take() else { return };
        self.vacant.push(index);
        pool.release(node.page);
        if let Some(children) = self.children_of(&node.parent) {
            children.remove(&node.key);
        }
        if let Parent::Root(salt) = &node.parent
            && self.roots.get(salt).is_some_and(HashMap::is_empty)
        {
            self.roots.remove(salt);
        }
    }

    /// Forgets every prefix.
    pub fn flush(&mut self, pool: &mut Pool) {
        for node in self.nodes.drain(..).flatten() {
            pool.release(node.page);
        }
        self.vacant.clear();
        self.roots.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(pages: &[u16]) -> Vec<u16> {
        pages.iter().flat_map(|p| [*p; PAGE]).collect()
    }

    fn cached(radix: &mut Radix, pool: &mut Pool, salt: &str, path: &[u16]) -> usize {
        let pages = radix.lookup(pool, salt, &tokens(path));
        for page in &pages {
            pool.release(*page);
        }
        pages.len()
    }

    fn store(radix: &mut Radix, pool: &mut Pool, salt: &str, path: &[u16]) {
        let mut pages = radix.lookup(pool, salt, &tokens(path));
        while pages.len() < path.len() {
            pages.push(pool.allocate().unwrap());
        }
        radix.insert(pool, salt, &tokens(path), &pages);
        for page in pages {
            pool.release(page);
        }
    }

    #[test]
    fn a_prefix_is_found_page_by_page() {
        let (mut radix, mut pool) = (Radix::default(), Pool::new(20 * PAGE));
        store(&mut radix, &mut pool, "", &[1, 2, 3]);
        store(&mut radix, &mut pool, "", &[1, 2, 4]);
        assert_eq!(cached(&mut radix, &mut pool, "", &[1, 2, 4, 5]), 3);
        assert_eq!(cached(&mut radix, &mut pool, "", &[1, 9]), 1);
        assert_eq!(cached(&mut radix, &mut pool, "", &[9]), 0);
        assert_eq!((radix.len(), pool.used()), (4, 4));
        let part = &tokens(&[1, 2])[..PAGE + 5];
        assert_eq!(radix.lookup(&mut pool, "", part).len(), 1);
    }

    #[test]
    fn salts_do_not_share() {
        let (mut radix, mut pool) = (Radix::default(), Pool::new(20 * PAGE));
        store(&mut radix, &mut pool, "a", &[1, 2]);
        assert_eq!(cached(&mut radix, &mut pool, "b", &[1, 2]), 0);
        assert_eq!(cached(&mut radix, &mut pool, "a", &[1, 2]), 2);
    }

    #[test]
    fn the_longest_unused_leaf_goes_first_and_used_pages_stay() {
        let (mut radix, mut pool) = (Radix::default(), Pool::new(20 * PAGE));
        store(&mut radix, &mut pool, "", &[1, 2]);
        store(&mut radix, &mut pool, "", &[3, 4]);
        cached(&mut radix, &mut pool, "", &[1, 2]);
        assert_eq!(radix.evict(&mut pool, 1), 1);
        assert_eq!(cached(&mut radix, &mut pool, "", &[3, 4]), 1);
        let held = radix.lookup(&mut pool, "", &tokens(&[1, 2]));
        assert_eq!(radix.evict(&mut pool, 9), 1);
        assert_eq!(pool.used(), held.len());
    }

    #[test]
    fn flush_returns_every_page() {
        let (mut radix, mut pool) = (Radix::default(), Pool::new(20 * PAGE));
        store(&mut radix, &mut pool, "x", &[1, 2, 3]);
        radix.flush(&mut pool);
        assert!(radix.is_empty());
        assert_eq!(pool.used(), 0);
        store(&mut radix, &mut pool, "x", &[1, 2]);
        assert_eq!(radix.len(), 2);
    }
}
