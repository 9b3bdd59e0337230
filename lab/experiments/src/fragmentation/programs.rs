//! Named programs that fragment memory: some run on the device, some are written as lists of operations.

use lab_base::error::Result;
use lab_traces::replay::{Operation, Settings, Trace};
use lab_training::TrainStep;
use memcore::autograd::NoGrad;

use super::super::Setup;
use super::super::policy_comparison::{recorded, recording_device};
use super::super::session::{Session, undisturbed};

const MIB: u64 = 1 << 20;

/// A program that was run on the device.
pub(super) struct Ran {
    pub(super) trace: Trace,
    /// Most bytes that the device reserved. `None` if its cache had to be given back.
    pub(super) reserved: Option<u64>,
}

/// The batches of a training loop.
pub(super) enum Loop {
    /// Trains one step with each batch.
    Train(Vec<usize>),
    /// Trains, evaluates once with another batch, and trains again.
    Evaluate { train: usize, steps: usize, evaluate: usize },
}

/// Returns the named loops for a batch size.
pub(super) fn loops(batch: usize) -> Vec<(&'static str, Loop)> {
    let quarter = batch.div_ceil(4);
    let last = (batch * 5).div_ceil(16);
    vec![
        ("last batch smaller", Loop::Train([batch, batch, batch, last].repeat(2))),
        ("batch N, then N+1", Loop::Train((quarter..quarter + 6).collect())),
        ("evaluation between", Loop::Evaluate { train: quarter, steps: 2, evaluate: 2 * batch }),
    ]
}

/// Runs a loop on a fresh device.
pub(super) fn run(setup: &Setup<'_>, name: &str, what: &Loop) -> Result<Ran> {
    let device = recording_device(setup)?;
    let mut session = Session::simple_cnn(&device, setup.seed)?;
    let mut reserved = 0;
    let mut train = |session: &mut Session, batch: usize| -> Result<()> {
        let step = session.whole_step("s", batch)?;
        reserved = reserved.max(step.reserved_peak);
        Ok(())
    };
    match what {
        Loop::Train(batches) => batches.iter().try_for_each(|&batch| train(&mut session, batch))?,
        Loop::Evaluate { train: batch, steps, evaluate } => {
            (0..*steps).try_for_each(|_| train(&mut session, *batch))?;
            {
                let _off = NoGrad::new();
                session.load_batch(*evaluate, 0)?;
                session.forward()?;
                session.loss()?;
            }
            (0..*steps).try_for_each(|_| train(&mut session, *batch))?;
        }
    }
    // The peak of a step starts anew with the step. Memory that was reserved in between stays, because none was given
    // back.
    Ok(Ran { trace: recorded(&device, name)?, reserved: undisturbed(&device).then_some(reserved) })
}

/// Builds a program as a list of operations.
#[derive(Default)]
struct Script {
    operations: Vec<Operation>,
    made: u32,
}

impl Script {
    fn take(&mut self, bytes: u64) -> u32 {
        self.operations.push(Operation::Allocate { bytes, stream: 0, pool: 0, served: true });
        self.made += 1;
        self.made - 1
    }

    fn free(&mut self, allocation: u32) {
        self.operations.push(Operation::Free { allocation });
    }

    fn trace(self, name: &str) -> Result<Trace> {
        Trace::new(name, Settings::default(), self.operations)
    }
}

/// Sizes of the staged weights: the buffer, and the part of it that is kept.
pub(super) const STAGED_BYTES: (u64, u64) = (530 * MIB, 270 * MIB);

/// Loads weights through a larger buffer, which is freed before the kept piece is allocated. Each kept piece is placed in
/// the buffer's segment, and leaves too little there for the next buffer.
pub(super) fn staged_weights(weights: u64) -> Result<Trace> {
    let mut script = Script::default();
    for _ in 0..weights {
        let buffer = script.take(STAGED_BYTES.0);
        script.free(buffer);
        script.take(STAGED_BYTES.1);
    }
    script.trace("staged weights")
}

/// Training steps of an invented transformer whose sequences have another length in each step: `layers` layers of width 256 with 4 heads, 8
/// sequences a batch. A layer keeps the normalised input, query, key and value, the attention weights (∝ length²) and both halves of a
/// feed-forward block. Backward makes a gradient of each and frees both.
pub(super) fn variable_lengths(layers: u64, lengths: &[u64]) -> Result<Trace> {
    const WIDTH: u64 = 256;
    const SEQUENCES: u64 = 8;
    const HEADS: u64 = 4;
    let mut script = Script::default();
    let weights = [3 * WIDTH * WIDTH, WIDTH * WIDTH, 4 * WIDTH * WIDTH, 4 * WIDTH * WIDTH].map(|n| 4 * n);
    for _ in 0..layers {
        // The weights, and two optimizer states of each.
        for &bytes in weights.iter().flat_map(|bytes| [bytes; 3]) {
            script.take(bytes);
        }
    }
    for &length in lengths {
        let row = SEQUENCES * length * WIDTH * 4;
        let scores = SEQUENCES * HEADS * length * length * 4;
        let mut kept = Vec::new();
        let mut x = script.take(row);
        for _ in 0..layers {
            let mut layer: Vec<(u32, u64)> = Vec::new();
            for bytes in [row, 3 * row, scores, row, 4 * row] {
                if bytes == scores {
                    let raw = script.take(scores);
                    layer.push((script.take(scores), scores));
                    script.free(raw);
                } else {
                    layer.push((script.take(bytes), bytes));
                }
            }
            layer.push((x, row));
            x = script.take(row);
            kept.push(layer);
        }
        let mut gradient = script.take(row);
        script.free(x);
        let mut gradients = Vec::new();
        for layer in kept.into_iter().rev() {
            gradients.extend(weights.map(|bytes| script.take(bytes)));
            for (saved, bytes) in layer.into_iter().rev() {
                let next = script.take(bytes);
                script.free(gradient);
                script.free(saved);
                gradient = next;
            }
        }
        script.free(gradient);
        gradients.into_iter().for_each(|gradient| script.free(gradient));
    }
    script.trace("variable lengths")
}
