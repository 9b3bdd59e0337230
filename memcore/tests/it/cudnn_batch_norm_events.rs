//! Batch norm in PyTorch with cuDNN: when it uses cuDNN, the allocations and frees in order, and their operators.
//!
//! The expectation is `golden/cudnn_batch_norm_events.json`, recorded from the unmodified torch 2.11.0+cu130 and 2.15.0+cu132 wheels.

use crate::common::batch_norms::{self, One, row};
use crate::common::labelled::{Row, against_recordings};
use memcore::profile::Convolution;
use memcore::{DType, Profile, ops};

/// Operators that the recordings without cuDNN do not have.
fn more() -> Vec<Row> {
    let (plain, planes): (One, &[usize]) = (|x| Ok(x.clone()), &[8, 16, 20, 20]);
    let mode = |mode: &str| {
        let of = |form: &str, dtype, dims, after| {
            row(format!("batch_norm{mode}_{form}"), dtype, dims, [true; 2], [plain, after])
        };
        [
            of("no_grad", DType::F32, planes, plain),
            of("summed_f16", DType::F16, planes, ops::sum as One),
            of("bf16", DType::BF16, planes, plain),
            of("3d_summed", DType::F32, &[4, 256, 24], ops::sum),
        ]
    };
    ["", "_eval"].into_iter().flat_map(mode).collect()
}

fn rows() -> Vec<Row> {
    batch_norms::rows().into_iter().chain(more()).collect()
}

fn with_cudnn(profile: Profile) -> Profile {
    Profile { convolution: Convolution::Cudnn { workspace_bytes: 0 }, ..profile }
}

against_recordings! {
    "../golden/cudnn_batch_norm_events.json", rows();
    as_pytorch_2_11: "2.11", with_cudnn(Profile::torch_2_11(90));
    as_pytorch_2_15: "2.15", with_cudnn(Profile::torch_2_15(90));
}
