//! Reads frames of C++: operators, nodes of the backward pass, and other named functions.

/// Functions through which every allocation passes.
const MACHINERY: [&str; 10] = [
    "torch::unwind",
    "torch::CapturedTraceback",
    "c10::",
    "at::detail::",
    "at::_ops::",
    "gather_with_cpp",
    "CUDACachingAllocator",
    "_PyEval",
    "std::",
    "wrap_kernel_functor",
];

/// Overloads whose names have no capital letter.
const OVERLOADS: [(&str, &str); 5] = [
    ("to_dtype_layout", "to"),
    ("to_device", "to"),
    ("to_dtype", "to"),
    ("to_other", "to"),
    ("empty_memory_format", "empty"),
];

/// Returns the operator that a function dispatches: `conv2d` of `at::_ops::conv2d::call(…)`.
pub(super) fn operator(name: &str) -> Option<&str> {
    let (_, rest) = name.split_once("at::_ops::")?;
    let (operator, _) = rest.split_once("::")?;
    // Overloads: `add_Tensor`, `sum_dim_IntList`; the first capital letter begins the overload's name.
    let end = operator.find(|c: char| c.is_ascii_uppercase()).unwrap_or(operator.len());
    let operator = operator[..end].trim_end_matches('_');
    let known = OVERLOADS.iter().find(|(overload, _)| *overload == operator).map(|(_, operator)| *operator);
    Some(known.unwrap_or(operator)).filter(|operator| !operator.is_empty())
}

/// Returns the node of the backward pass to which a function belongs: `AddmmBackward0`.
pub(super) fn node(name: &str) -> Option<&str> {
    let before = &name[..name.find("::apply(").or_else(|| name.strip_suffix("::apply").map(str::len))?];
    let node = before.rsplit("::").next()?;
    (node.contains("Backward") || node == "AccumulateGrad").then_some(node)
}

/// True for the engine that runs the backward pass.
pub(super) fn is_engine(name: &str) -> bool {
    name.contains("autograd::Engine::") || node(name).is_some()
}

/// True for scratch that a library asks for and PyTorch keeps: cuBLAS's workspaces.
pub(super) fn is_workspace(name: &str) -> bool {
    name.contains("CUDABlasHandle") || name.contains("CUBLASWorkspace") || name.contains("CUDABlasLtWorkspace")
}

/// Returns a function's name without arguments, if it is informative: `at::native::copy_`.
pub(super) fn meaning(name: &str) -> Option<String> {
    let name = name.replace("(anonymous namespace)::", "");
    let name = name.split('(').next().unwrap_or_default();
    // The name of a template begins with its result's type.
    let name = if name.contains('<') { name.split('<').next()? } else { name };
    let name = name.rsplit(' ').next()?;
    let says = name.contains("::") && !MACHINERY.iter().any(|known| name.contains(known));
    says.then(|| name.to_string())
}
