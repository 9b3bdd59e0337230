//! The workloads of the comparison with candle, burn and PyTorch, written with vramlab.
//!
//! `peer-vramlab [--device cpu|cuda[:N]|wgpu[:N]] [--precision fp32|bf16|autocast-bf16] [--cuda-graph] [--seconds 2] [--steps 30] WORKLOAD… | all` prints one JSON line per workload: the same networks, weights,
//! inputs and losses as in the other peers' programs, so that `losses_head` must agree.

mod device;
mod measure;
mod work;

use anyhow::{Context, Result, bail};

use device::Chosen;
use lab::training::Precision;
use measure::Limits;

fn main() -> Result<()> {
    let mut limits = Limits { seconds: 2.0, steps: 30 };
    let mut names = Vec::new();
    let mut chosen = Chosen::Cpu;
    let mut precision = Precision::Fp32;
    let mut cuda_graph = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--device" => chosen = Chosen::parse(&value()?)?,
            "--precision" => precision = value()?.parse().map_err(anyhow::Error::msg).context("--precision")?,
            "--cuda-graph" => cuda_graph = true,
            "--seconds" => limits.seconds = value()?.parse().context("--seconds: a number")?,
            "--steps" => limits.steps = value()?.parse().context("--steps: an integer")?,
            "all" => names.extend(work::NAMES.iter().map(ToString::to_string)),
            _ => names.push(arg),
        }
    }
    if names.is_empty() {
        bail!(
            "usage: peer-vramlab [--device cpu|cuda[:N]|wgpu[:N]] [--precision fp32|bf16|autocast-bf16] [--cuda-graph] [--seconds 2] [--steps 30] WORKLOAD… | all\nworkloads: {}",
            work::NAMES.join(", ")
        );
    }
    for name in names {
        println!("{}", work::run(&name, &chosen.open(cuda_graph)?, precision, &limits)?);
    }
    Ok(())
}
