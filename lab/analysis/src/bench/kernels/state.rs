//! Kernels over parameters and their state: optimizers, and the scaling of gradients.

use std::sync::Arc;

use memcore::DType;
use memcore::backend::kernel::{AdamStep, AdamTensors, SgdStep, SgdTensors, Unscale};

use super::kernel::{ELEMENTS, F32, Kernel};

const FAMILY: &str = "optim";

pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        family: FAMILY,
        name: "sgd_step",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| {
            let (param, grad, momentum) = (o.read(d)?, o.read(d)?, Some(o.read(d)?));
            let call = SgdStep {
                tensors: Arc::from([SgdTensors { param, grad, momentum }]),
                lr: 1e-6,
                momentum: 0.9,
                dampening: 0.0,
                weight_decay: 0.0,
                nesterov: false,
                maximize: false,
                first_step: false,
                found_inf: None,
            };
            Ok(call.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "adam_step",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| {
            let (param, grad, exp_avg) = (o.read(d)?, o.read(d)?, o.read(d)?);
            let exp_avg_sq = o.between(o.dtype, d, 0.0, 1.0)?;
            let step = o.full(DType::F32, &[], 10.0)?;
            let call = AdamStep {
                tensors: Arc::from([AdamTensors { param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq: None, step }]),
                lr: 1e-6,
                betas: [0.9, 0.999],
                eps: 1e-8,
                weight_decay: 0.01,
                decoupled: true,
                maximize: false,
                step_count: 10,
                found_inf: None,
            };
            Ok(call.into())
        },
    },
    Kernel {
        family: FAMILY,
        name: "unscale",
        sizes: ELEMENTS,
        dtypes: F32,
        build: |o, d| {
            let grads = Arc::from([o.read(d)?]);
            let (inv_scale, found_inf) = (o.full(DType::F32, &[], 1.0)?, o.full(DType::F32, &[], 0.0)?);
            Ok(Unscale { grads, inv_scale, found_inf }.into())
        },
    },
];
