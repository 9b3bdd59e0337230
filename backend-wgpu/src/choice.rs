//! Products that are alike, and the tile that was chosen for them: what a device remembers.

use crate::key::{Key, Variant};

/// What a product is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// Threads along each side of a tile, and the rows and columns that a thread makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) side: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Products that one choice is made for: alike but for their sizes, and those between the same powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    key: Key,
    sizes: [u32; 4],
}

impl Class {
    pub(crate) fn of(name: &'static str, variant: Variant, sizes: &Sizes) -> Self {
        let Sizes { batch, m, n, k } = *sizes;
        Self { key: variant.key(name), sizes: [batch, m, n, k].map(|size| size.max(1).ilog2()) }
    }
}
