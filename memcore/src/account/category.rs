//! What a piece of memory is for.

use std::fmt;

/// The role that a storage plays in training. Storage is created as [`Temporary`](Category::Temporary) unless its
/// constructor knows better, and is retagged when its role becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Category {
    /// A weight that the optimizer updates.
    Parameter,
    /// The gradient slot of a leaf.
    Gradient,
    /// Momentum, variance, master weights.
    OptimizerState,
    /// Saved by the graph for backward.
    Activation,
    /// A batch, or its labels.
    Input,
    /// Scratch of a kernel library. In training divided among ranks, also buckets and gathered parameters.
    Workspace,
    /// Everything without one of the other roles.
    Temporary,
    /// Part of a module, but not trained: running statistics, masks.
    Buffer,
}

impl Category {
    /// Number of categories.
    pub const COUNT: usize = 8;

    /// All categories, in the order of their discriminants: `ALL[c as usize] == c`.
    pub const ALL: [Category; Self::COUNT] = [
        Category::Parameter,
        Category::Gradient,
        Category::OptimizerState,
        Category::Activation,
        Category::Input,
        Category::Workspace,
        Category::Temporary,
        Category::Buffer,
    ];

    /// The name in reports and files.
    pub fn name(self) -> &'static str {
        match self {
            Category::Parameter => "parameter",
            Category::Gradient => "gradient",
            Category::OptimizerState => "optimizer_state",
            Category::Activation => "activation",
            Category::Input => "input",
            Category::Workspace => "workspace",
            Category::Temporary => "temporary",
            Category::Buffer => "buffer",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Bytes by category, indexed by `Category as usize`.
pub type CategoryBytes = [u64; Category::COUNT];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_indexed_by_discriminant_and_names_are_unique() {
        for (index, category) in Category::ALL.into_iter().enumerate() {
            assert_eq!(category as usize, index);
            assert_eq!(Category::ALL.into_iter().filter(|other| other.name() == category.name()).count(), 1);
        }
    }
}
