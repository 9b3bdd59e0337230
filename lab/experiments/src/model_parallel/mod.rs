//! `model-parallel`: how much memory does it save to split a network over devices, and to divide a step among them?

mod claims;
mod network;
mod sharded;

use claims::CLAIMS;
use lab_analysis::predict::rounded;
use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_base::section::{Cell, Table};
use lab_training::pipeline::{self, Cut, PipelineSettings, Schedule, StageFigures};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::Device;
use network::{CLASSES, LAYERS, WIDTH, network};

use super::default_allocator::predictable;
use super::progress::Progress;
use super::session::undisturbed;
use super::tables::{table, text};
use super::{About, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes};

pub(super) struct ModelParallel;

const STEPS: u64 = 2;

/// A way to run one and the same step.
struct Way {
    name: &'static str,
    devices: usize,
    micro_batches: usize,
    schedule: Schedule,
}

struct Trial {
    way: Way,
    stages: Vec<StageFigures>,
    /// Losses of the steps and gradients of the last step. Empty on devices without values.
    values: Vec<f64>,
    /// True if all devices compute alike: one backend, and one kind of processor.
    of_one_kind: bool,
    /// True if no device had to give its cache back.
    calm: bool,
}

impl Experiment for ModelParallel {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "model-parallel",
                question: "What does splitting a network over devices save?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("devices", "devices, each of the chosen kind and opened anew; 4, or those of --devices"),
                    Size::one("batch", "examples per step; 512"),
                    Size::one("pieces", "micro-batches; 8"),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let named = setup.places.len();
        let devices = if named > 0 { named } else { setup.size("devices", 4) };
        let [batch, pieces] = [setup.size("batch", 512), setup.size("pieces", 8)];
        if !(2..=LAYERS + 1).contains(&devices) {
            return Err(Error::usage("devices", format!("from 2 to {}: the network has so many pieces", LAYERS + 1)));
        }
        if batch == 0 || pieces < 2 || !batch.is_multiple_of(pieces) {
            return Err(Error::usage("batch, pieces", "at least two pieces, which divide the batch"));
        }
        let ways = ways(devices, pieces);
        let mut progress = Progress::new(setup, ways.len() + 1);
        let predictable = predictable(setup)?;
        let mut trials: Vec<Trial> = Vec::new();
        for way in ways {
            progress.next(way.name)?;
            let predicted = if predictable { forecast(&way, batch)? } else { Vec::new() };
            let trial = attempt(setup, way, batch)?;
            let same = trials.iter().find(|t| t.way.micro_batches == trial.way.micro_batches);
            outcome.rows.extend(measurements(&trial, &predicted, same));
            trials.push(trial);
        }
        progress.next("ZeRO")?;
        let divided = sharded::trials(setup, devices, batch)?;
        outcome.rows.extend(divided.iter().flat_map(sharded::measurements));
        outcome.tables = vec![by_device(&trials), overview(&trials), sharded::overview(&divided)];
        let opened = if named > 0 {
            "Each device that was named"
        } else {
            "Each of them is opened anew on the chosen backend and"
        };
        outcome.notes.push(format!(
            "A result waits on the device that made it until the next stage wants it. The devices work one after the other here: this says what \
             they hold, not how long a pipeline takes. {opened} has its own allocator and ledger."
        ));
        outcome.notes.push(
            "A step divided among ranks is a dry run, whatever the backend: its first and its last rank, each with a ledger of its own. What \
             ranks send each other is counted for a ring."
                .into(),
        );
        outcome.answer = answer(&trials);
        outcome.claims = [judge(&trials)].into_iter().chain(sharded::judge(&divided)).collect();
        Ok(())
    }
}

/// Returns the ways to run the same batch, on one device and on several. Among ways with equal micro-batches, the one on
/// a single device comes first.
fn ways(devices: usize, pieces: usize) -> Vec<Way> {
    let (gpipe, one) = (Schedule::Gpipe, Schedule::OneForwardOneBackward);
    let way = |name, devices, micro_batches, schedule| Way { name, devices, micro_batches, schedule };
    vec![
        way("one device", 1, 1, one),
        way("one device, accumulated", 1, pieces, one),
        way("split", devices, 1, one),
        way("split, gpipe", devices, pieces, gpipe),
        way("split, 1f1b", devices, pieces, one),
    ]
}

fn attempt(setup: &Setup<'_>, way: Way, batch: usize) -> Result<Trial> {
    let devices: Vec<Device> = (0..way.devices).map(|stage| setup.open_at(stage)).collect::<Result<_>>()?;
    let mut run = RunSettings::new(batch, STEPS as usize, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    run.seed = setup.seed;
    let (micro_batches, schedule) = (way.micro_batches, way.schedule);
    let settings = PipelineSettings { run, micro_batches, schedule, cut: Cut::Balanced };
    let mut trainer = pipeline::trainer(&*network()?, &devices, &settings, Source::Synthetic { seed: setup.seed })?;
    let mut values = Vec::new();
    for step in 0..STEPS as usize {
        values.extend(trainer.step(step)?);
    }
    if devices.iter().all(Device::computes) {
        for grad in trainer.phases().parameters().iter().filter_map(|p| p.grad()) {
            values.extend(grad.to_f64()?);
        }
    }
    let kind = |device: &Device| (device.name().to_string(), device.backend().device_name());
    let of_one_kind = devices.iter().all(|device| kind(device) == kind(&devices[0]));
    Ok(Trial { way, stages: pipeline::finish(trainer), values, of_one_kind, calm: devices.iter().all(undisturbed) })
}

/// Predicted figures of one device, by quantity. Contains only figures that the sizes of blocks do not disturb.
type Forecast = Vec<(&'static str, u64)>;

/// Predicts each device's share, from the sizes of the layers alone.
fn forecast(way: &Way, batch: usize) -> Result<Vec<Forecast>> {
    let layer = |outputs: usize| [4 * (WIDTH * outputs) as u64, 4 * outputs as u64];
    let mut tensors = vec![layer(WIDTH); LAYERS];
    tensors.push(layer(CLASSES));
    let piece_bytes: Vec<u64> = tensors.iter().map(|tensors| tensors.iter().sum()).collect();
    let micro = batch / way.micro_batches;
    let (hidden, whole) = ((4 * micro * WIDTH) as u64, (4 * batch * WIDTH) as u64);
    let stages = Cut::Balanced.stages(&piece_bytes, way.devices)?;
    let last = stages.len() - 1;
    let of_stage = |(stage, pieces): (usize, &std::ops::Range<usize>)| {
        let parameters: u64 = tensors[pieces.clone()].iter().flatten().map(|bytes| rounded(*bytes)).sum();
        let in_flight = way.schedule.in_flight(stage, way.devices, way.micro_batches) as u64;
        // Each hidden layer keeps the result of its ReLU. A stage after the first also keeps its input. The last stage keeps
        // log-probabilities and the sum of the class weights.
        let results = pieces.clone().filter(|piece| *piece < LAYERS).count() as u64 + u64::from(stage > 0);
        let of_loss = if stage == last { rounded((4 * micro * CLASSES) as u64) + rounded(4) } else { 0 };
        let crossings = u64::from(stage > 0) + u64::from(stage < last);
        let mut forecast = vec![
            ("parameter_bytes", parameters),
            ("gradient_bytes", parameters),
            ("optimizer_bytes", 2 * parameters),
            ("in_flight", in_flight),
            ("sent_bytes", STEPS * crossings * whole),
        ];
        // Above 1 MiB a block may be larger than the request.
        if hidden <= 1 << 20 {
            forecast.push(("activation_bytes", in_flight * (results * rounded(hidden) + of_loss)));
        }
        forecast
    };
    Ok(stages.iter().enumerate().map(of_stage).collect())
}

/// Returns one row per device, and one row for the values of all devices.
fn measurements(trial: &Trial, predicted: &[Forecast], same: Option<&Trial>) -> Vec<Measurement> {
    let mut rows = Vec::new();
    for (stage, figures) in trial.stages.iter().enumerate() {
        let mut m = Measurement::with_setting([("way", trial.way.name.into()), ("device", stage.into())]);
        m.measure("parameter_bytes", figures.parameter_bytes);
        m.measure("gradient_bytes", figures.gradient_bytes);
        m.measure("optimizer_bytes", figures.optimizer_bytes);
        m.measure("activation_bytes", figures.activation_bytes);
        m.measure("in_flight", figures.in_flight as u64);
        m.measure("sent_bytes", figures.sent_bytes);
        m.measure("peak_bytes", figures.account.peak.allocated_bytes);
        m.measure("reserved_bytes", figures.account.reserved_peak);
        if trial.calm {
            predicted.get(stage).into_iter().flatten().for_each(|(quantity, value)| m.predict(quantity, *value));
        }
        rows.push(m);
    }
    if let Some(same) = same {
        let mut m = Measurement::with_setting([("way", trial.way.name.into()), ("against", same.way.name.into())]);
        if trial.values.is_empty() {
            m.unknown("values_apart");
        } else {
            m.measure("values_apart", apart(&trial.values, &same.values));
            // Devices of different kinds round differently.
            if trial.of_one_kind {
                m.predict("values_apart", 0);
            }
        }
        rows.push(m);
    }
    rows
}

/// Number of losses and gradients that differ in a bit.
fn apart(a: &[f64], b: &[f64]) -> u64 {
    let different = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    (different + a.len().abs_diff(b.len())) as u64
}

fn by_device(trials: &[Trial]) -> Table {
    let mut rows = Vec::new();
    for trial in trials {
        for (stage, figures) in trial.stages.iter().enumerate() {
            rows.push(vec![
                text(if stage == 0 { trial.way.name } else { "" }),
                text(stage.to_string()),
                Cell::Bytes(figures.account.peak.allocated_bytes),
                Cell::Bytes(figures.parameter_bytes),
                Cell::Bytes(figures.activation_bytes),
                Cell::Count(figures.in_flight as u64),
            ]);
        }
    }
    let columns = ["way", "device", "peak", "parameters", "activations", "in flight"];
    table("Each device", &columns, rows)
}

fn overview(trials: &[Trial]) -> Table {
    let row = |trial: &Trial| {
        let sent: u64 = trial.stages.iter().map(|s| s.sent_bytes).sum();
        vec![
            text(trial.way.name),
            Cell::Bytes(trial.largest_peak()),
            Cell::Bytes(trial.stages.iter().map(|s| s.account.peak.allocated_bytes).sum()),
            Cell::Bytes(sent / STEPS),
        ]
    };
    let columns = ["way", "largest peak", "sum of the peaks", "moved per step"];
    table("All devices", &columns, trials.iter().map(row).collect())
}

impl Trial {
    fn largest_peak(&self) -> u64 {
        self.stages.iter().map(|stage| stage.account.peak.allocated_bytes).max().unwrap_or(0)
    }
}

/// States the largest peak of any device, for each way.
fn answer(trials: &[Trial]) -> ShortAnswer {
    let Some(whole) = trials.first() else { return ShortAnswer::default() };
    let split = trials.iter().filter(|trial| trial.way.devices > 1);
    let least = split.map(Trial::largest_peak).min().unwrap_or(0);
    let devices = trials.iter().map(|trial| trial.way.devices).max().unwrap_or(1);
    let saved = 100.0 * (1.0 - least as f64 / whole.largest_peak().max(1) as f64);
    let each = trials.iter().map(|trial| format!("{} {}", trial.way.name, bytes(trial.largest_peak())));
    ShortAnswer::new(
        format!("{saved:.0} % of the peak, over {devices} devices"),
        [format!("Largest peak of a device: {}.", each.collect::<Vec<_>>().join("; "))],
    )
}

fn judge(trials: &[Trial]) -> JudgedClaim {
    let find = |name: &str| trials.iter().find(|trial| trial.way.name == name);
    let peak = |name: &str| find(name).map_or(0, Trial::largest_peak);
    let kept = |name: &str| {
        let stages = find(name).map(|trial| trial.stages.as_slice()).unwrap_or_default();
        stages.iter().map(|stage| stage.activation_bytes).max().unwrap_or(0)
    };
    let (whole, accumulated, split) = (peak("one device"), peak("one device, accumulated"), peak("split"));
    let (gpipe, one) = (peak("split, gpipe"), peak("split, 1f1b"));
    let [devices, parts] = find("split, 1f1b").map_or([1, 1], |t| [t.way.devices, t.way.micro_batches]);
    let less = split < whole && gpipe < whole && one < accumulated;
    let evenly = split * devices as u64 <= whole;
    let first =
        |name: &str| find(name).and_then(|trial| trial.stages.first()).map_or(0, |s| s.account.peak.allocated_bytes);
    let label = format!("first of {devices}");
    JudgedClaim {
        lead: "less, but not 1/N",
        claim: CLAIMS[0],
        verdict: match (less, evenly) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::Depends,
            (false, _) => Verdict::Fails,
        },
        number: in_bytes([("peak, one device", first("one device")), (&label, first("split"))]),
        condition: format!(
            "the largest peak of {devices} devices is {} where one device takes {}: not 1/{devices} of it, since the cut need not be even, what \
             crosses it is there twice, and temporaries do not shrink. Only one of them works at a time then; with {parts} micro-batches all can, \
             and the schedule decides what it costs: gpipe holds the activations of all {parts} (peak {}, {} of activations on one device), 1f1b \
             those of at most {} (peak {}, {}). One device that accumulates over the same micro-batches takes {}. {}",
            bytes(split),
            bytes(whole),
            bytes(gpipe),
            bytes(kept("split, gpipe")),
            parts.min(devices),
            bytes(one),
            bytes(kept("split, 1f1b")),
            bytes(accumulated),
            sameness(trials),
        ),
    }
}

/// States whether the losses and gradients are the same.
fn sameness(trials: &[Trial]) -> &'static str {
    let against = |trial: &Trial| {
        let first = trials.iter().find(|other| other.way.micro_batches == trial.way.micro_batches);
        first.map_or(0, |first| apart(&trial.values, &first.values))
    };
    match (trials.iter().all(|trial| trial.values.is_empty()), trials.iter().map(against).sum()) {
        (true, _) => "Whether losses and gradients stay what they were, a device that computes can say",
        (false, 0u64) => "Losses and gradients are the same to the bit",
        (false, _) if !trials.iter().all(|trial| trial.of_one_kind) => {
            "Losses and gradients are not the same to the bit: devices of different kinds round differently"
        }
        (false, _) => "Losses or gradients are not the same to the bit",
    }
}
