//! Prints the text of every program for a language and a type, one after another: `source opencl float32`.

use memcore::DType;
use portable_kernels::{Language, Program};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [language, dtype] = words.as_slice() else { return eprintln!("expected opencl or cuda, and a type") };
    let language = if language == "cuda" { Language::cuda() } else { Language::opencl(true) };
    let Some(dtype) = DType::ALL.into_iter().find(|known| known.name() == dtype) else {
        return eprintln!("{dtype} is not a type");
    };
    for program in Program::all(&[dtype]) {
        println!("// ==== {}", program.functions().collect::<Vec<_>>().join(" "));
        println!("{}", program.source(language));
    }
}
