//! Every operator allocates and frees what PyTorch's does, in the same order: requested sizes in forward and in backward.
//!
//! The expectation is `golden/op_events.json`, recorded from the unmodified torch 2.11.0+cu130 wheel. To add an operator, add a row to the tables in
//! `common/operators.rs` and a test below, under the name that it has there; inputs and arguments are those of the recording.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::Events;
use crate::common::labelled::{PHASES, Row, leaf, observe, row_with};
use crate::common::operators::{RECORDED, columns, layer_norm, linear, none, weights, x};
use memcore::backend::Meta;
use memcore::{DType, Device, Profile, Result, Tensor, ops};

fn under_autocast() -> [Row; 4] {
    [
        row_with("half_linear_autocast", DType::F16, |d, _| weights(d, DType::F32), |d, _| x(d, DType::F32), linear),
        row_with("bf16_linear_autocast", DType::BF16, |d, _| weights(d, DType::F32), |d, _| x(d, DType::F32), linear),
        row_with(
            "bf16_layernorm_autocast",
            DType::BF16,
            |d, _| columns(d, DType::F32),
            |d, _| x(d, DType::F32),
            layer_norm,
        ),
        row_with(
            "bf16_softmax_autocast",
            DType::BF16,
            none,
            |d, _| x(d, DType::F32),
            |_, t| ops::softmax(&ops::cast(&t[0], DType::BF16)?, 1),
        ),
    ]
}

fn rows() -> Vec<Row> {
    let recorded = RECORDED.iter().flat_map(|table| table.iter()).map(|operator| operator.row(DType::F32));
    recorded.chain(under_autocast()).collect()
}

fn recorded() -> HashMap<String, [Events; 5]> {
    let file: serde_json::Value = serde_json::from_str(include_str!("../golden/op_events.json")).unwrap();
    let events = |v: &serde_json::Value| v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
    let row = |row: &serde_json::Value| {
        (row[0].as_str().unwrap().to_string(), std::array::from_fn(|phase| events(&row[phase + 1])))
    };
    file["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Why a recorded operator is compared with nothing.
enum Missing {
    /// The function refuses these operands, and says so.
    Refused(fn(&Device) -> Result<Tensor>),
    /// No public function is called so, in whole or in part.
    NoFunction(&'static str),
}

/// Recorded operators that this project does not have.
const UNSUPPORTED: [(&str, Missing); 3] = [
    // With a matrix added instead of a bias.
    ("addmm", Missing::Refused(matrix_added)),
    // Its algorithm is chosen for shapes that the fused kernels do not take, and cannot be asked for.
    ("sdpa_math", Missing::NoFunction("math")),
    ("ckpt_reentrant", Missing::NoFunction("reentrant")),
];

fn matrix_added(device: &Device) -> Result<Tensor> {
    let leaf = |dims: &[usize]| leaf(device, dims, DType::F32);
    ops::addmm(&leaf(&[64, 128]), &leaf(&[64, 256]), &leaf(&[256, 128]))
}

/// Compares one row.
fn check(name: &str) {
    let row = rows().into_iter().find(|row| row.name == name).unwrap();
    let want = recorded().remove(name).unwrap();
    let found = observe(&row, Profile::torch_2_11(90)).unwrap();
    for ((phase, found), want) in PHASES.iter().zip(&found).zip(&want) {
        let found: Events = found.iter().map(|(event, _)| *event).collect();
        assert_eq!(found, *want, "{name}, {phase}: here, and recorded");
    }
}

#[test]
fn every_recorded_operator_is_compared_or_named_as_unsupported() {
    let mut known: Vec<&str> = each::NAMES.iter().map(|name| name.trim_start_matches("r#")).collect();
    let rows = rows();
    let mut rows: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    known.sort_unstable();
    rows.sort_unstable();
    assert_eq!(known, rows, "tests, and rows");
    let recorded = recorded();
    let mut all: Vec<&str> = recorded.keys().map(String::as_str).collect();
    let unsupported = UNSUPPORTED.map(|(name, _)| name);
    let mut here: Vec<&str> = known.into_iter().chain(unsupported).collect();
    all.sort_unstable();
    here.sort_unstable();
    assert_eq!(here, all, "compared or unsupported, and recorded");
}

#[test]
fn what_is_named_as_unsupported_is_refused_or_does_not_exist() {
    let ops = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    let folders = std::fs::read_dir(ops).unwrap().map(|folder| folder.unwrap().path().join("mod.rs"));
    let mut public: Vec<String> =
        folders.filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect();
    public.push(include_str!("../../src/autograd/mod.rs").into());
    let exported = |part: &str| {
        let lists =
            public.iter().flat_map(|source| source.split("pub use ").skip(1)).filter_map(|list| list.split(';').next());
        lists.flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|name| name.contains(part))
    };
    assert!(exported("topk") && exported("checkpoint"), "the lists are read");
    for (name, missing) in UNSUPPORTED {
        let is_function = exported(name);
        match missing {
            Missing::Refused(call) => {
                let device = Device::builder(Arc::new(Meta::default())).profile(Profile::torch_2_11(90)).build();
                let problem = call(&device).expect_err(name).to_string();
                assert!(problem.contains(name), "{name}: {problem}");
            }
            Missing::NoFunction(part) => {
                assert!(!is_function && !exported(part), "{name} exists: compare it with its recording");
            }
        }
    }
}

/// A test for each operator, by its name.
mod each {
    macro_rules! tests {
        ($($name:ident)*) => {
            pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
            $(#[test]
            fn $name() {
                super::check(stringify!($name).trim_start_matches("r#"));
            })*
        };
    }

    tests! {
        relu relu_inplace_after_mul leaky_relu gelu gelu_tanh sigmoid tanh silu exp log sqrt rsqrt square_pow2 pow3 abs clamp neg
        mul_scalar add_scalar add sub mul div maximum mul_self detach_mul add_bcast mul_bcast cast_bf16 elu softplus
        logsumexp cross_entropy_smooth smooth_l1 bce_logits group_norm upsample_nearest
        sum sum_dim sum_big mean mean_dim max_dim amax norm softmax log_softmax cross_entropy nll_loss mse mse_both l1
        cat stack chunk split3 transpose_contiguous view reshape_copy clone expand repeat permute slice select masked_fill r#where tril
        mm bmm linear linear_3d linear_1row linear_noinputgrad linear_nobias linear_3d_nobias ckpt_two_linear
        conv2d_3x3 conv2d_1x1 conv2d_stride2 conv2d_depthwise conv2d_groups2 conv2d_noinputgrad conv_transpose2d
        conv1d conv1d_turned conv1d_turned_depthwise upsample_bilinear gather index_int cumsum sort topk bce var kl_div einsum mv dot
        max_pool2d max_pool2d_overlap avg_pool2d adaptive_avg_pool2d_1 adaptive_avg_pool2d_4
        dropout rms_norm index_select layer_norm layer_norm_3d embedding embedding_4096 embedding_big batch_norm2d
        matmul_4d matmul_4d_noncontig sdpa_default sdpa_efficient sdpa_flash_bf16
        half_linear_autocast bf16_linear_autocast bf16_layernorm_autocast bf16_softmax_autocast
    }
}
