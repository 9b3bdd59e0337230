//! The library's descriptions of a product, and the algorithms that it names for it.

use std::ffi::{c_int, c_void};

use cudarc::cublaslt::sys;
use memcore::DType;

use super::library::{Functions, NOT_SUPPORTED, Status};
use super::shape::{Matrix, Shape};

/// Most algorithms that the library is asked for.
const MOST_ALGORITHMS: usize = 8;

/// The library's descriptions of a product, and its algorithms.
pub(super) struct Plan {
    library: &'static Functions,
    /// True if it ran: before that, the library may still have to load kernels for it.
    pub(super) ran: bool,
    pub(super) product: sys::cublasLtMatmulDesc_t,
    /// Layouts of the library's first matrix, its second, and the result.
    pub(super) layouts: [sys::cublasLtMatrixLayout_t; 3],
    /// At least one, the one that the library expects to be the fastest first; after the first product the one that is.
    pub(super) algorithms: Vec<sys::cublasLtMatmulAlgo_t>,
}

fn data_type(dtype: DType) -> Option<sys::cudaDataType_t> {
    match dtype {
        DType::F32 => Some(sys::cudaDataType_t::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType_t::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType_t::CUDA_R_16BF),
        _ => None,
    }
}

fn succeeded(status: Status) -> Option<()> {
    (status == 0).then_some(())
}

impl Plan {
    /// Asks the library for algorithms; `None` if it has none.
    pub(super) fn new(
        library: &'static Functions,
        handle: sys::cublasLtHandle_t,
        shape: &Shape,
        bias: u64,
    ) -> Option<Self> {
        let kind = data_type(shape.dtype)?;
        let mut product = std::ptr::null_mut();
        use sys::cublasComputeType_t as C;
        let compute = if shape.tf32 { C::CUBLAS_COMPUTE_32F_FAST_TF32 } else { C::CUBLAS_COMPUTE_32F };
        // SAFETY: a place to write the description to.
        succeeded(unsafe {
            (library.cublasLtMatmulDescCreate)(&mut product, compute, sys::cudaDataType_t::CUDA_R_32F)
        })?;
        // From here on, dropping the plan frees everything.
        let mut plan =
            Self { library, ran: false, product, layouts: [std::ptr::null_mut(); 3], algorithms: Vec::new() };
        for (layout, matrix) in plan.layouts.iter_mut().zip([&shape.first, &shape.second, &shape.out]) {
            *layout = create_layout(library, kind, matrix, shape.batch)?;
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
            (self.library.cublasLtMatmulDescSetAttribute)(
                self.product,
                attribute,
                std::ptr::from_ref(value).cast::<c_void>(),
                size_of::<T>(),
            )
        })
    }

    /// Sets the address of the bias.
    pub(super) fn set_bias(&self, bias: u64) -> Result<(), Status> {
        self.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias).ok_or(NOT_SUPPORTED)
    }

    /// Takes the library's choices within the workspace, for addresses of this alignment.
    fn choose(&mut self, handle: sys::cublasLtHandle_t, shape: &Shape) -> Option<()> {
        use sys::cublasLtMatmulPreferenceAttributes_t as A;
        let preference = Preference::new(self.library)?;
        if shape.dtype != DType::F32 {
            // Products are added in f32 and rounded once, even if they are added in parts.
            let parts = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
            preference.set(A::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &parts)?;
        }
        preference.set(A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &shape.workspace_bytes)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &shape.first.alignment)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &shape.second.alignment)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &shape.out.alignment)?;
        preference.set(A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &shape.out.alignment)?;
        let [first, second, out] = self.layouts;
        // SAFETY: opaque structs of numbers, which the library writes.
        let mut choices: [sys::cublasLtMatmulHeuristicResult_t; MOST_ALGORITHMS] = unsafe { std::mem::zeroed() };
        let mut found = 0;
        // SAFETY: all descriptions are live; there is room for as many answers as are asked for.
        succeeded(unsafe {
            (self.library.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                self.product,
                first,
                second,
                out,
                out,
                preference.handle,
                MOST_ALGORITHMS as c_int,
                choices.as_mut_ptr(),
                &mut found,
            )
        })?;
        let found = choices.iter().take(usize::try_from(found).unwrap_or(0));
        self.algorithms = found.filter(|choice| choice.state as Status == 0).map(|choice| choice.algo).collect();
        (!self.algorithms.is_empty()).then_some(())
    }
}

/// `cublasOperation_t`: as stored, or transposed.
fn operation(transposed: bool) -> i32 {
    i32::from(transposed)
}

fn create_layout(
    library: &Functions,
    kind: sys::cudaDataType_t,
    matrix: &Matrix,
    batch: i32,
) -> Option<sys::cublasLtMatrixLayout_t> {
    let mut layout = std::ptr::null_mut();
    // SAFETY: a place to write the description to.
    succeeded(unsafe {
        (library.cublasLtMatrixLayoutCreate)(&mut layout, kind, matrix.rows, matrix.columns, matrix.lead)
    })?;
    use sys::cublasLtMatrixLayoutAttribute_t as A;
    let count = (&raw const batch).cast::<c_void>();
    let stride = (&raw const matrix.batch_stride).cast::<c_void>();
    // SAFETY: the description is live; the values have the types that the library documents, i32 and i64.
    let set = unsafe {
        let count = (library.cublasLtMatrixLayoutSetAttribute)(layout, A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, 4);
        let stride = (library.cublasLtMatrixLayoutSetAttribute)(
            layout,
            A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            stride,
            8,
        );
        succeeded(count).and(succeeded(stride))
    };
    if set.is_none() {
        // SAFETY: the description is live, and nobody has it after this.
        let _ = unsafe { (library.cublasLtMatrixLayoutDestroy)(layout) };
    }
    set.map(|()| layout)
}

impl Drop for Plan {
    fn drop(&mut self) {
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: the description is live, and nobody has it after this. Nothing can be done about a failure.
            let _ = unsafe { (self.library.cublasLtMatrixLayoutDestroy)(layout) };
        }
        // SAFETY: as above.
        let _ = unsafe { (self.library.cublasLtMatmulDescDestroy)(self.product) };
    }
}

/// Requirements on the library's choice.
struct Preference {
    library: &'static Functions,
    handle: sys::cublasLtMatmulPreference_t,
}

impl Preference {
    fn new(library: &'static Functions) -> Option<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place to write the description to.
        succeeded(unsafe { (library.cublasLtMatmulPreferenceCreate)(&mut handle) })?;
        Some(Self { library, handle })
    }

    fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Option<()> {
        // SAFETY: the description is live; the library reads as many bytes as the value has.
        succeeded(unsafe {
            (self.library.cublasLtMatmulPreferenceSetAttribute)(
                self.handle,
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
        let _ = unsafe { (self.library.cublasLtMatmulPreferenceDestroy)(self.handle) };
    }
}
