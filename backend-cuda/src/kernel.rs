//! A kernel: its family (the file that contains it), its types and forms, and its argument.

use std::marker::PhantomData;

use memcore::DType;

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
    AttentionFloat,
}

impl Family {
    pub(crate) const ALL: [Family; 15] = [
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
        Family::AttentionFloat,
    ];

    /// File name and text.
    pub(crate) fn source(self) -> (&'static str, &'static str) {
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
            Family::AttentionFloat => file!("attention_float.cu"),
        }
    }
}

/// The type of an instance of a kernel; the width of its elements if the type does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// There is only one instance.
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
    pub(crate) fn tag_of(dtype: DType) -> Tag {
        match dtype {
            DType::F32 => Tag::F32,
            DType::F16 => Tag::F16,
            DType::BF16 => Tag::Bf16,
            DType::I64 => Tag::I64,
            DType::I32 => Tag::I32,
            DType::I8 => Tag::I8,
            DType::U8 => Tag::U8,
            DType::Bool => Tag::Bool,
            // Refused before any launch: the backend's limits do not list it.
            DType::F64 | DType::C64 => Tag::Only,
        }
    }

    /// The tag for moving the bits of an element.
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

/// The description of a kernel.
pub(crate) struct Spec {
    /// The family whose file contains it.
    pub(crate) family: Family,
    /// Name of its Rust constant.
    pub(crate) constant: &'static str,
    /// Prefix of its functions' names; the type's and the form's suffixes follow.
    pub(crate) name: &'static str,
    /// The types that have instances.
    pub(crate) tags: &'static [Tag],
    /// Suffixes of the forms.
    pub(crate) forms: &'static [&'static str],
    /// Size of its argument.
    pub(crate) args_bytes: usize,
}

impl Spec {
    /// The names of its functions: by type, then by form.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        let name = |tag: &Tag, form: &str| format!("{}{}{form}", self.name, tag.suffix());
        self.tags.iter().flat_map(move |tag| self.forms.iter().map(move |form| name(tag, form)))
    }
}

/// A kernel that takes `A`; together with a type and a form it is one function of a module.
pub(crate) struct Kernel<A: 'static> {
    pub(crate) spec: &'static Spec,
    /// Its index in the family's table.
    pub(crate) place: usize,
    takes: PhantomData<fn(A)>,
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Kernel<A> {}

impl<A> Kernel<A> {
    /// Finds the kernel of a table by the name of its Rust constant.
    pub(crate) const fn in_table(table: &'static [Spec], constant: &str) -> Self {
        let mut place = 0;
        while !equal(table[place].constant, constant) {
            place += 1;
        }
        Self { spec: &table[place], place, takes: PhantomData }
    }

    /// True if there are instances for this type.
    pub(crate) fn is_for(self, tag: Tag) -> bool {
        self.spec.tags.contains(&tag)
    }
}

/// Like `==`, computed at compile time.
const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut same = 0;
    while same < a.len() && same < b.len() && a[same] == b[same] {
        same += 1;
    }
    same == a.len() && same == b.len()
}

/// Declares the kernels of a family: a table of them, and a constant for each. Each entry has the name in the file,
/// types, forms (suffixes of the name) and argument.
macro_rules! kernels {
    ($table:ident in $family:ident: $($kernel:ident: $name:literal $tags:ident $forms:expr => $args:ty;)*) => {
        /// The kernels of the family.
        pub(crate) const $table: &[$crate::kernel::Spec] = &[$($crate::kernel::Spec {
            family: $crate::kernel::Family::$family,
            constant: stringify!($kernel),
            name: $name,
            tags: $crate::kernel::$tags,
            forms: $forms,
            args_bytes: size_of::<$args>(),
        }),*];

        $(const $kernel: $crate::kernel::Kernel<$args> = $crate::kernel::Kernel::in_table($table, stringify!($kernel));)*
    };
}

pub(crate) use kernels;

pub(crate) const FLOATS: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16];
pub(crate) const NUMBERS: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16, Tag::I64, Tag::I32, Tag::I8, Tag::U8];
pub(crate) const ALL: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16, Tag::I64, Tag::I32, Tag::I8, Tag::U8, Tag::Bool];
pub(crate) const HALVES: &[Tag] = &[Tag::F16, Tag::Bf16];
pub(crate) const SUMMED: &[Tag] = &[Tag::F32, Tag::F16, Tag::Bf16, Tag::I64, Tag::I32];
pub(crate) const ONLY: &[Tag] = &[Tag::Only];
pub(crate) const BITS: &[Tag] = &[Tag::B8, Tag::B16, Tag::B32, Tag::B64];
/// Forms of an elementwise kernel: any strides, or 16 bytes at a time.
pub(crate) const ONE_WIDE: &[&str] = &["_one", "_wide"];
/// Form of a kernel that has only one.
pub(crate) const ONE_FORM: &[&str] = &[""];
/// Forms of a row kernel: a thread, a warp or a block per row, and whether it moves 16 bytes at a time.
pub(crate) const ROWS: &[&str] = &["_thread", "_warp", "_warp_wide", "_block", "_block_wide"];
/// Forms of a product on ordinary cores; [`TENSOR_PRODUCT`] has those on tensor cores.
pub(crate) const PRODUCT: &[&str] = &["_thread", "_warp", "_small", "_large", "_finish"];
/// See [`PRODUCT`].
pub(crate) const TENSOR_PRODUCT: &[&str] = &["_tensor", "_tensor_large"];
