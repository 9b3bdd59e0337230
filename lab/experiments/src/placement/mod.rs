//! `placement`: what does it cost to keep data and tables on the host?

mod program;

use std::time::Instant;

use lab_analysis::predict::rounded;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use memcore::backend::Backend;
use memcore::memory::{Category, CategoryBytes};
use program::{Arrangement, Program, Sizes, Traffic};

use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::undisturbed;
use super::tables::{table, text};
use super::timing::{ROUNDS, Times, turns};
use super::{About, Claim, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct Placement;

const SOURCE: &str = "Does PyTorch GPU memory usage increase per batch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "Data that are copied to the GPU in every step cause a lot of memory swapping.", source: SOURCE },
    Claim {
        text: "Embeddings in CPU memory, when they should have been in the GPU's, make a batch need more.",
        source: SOURCE,
    },
];

/// Steps before the measured one.
const WARM: usize = 2;

/// Measurements of one arrangement.
struct Trial {
    arrangement: Arrangement,
    /// Bytes copied before the first step, parameters not counted.
    before: Traffic,
    step: Traffic,
    held: CategoryBytes,
    /// The peak of a step, libraries' workspaces not counted.
    peak_bytes: u64,
    /// Times of whole steps, taken in turns with the other arrangements.
    times: Times,
    loss: Option<f64>,
    computes: bool,
    predictable: bool,
}

impl Experiment for Placement {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "placement",
                question: "What do data and tables on the host cost: bytes over the bus, time, memory?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("batch", "examples of 16 tokens per step; 32"),
                    Size::one("vocabulary", "rows of the table, 64 values each; 1024"),
                    Size::one("batches", "batches of the data set; 8"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = Sizes {
            batch: setup.size("batch", 32),
            vocabulary: setup.size("vocabulary", 1024),
            batches: setup.size("batches", 8),
        };
        if sizes.batch == 0 || sizes.vocabulary == 0 || sizes.batches == 0 {
            return Err(Error::usage("batch, vocabulary, batches", "each must be at least 1"));
        }
        let mut progress = Progress::new(setup, Arrangement::ALL.len());
        let exact = sizes.largest_bytes() <= 1 << 20 && predictable(setup)?;
        let (mut trials, mut programs) = (Vec::new(), Vec::new());
        for arrangement in Arrangement::ALL {
            progress.next(arrangement.name())?;
            let (trial, program) = attempt(setup, arrangement, sizes, exact)?;
            outcome.rows.push(trial.measurement(sizes));
            trials.push(trial);
            programs.push(program);
        }
        time(&mut programs, &mut trials)?;
        outcome.rows = trials.iter().map(|trial| trial.measurement(sizes)).collect();
        outcome.tables.push(shown(&trials));
        outcome.notes.push(pinning((setup.open)()?.backend()));
        if trials.iter().any(|trial| !trial.computes) {
            let note = "This device computes nothing: no gradient comes back to the host, so bytes down, time and loss are not known here.";
            outcome.notes.push(note.into());
        }
        outcome.claims = judge(&trials, sizes);
        outcome.answer = answer(&trials, sizes);
        Ok(())
    }
}

/// Times one step of each program in turn, several times. Then reads their losses.
fn time(programs: &mut [Program], trials: &mut [Trial]) -> Result<()> {
    if trials.iter().any(|trial| !trial.computes) {
        return Ok(());
    }
    for round in 0..ROUNDS {
        for i in turns(round, programs.len()) {
            let (program, trial) = (&mut programs[i], &mut trials[i]);
            let start = Instant::now();
            program.step(WARM + 1 + round)?;
            program.synchronize()?;
            trial.times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    for (program, trial) in programs.iter().zip(trials) {
        trial.loss = Some(program.loss()?);
    }
    Ok(())
}

fn attempt(setup: &Setup<'_>, arrangement: Arrangement, sizes: Sizes, exact: bool) -> Result<(Trial, Program)> {
    let device = (setup.open)()?;
    let mut program = Program::new(&device, arrangement, sizes, setup.seed)?;
    let start = Traffic::from_device(&device);
    program.prepare()?;
    let before = Traffic::from_device(&device).since(start);
    for step in 0..WARM {
        program.step(step)?;
    }
    device.reset_peak_stats();
    let start = Traffic::from_device(&device);
    program.step(WARM)?;
    let step = Traffic::from_device(&device).since(start);
    let usage = device.usage();
    let (held, peak) = (*usage.by_category(), usage.at_peak());
    let peak_bytes = peak.allocated_bytes - peak.by_category[Category::Workspace as usize];
    let computes = device.computes();
    let predictable = exact && undisturbed(&device);
    let times = Times::default();
    let trial = Trial { arrangement, before, step, held, peak_bytes, times, loss: None, computes, predictable };
    Ok((trial, program))
}

impl Trial {
    fn measurement(&self, sizes: Sizes) -> Measurement {
        let mut m = Measurement::with_setting([("arrangement", self.arrangement.name().into())]);
        let (before, step) = (self.arrangement.before(sizes), self.arrangement.per_step(sizes));
        m.measure("uploaded_before_bytes", self.before.up);
        m.predict("uploaded_before_bytes", before.up);
        m.measure("uploaded_per_step_bytes", self.step.up);
        m.predict("uploaded_per_step_bytes", step.up);
        // A device without values cannot give gradients back.
        if self.computes || step.down == 0 {
            m.measure("downloaded_per_step_bytes", self.step.down);
            m.predict("downloaded_per_step_bytes", step.down);
        } else {
            m.unknown("downloaded_per_step_bytes");
        }
        for (quantity, category) in [
            ("input_bytes", Category::Input),
            ("parameter_bytes", Category::Parameter),
            ("gradient_bytes", Category::Gradient),
        ] {
            m.measure(quantity, self.held[category as usize]);
            if self.predictable {
                m.predict(quantity, foreseen(self.arrangement, sizes, category));
            }
        }
        m.measure("peak_bytes", self.peak_bytes);
        self.times.measure(&mut m, "step_us");
        match self.loss {
            Some(loss) => m.measure("last_loss_millionths", (loss * 1e6).round().max(0.0) as u64),
            None => m.unknown("last_loss_millionths"),
        }
        m
    }
}

/// Predicts the bytes that the device holds after a step; each tensor is rounded up to 512 bytes.
fn foreseen(arrangement: Arrangement, sizes: Sizes, category: Category) -> u64 {
    let on_host = arrangement == Arrangement::TableOnHost;
    let rows = rounded(sizes.rows_bytes());
    let table = rounded(sizes.table_bytes());
    let head: u64 = sizes.head_bytes().into_iter().map(rounded).sum();
    let indices = |batches: usize| rounded(batches as u64 * sizes.indices_bytes());
    match category {
        Category::Input if on_host => rows + indices(1),
        Category::Input if arrangement == Arrangement::DataOnDevice => 2 * indices(sizes.batches),
        Category::Input => 2 * indices(1),
        Category::Gradient if on_host => rows + head,
        Category::Parameter if on_host => head,
        Category::Gradient | Category::Parameter => table + head,
        _ => 0,
    }
}

fn shown(trials: &[Trial]) -> Table {
    let row = |t: &Trial| {
        let down = if t.computes { Cell::Bytes(t.step.down) } else { text("-") };
        vec![
            text(t.arrangement.name()),
            Cell::Bytes(t.before.up),
            Cell::Bytes(t.step.up),
            down,
            Cell::Bytes(t.peak_bytes),
            text(t.times.words()),
        ]
    };
    let columns = ["where things are", "up before", "up per step", "down", "peak", "step (range)"];
    table("Bytes over the bus, memory and time", &columns, trials.iter().map(row).collect())
}

/// States what a page-locked source would change on this backend.
fn pinning(backend: &dyn Backend) -> String {
    let here = backend.how_it_copies().map(|here| format!(": {here}")).unwrap_or_default();
    format!(
        "Pinned memory changes neither the bytes over the bus nor what the device holds, only how fast they go and whether the host waits{here}. \
         The third row copies from one buffer that is kept, as a loader with pinned memory does, instead of a new one in each step."
    )
}

/// States the bytes over the bus and the peak, with data and with a table on the host.
fn answer(trials: &[Trial], sizes: Sizes) -> ShortAnswer {
    let [resident, copied, _, on_host] = trials else { return ShortAnswer::default() };
    ShortAnswer::new(
        "Copies in each step, little memory",
        [
            format!(
                "Data on the host: {} up per step; the peak is {} instead of {}.",
                bytes(copied.step.up),
                bytes(copied.peak_bytes),
                bytes(resident.peak_bytes)
            ),
            format!(
                "The table on the host too: {} up and {} down per step; the peak is {}.",
                bytes(on_host.step.up),
                bytes(on_host.arrangement.per_step(sizes).down),
                bytes(on_host.peak_bytes)
            ),
        ],
    )
}

fn judge(trials: &[Trial], sizes: Sizes) -> Vec<JudgedClaim> {
    let [resident, copied, _, on_host] = trials else { return Vec::new() };
    let time = |a: &Trial, b: &Trial| a.times.beside(&b.times);
    let less = copied.held[Category::Input as usize] <= resident.held[Category::Input as usize];
    let moved = format!(
        "each step moves {} up and {} down; {}",
        bytes(copied.step.up),
        bytes(copied.step.down),
        time(copied, resident)
    );
    let first = JudgedClaim {
        lead: "",
        claim: CLAIMS[0],
        // Swapping would write device memory back to the host, or the device would hold more than it needs.
        verdict: if less && copied.step.down == 0 { Verdict::Fails } else { Verdict::Holds },
        number: in_bytes([("up per step", copied.step.up)]),
        condition: format!(
            "{moved}. Nothing is swapped: {} come back, and the device holds one batch ({}) instead of the data set ({})",
            bytes(copied.step.down),
            bytes(copied.held[Category::Input as usize]),
            bytes(resident.held[Category::Input as usize])
        ),
    };
    let verdict = if on_host.peak_bytes > copied.peak_bytes { Verdict::Holds } else { Verdict::Depends };
    let down = on_host.arrangement.per_step(sizes).down;
    let second = JudgedClaim {
        lead: "with more tokens than rows",
        claim: CLAIMS[1],
        verdict,
        number: in_bytes([("peak, host", on_host.peak_bytes), ("device", copied.peak_bytes)]),
        condition: format!(
            "with the table on the host a step moves {} up (the rows of its tokens) and {} down (their gradients) instead of {} and 0; the \
             device's peak is {} instead of {}: the table and its gradient ({}) are gone, the rows and theirs ({}) come, so it needs more only \
             where a batch has more tokens ({}) than the table has rows ({}); {}",
            bytes(on_host.step.up),
            bytes(down),
            bytes(copied.step.up),
            bytes(on_host.peak_bytes),
            bytes(copied.peak_bytes),
            bytes(2 * sizes.table_bytes()),
            bytes(2 * sizes.rows_bytes()),
            sizes.tokens(),
            sizes.vocabulary,
            time(on_host, copied)
        ),
    };
    vec![first, second]
}
