//! Matrix products by cuBLASLt, where the library is present.
//!
//! The library counts columns first: a row-major `out = a @ b` is its `outᵀ = bᵀ @ aᵀ`, so that its first matrix is our
//! `b`. What it should do for a shape is asked once and kept. Its workspace is the one that core allocated for the call, of
//! PyTorch's size; a caller that brings none lends it the backend's scratch.

mod products;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::sys::{self, cublasStatus_t};
use memcore::backend::Operand;
use memcore::backend::kernel::Matmul;
use memcore::{DType, Error, Result};

use crate::driver::{NAME, Queue};
use crate::figures;
use crate::launch::Scratch;

/// The environment variable that, set to 0, leaves matrix products to the backend's own kernels.
const SWITCH: &str = "VRAMLAB_CUBLASLT";

/// Every symbol that is called here.
const SYMBOLS: &[&str] = &[
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
];

/// The library on one device, and what it answered so far.
pub(crate) struct BlasLt {
    handle: sys::cublasLtHandle_t,
    plans: Mutex<HashMap<Shape, Option<Plan>>>,
    /// What the driver gave for it.
    held_bytes: AtomicU64,
}

// SAFETY: the library's handle may be used from any thread; plans are behind a lock.
unsafe impl Send for BlasLt {}
// SAFETY: as above.
unsafe impl Sync for BlasLt {}

/// A matrix of a batch, as the library sees it: stored column by column, `lead` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Matrix {
    /// Rows and columns as stored; the other way round for the product where it is transposed.
    rows: u64,
    columns: u64,
    lead: i64,
    batch_stride: i64,
    transposed: bool,
    /// Bytes that its address is a multiple of, up to 256.
    alignment: u32,
}

/// Everything that the library's choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    dtype: DType,
    batch: i32,
    first: Matrix,
    second: Matrix,
    out: Matrix,
    bias: bool,
    reads_out: bool,
    workspace_bytes: u64,
}

/// Where the matrices of a product lie, and its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Places {
    a: u64,
    b: u64,
    bias: u64,
    out: u64,
    workspace: Scratch,
}

/// A product that the library takes, with all that a call of it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    pub(crate) shape: Shape,
    places: Places,
    /// The bits of alpha and beta.
    scalars: [u32; 2],
}

/// The library's descriptions of a product, and its choice.
struct Plan {
    /// Whether it was run: until then the library may still have to load kernels for it.
    ran: bool,
    product: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl BlasLt {
    /// The library, if it is present, complete and not switched off.
    pub(crate) fn load(queue: &Queue) -> Option<Self> {
        if std::env::var_os(SWITCH).is_some_and(|value| value == "0") {
            return None;
        }
        // SAFETY: only tries to open the library.
        if !unsafe { sys::is_culib_present() } {
            return None;
        }
        // SAFETY: the library was found just now, so that this does not panic.
        let library = unsafe { sys::culib() };
        // SAFETY: symbols are looked up and not called.
        let has = |symbol: &&str| unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_ok();
        if !SYMBOLS.iter().all(has) {
            return None;
        }
        queue.bind().ok()?;
        let create = || {
            let mut handle = std::ptr::null_mut();
            // SAFETY: a place to write the handle to; the context is current.
            let created = unsafe { sys::cublasLtCreate(&mut handle) };
            if created == cublasStatus_t::CUBLAS_STATUS_SUCCESS { Ok(handle) } else { Err(created) }
        };
        let (handle, bytes) = figures::measured(queue, create).ok()?;
        Some(Self { handle, plans: Mutex::default(), held_bytes: AtomicU64::new(bytes) })
    }

    /// What the driver gave for the library so far.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// The product with matrices in these places; `None` where the library does not take it.
    fn product(&self, k: &Matmul, places: Places) -> Option<Product> {
        let shape = shape(k, &places)?;
        let mut plans = self.plans();
        plans.entry(shape).or_insert_with(|| Plan::new(self.handle, &shape, places.bias)).as_ref()?;
        Some(Product { shape, places, scalars: [k.alpha as f32, k.beta as f32].map(f32::to_bits) })
    }

    /// Gives a product to the driver as planned.
    ///
    /// # Errors
    /// [`Error::Backend`] when the library fails at what it had promised.
    pub(crate) fn run(&self, queue: &Queue, product: &Product) -> Result<()> {
        let mut plans = self.plans();
        let Some(Some(plan)) = plans.get_mut(&product.shape) else {
            return Err(Error::backend(NAME, format!("cuBLASLt has no plan for {:?}", product.shape)));
        };
        if plan.ran {
            return self.call(queue, plan, product);
        }
        // The library loads its own kernels when it first needs them.
        let ((), taken) = figures::measured(queue, || self.call(queue, plan, product))?;
        plan.ran = true;
        self.held_bytes.fetch_add(taken, Relaxed);
        Ok(())
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Shape, Option<Plan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, queue: &Queue, plan: &Plan, product: &Product) -> Result<()> {
        let Places { a, b, bias, out, workspace } = product.places;
        if bias != 0 && !plan.set_bias(bias) {
            return Err(Error::backend(NAME, "cuBLASLt does not take the place of a bias"));
        }
        let [alpha, beta] = product.scalars.map(f32::from_bits);
        let [first, second, result] = plan.layouts;
        // SAFETY: the plan's descriptions are those of these operands, whose bounds core has checked; the workspace is as
        // large as the plan was told; scalars are read before the call returns.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.handle,
                plan.product,
                (&raw const alpha).cast::<c_void>(),
                b as *const c_void,
                first,
                a as *const c_void,
                second,
                (&raw const beta).cast::<c_void>(),
                out as *const c_void,
                result,
                out as *mut c_void,
                result,
                &plan.algorithm,
                workspace.address as *mut c_void,
                workspace.bytes as usize,
                queue.stream().cast(),
            )
        };
        match status {
            cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
            status => Err(Error::backend(NAME, format!("cuBLASLt: {status:?} for {:?}", product.shape))),
        }
    }
}

impl Drop for BlasLt {
    fn drop(&mut self) {
        self.plans.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // SAFETY: the handle is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { sys::cublasLtDestroy(self.handle) };
    }
}

/// How the library sees the call; `None` where it cannot, or where the own kernels' forms for narrow and small products
/// are meant.
fn shape(k: &Matmul, places: &Places) -> Option<Shape> {
    const NARROW: usize = 8;
    const FEW_PRODUCTS: usize = 1 << 12;
    let (batch, m, n, inner) = k.sizes();
    if m.min(n) < NARROW || inner == 0 || m * n * inner <= FEW_PRODUCTS || (k.bias.is_some() && batch > 1) {
        return None;
    }
    Some(Shape {
        dtype: k.out.dtype,
        batch: i32::try_from(batch).ok()?,
        first: matrix(&k.b, places.b)?,
        second: matrix(&k.a, places.a)?,
        out: matrix(&k.out, places.out).filter(|out| !out.transposed)?,
        bias: k.bias.is_some(),
        reads_out: k.beta != 0.0,
        workspace_bytes: places.workspace.bytes,
    })
}

/// A matrix with contiguous rows is its transpose stored column by column; one with contiguous columns is stored so, and
/// has to be transposed.
fn matrix(operand: &Operand, address: u64) -> Option<Matrix> {
    let (d, s) = (operand.dims(), operand.layout.strides());
    let (rows, columns) = (d[1] as u64, d[2] as u64);
    let alignment = 1 << address.trailing_zeros().min(8);
    let batch_stride = s[0] as i64;
    if s[2] == 1 && s[1] as u64 >= columns {
        let (rows, columns) = (columns, rows);
        Some(Matrix { rows, columns, lead: s[1] as i64, batch_stride, transposed: false, alignment })
    } else if s[1] == 1 && s[2] as u64 >= rows {
        Some(Matrix { rows, columns, lead: s[2] as i64, batch_stride, transposed: true, alignment })
    } else {
        None
    }
}

fn data_type(dtype: DType) -> Option<sys::cudaDataType_t> {
    match dtype {
        DType::F32 => Some(sys::cudaDataType_t::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType_t::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType_t::CUDA_R_16BF),
        _ => None,
    }
}

fn succeeded(status: cublasStatus_t) -> Option<()> {
    (status == cublasStatus_t::CUBLAS_STATUS_SUCCESS).then_some(())
}

impl Plan {
    /// Asks the library what it would do; `None` where it would not.
    fn new(handle: sys::cublasLtHandle_t, shape: &Shape, bias: u64) -> Option<Self> {
        let kind = data_type(shape.dtype)?;
        let mut product = std::ptr::null_mut();
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: a place to write the description to.
        succeeded(unsafe { sys::cublasLtMatmulDescCreate(&mut product, compute, sys::cudaDataType_t::CUDA_R_32F) })?;
        // SAFETY: an opaque struct of numbers, which the library's answer replaces.
        let algorithm = unsafe { std::mem::zeroed() };
        // From here on a drop gives everything back.
        let mut plan = Self { ran: false, product, layouts: [std::ptr::null_mut(); 3], algorithm };
        for (layout, matrix) in plan.layouts.iter_mut().zip([&shape.first, &shape.second, &shape.out]) {
            *layout = create_layout(kind, matrix, shape.batch)?;
        }
        use sys::cublasLtMatmulDescAttributes_t as A;
        plan.set(A::CUBLASLT_MATMUL_DESC_TRANSA, &operation(shape.first.transposed))?;
        plan.set(A::CUBLASLT_MATMUL_DESC_TRANSB, &operation(shape.second.transposed))?;
        if shape.bias {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as i32;
            plan.set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            plan.set(A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
        }
        plan.choose(handle, shape)?;
        Some(plan)
    }

    fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Option<()> {
        // SAFETY: the description is live; the library reads as many bytes as the value has.
        succeeded(unsafe {
            sys::cublasLtMatmulDescSetAttribute(
                self.product,
                attribute,
                std::ptr::from_ref(value).cast::<c_void>(),
                size_of::<T>(),
            )
        })
    }

    /// Says where the bias lies; false where the library refuses.
    fn set_bias(&self, bias: u64) -> bool {
        self.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias).is_some()
    }

    /// The library's first choice within the workspace, for addresses of this alignment.
    fn choose(&mut self, handle: sys::cublasLtHandle_t, shape: &Shape) -> Option<()> {
        use sys::cublasLtMatmulPreferenceAttributes_t as A;
        let preference = Preference::new()?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &shape.workspace_bytes)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &shape.first.alignment)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &shape.second.alignment)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &shape.out.alignment)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &shape.out.alignment)?;
        let [first, second, out] = self.layouts;
        // SAFETY: an opaque struct of numbers, which the library writes.
        let mut choice: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut found = 0;
        // SAFETY: all descriptions are live; there is room for the one answer that is asked for.
        succeeded(unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                self.product,
                first,
                second,
                out,
                out,
                preference.0,
                1,
                &mut choice,
                &mut found,
            )
        })?;
        self.algorithm = choice.algo;
        (found > 0 && succeeded(choice.state).is_some()).then_some(())
    }
}

/// `cublasOperation_t`: as it is, or transposed.
fn operation(transposed: bool) -> i32 {
    i32::from(transposed)
}

fn create_layout(kind: sys::cudaDataType_t, matrix: &Matrix, batch: i32) -> Option<sys::cublasLtMatrixLayout_t> {
    let mut layout = std::ptr::null_mut();
    // SAFETY: a place to write the description to.
    succeeded(unsafe { sys::cublasLtMatrixLayoutCreate(&mut layout, kind, matrix.rows, matrix.columns, matrix.lead) })?;
    use sys::cublasLtMatrixLayoutAttribute_t as A;
    let count = (&raw const batch).cast::<c_void>();
    let stride = (&raw const matrix.batch_stride).cast::<c_void>();
    // SAFETY: the description is live; the values have the types that the library documents, i32 and i64.
    let set = unsafe {
        let count = sys::cublasLtMatrixLayoutSetAttribute(layout, A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, 4);
        let stride =
            sys::cublasLtMatrixLayoutSetAttribute(layout, A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, 8);
        succeeded(count).and(succeeded(stride))
    };
    if set.is_none() {
        // SAFETY: the description is live, and nobody has it after this.
        let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(layout) };
    }
    set.map(|()| layout)
}

impl Drop for Plan {
    fn drop(&mut self) {
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: the description is live, and nobody has it after this. Nothing can be done about a failure.
            let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(layout) };
        }
        // SAFETY: as above.
        let _ = unsafe { sys::cublasLtMatmulDescDestroy(self.product) };
    }
}

/// What is asked of the library's choice.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new() -> Option<Self> {
        let mut preference = std::ptr::null_mut();
        // SAFETY: a place to write the description to.
        succeeded(unsafe { sys::cublasLtMatmulPreferenceCreate(&mut preference) })?;
        Some(Self(preference))
    }

    fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Option<()> {
        // SAFETY: the description is live; the library reads as many bytes as the value has.
        succeeded(unsafe {
            sys::cublasLtMatmulPreferenceSetAttribute(
                self.0,
                attribute,
                std::ptr::from_ref(value).cast::<c_void>(),
                size_of::<T>(),
            )
        })
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: the description is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(self.0) };
    }
}
