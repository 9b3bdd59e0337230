//! Masks and positions as the library makes them, with what that allocates on the way.

use memcore::{Array, DType, Device, Result, Tensor};

use super::options::Attention;

/// `torch.arange(n) + 0`, i64 `[n]`: two arrays, the first of which is let go at once.
///
/// # Errors
/// Those of the device.
pub(super) fn positions(device: &Device, n: usize) -> Result<Array> {
    let _range = range(device, n)?;
    range(device, n)
}

/// `torch.arange(n)`, i64 `[n]`.
///
/// # Errors
/// Those of the device.
pub(super) fn range(device: &Device, n: usize) -> Result<Array> {
    let out = Array::empty(device, &[n], DType::I64)?;
    if device.computes() {
        out.write(&(0..n as i64).collect::<Vec<_>>())?;
    }
    Ok(out)
}

/// How releases before 4.53 make the mask that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Triangle {
    /// The triangle of a full matrix is another matrix.
    Copied,
    /// What is seen is zeroed in the matrix itself.
    InPlace {
        /// Whether a window is looked at, which no sequence reaches here.
        window: bool,
    },
}

/// What a model knows when it makes its mask.
pub(super) struct Request<'a> {
    /// How attention is computed.
    pub(super) attention: Attention,
    /// The embedded tokens, `[batch, time, width]`: sizes and type of the mask follow.
    pub(super) embeds: &'a Tensor,
    /// `attention_mask`, where one is passed.
    pub(super) attention_mask: Option<&'a Tensor>,
    /// Whether keys and values are cached.
    pub(super) cached: bool,
    /// Whether the model passes its positions, from which packed sequences are recognised.
    pub(super) positions: bool,
    /// In releases before 4.53: how the mask that is added is made. They look for padding alone.
    pub(super) triangle: Option<Triangle>,
}

impl Request<'_> {
    /// `create_causal_mask`: nothing for the fused kernel, which is causal by itself (batches here have neither padding nor packed sequences,
    /// but the library looks); for the written-out form a matrix to add to the scores.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn causal(&self) -> Result<Option<Tensor>> {
        self.windowed(None)
    }

    /// The same for positions that see `window` tokens, themselves included: `create_sliding_window_causal_mask`. The fused kernel knows no
    /// window: where a sequence reaches it, it is given what is seen, `[batch, 1, time, time]` in bool.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn windowed(&self, window: Option<usize>) -> Result<Option<Tensor>> {
        if let Some(triangle) = self.triangle {
            return self.triangular(triangle);
        }
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let _mask = self.attention_mask.map(as_bool).transpose()?;
        if self.positions && self.attention_mask.is_none() && !self.cached {
            self.look_for_packed_sequences()?;
        }
        match self.attention {
            Attention::Sdpa if window.is_some_and(|window| time >= window) => {
                let seen = self.seen(window)?.broadcast_to(&[batch, 1, time, time])?;
                Ok(Some(Tensor::from_array(seen)))
            }
            Attention::Sdpa => {
                if let Some(mask) = self.attention_mask {
                    look_for_padding(mask)?;
                }
                Ok(None)
            }
            Attention::Eager => self.additive(window).map(Some),
        }
    }

    /// `_update_causal_mask`: nothing for the fused kernel, after a look for padding; a matrix to add to the scores for the written-out form.
    fn triangular(&self, triangle: Triangle) -> Result<Option<Tensor>> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let (device, dtype) = (self.embeds.device(), self.embeds.dtype());
        if self.attention == Attention::Sdpa {
            if let Some(mask) = self.attention_mask {
                let equal = as_bool(mask)?;
                let all = Array::empty(device, &[], DType::Bool)?;
                drop((equal, all));
            }
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

    /// `create_bidirectional_mask`: nothing, since there is no padding.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn bidirectional(&self) -> Result<()> {
        let Some(mask) = self.attention_mask else { return Ok(()) };
        let _mask = as_bool(mask)?;
        // mask.all()
        Array::empty(mask.device(), &[], DType::Bool)?;
        Ok(())
    }

    /// `find_packed_sequence_indices`: the differences of neighbouring positions, summed.
    fn look_for_packed_sequences(&self) -> Result<()> {
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
        drop((none, all, first, differences, sums));
        Ok(())
    }

    /// Whether a key is seen: `[1, 1, time, time]` in bool, made of ranges of positions.
    fn seen(&self, window: Option<usize>) -> Result<Array> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let device = self.embeds.device();
        let square = || Array::empty(device, &[1, 1, time, time], DType::Bool);
        let ranges = (range(device, batch)?, range(device, 1)?);
        let positions = (positions(device, time)?, positions(device, time)?);
        let seen = match window {
            None => square()?,
            Some(_) => {
                let recent = {
                    // What is and-ed with each condition in turn begins as one true.
                    let _all = Array::empty(device, &[], DType::Bool)?;
                    let _condition = {
                        let _first = Array::empty(device, &[time], DType::I64)?;
                        square()?
                    };
                    square()?
                };
                let condition = square()?;
                let both = square()?;
                drop(condition);
                drop(recent);
                both
            }
        };
        if device.computes() {
            let visible = |query: usize, key: usize| key <= query && window.is_none_or(|n| key + n > query);
            let values: Vec<u8> = (0..time * time).map(|i| u8::from(visible(i / time, i % time))).collect();
            seen.write(&values)?;
        }
        // In the order of the library's variables.
        drop((ranges, positions));
        Ok(seen)
    }

    /// 0 where a key is seen, the type's most negative number elsewhere: `[batch, 1, time, time]`.
    fn additive(&self, window: Option<usize>) -> Result<Tensor> {
        let (batch, time) = (self.embeds.dims()[0], self.embeds.dims()[1]);
        let (device, dtype) = (self.embeds.device(), self.embeds.dtype());
        let seen = self.seen(window)?;
        let zero = Array::zeros(device, &[], dtype)?;
        let least = Array::full(device, &[], dtype, least(dtype))?;
        let mask = zero.select_by(&seen.broadcast_to(&[batch, 1, time, time])?, &least)?;
        Ok(Tensor::from_array(mask))
    }
}

/// What `cumsum` over the rows of `[rows, time]` takes meanwhile: for a single row CUB's scan does it, whose scratch is a word and a flag for each
/// tile and 32 more, aligned (sizes as recorded with compute capability 9.0); for more rows nothing.
///
/// # Errors
/// Those of the device.
pub(super) fn scan(sums: &Array, [rows, time]: [usize; 2]) -> Result<()> {
    if rows == 1 && sums.device().profile().torch_temporaries {
        let descriptors = 2 * sums.dtype().size() as usize * (time.div_ceil(SCAN_TILE) + 32);
        Array::empty(sums.device(), &[descriptors.next_multiple_of(256) + 256 + 255], DType::U8)?;
    }
    Ok(())
}

/// Elements that a tile of CUB's scan takes.
const SCAN_TILE: usize = 2048;

/// The mask as bool. All ones, as what it stands for.
fn as_bool(mask: &Tensor) -> Result<Array> {
    Array::empty(mask.device(), mask.dims(), DType::Bool)
}

/// `fast_all`: a sum in i64, for which the mask is converted, compared with the number of elements.
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

/// Which keys a position sees that sees those up to its own, a bool `[queries, keys]`.
///
/// # Errors
/// Those of the device.
pub(super) fn past(device: &Device, [queries, keys]: [usize; 2]) -> Result<Array> {
    let seen = Array::empty(device, &[queries, keys], DType::Bool)?;
    if device.computes() {
        seen.write(&(0..queries * keys).map(|at| u8::from(at % keys <= at / keys)).collect::<Vec<_>>())?;
    }
    Ok(seen)
}

/// The most negative finite number.
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
