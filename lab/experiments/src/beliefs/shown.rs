//! Does nvidia-smi show how much a model needs? It shows the memory that a process has reserved, its context
//! included.

use lab_base::cards::CONTEXT;
use lab_base::error::Result;
use lab_base::figures::both as bytes;

use super::testbed::{Batches, Judged, Testbed};
use crate::session::Session;
use crate::{Measurement, Outcome, Setup, Verdict, in_bytes};

struct Process {
    name: &'static str,
    /// Batch of each step.
    steps: Vec<usize>,
}

/// Bytes that a process has reserved at the end, and the most that was allocated in its last step.
struct Figures {
    reserved: u64,
    needed: u64,
}

pub(super) fn measure(testbed: &Testbed, setup: &Setup<'_>, batches: Batches, outcome: &mut Outcome) -> Result<Judged> {
    let Batches { large, small } = batches;
    let processes = [
        Process { name: "small batch alone", steps: vec![small; 2] },
        Process { name: "small batch after a large one", steps: vec![large, large, small, small] },
    ];
    let mut found = Vec::new();
    for process in &processes {
        let device = testbed.open(setup.seed);
        let mut session = Session::simple_cnn(&device, setup.seed)?;
        let mut needed = 0;
        for (step, batch) in process.steps.iter().enumerate() {
            needed = session.whole_step(&format!("s{step}"), *batch)?.peak.allocated_bytes;
        }
        let reserved = device.stats().reserved_bytes.all.current;
        let figures = Figures { reserved, needed };
        outcome.rows.push(measurement(process, &figures));
        found.push(figures);
    }
    let [alone, after] = &found[..] else { return Ok((Verdict::NotTested, String::new(), "0 processes".into())) };
    let verdict = if after.reserved > after.needed { Verdict::Fails } else { Verdict::Holds };
    let condition = format!(
        "it shows what the process has reserved, and besides its context ({} to {} on a card): {} where a step needs {} at most, and {} for the \
         same step where a larger batch came before it; what is needed is the peak of what is allocated",
        bytes(CONTEXT.least_bytes()),
        bytes(CONTEXT.most_bytes()),
        bytes(alone.reserved),
        bytes(alone.needed),
        bytes(after.reserved)
    );
    Ok((verdict, in_bytes([("shown", after.reserved), ("needed", after.needed)]), condition))
}

fn measurement(process: &Process, figures: &Figures) -> Measurement {
    let mut m = Measurement::with_setting([("process", process.name.into())]);
    m.measure("reserved_bytes", figures.reserved);
    m.measure("needed_bytes", figures.needed);
    m
}
