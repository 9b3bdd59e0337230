//! Origin of a frame: the program, a library, PyTorch, or the interpreter.

use crate::snapshot::FrameText;

/// Origin of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file of the program.
    Own,
    /// Code without a file: `python -c`, an interactive session, but also code that a library makes from text.
    Text,
    /// An installed package.
    Library,
    /// PyTorch, and the Python that its compiler writes.
    Torch,
    /// The interpreter and its standard library.
    Interpreter,
    /// C and C++: PyTorch's, the interpreter's, the system's.
    Native,
}

/// File endings of code that is not Python.
const NATIVE_ENDINGS: [&str; 13] = ["c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hh", "hpp", "inc", "inl", "so", "S"];

/// Path parts of PyTorch's own Python where it is not installed as a package.
const TORCH_FOLDERS: [&str; 8] = [
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/_",
    "/torch/distributed/",
    "/torch/amp/",
    "/torch/cuda/",
];

/// Returns the origin of a frame, by its file.
pub fn origin(frame: &FrameText<'_>) -> Origin {
    let file = frame.filename.replace('\\', "/");
    if is_native(&file, frame) {
        return Origin::Native;
    }
    if file.starts_with('<') {
        return match file.as_str() {
            "<stdin>" | "<string>" => Origin::Text,
            // Cells of a notebook, as IPython and Colab name them.
            cell if cell.starts_with("<ipython-input") => Origin::Own,
            graph if graph.starts_with("<eval_with_key>") => Origin::Torch,
            _ => Origin::Interpreter,
        };
    }
    if is_torch(&file) {
        Origin::Torch
    } else if file.contains("site-packages") || file.contains("dist-packages") || is_launcher(&file) {
        Origin::Library
    } else if file.contains("/lib/python") || file.contains("/lib64/python") || file.contains("/Lib/") {
        Origin::Interpreter
    } else {
        Origin::Own
    }
}

fn is_native(file: &str, frame: &FrameText<'_>) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    // From 2.12 on the file is the library of the code, and the line an offset in it.
    frame.line <= 0
        || matches!(file, "" | "??")
        || NATIVE_ENDINGS.contains(&ending)
        || name.contains(".so.")
        || matches!(frame.name, "??" | "_start")
        || !file.starts_with('<') && frame.name.contains("::")
}

fn is_torch(file: &str) -> bool {
    file.contains("-packages/torch/")
        || file.contains("/torchinductor_")
        || TORCH_FOLDERS.iter().any(|folder| file.contains(folder))
        || is_made_by_inductor(file)
}

/// True for a file that PyTorch's compiler wrote: its name is a hash, in a folder named by the hash's first letters.
fn is_made_by_inductor(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let (Some(name), Some(folder)) = (parts.next(), parts.next()) else { return false };
    let Some(stem) = name.strip_suffix(".py") else { return false };
    stem.len() >= 40
        && stem.starts_with('c')
        && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && stem.get(1..3) == Some(folder)
}

/// True for a script that an installation puts next to the interpreter: torchrun, accelerate.
fn is_launcher(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    parts.next().is_some_and(|name| !name.contains('.')) && matches!(parts.next(), Some("bin" | "Scripts"))
}
