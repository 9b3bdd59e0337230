//! Makes masks and positions as the library does, with all allocations on the way.

use memcore::memory::Category;
use memcore::{Array, DType, Device, Result, Tensor};

use super::inputs::Said;
use super::options::{Attention, AttentionMask};

/// `torch.arange(n) + 0`, i64 `[n]`: two arrays, the first of which is freed at once.
pub(super) fn positions(device: &Device, n: usize) -> Result<Array> {
    let _range = range(device, n)?;
    range(device, n)
}

/// `torch.arange(n)`, i64 `[n]`.
pub(super) fn range(device: &Device, n: usize) -> Result<Array> {
    let out = Array::empty(device, &[n], DType::I64)?;
    if device.computes() {
        out.write(&(0..n as i64).collect::<Vec<_>>())?;
    }
    Ok(out)
}

/// Way in which releases before 4.53 make the mask that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Triangle {
    /// The triangle of a full matrix is a second matrix.
    Copied,
    /// Each block hides later keys by a buffer of its own.
    InBlocks,
    /// Seen keys are zeroed in the matrix itself.
    InPlace {
        /// True if a window is checked, which no sequence reaches here.
        window: bool,
    },
}

/// Inputs of a model's mask.
pub(super) struct Request<'a> {
    /// How attention is computed.
    pub(super) attention: Attention,
    /// Embedded tokens, `[batch, time, width]`: they determine the mask's sizes and type.
    pub(super) embeds: &'a Tensor,
    /// What the batch says of its tokens. Positions are only passed of several texts.
    pub(super) said: Said<'a>,
    /// True if `attention_mask` hides anything.
    pub(super) padded: bool,
    /// True if keys and values are cached.
    pub(super) cached: bool,
    /// True if the model passes its positions, from which packed sequences are recognised.
    pub(super) positions: bool,
    /// Way of making the added mask in releases before 4.53, which check only for padding.
    pub(super) triangle: Option<Triangle>,
}

/// Keys that a position sees, apart from padding.
#[derive(Clone, Copy)]
enum Pattern {
    /// Keys up to the position itself, or the last `window` of them.
    Causal { window: Option<usize> },
    /// All keys.
    All,
}

impl Request<'_> {
    /// `create_causal_mask`: nothing for the fused kernel without padding, which is causal by itself (no batch here has packed sequences, but the
    /// library checks); else true where a key is seen; for written-out attention a matrix to add to the scores.
    pub(super) fn causal(&self) -> Result<Option<Tensor>> {
        self.windowed(None)
    }

    /// `create_sliding_window_causal_mask`, for positions that see `window` tokens, themselves included. The fused kernel has no window: if a
    /// sequence reaches it, the kernel gets a mask `[batch, 1, time, time]` in bool, true where a key is seen.
    pub(super) fn windowed(&self, window: Option<usize>) -> Result<Option<Tensor>> {
        if let Some(triangle) = self.triangle {
            return self.triangular(triangle);
        }
        let time = self.embeds.dims()[1];
        let _mask = self.said.attention_mask.map(as_bool).transpose()?;
        let looks = self.positions && self.said.attention_mask.is_none() && !self.cached;
        let numbers = if looks { self.look_for_packed_sequences()? } else { None };
        let pattern = Pattern::Causal { window };
        let reached = window.is_some_and(|window| time >= window);
        match self.attention {
            Attention::Eager => self.additive(pattern, numbers.as_ref()).map(Some),
            Attention::Sdpa if reached || numbers.is_some() => self.in_bool(pattern, numbers.as_ref()).map(Some),
            Attention::Sdpa => {
                let Some(mask) = self.said.attention_mask else { return Ok(None) };
                look_for_padding(mask)?;
                if !self.padded {
                    return Ok(None);
                }
                // The library checks again: padding after all current tokens would do no harm.
                look_for_padding(mask)?;
                self.in_bool(pattern, None).map(Some)
            }
        }
    }

    /// `_update_causal_mask`: nothing for the fused kernel, after a check for padding; a matrix to add to the scores for written-out attention.
    fn triangular(&self, triangle: Triangle) -> Result<Option<Tensor>> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let (device, dtype) = (self.embeds.device(), self.embeds.dtype());
        if self.attention == Attention::Sdpa {
            if let Some(mask) = self.said.attention_mask {
                let equal = as_bool(mask)?;
                let all = Array::empty(device, &[], DType::Bool)?;
                drop((equal, all));
            }
            return Ok(None);
        }
        if triangle == Triangle::InBlocks {
            return Ok(None);
        }
        let keys = time + 1;
        let matrix = {
            let full = Array::empty(device, &[time, keys], dtype)?;
            if triangle == Triangle::Copied { Array::empty(device, &[time, keys], dtype)? } else { full }
        };
        let compared = |shifts: bool| {
            let range = Array::empty(device, &[keys], DType::I64)?;
            let shifted = shifts.then(|| Array::empty(device, &[time, 1], DType::I64)).transpose()?;
            let compared = Array::empty(device, &[time, keys], DType::Bool)?;
            drop((range, shifted));
            Ok::<_, memcore::Error>(compared)
        };
        let later = compared(false)?;
        let looks = triangle == Triangle::InPlace { window: true };
        let earlier = looks.then(|| compared(true)).transpose()?;
        drop((later, earlier));
        if device.computes() {
            let value = |at: usize| if at % keys <= at / keys { 0.0 } else { least(dtype) as f32 };
            memcore::nn::write_f32(&matrix, &(0..time * keys).map(value).collect::<Vec<_>>())?;
        }
        let seen = matrix.narrow(1, 0, time)?.broadcast_to(&[batch, 1, time, time])?;
        Ok(Some(Tensor::from_array(seen)))
    }

    /// `create_bidirectional_mask`: nothing without padding; else true where a key is seen, or, for written-out attention, a matrix to add.
    pub(super) fn bidirectional(&self) -> Result<Option<Tensor>> {
        let Some(mask) = self.said.attention_mask else { return Ok(None) };
        let _mask = as_bool(mask)?;
        // mask.all()
        drop(Array::empty(mask.device(), &[], DType::Bool)?);
        match self.attention {
            _ if !self.padded => Ok(None),
            Attention::Eager => self.additive(Pattern::All, None).map(Some),
            Attention::Sdpa => self.in_bool(Pattern::All, None).map(Some),
        }
    }

    /// `find_packed_sequence_indices`: sums the differences of neighbouring positions. Returns the number of each token's text, i64 `[batch, time]`, if
    /// there are several.
    fn look_for_packed_sequences(&self) -> Result<Option<Array>> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let device = self.embeds.device();
        let words = |n: usize| Array::empty(device, &[n], DType::I64);
        let first = words(batch)?;
        let differences = {
            let _joined = words(batch * (time + 1))?;
            words(batch * time)?
        };
        let sums = {
            let _unequal = Array::empty(device, &[batch * time], DType::Bool)?;
            let sums = words(batch * time)?;
            let _converted = words(batch * time)?;
            scan(&sums, [batch, time])?;
            sums
        };
        let none = Array::empty(device, &[batch], DType::Bool)?;
        let all = Array::empty(device, &[], DType::Bool)?;
        // In the order of the library's variables.
        drop((none, all, first, differences));
        Ok(self.said.positions.is_some().then_some(sums))
    }

    /// Returns bool `[batch, 1, time, time]`, true where a key is seen.
    fn in_bool(&self, pattern: Pattern, numbers: Option<&Array>) -> Result<Tensor> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        Ok(Tensor::from_array(self.seen(pattern, numbers)?.broadcast_to(&[batch, 1, time, time])?))
    }

    /// Computes bool `[batch or 1, 1, time, time]`, true where a key is seen, from ranges of positions, and of several texts from the `numbers` of each
    /// token's.
    fn seen(&self, pattern: Pattern, numbers: Option<&Array>) -> Result<Array> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let device = self.embeds.device();
        let ranges = (range(device, batch)?, range(device, 1)?);
        let positions = (positions(device, time)?, positions(device, time)?);
        let seen = match (self.said.attention_mask, numbers) {
            (_, Some(_)) => self.all_of([&|| self.within_texts(pattern), &|| self.same_text()])?,
            (None, None) => self.pattern(pattern)?,
            (Some(_), None) => self.all_of([&|| self.pattern(pattern), &|| self.of_padding()])?,
        };
        if device.computes() {
            let rows = seen.dims()[0];
            let tokens = if self.padded { tokens(time) } else { time };
            let visible = |query: usize, key: usize| match pattern {
                Pattern::All => true,
                Pattern::Causal { window } => key <= query && window.is_none_or(|n| key + n > query),
            };
            let texts = numbers.and(self.said.positions).map(texts_of).transpose()?;
            let same = |i: usize| {
                let row = i / time / time * time;
                texts.as_ref().is_none_or(|texts| texts[row + i / time % time] == texts[row + i % time])
            };
            let value = |i: usize| u8::from(i % time < tokens && visible(i / time % time, i % time) && same(i));
            seen.write(&(0..rows * time * time).map(value).collect::<Vec<u8>>())?;
        }
        // In the order of the library's variables.
        drop((ranges, positions));
        Ok(seen)
    }

    /// Returns the pattern's mask, `[1, 1, time, time]`, or `[1, 1, time, 1]` if every position sees all.
    fn pattern(&self, pattern: Pattern) -> Result<Array> {
        let time = self.embeds.dims()[1];
        let device = self.embeds.device();
        let square = || Array::empty(device, &[1, 1, time, time], DType::Bool);
        let recent = || {
            let _first = Array::empty(device, &[1, 1, time, 1], DType::I64)?;
            square()
        };
        match pattern {
            Pattern::All => Array::empty(device, &[1, 1, time, 1], DType::Bool),
            Pattern::Causal { window: None } => square(),
            Pattern::Causal { window: Some(_) } => self.all_of([&recent, &square]),
        }
    }

    /// `position_ids[batch_idx, q_idx]` and `position_ids[batch_idx, kv_idx]`, or as much of the numbers of texts: i64 `[batch, 1, time, 1]` and
    /// `[batch, 1, 1, time]`. Repeated indices are copied first.
    fn of_queries_and_keys(&self) -> Result<[Array; 2]> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let device = self.embeds.device();
        let found = |dims: &[usize; 4]| {
            let copy = |repeated: bool| repeated.then(|| Array::empty(device, dims, DType::I64)).transpose();
            let (rows, places) = (copy(time > 1)?, copy(batch > 1)?);
            let found = Array::empty(device, dims, DType::I64)?;
            drop((places, rows));
            Ok::<_, memcore::Error>(found)
        };
        Ok([found(&[batch, 1, time, 1])?, found(&[batch, 1, 1, time])?])
    }

    /// Bool `[batch, 1, time, time]` of two such numbers.
    fn compared(&self, _: &[Array; 2]) -> Result<Array> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        Array::empty(self.embeds.device(), &[batch, 1, time, time], DType::Bool)
    }

    /// `remap_positions_for_packed_sequence`: the pattern of positions within the texts, `[batch, 1, time, time]`.
    fn within_texts(&self, pattern: Pattern) -> Result<Array> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let positions = self.of_queries_and_keys()?;
        let recent = || {
            let _first = Array::empty(self.embeds.device(), &[batch, 1, time, 1], DType::I64)?;
            self.compared(&positions)
        };
        match pattern {
            Pattern::Causal { window: Some(_) } => self.all_of([&recent, &|| self.compared(&positions)]),
            _ => self.compared(&positions),
        }
    }

    /// `packed_sequence_mask_function`: true where both tokens are of one text.
    fn same_text(&self) -> Result<Array> {
        let numbers = self.of_queries_and_keys()?;
        self.compared(&numbers)
    }

    /// `padding_mask[batch_idx, kv_idx]`, `[batch, 1, 1, time]`: repeated indices are copied first.
    fn of_padding(&self) -> Result<Array> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let device = self.embeds.device();
        let indices = |repeated: bool| {
            let copy = || Array::empty(device, &[batch, 1, 1, time], DType::I64);
            repeated.then(copy).transpose()
        };
        let (rows, keys) = (indices(time > 1)?, indices(batch > 1)?);
        let found = Array::empty(device, &[batch, 1, 1, time], DType::Bool)?;
        drop(keys);
        drop(rows);
        Ok(found)
    }

    /// `and_masks`: starts with true, and-ed with each condition in turn.
    fn all_of(&self, conditions: [&dyn Fn() -> Result<Array>; 2]) -> Result<Array> {
        let device = self.embeds.device();
        let mut all = Array::empty(device, &[1, 1, 1, 1], DType::Bool)?;
        for condition in conditions {
            let condition = condition()?;
            let dims: Vec<usize> = all.dims().iter().zip(condition.dims()).map(|(&a, &b)| a.max(b)).collect();
            let both = Array::empty(device, &dims, DType::Bool)?;
            drop(condition);
            all = both;
        }
        Ok(all)
    }

    /// Returns `[batch, 1, time, time]`: 0 where a key is seen, the type's most negative number elsewhere.
    fn additive(&self, pattern: Pattern, numbers: Option<&Array>) -> Result<Tensor> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let (device, dtype) = (self.embeds.device(), self.embeds.dtype());
        let seen = self.seen(pattern, numbers)?;
        let zero = Array::zeros(device, &[], dtype)?;
        let least = Array::full(device, &[], dtype, least(dtype))?;
        let mask = zero.select_by(&seen.broadcast_to(&[batch, 1, time, time])?, &least)?;
        drop(least);
        drop(zero);
        drop(seen);
        Ok(Tensor::from_array(mask))
    }
}

/// Makes the `attention_mask` of tokens `[batch, time]`, i64.
pub(super) fn attention_mask(kind: AttentionMask, input: &Tensor) -> Result<Option<Tensor>> {
    if kind == AttentionMask::None {
        return Ok(None);
    }
    let array = Array::empty_as(input.device(), input.dims(), DType::I64, Category::Input)?;
    if input.device().computes() {
        let time = input.dims().last().copied().unwrap_or(0).max(1);
        let tokens = if kind == AttentionMask::Padded { tokens(time) } else { time };
        let values = (0..array.numel()).map(|i| i64::from(i % time < tokens));
        array.write(&values.collect::<Vec<i64>>())?;
    }
    Ok(Some(Tensor::from_array(array)))
}

/// Makes the `position_ids` of `texts` texts in each example of tokens `[batch, time]`, i64: all as long as the longest but for the last.
pub(super) fn positions_of_texts(input: &Tensor, texts: usize) -> Result<Tensor> {
    let array = Array::empty_as(input.device(), input.dims(), DType::I64, Category::Input)?;
    if input.device().computes() {
        let time = input.dims().last().copied().unwrap_or(0).max(1);
        let long = time.div_ceil(texts.max(1));
        array.write(&(0..array.numel()).map(|i| (i % time % long) as i64).collect::<Vec<i64>>())?;
    }
    Ok(Tensor::from_array(array))
}

/// The number of each token's text, of positions that begin again with each.
fn texts_of(positions: &Tensor) -> Result<Vec<usize>> {
    let begins = positions.to_vec::<i64>()?.into_iter().map(|position| usize::from(position == 0));
    Ok(begins
        .scan(0, |texts, begins| {
            *texts += begins;
            Some(*texts)
        })
        .collect())
}

/// Returns the tokens of a padded example of `time` positions: half of them and one.
fn tokens(time: usize) -> usize {
    (time / 2 + 1).min(time)
}

/// Allocates the scratch of `cumsum` over the rows of `[rows, time]`. A single row is scanned by CUB, whose scratch is a word and a flag for each
/// tile and 32 more, aligned (sizes as recorded with compute capability 9.0); more rows need none.
pub(super) fn scan(sums: &Array, [rows, time]: [usize; 2]) -> Result<()> {
    if rows == 1 && sums.device().profile().torch_temporaries {
        let descriptors = 2 * sums.dtype().size() as usize * (time.div_ceil(SCAN_TILE) + 32);
        Array::empty(sums.device(), &[descriptors.next_multiple_of(256) + 256 + 255], DType::U8)?;
    }
    Ok(())
}

/// Elements per tile of CUB's scan.
const SCAN_TILE: usize = 2048;

/// Converts the mask to bool.
fn as_bool(mask: &Tensor) -> Result<Array> {
    Array::empty(mask.device(), mask.dims(), DType::Bool)
}

/// `fast_all`: compares a sum in i64, for which the mask is converted, with the number of elements.
fn look_for_padding(mask: &Tensor) -> Result<()> {
    let device = mask.device();
    let sum = {
        let sum = Array::empty(device, &[], DType::I64)?;
        let _converted = Array::empty(device, mask.dims(), DType::I64)?;
        sum
    };
    let equal = Array::empty(device, &[], DType::Bool)?;
    drop((sum, equal));
    Ok(())
}

/// Returns a bool `[queries, keys]`, true for keys up to the position itself.
pub(super) fn past(device: &Device, [queries, keys]: [usize; 2]) -> Result<Array> {
    let seen = Array::empty(device, &[queries, keys], DType::Bool)?;
    if device.computes() {
        seen.write(&(0..queries * keys).map(|at| u8::from(at % keys <= at / keys)).collect::<Vec<_>>())?;
    }
    Ok(seen)
}

/// Returns the most negative finite number.
pub(super) fn least(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => -65504.0,
        DType::BF16 => f64::from(half_bf16_min()),
        _ => f64::from(f32::MIN),
    }
}

/// −(2 − 2⁻⁷)·2¹²⁷
fn half_bf16_min() -> f32 {
    f32::from_bits(0xFF7F_0000)
}
