//! The kernels, by family: their names in the CUDA files, for which types and in which forms, and the functions that
//! they become when a family is first used.

use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUfunction};
use memcore::{DType, Error, Result};

use crate::cache;
use crate::compile::{Compiler, LANGUAGE, Nvrtc, Report};
use crate::driver::{Driver, DriverError, NAME, driven};
use crate::queue::Queue;
use crate::{figures, libraries};

/// A file of kernels, compiled and loaded as one module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Elementwise,
    Reduce,
    Softmax,
    Norm,
    Loss,
    Index,
    Optim,
    Random,
    Pool,
    Quant,
    Matmul,
    Conv,
    Attention,
    AttentionTensor,
}

impl Family {
    const ALL: [Family; 14] = [
        Family::Elementwise,
        Family::Reduce,
        Family::Softmax,
        Family::Norm,
        Family::Loss,
        Family::Index,
        Family::Optim,
        Family::Random,
        Family::Pool,
        Family::Quant,
        Family::Matmul,
        Family::Conv,
        Family::Attention,
        Family::AttentionTensor,
    ];

    /// File name and text.
    fn source(self) -> (&'static str, &'static str) {
        macro_rules! file {
            ($name:literal) => {
                ($name, include_str!(concat!("../kernels/", $name)))
            };
        }
        match self {
            Family::Elementwise => file!("elementwise.cu"),
            Family::Reduce => file!("reduce.cu"),
            Family::Softmax => file!("softmax.cu"),
            Family::Norm => file!("norm.cu"),
            Family::Loss => file!("loss.cu"),
            Family::Index => file!("index.cu"),
            Family::Optim => file!("optim.cu"),
            Family::Random => file!("random.cu"),
            Family::Pool => file!("pool.cu"),
            Family::Quant => file!("quant.cu"),
            Family::Matmul => file!("matmul.cu"),
            Family::Conv => file!("conv.cu"),
            Family::Attention => file!("attention.cu"),
            Family::AttentionTensor => file!("attention_tensor.cu"),
        }
    }
}

/// What the files include.
const HEADERS: &[(&str, &str)] = &[
    ("attention.cuh", include_str!("../kernels/attention.cuh")),
    ("common.cuh", include_str!("../kernels/common.cuh")),
    ("gemm.cuh", include_str!("../kernels/gemm.cuh")),
    ("gemm_tensor.cuh", include_str!("../kernels/gemm_tensor.cuh")),
    ("mma.cuh", include_str!("../kernels/mma.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("walk.cuh", include_str!("../kernels/walk.cuh")),
];

/// The type that an instance of a kernel is for, or the width of its elements where their type does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// There is but one.
    Only,
    F32,
    F16,
    Bf16,
    I64,
    I32,
    I8,
    U8,
    Bool,
    B8,
    B16,
    B32,
    B64,
}

impl Tag {
    /// The tag of an element type.
    pub(crate) fn of(dtype: DType) -> Tag {
        match dtype {
            DType::F32 => Tag::F32,
            DType::F16 => Tag::F16,
            DType::BF16 => Tag::Bf16,
            DType::I64 => Tag::I64,
            DType::I32 => Tag::I32,
            DType::I8 => Tag::I8,
            DType::U8 => Tag::U8,
            DType::Bool => Tag::Bool,
            // Refused before anything is launched: the limits do not name it.
            DType::F64 => Tag::Only,
        }
    }

    /// The tag of the bits of an element.
    pub(crate) fn bits(dtype: DType) -> Tag {
        match dtype.size() {
            1 => Tag::B8,
            2 => Tag::B16,
            4 => Tag::B32,
            _ => Tag::B64,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Tag::Only => "",
            Tag::F32 => "_f32",
            Tag::F16 => "_f16",
            Tag::Bf16 => "_bf16",
            Tag::I64 => "_i64",
            Tag::I32 => "_i32",
            Tag::I8 => "_i8",
            Tag::U8 => "_u8",
            Tag::Bool => "_bool",
            Tag::B8 => "_b8",
            Tag::B16 => "_b16",
            Tag::B32 => "_b32",
            Tag::B64 => "_b64",
        }
    }
}

/// What the table says of a kernel.
struct Spec {
    family: Family,
    name: &'static str,
    tags: &'static [Tag],
    forms: &'static [&'static str],
    args_bytes: usize,
}

/// Declares the kernels: file, name, types, forms (ends of the name), argument.
macro_rules! kernels {
    ($($kernel:ident: $family:ident $name:literal $tags:ident [$($form:literal),*] $args:path;)*) => {
        /// A kernel; with a type and a form, one function of a module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kernel { $($kernel),* }

        const KERNELS: &[Spec] = &[$(Spec {
            family: Family::$family,
            name: $name,
            tags: $tags,
            forms: &[$($form),*],
            args_bytes: size_of::<$args>(),
        }),*];
    };
}

const FLOATS: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16];
const NUMBERS: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16, Tag::I64, Tag::I32, Tag::I8, Tag::U8];
const ALL: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16, Tag::I64, Tag::I32, Tag::I8, Tag::U8, Tag::Bool];
const HALVES: &[Tag] = &[Tag::F16, Tag::Bf16];
const SUMMED: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16, Tag::I64, Tag::I32];
const ONLY: &[Tag] = &[Tag::Only];
const BITS: &[Tag] = &[Tag::B8, Tag::B16, Tag::B32, Tag::B64];

kernels! {
    Fill: Elementwise "fill" BITS ["_one", "_wide"] crate::elementwise::FillArgs;
    Copy: Elementwise "copy" BITS ["_one", "_wide"] crate::elementwise::CopyArgs;
    Cast: Elementwise "cast" ALL ["_one", "_wide"] crate::elementwise::CopyArgs;
    Select: Elementwise "select" BITS ["_one", "_wide"] crate::elementwise::SelectArgs;
    MaskedFill: Elementwise "masked_fill" BITS ["_one", "_wide"] crate::elementwise::MaskedFillArgs;
    Triangle: Elementwise "triangle" BITS [""] crate::elementwise::TriangleArgs;
    Unary: Elementwise "unary" NUMBERS ["_one", "_wide"] crate::elementwise::UnaryArgs;
    Binary: Elementwise "binary" NUMBERS ["_one", "_wide"] crate::elementwise::BinaryArgs;
    Compare: Elementwise "compare" ALL ["_one", "_wide"] crate::elementwise::BinaryArgs;
    UnaryGrad: Elementwise "unary_grad" FLOATS ["_one", "_wide"] crate::elementwise::BinaryArgs;
    Ternary: Elementwise "ternary" FLOATS ["_one", "_wide"] crate::elementwise::TernaryArgs;
    Reduce: Reduce "reduce" SUMMED ["_thread", "_warp", "_block", "_chunks"] crate::reduce::ReduceArgs;
    Softmax: Softmax "softmax" FLOATS ["_thread", "_warp", "_warp_wide", "_block", "_block_wide"] crate::softmax::SoftmaxArgs;
    SoftmaxGrad: Softmax "softmax_grad" FLOATS ["_thread", "_warp", "_warp_wide", "_block", "_block_wide"] crate::softmax::SoftmaxGradArgs;
    SoftmaxColumns: Softmax "softmax_columns" FLOATS ["_thread", "_tile"] crate::softmax::SoftmaxArgs;
    SoftmaxGradColumns: Softmax "softmax_grad_columns" FLOATS ["_thread", "_tile"] crate::softmax::SoftmaxGradArgs;
    RowNorm: Norm "row_norm" FLOATS ["_thread", "_warp", "_warp_wide", "_block", "_block_wide"] crate::norm::RowNormArgs;
    RowNormGrad: Norm "row_norm_grad" FLOATS ["_thread", "_warp", "_warp_wide", "_block", "_block_wide"] crate::norm::RowNormGradArgs;
    ParameterGrad: Norm "parameter_grad" FLOATS [""] crate::norm::ParameterGradArgs;
    ColumnSums: Norm "column_sums" FLOATS [""] crate::norm::ColumnSumsArgs;
    ChannelMoments: Norm "channel_moments" FLOATS ["_thread", "_warp", "_block", "_block_wide"] crate::norm::ChannelArgs;
    ChannelSums: Norm "channel_sums" FLOATS ["_thread", "_warp", "_block", "_block_wide"] crate::norm::ChannelArgs;
    ChannelFinish: Norm "channel_finish" FLOATS [""] crate::norm::ChannelFinishArgs;
    ChannelFinishGrad: Norm "channel_finish_grad" FLOATS [""] crate::norm::ChannelFinishArgs;
    ChannelApply: Norm "channel_apply" FLOATS ["_one", "_wide"] crate::norm::ChannelApplyArgs;
    ChannelApplyGrad: Norm "channel_apply_grad" FLOATS ["_one", "_wide"] crate::norm::ChannelApplyArgs;
    NllLoss: Loss "nll_loss" FLOATS [""] crate::loss::NllLossArgs;
    NllLossGrad: Loss "nll_loss_grad" FLOATS [""] crate::loss::NllLossGradArgs;
    Gather: Index "gather" BITS ["_one", "_wide"] crate::index::GatherArgs;
    ClearNamed: Index "clear_named" ONLY [""] crate::index::ScatterArgs;
    MarkNamed: Index "mark_named" ONLY [""] crate::index::ScatterArgs;
    ScatterAdd: Index "scatter_add" FLOATS [""] crate::index::ScatterArgs;
    RandomWords: Random "random_words" ONLY [""] crate::random::RandomArgs;
    RandomUniform: Random "random_uniform" FLOATS [""] crate::random::RandomArgs;
    Dropout: Random "dropout" FLOATS ["_one", "_wide"] crate::random::DropoutArgs;
    DropoutGrad: Random "dropout_grad" FLOATS ["_one", "_wide"] crate::random::DropoutGradArgs;
    Pool2d: Pool "pool2d" FLOATS [""] crate::pool::PoolArgs;
    Pool2dGrad: Pool "pool2d_grad" FLOATS [""] crate::pool::PoolArgs;
    SgdStep: Optim "sgd_step" FLOATS [""] crate::optim::SgdArgs;
    AdamStep: Optim "adam_step" FLOATS [""] crate::optim::AdamArgs;
    Unscale: Optim "unscale" FLOATS [""] crate::optim::UnscaleArgs;
    UpdateScale: Optim "update_scale" ONLY [""] crate::optim::UpdateScaleArgs;
    QuantizeInt8: Quant "quantize_int8" FLOATS ["_thread", "_warp", "_warp_wide", "_block", "_block_wide"] crate::quant::QuantizeArgs;
    DequantizeInt8: Quant "dequantize_int8" FLOATS ["_one", "_wide"] crate::quant::DequantizeArgs;
    Matmul: Matmul "matmul" FLOATS ["_thread", "_warp", "_small", "_large", "_finish"] crate::matmul::MatmulArgs;
    MatmulTensor: Matmul "matmul" FLOATS ["_tensor", "_tensor_large"] crate::matmul::MatmulArgs;
    MatmulInt8: Matmul "matmul_int8" FLOATS ["_thread", "_warp", "_small", "_large", "_finish"] crate::matmul::MatmulArgs;
    MatmulInt8Tensor: Matmul "matmul_int8" HALVES ["_tensor", "_tensor_large"] crate::matmul::MatmulArgs;
    Conv2d: Conv "conv2d" FLOATS ["_thread", "_warp", "_small", "_large", "_finish"] crate::conv::ConvArgs;
    Conv2dTensor: Conv "conv2d" FLOATS ["_tensor", "_tensor_large"] crate::conv::ConvArgs;
    Conv2dInputGrad: Conv "conv2d_input_grad" FLOATS ["_thread", "_warp", "_small", "_large", "_finish"] crate::conv::ConvArgs;
    Conv2dInputGradTensor: Conv "conv2d_input_grad" FLOATS ["_tensor", "_tensor_large"] crate::conv::ConvArgs;
    Conv2dWeightGrad: Conv "conv2d_weight_grad" FLOATS ["_thread", "_warp", "_small", "_large", "_finish"] crate::conv::ConvArgs;
    Conv2dWeightGradTensor: Conv "conv2d_weight_grad" FLOATS ["_tensor", "_tensor_large"] crate::conv::ConvArgs;
    Attention: Attention "attention" FLOATS ["_64", "_128", "_256"] crate::attention::AttentionArgs;
    AttentionDelta: Attention "attention_delta" FLOATS [""] crate::attention::AttentionArgs;
    AttentionDq: Attention "attention_dq" FLOATS ["_64", "_128", "_256"] crate::attention::AttentionArgs;
    AttentionDkv: Attention "attention_dkv" FLOATS ["_64", "_128", "_256"] crate::attention::AttentionArgs;
    AttentionTensor: AttentionTensor "attention_tensor" HALVES ["_64", "_128"] crate::attention::AttentionArgs;
    AttentionDqTensor: AttentionTensor "attention_dq_tensor" HALVES ["_64", "_128"] crate::attention::AttentionArgs;
    AttentionDkvTensor: AttentionTensor "attention_dkv_tensor" HALVES ["_64", "_128"] crate::attention::AttentionArgs;
    Rope: Attention "rope" FLOATS [""] crate::attention::RopeArgs;
}

impl Kernel {
    /// Whether there are instances for this type.
    pub(crate) fn is_for(self, tag: Tag) -> bool {
        KERNELS[self as usize].tags.contains(&tag)
    }
}

impl Spec {
    fn names(&self) -> impl Iterator<Item = String> + '_ {
        let name = |tag: &Tag, form: &str| format!("{}{}{form}", self.name, tag.suffix());
        self.tags.iter().flat_map(move |tag| self.forms.iter().map(move |form| name(tag, form)))
    }
}

/// The names of all functions of all modules.
pub(crate) fn names() -> Vec<String> {
    KERNELS.iter().flat_map(Spec::names).collect()
}

/// Compiles every file for an architecture, without a GPU.
///
/// # Errors
/// The compiler's log, or that it is not there.
pub(crate) fn reports(capability: (u32, u32)) -> Result<Vec<Report>> {
    let nvrtc = Nvrtc::load(libraries::NEWEST)?;
    let report = |family: Family| nvrtc.report(family.source(), HEADERS, capability);
    Family::ALL.into_iter().map(|family| report(family).map_err(|log| Error::backend(NAME, log))).collect()
}

/// The newest driver that can say how large a kernel's argument is: CUDA 12.4.
const PARAMETER_INFO_VERSION: i32 = 12_040;

/// A loaded family: its functions by kernel, then by type and form. A lookup follows two indices.
struct Module {
    handle: sys::CUmodule,
    /// What the driver took for it.
    held_bytes: u64,
    functions: Box<[Box<[CUfunction]>]>,
}

/// The families of a device, each loaded when it is first used.
pub(crate) struct Modules {
    driver: Driver,
    capability: (u32, u32),
    compiler: Box<dyn Compiler>,
    loaded: [OnceLock<Module>; Family::ALL.len()],
    /// Held while a family is compiled: two threads that need it first do not both compile.
    loading: Mutex<()>,
}

// SAFETY: handles of modules and functions, which the driver lets any thread use that has the context.
unsafe impl Send for Modules {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Modules {}

/// A module with its functions, by kernel.
type Loaded = (sys::CUmodule, Box<[Box<[CUfunction]>]>);

/// Why a module was not opened.
enum Refused {
    /// The driver does not take the machine code.
    Image(DriverError),
    /// It does, or has no room for it, or a function is not what it should be.
    Function(Error),
}

impl Modules {
    pub(crate) fn new(driver: Driver, capability: (u32, u32), compiler: Box<dyn Compiler>) -> Self {
        let loaded = std::array::from_fn(|_| OnceLock::new());
        Self { driver, capability, compiler, loaded, loading: Mutex::default() }
    }

    /// The function of a kernel for a type, in a form. Loads the family where it is not yet.
    pub(crate) fn function(&self, queue: &Queue, kernel: Kernel, tag: Tag, form: usize) -> Result<CUfunction> {
        let spec = &KERNELS[kernel as usize];
        let module = match self.loaded[spec.family as usize].get() {
            Some(module) => module,
            None => self.load(queue, spec.family)?,
        };
        let at = spec.tags.iter().position(|&t| t == tag).map(|t| t * spec.forms.len() + form);
        at.and_then(|at| module.functions[kernel as usize].get(at).copied())
            .ok_or_else(|| Error::backend(NAME, format!("there is no kernel {} for {tag:?}", spec.name)))
    }

    /// Loads every family: what a first step would otherwise do on the way.
    pub(crate) fn load_all(&self, queue: &Queue) -> Result<()> {
        Family::ALL.into_iter().try_for_each(|family| match self.loaded[family as usize].get() {
            Some(_) => Ok(()),
            None => self.load(queue, family).map(|_| ()),
        })
    }

    fn load(&self, queue: &Queue, family: Family) -> Result<&Module> {
        let _turn = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &self.loaded[family as usize];
        if let Some(module) = slot.get() {
            return Ok(module);
        }
        queue.bind()?;
        let key = self.key(family);
        let opened = match cache::load(&key).map(|image| self.open(queue, family, &image)) {
            // A file may be damaged, by a full disk for one.
            None | Some(Err(Refused::Image(_))) => self.open(queue, family, &self.compile(family, &key)?),
            Some(opened) => opened,
        };
        let ((handle, functions), held_bytes) = opened.map_err(|refused| match refused {
            Refused::Image(error) => {
                let what = format!("{} by {}", family.source().0, self.compiler.version());
                error.while_at(&what)
            }
            Refused::Function(error) => error,
        })?;
        Ok(slot.get_or_init(|| Module { handle, held_bytes, functions }))
    }

    /// The module, its functions, and what the driver took for it. A driver may load a function only when it is looked
    /// up: both are one step.
    fn open(&self, queue: &Queue, family: Family, image: &[u8]) -> std::result::Result<(Loaded, u64), Refused> {
        figures::measured(queue, || {
            let mut handle = std::ptr::null_mut();
            driven!(cuModuleLoadData(&mut handle, image.as_ptr().cast())).map_err(|error| match error {
                full if full.is_out_of_memory() => Refused::Function(full.into()),
                error => Refused::Image(error),
            })?;
            Ok((handle, self.resolve(handle, family).map_err(Refused::Function)?))
        })
    }

    /// How many files the compiler has still to be asked for, where what it makes is kept.
    pub(crate) fn not_compiled(&self) -> usize {
        Family::ALL.into_iter().filter(|&family| cache::lacks(&self.key(family))).count()
    }

    /// The files that are loaded, with what the driver took for each.
    pub(crate) fn held(&self) -> Vec<(&'static str, u64)> {
        let file = |family: Family| Some((family.source().0, self.loaded[family as usize].get()?.held_bytes));
        Family::ALL.into_iter().filter_map(file).collect()
    }

    fn architecture(&self) -> String {
        let (major, minor) = self.capability;
        format!("sm_{major}{minor}")
    }

    /// What the family's machine code is kept under.
    fn key(&self, family: Family) -> String {
        let (name, source) = family.source();
        let (architecture, version) = (self.architecture(), self.compiler.version());
        let parts = [name, source, &architecture, &version].into_iter().chain(LANGUAGE);
        let sum = cache::fingerprint(parts.chain(HEADERS.iter().flat_map(|(name, text)| [*name, *text])));
        format!("{}-{architecture}-{sum}.cubin", name.trim_end_matches(".cu"))
    }

    /// The family's machine code from the compiler, kept for the next time.
    fn compile(&self, family: Family, key: &str) -> Result<Vec<u8>> {
        let (name, source) = family.source();
        let image = self.compiler.compile(name, source, HEADERS, self.capability).map_err(|log| {
            let (version, architecture) = (self.compiler.version(), self.architecture());
            Error::backend(NAME, format!("{version} does not compile {name} for {architecture}: {log}"))
        })?;
        cache::store(key, &image);
        Ok(image)
    }

    /// Looks every function of the family up, and compares the size of its argument with ours where the driver says it.
    fn resolve(&self, module: sys::CUmodule, family: Family) -> Result<Box<[Box<[CUfunction]>]>> {
        let mut functions = Vec::with_capacity(KERNELS.len());
        for spec in KERNELS {
            let names: Vec<String> = if spec.family == family { spec.names().collect() } else { Vec::new() };
            let found = names.iter().map(|name| self.find(module, name, spec.args_bytes)).collect::<Result<_>>()?;
            functions.push(found);
        }
        Ok(functions.into_boxed_slice())
    }

    fn find(&self, module: sys::CUmodule, name: &str, args_bytes: usize) -> Result<CUfunction> {
        let symbol = CString::new(name).map_err(|error| Error::backend(NAME, error))?;
        let mut function = std::ptr::null_mut();
        driven!(cuModuleGetFunction(&mut function, module, symbol.as_ptr()))
            .map_err(|error| Error::backend(NAME, format!("kernel {name}: {error}")))?;
        if self.driver.version >= PARAMETER_INFO_VERSION {
            let (mut offset, mut bytes) = (0, 0);
            driven!(cuFuncGetParamInfo(function, 0, &mut offset, &mut bytes))?;
            if bytes != args_bytes {
                let text = format!("kernel {name} takes {bytes} bytes of arguments, not {args_bytes}");
                return Err(Error::backend(NAME, text));
            }
        }
        Ok(function)
    }

    /// Unloads everything; the context must be current.
    pub(crate) fn unload(&mut self) {
        for slot in &mut self.loaded {
            if let Some(module) = slot.take() {
                // The device may be lost; then its modules are too.
                let _ = driven!(cuModuleUnload(module.handle));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler finds a header only by its name here; the emulator's, in the folder.
    #[test]
    fn whatever_is_included_is_given_to_the_compiler() {
        let sources = Family::ALL.map(Family::source);
        for (file, text) in sources.iter().chain(HEADERS) {
            for line in text.lines().filter_map(|line| line.strip_prefix("#include \"")) {
                let name = line.trim_end_matches('"');
                // The emulator's own header is for the host's compiler alone.
                let known = name == "emulator.h" || HEADERS.iter().any(|(header, _)| *header == name);
                assert!(known, "{file} includes {name}, which the compiler does not get");
            }
        }
    }

    #[test]
    fn families_are_indexed_by_their_place() {
        for (i, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family as usize, i);
        }
    }
}
