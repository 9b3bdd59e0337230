//! Memory of a training whose examples have different lengths: the longest batch, the longest that fits, and orders of the examples.

use lab_analysis::lengths::{Chance, Lengths, Order};
use lab_analysis::side_by_side;
use lab_base::error::{Error, Result};
use memcore::Deviations;

use crate::run::choices::SizeList;
use crate::run::dry_runner::DryRunner;
use crate::run::figures::Figures;
use crate::run::spec::RunSpec;

/// Steps of a dry run for an order: batches spread evenly over an epoch.
const STEPS: usize = 48;

/// What examples of different lengths need.
pub struct LengthsPlanner<'a> {
    /// Maker of the dry runs.
    pub runs: DryRunner<'a>,
    /// The run, with the batch that one card takes.
    pub spec: &'a RunSpec,
    /// Tokens of each example, as the collator pads them.
    pub lengths: &'a Lengths,
    /// Examples of a batch.
    pub batch: usize,
    /// Tokens that packing fills in each row; `None` without packing.
    pub packed: Option<usize>,
    /// Seed of the orders that are random.
    pub seed: u64,
}

/// A dry run of batches in one order.
#[derive(Clone, Debug)]
pub struct OrderRun {
    /// The order; `None`: rows packed to one length.
    pub order: Option<Order>,
    /// Batches of an epoch.
    pub batches: usize,
    /// Tokens of the longest batch's rows.
    pub longest: usize,
    /// The longest batch, counted from 1, of the epoch that was drawn.
    pub longest_batch: usize,
    /// Share of an epoch's tokens that are padding.
    pub padding: f64,
    /// What the run takes.
    pub figures: Figures,
}

/// What a dataset needs.
#[derive(Clone, Debug)]
pub struct LengthsPlan {
    /// Batches in each order, shuffled first.
    pub orders: Vec<OrderRun>,
    /// The longest length of the dataset to which examples can be cut so that a shuffled run surely fits; `None` if there is none, or without a limit.
    pub longest_that_fits: Option<usize>,
    /// How soon a shuffled epoch has a batch that is longer; `None` if all fit, or without a limit.
    pub too_long: Option<Chance>,
}

impl LengthsPlan {
    /// How the run differs from PyTorch's.
    pub fn deviations(&self) -> Deviations {
        let each = self.orders.iter().map(|run| run.figures.unaccounted(run.figures.deviations));
        each.fold(Deviations::default(), Deviations::union)
    }
}

impl LengthsPlanner<'_> {
    /// Runs each order dry, and looks for the longest length that fits.
    ///
    /// # Errors
    /// A network that does not take these lengths; those of runs; [`Error::Interrupted`].
    pub fn plan(&self) -> Result<LengthsPlan> {
        let mut rows: Vec<Option<Order>> = Order::ALL.map(Some).to_vec();
        rows.extend(self.packed.map(|_| None));
        let runs = side_by_side(&rows, self.runs.stop, |order| self.run(*order));
        let orders = runs.into_iter().map(|run| run.ok_or(Error::Interrupted)?).collect::<Result<Vec<OrderRun>>>()?;
        let shuffled = orders.first().map(|run| run.figures);
        let is_limited = shuffled.is_some_and(|figures| figures.room.is_some());
        let fits = shuffled.is_some_and(|figures| figures.fits_surely() == Some(true));
        let longest_that_fits = match (is_limited, fits) {
            (false, _) => None,
            (true, true) => Some(self.lengths.longest()),
            (true, false) => self.longest_that_fits()?,
        };
        let marked = self.lengths.at_least(longest_that_fits.map_or(0, |longest| longest + 1));
        let chance = Chance { count: self.lengths.count(), marked, batch: self.batch };
        Ok(LengthsPlan { orders, longest_that_fits, too_long: (is_limited && marked > 0).then_some(chance) })
    }

    /// Batches of one order, or of packed rows.
    fn run(&self, order: Option<Order>) -> Result<OrderRun> {
        let tokens = self.lengths.tokens();
        let batches = match (order, self.packed) {
            (Some(order), _) => order.batches(self.lengths, self.batch, self.seed),
            (None, packed) => {
                let row = packed.unwrap_or_else(|| self.lengths.longest());
                let each = (row * self.batch) as u64;
                vec![row; usize::try_from(tokens.div_ceil(each)).unwrap_or(usize::MAX)]
            }
        };
        let longest = batches.iter().copied().max().unwrap_or(1);
        let longest_batch = batches.iter().position(|length| *length == longest).unwrap_or(0);
        let padded: u64 = batches.iter().map(|length| (length * self.batch) as u64).sum();
        let padding = match order {
            // A last batch that is left out takes its share of the tokens along.
            Some(_) => {
                let taken = (batches.len() * self.batch).min(self.lengths.count()) as f64 / self.lengths.count() as f64;
                (1.0 - tokens as f64 * taken / padded as f64).max(0.0)
            }
            None => 1.0 - tokens as f64 / padded as f64,
        };
        let some = spread(&batches, longest_batch);
        Ok(OrderRun {
            order,
            batches: batches.len(),
            longest,
            longest_batch: longest_batch + 1,
            padding,
            figures: self.runs.figures(&self.of_lengths(some)?)?,
        })
    }

    /// The run with batches of these lengths in turn, once each or until memory is flat.
    fn of_lengths(&self, lengths: Vec<usize>) -> Result<RunSpec> {
        let mut spec = self.spec.clone();
        spec.training.batch = Some(self.batch);
        spec.training.steps = Some(lengths.len().max(4));
        spec.model.sequence.get_or_insert(self.lengths.longest().max(self.packed.unwrap_or(1)));
        spec.shape.lengths = Some(SizeList::new(lengths).map_err(|problem| Error::usage("example-lengths", problem))?);
        Ok(spec)
    }

    /// The longest length of the dataset to which all examples can be cut so that a shuffled run surely fits, by bisection.
    fn longest_that_fits(&self) -> Result<Option<usize>> {
        let different = self.lengths.different();
        let batches = Order::Shuffled.batches(self.lengths, self.batch, self.seed);
        let (mut fitting, mut beyond) = (0, different.len());
        while fitting < beyond {
            let middle = fitting + (beyond - fitting) / 2;
            let cut: Vec<usize> = batches.iter().map(|length| (*length).min(different[middle])).collect();
            let longest = cut.iter().position(|length| *length == different[middle]).unwrap_or(0);
            let figures = self.runs.figures(&self.of_lengths(spread(&cut, longest))?)?;
            match figures.fits_surely() {
                Some(true) => fitting = middle + 1,
                _ => beyond = middle,
            }
        }
        Ok(fitting.checked_sub(1).map(|at| different[at]))
    }
}

/// At most [`STEPS`] batches of an epoch, evenly spread and in order, among them the longest.
fn spread(batches: &[usize], longest: usize) -> Vec<usize> {
    let count = batches.len().min(STEPS);
    let mut chosen: Vec<usize> = (0..count).map(|i| i * batches.len() / count).collect();
    if let Some(nearest) = chosen.iter().rposition(|at| *at <= longest) {
        chosen[nearest] = longest;
    }
    chosen.into_iter().map(|at| batches[at]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_of_an_epoch_has_its_longest_batch() {
        let batches: Vec<usize> = (0..1000).map(|i| if i == 777 { 9 } else { i % 7 + 1 }).collect();
        let some = spread(&batches, 777);
        assert_eq!((some.len(), some.iter().max()), (STEPS, Some(&9)));
        assert_eq!(spread(&[3, 2, 1], 0), [3, 2, 1]);
    }

    fn gpt(gpu: &str) -> RunSpec {
        let fields = json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "vocabulary": 300, "gpu": gpu});
        let serde_json::Value::Object(fields) = fields else { panic!("no object") };
        RunSpec::default().with(fields.iter().map(|(name, value)| (name.as_str(), value))).unwrap()
    }

    fn lengths() -> Lengths {
        Lengths::new((1..=400).map(|i| 16 + i * 7 % 101 + if i == 200 { 300 } else { 0 }).collect()).unwrap()
    }

    fn plan(gpu: &str, packed: Option<usize>) -> LengthsPlan {
        let (lengths, spec) = (lengths(), gpt(gpu));
        let runs = DryRunner::new(&[], &|| false);
        LengthsPlanner { runs, spec: &spec, lengths: &lengths, batch: 4, packed, seed: 0 }.plan().unwrap()
    }

    #[test]
    fn every_order_needs_its_longest_batch_and_sorted_ones_pad_less() {
        let found = plan("24GiB", Some(512));
        assert_eq!((found.orders.len(), found.longest_that_fits.is_some(), found.too_long), (6, true, None));
        let peaks: Vec<u64> = found.orders[..5].iter().map(|run| run.figures.allocated_bytes).collect();
        // With the longest batch first nothing of a step before is held at the peak.
        assert!(peaks[1] == peaks[3] && peaks.iter().all(|peak| *peak >= peaks[1]), "{peaks:?}");
        let padding = |order| found.orders.iter().find(|run| run.order == order).unwrap().padding;
        assert!(padding(Some(Order::Grouped)) < padding(Some(Order::Shuffled)));
        assert!(padding(None) < padding(Some(Order::Shuffled)));
        let batch_of = |order| found.orders.iter().find(|run| run.order == Some(order)).unwrap().longest_batch;
        assert_eq!([Order::Grouped, Order::LongestFirst, Order::ShortestFirst].map(batch_of), [1, 1, 100]);
    }

    #[test]
    fn examples_that_are_cut_to_the_longest_that_fits_fit() {
        let longest = plan("24GiB", None).orders[0].longest;
        let found = plan("120MiB", None);
        let fitting = found.longest_that_fits.unwrap();
        assert!(fitting < longest, "{fitting}");
        let chance = found.too_long.unwrap();
        assert_eq!((chance.count, chance.marked), (400, 1));
        let cut = lengths().collated(Some(fitting), 1);
        let spec = gpt("120MiB");
        let runs = DryRunner::new(&[], &|| false);
        let again =
            LengthsPlanner { runs, spec: &spec, lengths: &cut, batch: 4, packed: None, seed: 0 }.plan().unwrap();
        assert_eq!(again.orders[0].figures.fits_surely(), Some(true));
    }
}
