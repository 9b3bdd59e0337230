//! Effects of techniques: a dry run for each.

use lab_analysis::side_by_side;
use lab_base::error::Result;
use lab_results::{AS_IT_IS, TechniqueResult};
use memcore::Deviations;

use super::changes::{self, Axis, Change};
use super::dry_runner::DryRunner;
use super::figures::Figures;
use super::session::Session;
use super::spec::RunSpec;

/// A technique, and the memory of the run with it.
pub struct Technique {
    /// Name.
    pub name: String,
    /// Figures of the run, or the reason why this network cannot have the technique.
    pub figures: Result<Figures, String>,
}

impl Technique {
    /// Converts it for a result; `warnings` puts deviations into words.
    pub fn result(&self, warnings: impl Fn(Deviations) -> Vec<String>) -> TechniqueResult {
        let figures = self.figures.as_ref().ok();
        TechniqueResult {
            name: self.name.clone(),
            peak_bytes: figures.map(|figures| figures.allocated_bytes),
            reserved_bytes: figures.map(|figures| figures.reserved_bytes),
            reserved_here_bytes: figures.and_then(|figures| figures.room?.reserved_bytes),
            fits: figures.and_then(Figures::fits_surely),
            missing_bytes: figures.and_then(Figures::missing_bytes),
            fits_with_least_context: figures.and_then(|figures| Some(figures.room?.perhaps)),
            reason: self.figures.as_ref().err().cloned(),
            warnings: figures.map_or_else(Vec::new, |figures| warnings(figures.unaccounted(figures.deviations))),
        }
    }
}

/// Predicts the run as it is, then with each technique that is not in force, then with the combinations that matter, if this network can have their
/// techniques.
///
/// # Errors
/// All errors except that a network cannot have a technique.
pub fn all(runner: &DryRunner<'_>, spec: &RunSpec, session: &Session) -> Result<Vec<Technique>> {
    let mut options = Options::from_changes(changes::proposed(spec, session, runner.before_training(spec)?.tensors));
    // As many steps as the others have, so that they can be compared: reserved memory may grow a little with each step.
    let mut variants = vec![(AS_IT_IS.to_string(), spec.clone())];
    variants.extend(options.singles.iter().map(|single| with(spec, &[single])));
    let mut found = predicted(runner, variants)?;
    let works = |change: &Change| found.iter().any(|one| one.name == change.words && one.figures.is_ok());
    options.keep(works);
    found.extend(predicted(runner, options.combinations(spec))?);
    Ok(found)
}

/// Makes the runs in parallel. Runs of many parts take longest, and begin first.
fn predicted(runner: &DryRunner<'_>, variants: Vec<(String, RunSpec)>) -> Result<Vec<Technique>> {
    let mut order: Vec<usize> = (0..variants.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(variants[i].1.training.accumulate));
    let found = side_by_side(&order, runner.stop, |&i| (i, attempt(runner, &variants[i].0, &variants[i].1)));
    let mut found: Vec<(usize, Result<Technique>)> = found.into_iter().flatten().collect();
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, technique)| technique).collect()
}

fn attempt(runner: &DryRunner<'_>, name: &str, variant: &RunSpec) -> Result<Technique> {
    let name = name.to_string();
    // The run itself is the answer, which has an upper figure in any case.
    let figures = match name == AS_IT_IS {
        true => runner.figures(variant),
        false => runner.figures_of_change(&variant.clone().of_any_sizes()),
    };
    match figures {
        Ok(figures) => Ok(Technique { name, figures: Ok(figures) }),
        Err(error) if error.is_usage() => Ok(Technique { name, figures: Err(error.to_string()) }),
        Err(error) => Err(error),
    }
}

/// The same run with these changes.
fn with(spec: &RunSpec, changes: &[&Change]) -> (String, RunSpec) {
    let mut variant = spec.clone();
    changes.iter().for_each(|change| change.apply(&mut variant));
    let names: Vec<&str> = changes.iter().map(|change| change.words.as_str()).collect();
    (names.join(" + "), variant)
}

/// The changes that the table has: on most axes the first of those that can be proposed, of micro-batches the largest and the smallest.
struct Options {
    singles: Vec<Change>,
}

impl Options {
    fn from_changes(changes: Vec<Change>) -> Self {
        let last = changes.iter().rposition(|change| change.axis() == Axis::Split);
        let mut seen = Vec::new();
        let mut stays = |place: usize, change: &Change| match change.axis() {
            Axis::Sequence | Axis::Keep | Axis::ZeroGrad | Axis::Allocator | Axis::Buckets | Axis::Zero => false,
            // The last form is the fused one.
            Axis::Form => change.is_fused(),
            Axis::Precision => change.is_autocast(),
            // The last way of checkpointing is that of whole blocks.
            Axis::Optimizer | Axis::LargerOptimizer | Axis::Checkpoint | Axis::Loss => true,
            axis => {
                let first = !seen.contains(&axis);
                seen.push(axis);
                first || last == Some(place)
            }
        };
        let chosen =
            changes.into_iter().enumerate().filter_map(|(place, change)| stays(place, &change).then_some(change));
        let mut singles: Vec<Change> = chosen.collect();
        // What changes the optimizer comes last.
        singles.sort_by_key(|change| match change.axis() {
            Axis::Precision => 0,
            Axis::Checkpoint => 1,
            Axis::Attention => 2,
            Axis::Split => 3,
            Axis::Form | Axis::Loss => 4,
            _ => 5,
        });
        Self { singles }
    }

    /// The first, or the last, change on an axis.
    fn first(&self, axis: Axis) -> Option<&Change> {
        self.singles.iter().find(|change| change.axis() == axis)
    }

    fn last(&self, axis: Axis) -> Option<&Change> {
        self.singles.iter().rfind(|change| change.axis() == axis)
    }

    /// Removes the changes that this network cannot have.
    fn keep(&mut self, works: impl Fn(&Change) -> bool) {
        self.singles.retain(works);
    }

    fn combinations(&self, spec: &RunSpec) -> Vec<(String, RunSpec)> {
        let [amp, attention, halves] = [Axis::Precision, Axis::Attention, Axis::Split].map(|axis| self.first(axis));
        let checkpoint = self.last(Axis::Checkpoint);
        let pairs = [(amp, checkpoint), (amp, attention), (attention, checkpoint), (checkpoint, halves), (amp, halves)];
        let pairs = pairs.into_iter().filter_map(|(a, b)| Some([a?, b?]));
        let mut combinations: Vec<(String, RunSpec)> = pairs.map(|pair| with(spec, &pair)).collect();
        let parts = self.last(Axis::Split);
        let fused = self.first(Axis::Form);
        let everything: Vec<&Change> = [amp, attention, checkpoint, parts, fused].into_iter().flatten().collect();
        if everything.len() > 2 {
            combinations.push(("all of these, with the same optimizer".into(), with(spec, &everything).1));
        }
        combinations
    }
}
