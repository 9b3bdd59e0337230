//! Values on a device: a storage and a view of it. An array has no history.

mod bytes;
mod complex;
mod compute;
mod element;
mod format;
mod grid_reduce;
mod host;
mod into;
mod join;
mod transfer;
mod view;

pub use compute::{Added, MatmulOptions};
pub use element::HostElement;
pub(crate) use format::Format;
#[doc(hidden)]
pub use host::decoded;
pub(crate) use join::common_type;

use std::fmt;
use std::sync::Arc;

use crate::backend::Operand;
use crate::backend::kernel::{Fill, Random, RandomKind};
use crate::context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::memory::Category;
use crate::storage::Storage;

/// A typed, strided view of device memory. Cloning shares the memory.
#[derive(Clone)]
pub struct Array {
    storage: Arc<Storage>,
    dtype: DType,
    layout: Layout,
    /// Offset of the first element of the view, in elements from the start of the storage.
    offset: usize,
    /// Identity of a view that holds its base in PyTorch; `None` for other arrays. Clones share it.
    view: Option<Arc<()>>,
}

impl Array {
    /// Allocates memory for `dims` elements. The contents are uninitialised.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or [`Error::Shape`](crate::Error::Shape) for sizes that overflow.
    pub fn empty(device: &Device, dims: &[usize], dtype: DType) -> Result<Self> {
        Self::empty_as(device, dims, dtype, Category::Temporary)
    }

    /// As [`Array::empty`], for a purpose other than a temporary.
    pub fn empty_as(device: &Device, dims: &[usize], dtype: DType, category: Category) -> Result<Self> {
        let layout = Layout::contiguous(dims)?;
        let storage = allocate(device, &layout, dtype, category)?;
        Ok(Self { storage, dtype, layout, offset: 0, view: None })
    }

    /// Makes an array of these sizes and type whose memory exists only between [`Storage::acquire`] and [`Storage::release`]. A sharded
    /// parameter is gathered into it. A kernel that receives it without its memory is refused.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for sizes that overflow.
    #[doc(hidden)]
    pub fn unbacked(device: &Device, dims: &[usize], dtype: DType, category: Category) -> Result<Self> {
        let layout = Layout::contiguous(dims)?;
        let storage = Storage::resizable(device.clone(), layout.numel() as u64 * dtype.size(), category);
        Ok(Self { storage: Arc::new(storage), dtype, layout, offset: 0, view: None })
    }

    /// Allocates memory for an elementwise result of these operands, which are broadcast to `dims`. The result is laid out as the operands
    /// are.
    pub(crate) fn empty_for(device: &Device, dims: &[usize], operands: &[&Layout], dtype: DType) -> Result<Self> {
        Self::empty_laid_out(device, Layout::elementwise(dims, operands)?, dtype)
    }

    /// Allocates memory for a result of this layout, which is dense.
    pub(crate) fn empty_laid_out(device: &Device, layout: Layout, dtype: DType) -> Result<Self> {
        let storage = allocate(device, &layout, dtype, Category::Temporary)?;
        Ok(Self { storage, dtype, layout, offset: 0, view: None })
    }

    /// Allocates memory for `dims` elements of the type of `like`, with channels innermost if they are so in `like` (PyTorch's
    /// `suggest_memory_format`).
    pub(crate) fn empty_in_format(like: &Array, dims: &[usize]) -> Result<Self> {
        match *dims {
            [n, c, h, w] if like.layout.is_channels_last() => {
                Self::empty(like.device(), &[n, h, w, c], like.dtype)?.permute(&[0, 3, 1, 2])
            }
            _ => Self::empty(like.device(), dims, like.dtype),
        }
    }

    /// Turns the array into a scalar that still holds the memory of `dims` elements, as the result of PyTorch's `mse_loss` does: it is
    /// reduced in place and shrunk, without giving memory back.
    pub(crate) fn into_scalar(self) -> Self {
        Self { layout: Layout::scalar(), ..self }
    }

    /// Makes an array whose elements are all `value`.
    pub fn full(device: &Device, dims: &[usize], dtype: DType, value: f64) -> Result<Self> {
        let out = Self::empty(device, dims, dtype)?;
        out.fill_(value)?;
        Ok(out)
    }

    /// Makes an array whose elements are all 0.
    pub fn zeros(device: &Device, dims: &[usize], dtype: DType) -> Result<Self> {
        Self::full(device, dims, dtype, 0.0)
    }

    /// Makes an array whose elements are all 1.
    pub fn ones(device: &Device, dims: &[usize], dtype: DType) -> Result<Self> {
        Self::full(device, dims, dtype, 1.0)
    }

    /// Allocates uninitialised memory of the same sizes and type.
    pub fn empty_like(&self) -> Result<Self> {
        Self::empty(self.device(), self.dims(), self.dtype)
    }

    /// Makes zeros of the same sizes and type.
    pub fn zeros_like(&self) -> Result<Self> {
        Self::zeros(self.device(), self.dims(), self.dtype)
    }

    /// Copies host values, in row-major order, to the device.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the number of values does not fit; as [`Array::empty`] otherwise.
    pub fn from_slice<T: HostElement>(device: &Device, dims: &[usize], values: &[T]) -> Result<Self> {
        let out = Self::empty(device, dims, T::DTYPE)?;
        out.write(values)?;
        Ok(out)
    }

    /// Draws values uniformly from `[low, high)`, on the device from its generator.
    pub fn uniform(device: &Device, dims: &[usize], dtype: DType, low: f64, high: f64) -> Result<Self> {
        let out = Self::empty(device, dims, dtype)?;
        out.uniform_(low, high)?;
        Ok(out)
    }

    /// Overwrites every element with a draw from `[low, high)`. The array must be contiguous.
    pub fn uniform_(&self, low: f64, high: f64) -> Result<()> {
        let (seed, offset) = self.device().draw(self.numel());
        self.launch_in_place(Random { kind: RandomKind::Uniform { low, high }, seed, offset, out: self.operand() })
    }

    /// Overwrites every element with `value`.
    pub fn fill_(&self, value: f64) -> Result<()> {
        self.launch_in_place(Fill { value, out: self.operand() })
    }

    /// The device that holds the array.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// Sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// Bytes of the view's elements, which may be fewer than those of the storage.
    pub fn nbytes(&self) -> u64 {
        self.numel() as u64 * self.dtype.size()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes and strides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The storage that holds the elements.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Sets the category of the memory.
    #[must_use]
    pub fn with_category(self, category: Category) -> Self {
        self.storage.set_category(category);
        self
    }

    /// True if no other array holds the memory, so that it may be overwritten or kept.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    /// Gives an array whose elements nobody has read other sizes, as PyTorch's `resize_` does: it keeps its memory unless it needs more.
    pub(crate) fn resized(self, dims: &[usize]) -> Result<Self> {
        let count = dims.iter().product();
        if count <= self.numel() {
            return Ok(self.view(&[self.numel()])?.narrow(0, 0, count)?.view(dims)?.keeping_base());
        }
        context::within("resize_", || Self::empty(self.device(), dims, self.dtype()))
    }

    /// Marks the result of a view operator. In PyTorch such a tensor holds its base, so that its memory never counts as unshared, even if nothing
    /// else holds the base.
    pub(crate) fn keeping_base(self) -> Self {
        Self { view: Some(Arc::new(())), ..self }
    }

    /// True if a leaf may keep the array as its gradient: nothing else holds the memory, or this is a view that nothing else holds. PyTorch keeps
    /// such a view, even if its base is held elsewhere. Several leaves keep parts of one memory if the parts do not overlap. (PyTorch allows
    /// overlaps.)
    pub(crate) fn is_for_keeping(&self) -> bool {
        let alone = |tensor: &Arc<()>| Arc::strong_count(tensor) == 1;
        self.is_unshared()
            || self.view.as_ref().is_some_and(alone)
                && self.storage.claim(self.offset..self.offset + self.layout.span())
    }

    /// True if another gradient may be added in place: nothing else holds the memory, and it is laid out without gaps.
    pub(crate) fn takes_sum_in_place(&self) -> bool {
        self.is_unshared() && self.view.is_none() && self.layout.is_dense()
    }

    /// Describes the array as a kernel's operand.
    pub fn operand(&self) -> Operand {
        let region = self.storage.region();
        let size = self.dtype.size();
        // Released memory has no parts. A call with it is refused.
        let region = match region.len {
            0 => region,
            _ => region.part(self.offset as u64 * size, self.layout.span() as u64 * size),
        };
        Operand { region, dtype: self.dtype, layout: self.layout }
    }

    fn launch_in_place(&self, call: impl Into<crate::backend::KernelCall>) -> Result<()> {
        self.storage.bump_version();
        self.device().launch(call)
    }
}

fn allocate(device: &Device, layout: &Layout, dtype: DType, category: Category) -> Result<Arc<Storage>> {
    if dtype.is_complex() && device.computes() {
        return Err(Error::invalid(dtype.name(), "is predicted only: no backend computes it"));
    }
    let bytes = layout.numel() as u64 * dtype.size();
    let block = if bytes == 0 { None } else { Some(device.allocate(bytes, category)?) };
    Ok(Arc::new(Storage::new(device.clone(), block, category)))
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {:?} on {})", self.dtype, self.layout, self.device().name())
    }
}
