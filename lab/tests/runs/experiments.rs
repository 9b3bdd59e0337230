//! Every experiment in a size for slow devices (a thousand times slower than a graphics card): software adapters,
//! emulators.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use backend_cpu::Cpu;
use lab::experiments::{ALL, Experiment, Outcome, Setup};
use memcore::backend::Backend;
use memcore::{Device, Profile};

/// Names of sizes, with their values.
type Sizes = [(&'static str, &'static [usize])];

/// Sizes under which an experiment takes a second or two on such a device and still has something to compare.
const SMALL: &[(&str, &Sizes)] = &[
    ("batch-size", &[("steps", &[2]), ("batch", &[4, 2]), ("largest", &[8])]),
    ("steady-state", &[("steps", &[4]), ("batch", &[2])]),
    ("leak", &[("batch", &[2]), ("steps", &[4]), ("memory_mib", &[4])]),
    ("release", &[("batch", &[2])]),
    ("equation", &[("batch", &[2, 4]), ("layers", &[2]), ("width", &[16]), ("features", &[16])]),
    ("network-size", &[("batch", &[1, 2])]),
    ("optimizer", &[("width", &[16]), ("batch", &[2])]),
    ("accumulation", &[("batch", &[8]), ("pieces", &[2])]),
    ("checkpointing", &[("blocks", &[2]), ("batch", &[1])]),
    ("precision", &[("batch", &[8]), ("steps", &[2])]),
    ("sequence-length", &[("sequence", &[4, 8, 12]), ("batch", &[1])]),
    ("placement", &[("batch", &[2]), ("vocabulary", &[16]), ("batches", &[3])]),
    ("quantization", &[("width", &[16]), ("steps", &[3])]),
    ("fit", &[("memory_mib", &[4])]),
    ("cache", &[("batch", &[4, 2, 3]), ("steps", &[3])]),
    (
        "fragmentation",
        &[("batch", &[4]), ("batches", &[4, 2]), ("repeats", &[1]), ("lengths", &[4, 8, 6]), ("weights", &[2])],
    ),
    ("model-parallel", &[("devices", &[2]), ("batch", &[8]), ("pieces", &[2])]),
    ("beliefs", &[("batch", &[4, 2])]),
    ("evaluation", &[("width", &[64]), ("layers", &[2]), ("batch", &[2])]),
    ("sharded-saving", &[("ranks", &[2]), ("width", &[16]), ("layers", &[2])]),
    ("loader", &[("workers", &[2]), ("prefetch_factor", &[2])]),
    ("contexts", &[("ranks", &[2]), ("width", &[16])]),
    ("checkpointing-in-vain", &[("blocks", &[2]), ("batch", &[1]), ("width", &[16])]),
    ("resume", &[("width", &[16]), ("layers", &[2]), ("batch", &[2])]),
];

/// The names of all experiments.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|experiment| experiment.name())
}

/// Runs that experiment, small, on the given device and on the processor, both with PyTorch's temporaries and workspaces:
/// nothing is left unexplained, and every byte and count is the same.
pub(crate) fn same_bytes(name: &str, backend: &Arc<dyn Backend>) -> Result<(), String> {
    let experiment = lab::experiments::by_name(name).map_err(|error| error.to_string())?;
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new().map_err(|error| error.to_string())?);
    let (mine, theirs) = (small(experiment, backend)?, small(experiment, &cpu)?);
    if !mine.unexplained().is_empty() {
        return Err(format!("unexplained: {:?}", mine.unexplained()));
    }
    if mine.claims.len() != experiment.claims().len() || mine.rows.is_empty() {
        return Err(format!("{} claims judged by {} rows", mine.claims.len(), mine.rows.len()));
    }
    let (mine, theirs) = (bytes(&mine), bytes(&theirs));
    match mine.iter().zip(&theirs).find(|(a, b)| a != b) {
        Some((a, b)) => Err(format!("{a} here, {b} on the processor")),
        None if mine.len() != theirs.len() => Err(format!("{} figures, {} on the processor", mine.len(), theirs.len())),
        None => Ok(()),
    }
}

fn small(experiment: &dyn Experiment, backend: &Arc<dyn Backend>) -> Result<Outcome, String> {
    let open = || Ok(Device::builder(Arc::clone(backend)).profile(Profile::torch_2_11(90)).build());
    let sizes = SMALL.iter().find(|(name, _)| *name == experiment.name()).ok_or("has no small sizes")?.1;
    let sizes: BTreeMap<String, Vec<usize>> = sizes.iter().map(|(k, v)| (k.to_string(), v.to_vec())).collect();
    let setup =
        Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &|_, _| ControlFlow::Continue(()) };
    experiment.ask(&setup).map_err(|error| error.to_string())
}

/// Measurements in each setting, without times and values that depend on a device's rounding.
fn bytes(outcome: &Outcome) -> Vec<String> {
    let of_the_device = |quantity: &str| ["_us", "_ppb", "_millionths"].iter().any(|unit| quantity.ends_with(unit));
    let rows = outcome.rows.iter().flat_map(|row| {
        let measured = row.measured.iter().filter(|(quantity, _)| !of_the_device(quantity));
        measured.map(|(quantity, value)| format!("{quantity} {value:?} ({:?})", row.setting))
    });
    rows.collect()
}
