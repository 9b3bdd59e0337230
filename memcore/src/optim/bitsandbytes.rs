//! Optimizers of bitsandbytes: their memory. Their kernels are the library's own, so that no device computes them here.

use std::cell::OnceCell;

use super::Implementation;
use super::clip::norm;
use super::locals::{List, Locals};
use super::rule::{ByRule, Row, Rule};
use crate::array::Array;
use crate::context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory::Category;

/// States of 8 bits in blocks of 256 values, each block with its largest absolute value, and a table of 256 values that
/// all parameters share; or states in float32. (`bitsandbytes/optim/optimizer.py`, release 0.50)
pub type BitsAndBytes = ByRule<BitsAndBytesOptions>;

/// An optimizer of bitsandbytes.
#[derive(Clone, Debug)]
pub struct BitsAndBytesOptions {
    /// The class, with its step and `zero_grad` as a profiler shows them.
    pub names: [&'static str; 2],
    /// How many values it keeps for each value of a parameter, one list for each state.
    pub states: &'static [usize],
    /// True for states of 8 bits.
    pub eight_bits: bool,
    /// True if large states are in managed memory, which is the host's and not the allocator's.
    pub paged: bool,
    /// True if it keeps the norm of the update (LAMB).
    pub norm: bool,
    /// The tables of quantised values: one of signed values, one of unsigned ones.
    pub tables: OnceCell<Vec<Array>>,
}

/// Smaller parameters have states in float32.
const SMALLEST_OF_8_BITS: usize = 4096;
/// Values that share a largest absolute value.
const BLOCK: usize = 256;
/// Smaller parameters are not paged.
const SMALLEST_PAGED: usize = 100_000;
/// Values of a table.
const TABLE: usize = 256;

/// The state of a parameter: PyTorch's names and the tensors that are on the device.
pub struct State(Vec<(&'static str, Array)>);

const STATES: [&str; 2] = ["state1", "state2"];
const LARGEST: [&str; 2] = ["absmax1", "absmax2"];

impl Rule for BitsAndBytesOptions {
    type State = State;

    fn names(&self) -> [&'static str; 2] {
        self.names
    }

    fn implementation(&self) -> Implementation {
        Implementation::Loop
    }

    fn first_state(&self, p: &Array) -> Result<State> {
        let eight_bits = self.eight_bits && p.numel() >= SMALLEST_OF_8_BITS;
        let dtype = if eight_bits { DType::U8 } else { DType::F32 };
        let kept = |name, dims: &[usize], dtype| {
            let made = context::within(name, || Array::zeros(p.device(), dims, dtype))?;
            Ok::<_, Error>(made.with_category(Category::OptimizerState))
        };
        if eight_bits && self.tables.get().is_none() {
            let tables = self.states.iter().map(|_| kept("to>_to_copy", &[TABLE], DType::F32));
            // Set once: the cell was empty.
            let _ = self.tables.set(tables.collect::<Result<_>>()?);
        }
        let stacked = |times: usize, rest: &[usize]| -> Vec<usize> {
            (times > 1).then_some(times).into_iter().chain(rest.iter().copied()).collect()
        };
        let mut states = Vec::new();
        let add_states = |tensors: &mut Vec<_>| {
            for (name, times) in STATES.into_iter().zip(self.states) {
                if !(self.paged && p.numel() >= SMALLEST_PAGED) {
                    tensors.push((name, kept("zeros_like", &stacked(*times, p.dims()), dtype)?));
                }
            }
            Ok::<_, Error>(())
        };
        // AdEMAMix, which has two averages in one state, allocates its states last.
        let last = self.states.contains(&2);
        if !last {
            add_states(&mut states)?;
        }
        if eight_bits {
            for (name, times) in LARGEST.into_iter().zip(self.states) {
                states.push((name, kept("zeros", &stacked(*times, &[p.numel().div_ceil(BLOCK)]), DType::F32)?));
            }
        }
        if last {
            add_states(&mut states)?;
        }
        if self.norm {
            states.push(("unorm_vec", kept("zeros", &[1], DType::F32)?));
        }
        Ok(State(states))
    }

    fn tensors(&self, state: &State) -> Vec<(&'static str, Array)> {
        state.0.clone()
    }

    fn update(&self, row: &Row<'_, State>, _locals: &mut Locals<Array>) -> Result<()> {
        if row.p.device().computes() {
            return Err(Error::invalid("optimizer", "bitsandbytes computes this optimizer, and no device does here"));
        }
        // The library's kernel works in place. LAMB's gets the norm of the parameter in float32, which lives as long (`functional.py`,
        // `optimizer_update_32bit`).
        let _norm = self.norm.then(|| norm(&row.p.cast(DType::F32)?)).transpose()?;
        row.p.storage().bump_version();
        Ok(())
    }

    fn update_all(&self, rows: &[Row<'_, State>], _locals: &mut Locals<List>) -> Result<()> {
        rows.iter().try_for_each(|row| self.update(row, &mut Locals::new()))
    }
}
