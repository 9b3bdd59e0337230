//! Does a bigger model need proportionally more?

use lab_base::error::Result;
use lab_base::figures::both as bytes;
use lab_base::section::Cell;
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings};

use super::testbed::{Batches, Judged, Testbed};
use crate::columns::Columns;
use crate::perceptron::{CLASSES, FEATURES};
use crate::session::Session;
use crate::{Outcome, Setup, Verdict, in_bytes};

/// Widths of the two hidden layers, in neurons.
const WIDTHS: [usize; 3] = [64, 128, 256];
/// A batch large enough that activations are a good part of the memory.
const MANY: usize = 255;

/// Figures of one width with one batch.
struct Trial {
    width: usize,
    batch: usize,
    parameters: u64,
    peak: u64,
}

pub(super) fn measure(testbed: &Testbed, setup: &Setup<'_>, batches: Batches, outcome: &mut Outcome) -> Result<Judged> {
    let columns = Columns::new()
        .number("batch", "batch", |t: &Trial| t.batch)
        .number("width", "width", |t| t.width)
        .count("parameters", "parameters", |t| t.parameters)
        .predicted("parameters", |t| Some(parameters(t.width)))
        .bytes("peak_bytes", "peak", |t| t.peak)
        .cell("bytes per parameter", |t| Cell::Number(t.peak as f64 / t.parameters as f64));
    let mut trials = Vec::new();
    for batch in [batches.small, MANY.max(batches.small + 1)] {
        for width in WIDTHS {
            let trial = attempt(testbed, setup, width, batch)?;
            outcome.rows.push(columns.measurement(&trial));
            trials.push(trial);
        }
    }
    outcome.tables.push(columns.table("A perceptron with Adam", &trials));
    let (few, many) = trials.split_at(WIDTHS.len());
    let ratio = |of: &[Trial], what: fn(&Trial) -> u64| what(&of[of.len() - 1]) as f64 / what(&of[0]) as f64;
    let parameters = ratio(few, |t| t.parameters);
    let (with_few, with_many) = (ratio(few, |t| t.peak), ratio(many, |t| t.peak));
    let near = |ratio: f64| (ratio / parameters - 1.0).abs() < 0.1;
    let verdict = match (near(with_few), near(with_many)) {
        (true, true) => Verdict::Holds,
        (false, false) => Verdict::Fails,
        _ => Verdict::Depends,
    };
    let condition = format!(
        "{parameters:.1} times the parameters ({} to {}) need {with_few:.1} times the memory with a batch of {} ({} to {}) and {with_many:.1} times \
         with one of {}: parameters, gradients and optimizer state are in proportion, activations grow with the width alone, and workspaces not \
         at all",
        few[0].parameters,
        few[few.len() - 1].parameters,
        few[0].batch,
        bytes(few[0].peak),
        bytes(few[few.len() - 1].peak),
        many[0].batch
    );
    let (least, most) = (&many[0], &many[many.len() - 1]);
    let labels = [format!("peak, {} parameters", least.parameters), most.parameters.to_string()];
    Ok((verdict, in_bytes([(&labels[0], least.peak), (&labels[1], most.peak)]), condition))
}

fn attempt(testbed: &Testbed, setup: &Setup<'_>, width: usize, batch: usize) -> Result<Trial> {
    let device = testbed.open(setup.seed);
    let options = ModelOptions { width: Some(width), ..ModelOptions::default() };
    let adam = OptimizerSettings::new(OptimizerKind::Adam, 1e-3);
    let mut session = Session::in_f32(&device, &*architecture("mlp", &options)?, &adam, setup.seed)?;
    let mut peak = 0;
    for step in 0..2 {
        peak = session.whole_step(&format!("s{step}"), batch)?.peak.allocated_bytes.max(peak);
    }
    Ok(Trial { width, batch, parameters: session.network.model.parameter_count(), peak })
}

/// Number of parameters of two hidden layers between features and classes, biases included.
fn parameters(width: usize) -> u64 {
    (width * (FEATURES + 1) + width * (width + 1) + CLASSES * (width + 1)) as u64
}
