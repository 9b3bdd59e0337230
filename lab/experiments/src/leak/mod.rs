//! `leak`: what makes memory grow from step to step?

mod cases;
mod full;

use std::collections::BTreeMap;

use cases::{CASES, Case, Pattern};
use lab_analysis::forensics::{self, Watch};
use lab_base::error::{Error, Result};
use lab_base::figures::both;
use lab_base::section::Cell;
use memcore::Device;

use super::default_allocator::predictable;
use super::progress::Progress;
use super::tables::{table, text};
use super::{
    About, Claim, Curve, Experiment, JudgedClaim, Measurement, Outcome, Setup, ShortAnswer, Size, Verdict, in_bytes,
};

pub(super) struct Leak;

const SOURCE: &str = "Does PyTorch GPU memory usage increase per batch? (2025)";

const CLAIMS: &[Claim] = &[
    Claim { text: "Keeping intermediate tensors makes memory grow with every batch.", source: SOURCE },
    Claim { text: "Clearing the list after each step prevents it.", source: SOURCE },
    Claim { text: "Gradients of the previous batch that are not cleared accumulate memory.", source: SOURCE },
];

/// Measurements of a program.
struct Run {
    case: &'static Case,
    /// Bytes allocated after each step.
    allocated: Vec<u64>,
    /// Number of graph nodes alive after each step.
    nodes: Vec<u64>,
    /// Nodes at the last moment, by name and module: their number and the bytes that they keep.
    holders: BTreeMap<(&'static str, String), Holder>,
    predicted: Option<u64>,
    formula: String,
    /// The leak that the watch reports after the last step.
    found: Option<forensics::Leak>,
}

/// Sums over the nodes of one name and module.
#[derive(Default)]
struct Holder {
    nodes: u64,
    /// Number of nodes that backward has released.
    released: u64,
    /// Bytes of saved values, by role.
    saved: BTreeMap<&'static str, u64>,
}

impl Experiment for Leak {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "leak",
                question: "What makes memory grow from step to step?",
                claims: CLAIMS,
                sizes: &[
                    Size::one("batch", "examples per step; 32"),
                    Size::one("steps", "steps of each program, at least 4; 8"),
                    Size::one(
                        "memory_mib",
                        "the small device that is filled, beyond the libraries' workspaces, up to 64; 16",
                    ),
                ],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let (batch, steps) = (setup.size("batch", 32), setup.size("steps", 8));
        let memory = setup.size("memory_mib", 16);
        if batch == 0 || steps < 4 || !(1..=64).contains(&memory) {
            return Err(Error::usage("batch, steps, memory_mib", "at least 1, at least 4, and 1 to 64"));
        }
        let mut progress = Progress::new(setup, CASES.len() + 1);
        let predictable = predictable(setup)?;
        let mut runs = Vec::new();
        let followed = CASES.iter().try_for_each(|case| {
            progress.next(case.name)?;
            runs.push(follow(case, setup, predictable, batch, steps)?);
            Ok(())
        });
        outcome.rows.extend(runs.iter().map(|run| run.measurement(memory)));
        let whole = followed.and_then(|()| progress.next("until memory runs out"));
        if whole.is_ok() {
            full::fill(setup, memory, outcome)?;
            outcome.claims = judge(&runs);
            outcome.answer = answer(&runs);
        }
        show(&runs, batch, outcome);
        whole
    }
}

fn follow(case: &'static Case, setup: &Setup<'_>, predicts: bool, batch: usize, steps: usize) -> Result<Run> {
    let device = (setup.open)()?;
    let (mut allocated, mut nodes, mut holders) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut watch = Watch::new(&device);
    case.run(&device, batch, steps, setup.seed, &mut |step| {
        allocated.push(device.usage().allocated_bytes());
        nodes.push(device.tape().len() as u64);
        watch.step();
        if step + 1 == steps {
            watch.look();
            holders = holders_of(&device);
        }
        true
    })?;
    let wide = device.profile().torch_temporaries;
    let predicted = if predicts { case.growth(batch, wide) } else { None };
    let (formula, found) = (case.formula(wide), watch.leak().cloned());
    Ok(Run { case, allocated, nodes, holders, predicted, formula, found })
}

fn holders_of(device: &Device) -> BTreeMap<(&'static str, String), Holder> {
    let mut holders: BTreeMap<(&'static str, String), Holder> = BTreeMap::new();
    for entry in device.tape().entries() {
        let scope = device.with_ledger(|ledger| ledger.scope_path(entry.scope).to_string());
        let holder = holders.entry((entry.name, scope)).or_default();
        holder.nodes += 1;
        holder.released += u64::from(entry.released);
        for (role, bytes) in entry.saved {
            *holder.saved.entry(role).or_default() += bytes.unwrap_or(0);
        }
    }
    holders
}

impl Run {
    /// Bytes that the last step added.
    fn growth(&self) -> u64 {
        let n = self.allocated.len();
        self.allocated[n - 1].saturating_sub(self.allocated[n - 2])
    }

    /// Bytes that all steps except the first two added.
    fn total(&self) -> u64 {
        self.allocated[self.allocated.len() - 1].saturating_sub(self.allocated[1])
    }

    fn nodes_per_step(&self) -> u64 {
        let n = self.nodes.len();
        self.nodes[n - 1].saturating_sub(self.nodes[n - 2])
    }

    fn measurement(&self, memory_mib: usize) -> Measurement {
        let mut m = Measurement::with_setting([("program", self.case.name.into())]);
        m.measure("growth_bytes", self.growth());
        m.measure("growth_after_step_1_bytes", self.total());
        if self.allocated.len() >= forensics::MIN_STEPS {
            m.measure("found_growth_bytes", self.found.as_ref().map_or(0, |leak| leak.growth_bytes_per_step));
        }
        m.measure("nodes_per_step", self.nodes_per_step());
        m.predict("nodes_per_step", self.case.nodes);
        if let Some(growth) = self.predicted {
            m.predict("growth_bytes", growth);
            m.predict("growth_after_step_1_bytes", growth * (self.allocated.len() as u64 - 2));
            if self.allocated.len() >= forensics::MIN_STEPS {
                m.predict("found_growth_bytes", growth);
            }
            if let Some(steps) = ((memory_mib as u64) << 20).checked_div(growth) {
                m.predict("steps_until_full", steps);
            }
        }
        m
    }
}

fn show(runs: &[Run], batch: usize, outcome: &mut Outcome) {
    let row = |run: &Run| {
        vec![
            text(run.case.name),
            text(run.formula.clone()),
            run.predicted.map_or_else(|| text("-"), Cell::Count),
            Cell::Count(run.growth()),
            Cell::Count(run.nodes_per_step()),
        ]
    };
    let title = format!("Bytes that each step adds, B = {batch}; r rounds up to 512; nodes of graph are on the host");
    let columns = ["program", "formula", "predicted", "measured", "nodes"];
    outcome.tables.push(table(title, &columns, runs.iter().map(row).collect()));
    let path = |run: &Run| vec![text(run.case.name), text(run.case.path)];
    outcome.tables.push(table("Who holds it", &["program", "path"], runs.iter().map(path).collect()));
    let title = "What the watch says of each, without knowing the program";
    let columns = ["program", "grows by", "where", "held by", "advice"];
    outcome.tables.push(table(title, &columns, runs.iter().map(said).collect()));
    for run in runs.iter().filter(|run| run.case.nodes > 0) {
        let row = |((name, scope), holder): (&(&'static str, String), &Holder)| {
            let saved: Vec<&str> = holder.saved.keys().copied().collect();
            let keeps = match (saved.is_empty(), holder.released > 0) {
                (true, true) => "nothing: released".to_string(),
                (true, false) => "nothing".to_string(),
                (false, _) => saved.join(", "),
            };
            vec![
                text(*name),
                text(if scope.is_empty() { "-" } else { scope }),
                Cell::Count(holder.nodes),
                text(keeps),
                Cell::Count(holder.saved.values().sum()),
            ]
        };
        let title = format!("{}: the graph after {} steps", run.case.name, run.allocated.len());
        let columns = ["node", "module", "alive", "keeps", "bytes"];
        outcome.tables.push(table(title, &columns, run.holders.iter().map(row).collect()));
    }
    let series = runs.iter().map(|run| (run.case.name.to_string(), run.allocated.clone())).collect();
    let labels = (0..runs.first().map_or(0, |run| run.allocated.len())).map(|i| format!("step {i}")).collect();
    outcome.curves.push(Curve { title: "allocated after each step".into(), series, labels });
}

fn said(run: &Run) -> Vec<Cell> {
    let Some(leak) = &run.found else {
        return vec![text(run.case.name), text("-"), text("-"), text("-"), text("nothing to do")];
    };
    let place = leak.sites.first().map_or(String::new(), |site| site.op.clone());
    let holder: Vec<&str> = leak.holder.iter().map(|hop| hop.what.as_str()).collect();
    vec![
        text(run.case.name),
        Cell::Count(leak.growth_bytes_per_step),
        text(place),
        text(holder.join(" > ")),
        text(leak.advice.clone()),
    ]
}

/// States which programs grow, and by how much.
fn answer(runs: &[Run]) -> ShortAnswer {
    let (growing, flat): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.total() > 0);
    let grows = growing.iter().map(|run| format!("{} (+{})", run.case.name, both(run.growth())));
    let listed = |names: Vec<String>| if names.is_empty() { "nothing".into() } else { names.join("; ") };
    ShortAnswer::new(
        "What a step leaves held",
        [
            format!("Grows in each step: {}.", listed(grows.collect())),
            format!("Does not grow: {}.", listed(flat.iter().map(|run| run.case.name.to_string()).collect())),
        ],
    )
}

fn judge(runs: &[Run]) -> Vec<JudgedClaim> {
    let of = |pattern: Pattern| runs.iter().find(|run| run.case.pattern == pattern);
    let text = |pattern: Pattern, words: &str| {
        of(pattern).map_or_else(String::new, |run| {
            format!(
                "{words}: {} bytes in the last step and {} in all after step 1 ({} steps)",
                run.growth(),
                run.total(),
                run.allocated.len() - 2
            )
        })
    };
    let grows = |pattern: Pattern| of(pattern).is_some_and(|run| run.total() > 0);
    let verdict = |holds: bool| if holds { Verdict::Holds } else { Verdict::Fails };
    let number = |pattern: Pattern| of(pattern).map(|run| in_bytes([("per step", run.growth())])).unwrap_or_default();
    let kept = text(Pattern::KeepsActivations, "a list of activations grows by");
    let quiet = text(Pattern::RetainsGraph, "retain_graph alone, whose graph the next step replaces, by");
    vec![
        JudgedClaim {
            lead: "",
            claim: CLAIMS[0],
            verdict: verdict(grows(Pattern::KeepsActivations)),
            number: number(Pattern::KeepsActivations),
            condition: format!("{kept}; {quiet}"),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[1],
            verdict: verdict(grows(Pattern::KeepsActivations) && !grows(Pattern::ClearsActivations)),
            number: number(Pattern::ClearsActivations),
            condition: text(Pattern::ClearsActivations, "with the list cleared memory grows by"),
        },
        JudgedClaim {
            lead: "",
            claim: CLAIMS[2],
            verdict: verdict(grows(Pattern::NeverZeroes)),
            number: number(Pattern::NeverZeroes),
            condition: format!(
                "{}: a gradient is added to the one that is there, in place; what accumulates is its value",
                text(Pattern::NeverZeroes, "without zero_grad memory grows by")
            ),
        },
    ]
}
