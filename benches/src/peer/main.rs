//! The workloads of the comparison with candle, burn and PyTorch, written with vramlab.
//!
//! `peer-vramlab [--device cpu|cuda[:N]|wgpu[:N]] [--seconds 2] [--steps 30] WORKLOAD… | all` prints one JSON line per
//! workload. Networks, weights, inputs and losses are those of the other programs, so `losses_head` must agree.

mod device;
mod measure;
mod work;

use anyhow::{Context, Result, bail};

use device::Chosen;
use measure::Limits;

fn main() -> Result<()> {
    let mut limits = Limits { seconds: 2.0, steps: 30 };
    let mut names = Vec::new();
    let mut chosen = Chosen::Cpu;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--device" => chosen = Chosen::parse(&value()?)?,
            "--seconds" => limits.seconds = value()?.parse().context("--seconds: a number")?,
            "--steps" => limits.steps = value()?.parse().context("--steps: an integer")?,
            "all" => names.extend(work::NAMES.iter().map(ToString::to_string)),
            _ => names.push(arg),
        }
    }
    if names.is_empty() {
        bail!(
            "usage: peer-vramlab [--device cpu|cuda[:N]|wgpu[:N]] [--seconds 2] [--steps 30] WORKLOAD… | all\nworkloads: {}",
            work::NAMES.join(", ")
        );
    }
    for name in names {
        println!("{}", work::run(&name, chosen, &limits)?);
    }
    Ok(())
}
