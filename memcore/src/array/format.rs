//! Memory formats of pictures, of a profile that counts kernels which read both.

use super::Array;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;

/// Where the channels of a picture lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Outside of the positions: `[n, c, h, w]` in row-major order.
    RowMajor,
    /// Innermost: PyTorch's `channels_last`.
    ChannelsLast,
}

impl Array {
    /// The format that the strides suggest; row-major order for all under a profile whose kernels read no other.
    pub(crate) fn format(&self) -> Format {
        let last = self.device().profile().reads_channels_last() && self.layout().is_channels_last();
        if last { Format::ChannelsLast } else { Format::RowMajor }
    }

    /// True if the strides are those of a picture with its channels innermost.
    #[doc(hidden)]
    pub fn is_channels_last(&self) -> bool {
        self.layout().is_channels_last()
    }

    /// Allocates memory for a picture in a format.
    pub(crate) fn empty_in(device: &Device, dims: &[usize; 4], dtype: DType, format: Format) -> Result<Self> {
        let [n, c, h, w] = *dims;
        match format {
            Format::RowMajor => Self::empty(device, dims, dtype),
            Format::ChannelsLast => Self::empty(device, &[n, h, w, c], dtype)?.permute(&[0, 3, 1, 2]),
        }
    }

    /// Returns the same picture if it is in this format without gaps, else a copy.
    pub(crate) fn in_format(&self, format: Format) -> Result<Self> {
        match format {
            Format::RowMajor => self.contiguous(),
            Format::ChannelsLast => self.permute(&[0, 2, 3, 1])?.contiguous()?.permute(&[0, 3, 1, 2]),
        }
    }

    /// Returns a picture with its channels innermost, as PyTorch's `x.to(memory_format=torch.channels_last)` does: the same one if its strides
    /// suggest that, else a copy. An array of another rank stays as it is.
    ///
    /// # Errors
    /// As [`Array::empty`] for the copy.
    pub fn to_channels_last(&self) -> Result<Self> {
        let &[n, c, h, w] = self.dims() else { return Ok(self.clone()) };
        if self.layout().is_channels_last() {
            return Ok(self.clone());
        }
        let out = Self::empty_in(self.device(), &[n, c, h, w], self.dtype(), Format::ChannelsLast)?;
        out.copy_(self)?;
        Ok(out)
    }

    /// Allocates memory of the same sizes and type, laid out as the array is, without gaps. A picture of one position is in the format that it suggests.
    pub(crate) fn empty_alike(&self) -> Result<Self> {
        match self.format() {
            Format::ChannelsLast => self.empty_like_in(Format::ChannelsLast),
            Format::RowMajor => Self::empty_for(self.device(), self.dims(), &[self.layout()], self.dtype()),
        }
    }

    /// Returns a picture whose strides suggest this format: the same one if they do so, else a copy. PyTorch's `x.to(memory_format=…)`.
    pub(crate) fn suggesting(&self, format: Format) -> Result<Self> {
        match format {
            Format::ChannelsLast => self.to_channels_last(),
            Format::RowMajor if self.layout().is_channels_last() => self.copied(),
            Format::RowMajor => Ok(self.clone()),
        }
    }

    /// Names the memory of a picture in row-major order, for a call of a kernel that only row-major order is described for.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a device that computes, where the kernel would read the elements in the wrong order.
    pub(crate) fn as_row_major(&self) -> Result<Self> {
        if self.layout().is_contiguous() {
            return Ok(self.clone());
        }
        if self.device().computes() {
            return Err(Error::invalid(
                "channels_last",
                "kernels that read it are counted, not computed: on meta alone",
            ));
        }
        self.part(&Layout::contiguous(self.dims())?, 0)
    }

    /// Allocates memory of the same sizes and type in a format. An array of another rank than a picture's is in row-major order.
    pub(crate) fn empty_like_in(&self, format: Format) -> Result<Self> {
        match *self.dims() {
            [n, c, h, w] => Self::empty_in(self.device(), &[n, c, h, w], self.dtype(), format),
            _ => self.empty_like(),
        }
    }

    /// Refuses a picture whose channels are innermost, under a profile that counts kernels for it.
    pub(crate) fn refuse_channels_last(&self, op: &'static str) -> Result<()> {
        match self.format() {
            Format::RowMajor => Ok(()),
            Format::ChannelsLast => Err(Error::invalid(op, "the memory of channels-last pictures is not known")),
        }
    }

    /// Copies a gradient into the layout of the value that it belongs to.
    pub(crate) fn copied_as(&self, value: &Layout) -> Result<Self> {
        let out = Self::empty_for(self.device(), self.dims(), &[value], self.dtype())?;
        out.copy_(self)?;
        Ok(out)
    }
}
