//! Keys of kernels: the inputs from which their source is generated.

/// A kernel in one of its forms: the family's name for it, and the packed inputs of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) variant: u64,
}

/// Packs the inputs of a source into a [`Key`]'s variant.
#[derive(Clone, Copy, Default)]
pub(crate) struct Variant(u64);

impl Variant {
    pub(crate) fn new() -> Self {
        Self(1)
    }

    /// Adds a value below `2^bits`.
    #[must_use]
    pub(crate) fn with(self, bits: u32, value: u64) -> Self {
        debug_assert!(value < 1 << bits && self.0.leading_zeros() >= bits, "{value} in {bits} bits");
        Self(self.0 << bits | value)
    }

    pub(crate) fn key(self, name: &'static str) -> Key {
        Key { name, variant: self.0 }
    }
}
