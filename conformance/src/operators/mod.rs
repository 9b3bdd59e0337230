//! Every differentiable operator of `memcore`, with described arguments, for the gradients suite. A file holds the cases of one folder of
//! `memcore::ops`.
//!
//! A case is one line: a name that begins with the operator's, the arguments, and the call. To add an operator, add its line to its folder's file; a
//! test fails for one that has none.

mod arguments;
mod attention;
mod conv;
mod index;
mod loss;
mod norm;
mod pointwise;
mod pool;
mod products;
mod recurrent;
mod reduce;
mod resample;
mod shape;

pub(crate) use arguments::{Argument, OperatorCase};

/// Returns the cases of all operators.
pub(crate) fn cases() -> impl Iterator<Item = &'static OperatorCase> {
    [
        attention::CASES,
        conv::CASES,
        index::CASES,
        loss::CASES,
        norm::CASES,
        pointwise::CASES,
        pool::CASES,
        products::CASES,
        recurrent::CASES,
        reduce::CASES,
        resample::CASES,
        shape::CASES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::cases;

    /// What has no gradient, or no values, or takes as many elements as a mask chooses.
    const WITHOUT: &[&str] = &[
        "causal_mask",
        "argmax",
        "argmin",
        "cumsum_whole",
        "dequantize_int8",
        "linear_4bit",
        "linear_8bit",
        "masked_scatter",
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
        "polar",
        "real",
        "view_as_complex",
        "view_as_real",
    ];

    /// Reads the names of all functions that the folders of `memcore::ops` export.
    fn exported_functions() -> Vec<String> {
        let ops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memcore/src/ops");
        let folders = fs::read_dir(ops).unwrap().map(|entry| entry.unwrap().path().join("mod.rs"));
        let sources = folders.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap());
        let mut names = Vec::new();
        for source in sources {
            for list in source.split("pub use ").skip(1).filter_map(|list| list.split(';').next()) {
                // The first word is the file's.
                names.extend(list.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1).map(str::to_owned));
            }
        }
        names.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        names
    }

    #[test]
    fn every_operator_of_core_has_a_case() {
        let exported = exported_functions();
        let mut count = 0;
        for name in exported.iter().filter(|name| !WITHOUT.contains(&name.as_str())) {
            let has = cases().any(|case| case.name.split('.').next() == Some(name.as_str()));
            assert!(has, "operator {name} has no case");
            count += 1;
        }
        assert!(count > 60, "{count} operators were found");
    }

    #[test]
    fn what_has_no_case_is_an_operator_without_one() {
        let exported = exported_functions();
        for name in WITHOUT {
            assert!(exported.iter().any(|found| found == name), "there is no {name}: remove it from the list");
            let has = cases().any(|case| case.name.split('.').next() == Some(*name));
            assert!(!has, "{name} has a case: remove it from the list");
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
