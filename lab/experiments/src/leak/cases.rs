//! Programs that keep memory, and some that only seem to.

use lab_analysis::predict::rounded;
use lab_base::error::Result;
use lab_training::{OptimizerKind, TrainStep};
use memcore::{Device, NoGrad, Tensor};

use crate::programs::{KeptActivations, kept_activations_watched};
use crate::session::Session;

/// Code that the program runs in each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// The hidden activations are appended to a list.
    KeepsActivations,
    /// As `KeepsActivations`, and the list is cleared after each step.
    ClearsActivations,
    /// The loss is appended to a list with its history, after backward.
    KeepsLoss,
    /// The loss is appended to a list, and backward is never called.
    NeverBackward,
    /// Backward keeps the graph. The next step's loss replaces the variable.
    RetainsGraph,
    /// Backward keeps the graph, and the loss is appended to a list.
    RetainsGraphAndLoss,
    /// Gradients are never cleared.
    NeverZeroes,
    /// The results of an evaluation are appended to a list.
    KeepsResults,
    /// As `KeepsResults`, without recording a graph.
    KeepsResultsNoGrad,
}

/// A program, the holder of the memory that it keeps, and the bytes per step.
pub(super) struct Case {
    /// Name in tables and rows.
    pub(super) name: &'static str,
    pub(super) pattern: Pattern,
    /// Chain of holders from the variable to the memory.
    pub(super) path: &'static str,
    /// Tensors kept per step: name, and floats per example (0: one float for the whole batch).
    pub(super) keeps: &'static [(&'static str, usize)],
    /// Graph nodes kept per step.
    pub(super) nodes: u64,
}

const GRAPH: &[(&str, usize)] = &[("input", 10), ("ReLU result", 20), ("result", 1), ("target", 1), ("loss", 0)];

/// Every program, on `Linear(10, 20) → ReLU → Linear(20, 1)`.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "activations in a list",
        pattern: Pattern::KeepsActivations,
        path: "list > tensor > memory; its graph is kept too, its saved values are gone",
        keeps: &[("ReLU result", 20)],
        nodes: 3,
    },
    Case { name: "the same, list cleared", pattern: Pattern::ClearsActivations, path: "nobody", keeps: &[], nodes: 0 },
    Case {
        name: "losses in a list",
        pattern: Pattern::KeepsLoss,
        path: "list > loss > memory; its graph is kept too, its saved values are gone",
        keeps: &[("loss", 0)],
        nodes: 6,
    },
    Case {
        name: "never backward",
        pattern: Pattern::NeverBackward,
        path: "list > loss > graph > saved values > memory",
        keeps: GRAPH,
        nodes: 6,
    },
    Case {
        name: "retain_graph",
        pattern: Pattern::RetainsGraph,
        path: "variable > loss > graph, replaced in each step",
        keeps: &[],
        nodes: 0,
    },
    Case {
        name: "retain_graph, losses kept",
        pattern: Pattern::RetainsGraphAndLoss,
        path: "list > loss > graph > saved values > memory",
        keeps: GRAPH,
        nodes: 6,
    },
    Case {
        name: "never zero_grad",
        pattern: Pattern::NeverZeroes,
        path: "parameter > gradient: added to in place",
        keeps: &[],
        nodes: 0,
    },
    Case {
        name: "evaluation in a list",
        pattern: Pattern::KeepsResults,
        path: "list > result > graph > saved values > memory",
        keeps: &[("input", 10), ("ReLU result", 20), ("result", 1)],
        nodes: 5,
    },
    Case {
        name: "the same under no_grad",
        pattern: Pattern::KeepsResultsNoGrad,
        path: "list > result > memory",
        keeps: &[("result", 1)],
        nodes: 0,
    },
];

impl Case {
    /// Predicts from the sizes how much a step adds: each kept tensor is rounded up to 512 bytes. With `wide_loss`, the squared error
    /// keeps a buffer of the result's size, as PyTorch's does. `None` if a tensor is above 1 MiB, because the pool may add to it.
    pub(super) fn growth(&self, batch: usize, wide_loss: bool) -> Option<u64> {
        let bytes = |&(_, floats): &(&str, usize)| {
            let floats = if floats == 0 && wide_loss { batch } else { (batch * floats).max(1) };
            let bytes = rounded(4 * floats as u64);
            (bytes <= 1 << 20).then_some(bytes)
        };
        self.keeps.iter().map(bytes).sum()
    }

    /// Writes the sum of [`growth`](Self::growth) as a formula.
    pub(super) fn formula(&self, wide_loss: bool) -> String {
        let term = |&(_, floats): &(&str, usize)| match floats {
            0 if !wide_loss => "r(4)".to_string(),
            0 | 1 => "r(4B)".to_string(),
            _ => format!("r(4B·{floats})"),
        };
        let terms: Vec<String> = self.keeps.iter().map(term).collect();
        if terms.is_empty() { "0".into() } else { terms.join(" + ") }
    }

    /// Runs the program. Calls `watch` after each step, while everything is held; `false` ends the program.
    pub(super) fn run(
        &self,
        device: &Device,
        batch: usize,
        steps: usize,
        seed: u64,
        watch: &mut dyn FnMut(usize) -> bool,
    ) -> Result<()> {
        if matches!(self.pattern, Pattern::KeepsActivations | Pattern::ClearsActivations) {
            let clear = self.pattern == Pattern::ClearsActivations;
            let program = KeptActivations { steps, batch, clear, seed };
            return kept_activations_watched(device, &program, watch).map(drop);
        }
        let mut session = Session::new(device, "two-layer", OptimizerKind::Sgd, 1e-2, seed)?;
        let mut list = Vec::new();
        for step in 0..steps {
            self.step(&mut session, batch, &mut list)?;
            if !watch(step) {
                break;
            }
        }
        Ok(())
    }

    fn step(&self, session: &mut Session, batch: usize, list: &mut Vec<Tensor>) -> Result<()> {
        session.load_batch(batch, 0)?;
        match self.pattern {
            Pattern::KeepsResults => {
                session.forward()?;
                list.extend(session.output.clone());
                return Ok(());
            }
            Pattern::KeepsResultsNoGrad => {
                let _no_grad = NoGrad::new();
                session.forward()?;
                list.extend(session.output.clone());
                return Ok(());
            }
            Pattern::NeverZeroes | Pattern::NeverBackward => {}
            _ => session.zero_grad()?,
        }
        session.forward()?;
        session.loss()?;
        if self.pattern != Pattern::NeverBackward {
            session.backward_retaining(matches!(self.pattern, Pattern::RetainsGraph | Pattern::RetainsGraphAndLoss))?;
            session.step()?;
        }
        if matches!(self.pattern, Pattern::KeepsLoss | Pattern::NeverBackward | Pattern::RetainsGraphAndLoss) {
            list.extend(session.loss.clone());
        }
        Ok(())
    }
}
