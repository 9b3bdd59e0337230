//! Values on a device: a storage and a view of it. An array knows nothing of history.

mod bytes;
mod compute;
mod element;
mod grid_reduce;
mod host;
mod into;
mod join;
mod transfer;
mod view;

pub use compute::MatmulOptions;
pub use element::HostElement;
#[doc(hidden)]
pub use host::decoded;
pub(crate) use join::common_type;

use std::fmt;
use std::sync::Arc;

use crate::backend::Operand;
use crate::backend::kernel::{Fill, Random, RandomKind};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::Layout;
use crate::memory::Category;
use crate::storage::Storage;

/// A typed, strided view of device memory. Cloning shares the memory.
#[derive(Clone)]
pub struct Array {
    storage: Arc<Storage>,
    dtype: DType,
    layout: Layout,
    /// First element of the view, in elements from the start of the storage.
    offset: usize,
    /// Where PyTorch would make this a view that holds on to the tensor it is a view of: which tensor it is. Clones are the same one.
    view: Option<Arc<()>>,
}

impl Array {
    /// Memory for `dims` elements; the contents are garbage.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or [`Error::Shape`](crate::Error::Shape) for sizes that overflow.
    pub fn empty(device: &Device, dims: &[usize], dtype: DType) -> Result<Self> {
        Self::empty_as(device, dims, dtype, Category::Temporary)
    }

    /// As [`Array::empty`], for a purpose other than a temporary.
    pub fn empty_as(device: &Device, dims: &[usize], dtype: DType, category: Category) -> Result<Self> {
        let layout = Layout::contiguous(dims)?;
        let storage = allocate(device, layout.numel() as u64 * dtype.size(), category)?;
        Ok(Self { storage, dtype, layout, offset: 0, view: None })
    }

    /// Sizes and a type, and memory that is there only between [`Storage::acquire`] and [`Storage::release`]: what a sharded parameter is
    /// gathered into. A kernel that is given it without its memory is refused.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for sizes that overflow.
    #[doc(hidden)]
    pub fn unbacked(device: &Device, dims: &[usize], dtype: DType, category: Category) -> Result<Self> {
        let layout = Layout::contiguous(dims)?;
        let storage = Storage::resizable(device.clone(), layout.numel() as u64 * dtype.size(), category);
        Ok(Self { storage: Arc::new(storage), dtype, layout, offset: 0, view: None })
    }

    /// Memory for an elementwise result of these operands, which are broadcast to `dims`; laid out as they are.
    pub(crate) fn empty_for(device: &Device, dims: &[usize], operands: &[&Layout], dtype: DType) -> Result<Self> {
        let layout = Layout::elementwise(dims, operands)?;
        let storage = allocate(device, layout.numel() as u64 * dtype.size(), Category::Temporary)?;
        Ok(Self { storage, dtype, layout, offset: 0, view: None })
    }

    /// Memory for `dims` elements of the type of `like`, with channels innermost where they are so in `like` (PyTorch's `suggest_memory_format`).
    pub(crate) fn empty_in_format(like: &Array, dims: &[usize]) -> Result<Self> {
        match *dims {
            [n, c, h, w] if like.layout.is_channels_last() => {
                Self::empty(like.device(), &[n, h, w, c], like.dtype)?.permute(&[0, 3, 1, 2])
            }
            _ => Self::empty(like.device(), dims, like.dtype),
        }
    }

    /// A scalar that holds the memory of `dims` elements: what PyTorch's `mse_loss` returns, which reduces in place
    /// and shrinks the result without giving memory back.
    pub(crate) fn into_scalar(self) -> Self {
        Self { layout: Layout::scalar(), ..self }
    }

    /// Every element `value`.
    pub fn full(device: &Device, dims: &[usize], dtype: DType, value: f64) -> Result<Self> {
        let out = Self::empty(device, dims, dtype)?;
        out.fill_(value)?;
        Ok(out)
    }

    /// Every element 0.
    pub fn zeros(device: &Device, dims: &[usize], dtype: DType) -> Result<Self> {
        Self::full(device, dims, dtype, 0.0)
    }

    /// Every element 1.
    pub fn ones(device: &Device, dims: &[usize], dtype: DType) -> Result<Self> {
        Self::full(device, dims, dtype, 1.0)
    }

    /// Uninitialised memory of the same sizes and type.
    pub fn empty_like(&self) -> Result<Self> {
        Self::empty(self.device(), self.dims(), self.dtype)
    }

    /// Zeros of the same sizes and type.
    pub fn zeros_like(&self) -> Result<Self> {
        Self::zeros(self.device(), self.dims(), self.dtype)
    }

    /// Host values, in row-major order, on the device.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) when the number of values does not fit; as [`Array::empty`] otherwise.
    pub fn from_slice<T: HostElement>(device: &Device, dims: &[usize], values: &[T]) -> Result<Self> {
        let out = Self::empty(device, dims, T::DTYPE)?;
        out.write(values)?;
        Ok(out)
    }

    /// Values uniform in `[low, high)`, drawn on the device from its generator.
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

    /// The device that holds it.
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

    /// Bytes of the elements of the view (not of the storage behind it).
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

    /// The memory behind it.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Says what the memory is for.
    #[must_use]
    pub fn with_category(self, category: Category) -> Self {
        self.storage.set_category(category);
        self
    }

    /// Whether nobody else holds the memory, so that it may be overwritten or kept.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    /// Marks what a view operator gave. In PyTorch such a tensor holds on to its base, so that its memory never counts as unshared, not even when
    /// nobody else holds the base.
    pub(crate) fn keeping_base(self) -> Self {
        Self { view: Some(Arc::new(())), ..self }
    }

    /// Whether a leaf may keep it as its gradient: nobody else holds the memory, or this is a view that nobody else holds, which PyTorch keeps whoever
    /// holds its base. Parts of one memory are kept by several leaves where they do not overlap. (PyTorch lets them overlap.)
    pub(crate) fn is_for_keeping(&self) -> bool {
        let alone = |tensor: &Arc<()>| Arc::strong_count(tensor) == 1;
        self.is_unshared()
            || self.view.as_ref().is_some_and(alone)
                && self.storage.claim(self.offset..self.offset + self.layout.span())
    }

    /// Whether another gradient may be added in place: nobody else holds the memory, and it is laid out without gaps.
    pub(crate) fn takes_sum_in_place(&self) -> bool {
        self.is_unshared() && self.view.is_none() && self.layout.is_dense()
    }

    /// The array as a kernel's operand.
    pub fn operand(&self) -> Operand {
        let region = self.storage.region();
        let size = self.dtype.size();
        // Memory that is not there has no parts: the call is refused for it.
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

fn allocate(device: &Device, bytes: u64, category: Category) -> Result<Arc<Storage>> {
    let block = if bytes == 0 { None } else { Some(device.allocate(bytes, category)?) };
    Ok(Arc::new(Storage::new(device.clone(), block, category)))
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {:?} on {})", self.dtype, self.layout, self.device().name())
    }
}
