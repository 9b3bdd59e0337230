//! Texts for a device's compiler.

use std::fmt::Write;
use std::sync::LazyLock;

use memcore::DType;
use memcore::backend::KernelCall;
use memcore::backend::kernel::CODES;

use crate::arguments::code;

/// Properties of a device's dialect of C.
#[derive(Clone, Copy, Debug)]
pub struct Language<'a> {
    /// Macros and types before the kernels; `languages/opencl.c` has those of OpenCL.
    pub prelude: &'a str,
    /// True if it has 64-bit floats. Without them there is no program for float64.
    pub doubles: bool,
}

impl Language<'static> {
    /// OpenCL C, version 1.2 or later.
    pub const fn opencl(doubles: bool) -> Self {
        Self { prelude: include_str!("languages/opencl.c"), doubles }
    }

    /// CUDA C++, as NVRTC compiles it.
    pub const fn cuda() -> Self {
        Self { prelude: include_str!("languages/cuda.c"), doubles: true }
    }
}

/// Kernels that are compiled together.
struct Family {
    text: &'static str,
    /// Each function in the text, as `k_NAME`, with the kernel whose operands it takes.
    functions: Vec<(String, &'static str)>,
}

/// Texts of families, each with a line `ENTRY(name)` for every function.
const TEXTS: [&str; 7] = [
    include_str!("kernels/elementwise.c"),
    include_str!("kernels/random.c"),
    include_str!("kernels/groups.c"),
    include_str!("kernels/norm.c"),
    include_str!("kernels/products.c"),
    include_str!("kernels/optimizers.c"),
    include_str!("kernels/attention.c"),
];

static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let function = |name: &str| Some((format!("k_{name}"), kernel_of(name)?));
    let entries = |text: &'static str| text.split("ENTRY(").skip(1).filter_map(|rest| rest.split(')').next());
    TEXTS.iter().map(|text| Family { text, functions: entries(text).filter_map(function).collect() }).collect()
});

/// The kernel that a function belongs to: that of its name, or the longest with which its name begins (`layer_norm_grad_x`).
fn kernel_of(function: &str) -> Option<&'static str> {
    let is_begun =
        |kernel: &&str| function.strip_prefix(*kernel).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    KernelCall::NAMES.iter().copied().filter(is_begun).max_by_key(|kernel| kernel.len())
}

/// A text to compile: a family of kernels for the type in which they compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    family: usize,
    dtype: DType,
}

/// Finds a function: its program, its name in it, and the number of its buffers.
pub(crate) fn find(function: &str, dtype: DType) -> Option<(Program, &'static str, usize)> {
    FAMILIES.iter().enumerate().find_map(|(family, Family { functions, .. })| {
        let (name, kernel) = functions.iter().find(|(name, _)| name.strip_prefix("k_") == Some(function))?;
        Some((Program { family, dtype }, name.as_str(), operands(kernel).len()))
    })
}

fn operands(kernel: &str) -> &'static [&'static str] {
    KernelCall::OPERANDS.iter().find(|(name, _)| *name == kernel).map_or(&[], |(_, operands)| operands)
}

impl Program {
    /// The type in which the program computes.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// All programs for these types.
    pub fn all(dtypes: &[DType]) -> impl Iterator<Item = Program> {
        (0..TEXTS.len()).flat_map(move |family| dtypes.iter().map(move |&dtype| Program { family, dtype }))
    }

    /// The functions of the program. Programs for integers lack attention, optimizers and others.
    pub fn functions(self) -> impl Iterator<Item = &'static str> {
        FAMILIES[self.family].functions.iter().map(|(name, _)| name.as_str())
    }

    /// The text to compile.
    pub fn source(self, language: Language<'_>) -> String {
        let Family { text, functions } = &FAMILIES[self.family];
        let mut all = String::new();
        for dtype in DType::ALL {
            define(&mut all, &format!("{dtype:?}").to_uppercase(), code(dtype));
        }
        define(&mut all, "T", code(self.dtype));
        define(&mut all, "DOUBLES", u8::from(language.doubles));
        for (op, codes) in CODES {
            codes.iter().for_each(|(name, code)| define(&mut all, &format!("{op}_{name}"), code));
        }
        for (function, kernel) in functions {
            let (name, operands) = (&function["k_".len()..], operands(kernel));
            let buffers: String = (0..operands.len()).map(|k| format!(", Buffer b{k}")).collect();
            let names: Vec<String> = operands.iter().map(|operand| in_text(operand)).collect();
            let begins: Vec<String> = (0..operands.len()).map(|k| format!("b{k} + p.offset[{k}]")).collect();
            define(&mut all, &format!("PARAMETERS_{name}"), format!("BY_VALUE Arguments p{buffers}"));
            let begin = format!("enum {{ {} }}; Buffer b[] = {{ {} }};", names.join(", "), begins.join(", "));
            define(&mut all, &format!("OPERANDS_{name}"), begin);
        }
        format!("{all}{}{}{text}", language.prelude, include_str!("kernels/common.c"))
    }
}

fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "#define {name} {value}");
}

/// An operand's name in the text; renamed if macros or types have that name already.
fn in_text(operand: &str) -> String {
    let name = operand.to_uppercase();
    if matches!(operand, "c" | "k" | "mask") { name + "_" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_functions_and_each_function_a_kernel() {
        for (kernel, _) in KernelCall::OPERANDS {
            let of_kernel = FAMILIES.iter().flat_map(|family| &family.functions).filter(|(_, of)| of == kernel).count();
            assert!(of_kernel > 0, "{kernel} has no function");
        }
        for Family { text, functions } in FAMILIES.iter() {
            assert_eq!(text.matches("ENTRY(").count(), functions.len(), "an entry without a kernel");
        }
        assert_eq!(kernel_of("layer_norm_grad_x"), Some("layer_norm_grad"));
        assert_eq!(kernel_of("copying"), None);
    }

    #[test]
    fn names_come_from_the_definitions() {
        let (program, name, buffers) = find("layer_norm", DType::F32).unwrap();
        let source = program.source(Language::opencl(false));
        assert_eq!((name, buffers), ("k_layer_norm", 6));
        assert!(source.contains("enum { X, WEIGHT, BIAS, OUT, MEAN, RSTD };"));
        assert!(source.contains("#define UnaryOp_IsZero 28\n") && source.contains("#define DOUBLES 0\n"));
        assert_eq!(find("no_such", DType::F32), None);
    }
}
