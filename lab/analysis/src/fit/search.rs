//! The border between what fits and what does not.

use std::collections::BTreeMap;

use lab_base::error::Result;
use memcore::memory::{Needs, OutOfMemory};

use super::{Room, Run, fits};

/// Number of sizes tried above the border. Reserved memory need not rise with the size, so a larger size may fit again.
const BEYOND: usize = 16;

/// One size, run under the budget.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The size.
    pub size: usize,
    /// Peak of allocated memory; `None` if memory ran out.
    pub allocated_bytes: Option<u64>,
    /// Peak of reserved memory.
    pub reserved_bytes: Option<u64>,
    /// How often the cache had to be freed to make room.
    pub retries: Option<u64>,
    /// Report if memory ran out.
    pub out_of_memory: Option<Box<OutOfMemory>>,
}

impl Tried {
    /// Whether the run completed.
    pub fn fits(&self) -> bool {
        self.out_of_memory.is_none()
    }

    /// Bytes that the run lacked, if it ran out of memory.
    pub fn missing_bytes(&self) -> Option<u64> {
        self.out_of_memory.as_ref()?.missing_bytes()
    }
}

/// Result of the search.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The largest size that was found to fit; `None` if not even 1 fits.
    pub largest: Option<usize>,
    /// Every size that was run under the budget, in ascending order. Includes the largest that fits and the one after it.
    pub tried: Vec<Tried>,
    /// True if the search ended at the given maximum, not at the budget.
    pub at_maximum: bool,
}

impl Fit {
    /// Returns the run with this size.
    pub fn run(&self, size: usize) -> Option<&Tried> {
        self.tried.iter().find(|tried| tried.size == size)
    }

    /// Sizes below the largest that do not fit.
    pub fn gaps(&self) -> Vec<usize> {
        let below = self.tried.iter().filter(|tried| Some(tried.size) < self.largest);
        below.filter(|tried| !tried.fits()).map(|tried| tried.size).collect()
    }
}

/// Finds the largest size up to `maximum` that fits into the budget of `run`.
///
/// Bisects between a size that fits and one that does not. Then tries the next sizes too, up to the first whose tensors alone exceed `budget_bytes`.
///
/// # Errors
/// Those of the runs, except running out of memory.
pub fn largest(run: &Run<'_>, budget_bytes: u64, maximum: usize) -> Result<Fit> {
    let mut search = Search { run, tried: BTreeMap::new() };
    if !search.fits(1)? {
        return Ok(search.end(None, false));
    }
    if search.fits(maximum)? {
        return Ok(search.end(Some(maximum), true));
    }
    let (mut low, mut high) = search.bracket(budget_bytes, maximum)?;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if search.fits(middle)? { low = middle } else { high = middle }
    }
    let last = (high + BEYOND).min(maximum);
    for size in high + 1..=last {
        if search.endless_peak(size)? > budget_bytes {
            break;
        }
        if search.fits(size)? {
            low = size;
        }
    }
    if low < maximum {
        search.fits(low + 1)?;
    }
    Ok(search.end(Some(low), false))
}

struct Search<'a> {
    run: &'a Run<'a>,
    tried: BTreeMap<usize, Tried>,
}

impl Search<'_> {
    /// Whether a run of this size completes; each size is run once.
    fn fits(&mut self, size: usize) -> Result<bool> {
        if let Some(tried) = self.tried.get(&size) {
            return Ok(tried.fits());
        }
        let mut tried = Tried { size, allocated_bytes: None, reserved_bytes: None, retries: None, out_of_memory: None };
        match fits((self.run)(size, Room::Budget))? {
            Ok(device) => {
                let stats = device.stats();
                tried.allocated_bytes = Some(device.usage().peak_bytes());
                tried.reserved_bytes = Some(stats.reserved_bytes.all.peak);
                tried.retries = Some(stats.num_alloc_retries);
            }
            Err(report) => tried.out_of_memory = Some(self.judged(size, report)?),
        }
        let fits = tried.fits();
        self.tried.insert(size, tried);
        Ok(fits)
    }

    /// The report, judged by what the run takes with enough memory, where it takes less than any device has.
    fn judged(&self, size: usize, report: Box<OutOfMemory>) -> Result<Box<OutOfMemory>> {
        Ok(match fits((self.run)(size, Room::Endless))? {
            Ok(device) => {
                let reserved_bytes = device.stats().reserved_bytes.all.peak;
                Box::new(report.judged_by(Needs { allocated_bytes: device.usage().peak_bytes(), reserved_bytes }))
            }
            Err(_) => report,
        })
    }

    fn endless_peak(&self, size: usize) -> Result<u64> {
        Ok((self.run)(size, Room::Endless)?.usage().peak_bytes())
    }

    /// Returns a size that fits and one that does not, near where the line through the peaks of 1 and 2 meets the budget.
    fn bracket(&mut self, budget_bytes: u64, maximum: usize) -> Result<(usize, usize)> {
        let (one, two) = (self.endless_peak(1)?, self.endless_peak(2)?);
        let slope = two.saturating_sub(one).max(1);
        let room = budget_bytes.saturating_sub(one) / slope;
        let guess = usize::try_from(room).unwrap_or(maximum).saturating_add(1).clamp(1, maximum - 1);
        let (mut low, mut high) = (1, maximum);
        let mut stride = (guess / 64).max(1);
        if self.fits(guess)? {
            low = guess;
            while low + stride < high {
                if !self.fits(low + stride)? {
                    high = low + stride;
                    break;
                }
                low += stride;
                stride *= 2;
            }
        } else {
            high = guess;
            while high > low + stride {
                if self.fits(high - stride)? {
                    low = high - stride;
                    break;
                }
                high -= stride;
                stride *= 2;
            }
        }
        Ok((low, high))
    }

    fn end(self, largest: Option<usize>, at_maximum: bool) -> Fit {
        Fit { largest, tried: self.tried.into_values().collect(), at_maximum }
    }
}
