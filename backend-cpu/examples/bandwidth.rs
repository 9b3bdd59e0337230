//! How fast the memory-bound kernels are, beside a copy of as many bytes: `cargo run --release -p backend-cpu --example bandwidth`.
//!
//! Each figure is the best of several repetitions: bytes that the kernel must move (each operand once), per second.

use std::time::Instant;

use backend_cpu::Cpu;
use memcore::backend::kernel::*;
use memcore::backend::{Backend, DeviceMemory, KernelCall, Operand, Region, validate};
use memcore::error::Result;
use memcore::{DType, Layout};

struct Bench {
    cpu: Cpu,
}

impl Bench {
    fn operand(&self, dtype: DType, dims: &[usize]) -> Result<Operand> {
        let layout = Layout::contiguous(dims)?;
        let len = layout.numel() as u64 * dtype.size();
        let segment = self.cpu.alloc_segment(len.max(64))?;
        let operand = Operand { region: Region { segment, offset: 0, len }, dtype, layout };
        if dtype.is_float() {
            let kind = RandomKind::Uniform { low: -2.0, high: 2.0 };
            self.cpu.launch(&KernelCall::from(Random { kind, seed: 1, offset: 0, out: operand }))?;
        } else {
            self.cpu.launch(&KernelCall::from(Fill { value: 1.0, out: operand }))?;
        }
        Ok(operand)
    }

    fn time(&self, name: &str, call: impl Into<KernelCall>) -> Result<()> {
        let call = call.into();
        validate(&call)?;
        let cost = call.cost();
        let mut best = f64::INFINITY;
        let begun = Instant::now();
        let mut repetitions = 0;
        while repetitions < 5 || begun.elapsed().as_secs_f64() < 0.4 {
            let start = Instant::now();
            self.cpu.launch(&call)?;
            best = best.min(start.elapsed().as_secs_f64());
            repetitions += 1;
        }
        let bytes = (cost.bytes_read + cost.bytes_written) as f64;
        println!("{name:32} {:10.2} µs {:8.2} GB/s", best * 1e6, bytes / best * 1e-9);
        Ok(())
    }
}

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let b = Bench { cpu: threads.map_or_else(Cpu::new, Cpu::with_threads)? };
    println!("{}", b.cpu.device_name());
    copies();
    for (rows, n) in [(8, 64), (256, 512), (4096, 4096)] {
        println!("-- {rows} × {n}");
        elementwise(&b, rows, n)?;
        rowwise(&b, rows, n)?;
    }
    for dims in [[128, 256, 1], [64, 16, 196], [32, 64, 1024]] {
        println!("-- {dims:?}");
        channelwise(&b, dims)?;
    }
    Ok(())
}

/// What the memory itself gives, one thread.
fn copies() {
    for bytes in [2 << 10, 512 << 10, 64 << 20] {
        let src = vec![1u8; bytes];
        let mut dst = vec![0u8; bytes];
        let mut best = f64::INFINITY;
        for _ in 0..50 {
            let start = Instant::now();
            dst.copy_from_slice(std::hint::black_box(&src));
            std::hint::black_box(&mut dst);
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("memcpy of {bytes:10} bytes: {:8.2} GB/s read and written", 2.0 * bytes as f64 / best * 1e-9);
    }
}

fn elementwise(b: &Bench, rows: usize, n: usize) -> Result<()> {
    let f = DType::F32;
    let (x, y, out) = (b.operand(f, &[rows, n])?, b.operand(f, &[rows, n])?, b.operand(f, &[rows, n])?);
    let bias = b.operand(f, &[n])?;
    let bias = Operand { layout: bias.layout.broadcast_to(&[rows, n])?, ..bias };
    let mask = b.operand(DType::Bool, &[rows, n])?;
    let half = b.operand(DType::BF16, &[rows, n])?;
    b.time("fill", Fill { value: 1.0, out })?;
    b.time("copy", Copy { src: x, out })?;
    if rows == n {
        let src = Operand { layout: x.layout.transposed(0, 1), ..x };
        b.time("copy transposed", Copy { src, out })?;
    }
    b.time("copy f32 to bf16", Copy { src: x, out: half })?;
    b.time("copy bf16 to f32", Copy { src: half, out })?;
    b.time("add", Binary { op: BinaryOp::ADD, lhs: x, rhs: y, out })?;
    b.time("add bias", Binary { op: BinaryOp::ADD, lhs: x, rhs: bias, out })?;
    b.time("add in place", Binary { op: BinaryOp::ADD, lhs: out, rhs: y, out })?;
    for (name, op) in [("relu", UnaryOp::Relu), ("gelu", UnaryOp::Gelu), ("exp", UnaryOp::Exp), ("tanh", UnaryOp::Tanh)]
    {
        b.time(name, Unary { op, x, out })?;
    }
    b.time("gelu grad", UnaryGrad { op: UnaryGradOp::Gelu, saved: x, grad: y, out })?;
    b.time("dropout", Dropout { p: 0.1, seed: 3, offset: 0, x, mask, out })?;
    b.time("uniform", Random { kind: RandomKind::Uniform { low: 0.0, high: 1.0 }, seed: 3, offset: 0, out })?;
    Ok(())
}

fn softmax(b: &Bench, over: &str, dims: [usize; 3]) -> Result<()> {
    let f = DType::F32;
    let (x, y, out) = (b.operand(f, &dims)?, b.operand(f, &dims)?, b.operand(f, &dims)?);
    b.time(&format!("softmax{over}"), Softmax { log: false, x, out })?;
    b.time(&format!("log softmax{over}"), Softmax { log: true, x, out })?;
    b.time(&format!("softmax grad{over}"), SoftmaxGrad { log: false, y: x, grad: y, out, workspace: None })
}

fn rowwise(b: &Bench, rows: usize, n: usize) -> Result<()> {
    let f = DType::F32;
    let (x, y, out) = (b.operand(f, &[rows, n])?, b.operand(f, &[rows, n])?, b.operand(f, &[rows, n])?);
    let (mean, rstd) = (b.operand(f, &[rows])?, b.operand(f, &[rows])?);
    let (weight, bias, dw, db) = (b.operand(f, &[n])?, b.operand(f, &[n])?, b.operand(f, &[n])?, b.operand(f, &[n])?);
    let row_sums = b.operand(f, &[rows, 1])?;
    let column_sums = b.operand(f, &[1, n])?;
    let all = b.operand(f, &[1, 1])?;
    let sum = |axes, out| Reduce { op: ReduceOp::Sum, axes, x, out, indices: None };
    b.time("sum of rows", sum(0b10, row_sums))?;
    b.time("sum of columns", sum(0b01, column_sums))?;
    b.time("sum of all", sum(0b11, all))?;
    softmax(b, "", [rows, n, 1])?;
    softmax(b, " of columns", [1, rows, n])?;
    let norm = LayerNorm { eps: 1e-5, x, weight: Some(weight), bias: Some(bias), out, mean, rstd };
    b.time("layer norm", norm)?;
    let grad = LayerNormGrad {
        grad: y,
        x,
        mean,
        rstd,
        weight: Some(weight),
        out_x: Some(out),
        out_weight: Some(dw),
        out_bias: Some(db),
    };
    b.time("layer norm grad", grad.clone())?;
    b.time("layer norm grad, input", LayerNormGrad { out_weight: None, out_bias: None, ..grad })?;
    let (v, step) = (b.operand(f, &[rows, n])?, b.operand(f, &[])?);
    b.cpu.launch(&KernelCall::from(Fill { value: 1.0, out: step }))?;
    b.cpu.launch(&KernelCall::from(Fill { value: 1.0, out: v }))?;
    let tensors = [AdamTensors { param: out, grad: x, exp_avg: y, exp_avg_sq: v, max_exp_avg_sq: None, step }];
    let adam = AdamStep {
        tensors: tensors.into(),
        lr: 1e-6,
        betas: [0.9, 0.999],
        eps: 1e-8,
        weight_decay: 0.01,
        decoupled: true,
        maximize: false,
        found_inf: None,
    };
    b.time("adamw", KernelCall::AdamStep(adam))
}

fn channelwise(b: &Bench, dims: [usize; 3]) -> Result<()> {
    let f = DType::F32;
    let (x, grad, out) = (b.operand(f, &dims)?, b.operand(f, &dims)?, b.operand(f, &dims)?);
    let channel = || b.operand(f, &dims[1..2]);
    let (weight, bias, mean, invstd, dw, db) = (channel()?, channel()?, channel()?, channel()?, channel()?, channel()?);
    let sums = b.operand(f, &[1, dims[1], 1])?;
    b.time("sum of channels", Reduce { op: ReduceOp::Sum, axes: 0b101, x, out: sums, indices: None })?;
    let norm = BatchNorm {
        training: true,
        momentum: 0.1,
        eps: 1e-5,
        x,
        weight: Some(weight),
        bias: Some(bias),
        running_mean: None,
        running_var: None,
        out,
        save_mean: Some(mean),
        save_invstd: Some(invstd),
    };
    b.time("batch norm", norm)?;
    let grad = BatchNormGrad {
        training: true,
        grad,
        x,
        mean,
        invstd,
        weight: Some(weight),
        out_x: Some(out),
        out_weight: Some(dw),
        out_bias: Some(db),
    };
    b.time("batch norm grad", grad)
}
