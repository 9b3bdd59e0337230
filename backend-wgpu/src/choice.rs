//! Kinds of products, and the tile that a device has chosen for each.

use crate::key::{Key, Variant};

/// Sizes of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// A tile: the number of threads along each side, and the rows and columns that each thread computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) side: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Products that share a choice of tile: they differ at most in their sizes, which lie between the same powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    key: Key,
    sizes: [u32; 4],
}

impl Class {
    pub(crate) fn named(name: &'static str, variant: Variant, sizes: &Sizes) -> Self {
        let Sizes { batch, m, n, k } = *sizes;
        Self { key: variant.key(name), sizes: [batch, m, n, k].map(|size| size.max(1).ilog2()) }
    }
}
