//! Fused optimizer steps and the loss scaler's kernels.

use memcore::DType::{self, F16, F32, I32};
use memcore::backend::kernel::{AdamStep, AdamTensors, SgdStep, SgdTensors, Unscale, UpdateScale};

use super::common::{FLOATS, MANY};
use crate::case::{Bound, Case, CaseBuilder};
use crate::data::Data::{self, Constant, Poison, Range, Values};
use crate::tolerance::Tolerance;

const STEP: Tolerance = Tolerance::arithmetic(4.0, "a dozen operations on values up to 1");

pub(super) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in FLOATS {
        out.extend(sgd(dtype));
        out.extend(adam(dtype));
        out.extend(unscale(dtype));
    }
    out.extend(update_scale());
    out
}

/// Sizes of the parameters of a case: several, one of them empty; one that exceeds any group; many small ones.
const LISTS: [(&str, &[usize], usize); 7] = [
    ("list", &[5, 257, 1], 0),
    ("offset", &[35, 7], 3),
    ("one", &[1], 0),
    ("with_empty", &[0, 33, 0], 0),
    ("large", &[MANY + 1], 0),
    ("of_nothing", &[], 0),
    // A launch of CUDA takes fewer. Not at the beginning of buffers, so that not every pair of operands becomes a case.
    ("of_many", &[9; MOST], 4),
];

/// The longest list.
const MOST: usize = 80;

/// Names of an operand of the parameters of a list.
macro_rules! names {
    ($name:literal) => {
        names!($name:
             0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
            40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79)
    };
    ($name:literal: $($number:literal)*) => {
        [$(concat!($name, $number)),*]
    };
}

const PARAM: [&str; MOST] = names!("param");
const GRAD: [&str; MOST] = names!("grad");
const MOMENTUM: [&str; MOST] = names!("momentum");
const EXP_AVG: [&str; MOST] = names!("exp_avg");
const EXP_AVG_SQ: [&str; MOST] = names!("exp_avg_sq");
const MAX_EXP_AVG_SQ: [&str; MOST] = names!("max_exp_avg_sq");
const STEPS: [&str; MOST] = names!("step");
const GRADS: [&str; MOST] = names!("grads");

#[derive(Clone, Copy)]
struct Sgd {
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
    found_inf: Option<f64>,
}

fn sgd(dtype: DType) -> Vec<Case> {
    let plain = Sgd {
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        maximize: false,
        first_step: false,
        found_inf: None,
    };
    let full = Sgd { momentum: 0.9, weight_decay: 0.1, found_inf: Some(0.0), ..plain };
    let mut out: Vec<Case> = LISTS.iter().map(|list| sgd_case(dtype, list.0, *list, full)).collect();
    for (name, how) in [
        ("plain", plain),
        ("weight_decay", Sgd { weight_decay: 0.1, ..plain }),
        ("momentum", Sgd { momentum: 0.9, ..plain }),
        ("dampening", Sgd { momentum: 0.9, dampening: 0.5, ..plain }),
        ("nesterov", Sgd { momentum: 0.9, nesterov: true, ..plain }),
        ("maximize", Sgd { maximize: true, ..full }),
        ("first_step", Sgd { first_step: true, ..full }),
        ("first_step_nesterov", Sgd { first_step: true, nesterov: true, ..full }),
        ("skipped", Sgd { found_inf: Some(1.0), ..full }),
    ] {
        out.push(sgd_case(dtype, name, LISTS[0], how));
    }
    out
}

fn sgd_case(dtype: DType, name: &str, (_, sizes, lead): (&str, &[usize], usize), how: Sgd) -> Case {
    let mut case = Case::on(dtype, name);
    let buffers = how.momentum != 0.0;
    for (i, &size) in sizes.iter().enumerate() {
        case = case.read(PARAM[i], &[size], Range(-1.0, 1.0)).offset(lead);
        case = case.read(GRAD[i], &[size], Range(-1.0, 1.0)).offset(lead);
        // Before the first step the buffers hold nothing.
        let held = if how.first_step { Poison } else { Range(-1.0, 1.0) };
        case = case.read_if(buffers, MOMENTUM[i], &[size], held);
    }
    case = with_scalar(case, "found_inf", how.found_inf);
    let count = sizes.len();
    let tensors = move |o: &Bound| {
        (0..count)
            .map(|i| SgdTensors { param: o.at(PARAM[i]), grad: o.at(GRAD[i]), momentum: o.get(MOMENTUM[i]) })
            .collect()
    };
    case.call(STEP, move |o| {
        memcore::backend::KernelCall::SgdStep(SgdStep {
            tensors: tensors(o),
            lr: 0.1,
            momentum: how.momentum,
            dampening: how.dampening,
            weight_decay: how.weight_decay,
            nesterov: how.nesterov,
            maximize: how.maximize,
            first_step: how.first_step,
            found_inf: o.get("found_inf"),
        })
    })
}

fn with_scalar(case: CaseBuilder, name: &'static str, value: Option<f64>) -> CaseBuilder {
    match value {
        Some(value) => case.read(name, &[], Constant(value)).typed(F32),
        None => case,
    }
}

#[derive(Clone, Copy)]
struct Adam {
    step: i32,
    weight_decay: f64,
    decoupled: bool,
    maximize: bool,
    amsgrad: bool,
    found_inf: Option<f64>,
}

fn adam(dtype: DType) -> Vec<Case> {
    let plain = Adam { step: 3, weight_decay: 0.0, decoupled: false, maximize: false, amsgrad: false, found_inf: None };
    let full = Adam { weight_decay: 0.1, amsgrad: true, found_inf: Some(0.0), ..plain };
    let mut out: Vec<Case> = LISTS.iter().map(|list| adam_case(dtype, list.0, *list, full)).collect();
    for (name, how) in [
        ("plain", plain),
        ("weight_decay", Adam { weight_decay: 0.1, ..plain }),
        ("decoupled", Adam { weight_decay: 0.1, decoupled: true, ..plain }),
        ("amsgrad", Adam { amsgrad: true, ..plain }),
        ("maximize", Adam { maximize: true, decoupled: true, ..full }),
        ("first_step", Adam { step: 1, ..plain }),
        ("late_step", Adam { step: 100_000, ..plain }),
        ("skipped", Adam { found_inf: Some(1.0), ..full }),
    ] {
        out.push(adam_case(dtype, name, LISTS[0], how));
    }
    out
}

fn adam_case(dtype: DType, name: &str, (_, sizes, lead): (&str, &[usize], usize), how: Adam) -> Case {
    let mut case = Case::on(dtype, name);
    for (i, &size) in sizes.iter().enumerate() {
        case = case.read(PARAM[i], &[size], Range(-1.0, 1.0)).offset(lead);
        case = case.read(GRAD[i], &[size], Range(-1.0, 1.0)).offset(lead);
        case = case.read(EXP_AVG[i], &[size], Range(-0.5, 0.5)).offset(lead);
        case = case.read(EXP_AVG_SQ[i], &[size], Range(0.1, 1.0)).offset(lead);
        case = case.read_if(how.amsgrad, MAX_EXP_AVG_SQ[i], &[size], Range(0.1, 1.0));
        case = case.read(STEPS[i], &[], Constant(how.step.into())).typed(F32);
    }
    case = with_scalar(case, "found_inf", how.found_inf);
    let count = sizes.len();
    let tensors = move |o: &Bound| {
        let of = |i: usize| AdamTensors {
            param: o.at(PARAM[i]),
            grad: o.at(GRAD[i]),
            exp_avg: o.at(EXP_AVG[i]),
            exp_avg_sq: o.at(EXP_AVG_SQ[i]),
            max_exp_avg_sq: o.get(MAX_EXP_AVG_SQ[i]),
            step: o.at(STEPS[i]),
        };
        (0..count).map(of).collect()
    };
    // 1 − 0.999ᵗ is a small difference at early steps. Its relative error is some 1000 ε, and the step it scales is
    // 0.01.
    let tolerance = Tolerance::arithmetic(16.0, "a bias correction of 1 − β₂ᵗ scales a step of a hundredth");
    case.call(tolerance, move |o| {
        memcore::backend::KernelCall::AdamStep(AdamStep {
            tensors: tensors(o),
            lr: 0.01,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: how.weight_decay,
            decoupled: how.decoupled,
            maximize: how.maximize,
            step_count: how.step,
            found_inf: o.get("found_inf"),
        })
    })
}

fn unscale(dtype: DType) -> Vec<Case> {
    let mut out = Vec::new();
    for (name, sizes, lead) in LISTS {
        out.push(unscale_case(dtype, name, sizes, lead, Range(-1.0, 1.0), 0.0, dtype));
    }
    for (name, value) in [("infinite", f64::INFINITY), ("negative_infinite", f64::NEG_INFINITY), ("nan", f64::NAN)] {
        let mut values = vec![0.5; 5];
        values[3] = value;
        out.push(unscale_case(dtype, name, &[5, 257, 1], 0, Values(values), 0.0, dtype));
    }
    // An overflow that an earlier launch found stays recorded.
    out.push(unscale_case(dtype, "found_before", &[5], 0, Range(-1.0, 1.0), 1.0, dtype));
    if dtype == F32 {
        out.push(unscale_case(dtype, "mixed_types", &[5, 257, 1], 0, Range(-1.0, 1.0), 0.0, F16));
    }
    out
}

/// `last` is the type of the last gradient of the list.
fn unscale_case(dtype: DType, name: &str, sizes: &[usize], lead: usize, data: Data, found: f64, last: DType) -> Case {
    let mut case = Case::on(dtype, name).expecting_nan();
    for (i, &size) in sizes.iter().enumerate() {
        case = case.read(GRADS[i], &[size], data.clone()).offset(lead);
        if i + 1 == sizes.len() {
            case = case.typed(last);
        }
    }
    case = case.read("inv_scale", &[], Constant(1.0 / 3.0)).typed(F32);
    case = case.read("found_inf", &[], Constant(found)).typed(F32);
    let count = sizes.len();
    case.call(Tolerance::arithmetic(0.0, "one product"), move |o| {
        memcore::backend::KernelCall::Unscale(Unscale {
            grads: (0..count).map(|i| o.at(GRADS[i])).collect(),
            inv_scale: o.at("inv_scale"),
            found_inf: o.at("found_inf"),
        })
    })
}

fn update_scale() -> Vec<Case> {
    // Scale, tracker, found_inf.
    [
        ("counts", 1024.0, 3.0, 0.0),
        ("grows", 1024.0, 9.0, 0.0),
        ("backs_off", 1024.0, 7.0, 1.0),
        ("does_not_overflow", 3e38, 9.0, 0.0),
    ]
    .map(|(name, scale, tracker, found)| {
        let case = Case::on(F32, name).read("scale", &[], Constant(scale));
        let case =
            case.read("growth_tracker", &[], Constant(tracker)).typed(I32).read("found_inf", &[], Constant(found));
        case.call(Tolerance::exact("a product with a power of two"), |o| {
            memcore::backend::KernelCall::UpdateScale(UpdateScale {
                growth_factor: 2.0,
                backoff_factor: 0.5,
                growth_interval: 10,
                scale: o.at("scale"),
                growth_tracker: o.at("growth_tracker"),
                found_inf: o.at("found_inf"),
            })
        })
    })
    .into()
}
