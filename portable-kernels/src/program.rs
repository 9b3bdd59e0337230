//! Texts for a device's compiler.

use std::fmt::Write;

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
    /// Each function, with the kernel whose operands it takes.
    functions: &'static [(&'static str, &'static str)],
}

/// Defines a family from its file and its functions, each with its kernel.
macro_rules! family {
    ($file:literal: $($function:ident of $kernel:ident),* $(,)?) => {
        Family {
            text: include_str!(concat!("kernels/", $file)),
            functions: &[$((concat!("k_", stringify!($function)), stringify!($kernel))),*],
        }
    };
}

const FAMILIES: [Family; 7] = [
    family!("elementwise.c": fill of fill, copy of copy, select of select, masked_fill of masked_fill, triangle of triangle,
        unary of unary, binary of binary, unary_grad of unary_grad, ternary of ternary, dropout_grad of dropout_grad, rope of rope),
    family!("random.c": random of random, dropout of dropout),
    family!("groups.c": reduce of reduce, gather of gather, scatter_add of scatter_add, softmax of softmax, softmax_grad of softmax_grad,
        nll_loss of nll_loss, nll_loss_grad of nll_loss_grad, quantize_int8 of quantize_int8, dequantize_int8 of dequantize_int8),
    family!("norm.c": layer_norm of layer_norm, rms_norm of rms_norm, layer_norm_grad_x of layer_norm_grad,
        layer_norm_grad_w of layer_norm_grad, rms_norm_grad_x of rms_norm_grad, rms_norm_grad_w of rms_norm_grad,
        batch_norm of batch_norm, batch_norm_grad of batch_norm_grad),
    family!("products.c": matmul of matmul, matmul_int8 of matmul_int8, conv2d of conv2d, conv2d_input_grad of conv2d_input_grad,
        conv2d_weight_grad of conv2d_weight_grad, pool2d of pool2d, pool2d_grad of pool2d_grad),
    family!("optimizers.c": sgd_step of sgd_step, adam_step of adam_step, unscale of unscale, update_scale of update_scale),
    family!("attention.c": attention of attention, attention_grad_delta of attention_grad, attention_grad_q of attention_grad,
        attention_grad_k of attention_grad, attention_grad_v of attention_grad, attention_grad_mask of attention_grad),
];

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
        Some((Program { family, dtype }, *name, operands(kernel).len()))
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
        (0..FAMILIES.len()).flat_map(move |family| dtypes.iter().map(move |&dtype| Program { family, dtype }))
    }

    /// The functions of the program. Programs for integers lack attention, optimizers and others.
    pub fn functions(self) -> impl Iterator<Item = &'static str> {
        FAMILIES[self.family].functions.iter().map(|(name, _)| *name)
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
        for (function, kernel) in *functions {
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
    fn every_kernel_has_functions_and_each_is_in_its_text() {
        for (kernel, _) in KernelCall::OPERANDS {
            let of_kernel = FAMILIES.iter().flat_map(|family| family.functions).filter(|(_, of)| of == kernel).count();
            assert!(of_kernel > 0, "{kernel} has no function");
        }
        for Family { text, functions } in &FAMILIES {
            let entries = text.matches("ENTRY(").count();
            assert_eq!(entries, functions.len());
            for (function, kernel) in *functions {
                assert!(!operands(kernel).is_empty(), "{kernel} is not a kernel");
                assert!(text.contains(&format!("ENTRY({})", &function["k_".len()..])), "{function} has no text");
            }
        }
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
