//! Kernels to measure: every family, from launch-bound sizes to sizes limited by memory or arithmetic.
//!
//! One file per kind; **to add a kernel**, add an entry to its table: name, sizes, and how the call is made. The values are chosen so that every
//! number stays finite however often the kernel runs.

mod elementwise;
mod kernel;
mod products;
mod rows;
mod state;

pub use kernel::{Kernel, Operands, Size, label, prepare};

/// Every kernel that is measured.
pub fn all() -> impl Iterator<Item = &'static Kernel> {
    [elementwise::KERNELS, rows::KERNELS, products::KERNELS, state::KERNELS].into_iter().flatten()
}

/// Returns the kernel with this name.
pub fn named(name: &str) -> Option<&'static Kernel> {
    all().find(|kernel| kernel.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use memcore::Device;
    use memcore::backend::{KernelCall, Meta};

    use super::*;

    /// Kernels whose speed does not matter: the update of a scalar.
    const UNMEASURED: [&str; 1] = ["update_scale"];

    #[test]
    fn every_kernel_is_measured() {
        let names: BTreeSet<&str> = all().map(|kernel| kernel.name).collect();
        assert_eq!(names.len(), all().count(), "two have one name");
        for kernel in KernelCall::NAMES {
            let measured = names.iter().any(|name| name == kernel || name.starts_with(&format!("{kernel}_")));
            assert!(measured != UNMEASURED.contains(kernel), "{kernel}");
        }
    }

    /// Each call passes validation at every size, moves something, and grows with its size.
    #[test]
    fn calls_are_sound_at_every_size() {
        let device = Device::new(Meta::default());
        for kernel in all() {
            let mut before = 0;
            for (dtype, size) in kernel.points() {
                let work = kernel.prepare(&device, dtype, size);
                let work = work.unwrap_or_else(|error| panic!("{} {} {dtype}: {error}", kernel.name, label(size)));
                let demand = work.demand();
                assert_eq!(demand.launches, 1, "{}", kernel.name);
                assert!(dtype != kernel.dtypes[0] || demand.bytes > before, "{} {}", kernel.name, label(size));
                before = demand.bytes;
            }
        }
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [label(&[1 << 24]), label(&[4096, 4096]), label(&[1 << 18])],
            ["16Mi".to_string(), "4096x4096".into(), "256Ki".into()]
        );
    }
}
