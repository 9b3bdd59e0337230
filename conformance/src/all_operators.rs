//! The cases of all operators.

use crate::further_operators::FURTHER;
use crate::operators::{OPERATORS, OperatorCase};
use crate::rare_operators::RARE;

/// Returns the cases of all operators.
pub(crate) fn cases() -> impl Iterator<Item = &'static OperatorCase> {
    OPERATORS.iter().chain(FURTHER).chain(RARE)
}

#[cfg(test)]
mod tests {
    use super::cases;

    /// What has no gradient, or no values.
    const WITHOUT: &[&str] = &[
        "causal_mask",
        "argmax",
        "argmin",
        "cumsum_whole",
        "dequantize_int8",
        "matmul_int8",
        "quantize_int8",
        "conv3d",
        "conv_transpose3d",
        "grid_sampler",
        "affine_grid",
        "ctc_loss",
        "fft_c2c",
        "fft_c2r",
        "fft_r2c",
        "abs_of_complex",
        "complex",
        "imag",
        "real",
        "view_as_complex",
        "view_as_real",
    ];

    #[test]
    fn every_operator_of_core_has_a_case() {
        let source = include_str!("../../memcore/src/ops/mod.rs");
        let exported = source.split("pub use ").skip(1).filter_map(|list| list.split(';').next());
        // The first word is the file's.
        let names = exported.flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1));
        let functions = names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        let mut count = 0;
        for name in functions.filter(|name| !WITHOUT.contains(name)) {
            let has = cases().any(|case| case.name.split('.').next() == Some(name));
            assert!(has, "operator {name} has no case");
            count += 1;
        }
        assert!(count > 60, "{count} operators were found");
    }

    #[test]
    fn what_has_no_case_is_an_operator_without_one() {
        let source = include_str!("../../memcore/src/ops/mod.rs");
        let words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in WITHOUT {
            assert!(words.clone().any(|word| word == *name), "there is no {name}: remove it from the list");
            assert!(
                !cases().any(|case| case.name.split('.').next() == Some(*name)),
                "{name} has a case: remove it from the list"
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = cases().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases().count());
    }
}
