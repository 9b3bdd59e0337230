//! All kernels of all families, and the headers of their files.

use std::sync::LazyLock;

use memcore::{Error, Result};

use crate::arguments::Definition;
use crate::compile::{LANGUAGE, Nvrtc, Report};
use crate::driver::NAME;
use crate::kernel::{Family, Spec};
use crate::modules::Tables;
use crate::{
    attention, cache, conv, elementwise, gemm, index, libraries, loss, matmul, norm, optim, pool, quant, random,
    reduce, softmax, walk,
};

/// The kernels of each family.
pub(crate) const TABLES: Tables = [
    elementwise::KERNELS,
    reduce::KERNELS,
    softmax::KERNELS,
    norm::KERNELS,
    loss::KERNELS,
    index::KERNELS,
    optim::KERNELS,
    random::KERNELS,
    pool::KERNELS,
    quant::KERNELS,
    matmul::KERNELS,
    conv::KERNELS,
    attention::KERNELS,
    attention::TENSOR_KERNELS,
    attention::FLOAT_KERNELS,
];

/// The structs of the kernels' arguments; structs that are fields of others come first.
const ARGUMENTS: &[&[Definition]] = &[
    walk::DIVIDER,
    walk::WALKS,
    gemm::ARGUMENTS,
    elementwise::ARGUMENTS,
    reduce::ARGUMENTS,
    softmax::ARGUMENTS,
    norm::ARGUMENTS,
    loss::ARGUMENTS,
    index::ARGUMENTS,
    optim::TENSORS,
    optim::LISTS,
    optim::ARGUMENTS,
    random::ARGUMENTS,
    pool::ARGUMENTS,
    quant::ARGUMENTS,
    matmul::ARGUMENTS,
    conv::ARGUMENTS,
    attention::ARGUMENTS,
];

/// The text of `arguments.cuh`.
pub(crate) fn arguments() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let structs = ARGUMENTS.iter().flat_map(|table| table.iter()).map(|definition| definition());
        ["#pragma once\n#include \"common.cuh\"\n".to_string()].into_iter().chain(structs).collect()
    });
    &TEXT
}

/// The headers that the files include: name and text.
pub(crate) fn headers() -> Vec<(&'static str, &'static str)> {
    macro_rules! files {
        ($($name:literal),*) => { [$(($name, include_str!(concat!("../kernels/", $name)))),*] };
    }
    let files = files![
        "attention.cuh",
        "attention_tensor.cuh",
        "attention_tiles.cuh",
        "common.cuh",
        "copies.cuh",
        "gemm.cuh",
        "gemm_tensor.cuh",
        "mma.cuh",
        "rows.cuh",
        "walk.cuh"
    ];
    files.into_iter().chain([("arguments.cuh", arguments())]).collect()
}

/// The names of all functions of all modules.
pub(crate) fn names() -> Vec<String> {
    TABLES.iter().flat_map(|table| table.iter()).flat_map(Spec::names).collect()
}

/// A checksum of all files and headers.
pub(crate) fn fingerprint() -> String {
    let files = Family::ALL.into_iter().map(Family::source).chain(headers());
    cache::fingerprint(files.flat_map(|(name, text)| [name, text]).chain(LANGUAGE))
}

/// Compiles every file for an architecture, without a GPU.
///
/// # Errors
/// The compiler's log, or that the compiler is missing.
pub(crate) fn reports(capability: (u32, u32)) -> Result<Vec<Report>> {
    let (nvrtc, headers) = (Nvrtc::load(libraries::NEWEST)?, headers());
    let report = |family: Family| nvrtc.report(family.source(), &headers, capability);
    Family::ALL.into_iter().map(|family| report(family).map_err(|log| Error::backend(NAME, log))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here the compiler finds a header only by its name in the list; the emulator's compiler finds it in the folder.
    #[test]
    fn whatever_is_included_is_given_to_the_compiler() {
        let (sources, headers) = (Family::ALL.map(Family::source), headers());
        for (file, text) in sources.iter().chain(&headers) {
            for line in text.lines().filter_map(|line| line.strip_prefix("#include \"")) {
                let name = line.trim_end_matches('"');
                // The emulator's own header is only for the host's compiler.
                let known = name == "emulator.h" || headers.iter().any(|(header, _)| *header == name);
                assert!(known, "{file} includes {name}, which the compiler does not get");
            }
        }
    }

    #[test]
    fn families_are_indexed_by_their_place() {
        for (i, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family as usize, i);
        }
    }
}
