//! Kernels one by one beside PyTorch's: `scripts/torch-kernels.py` measures both in one run.

use serde_json::Value;

use super::cells::{markdown, or_dash, strings, time};
use crate::bench::results::File;

const DTYPES: [&str; 3] = ["float32", "float16", "bfloat16"];

/// Of kernels on a processor.
pub(super) fn on_cpu(file: &File) -> String {
    table(file, "beside/cpu/")
}

/// Of kernels on an NVIDIA GPU.
pub(super) fn on_cuda(file: &File) -> String {
    table(file, "beside/cuda/")
}

/// Each kernel at its largest size: both times in float32, and in each type the speed, which is PyTorch's time divided by this program's.
fn table(file: &File, prefix: &str) -> String {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for [kernel, _, size] in file.starting_with(prefix).filter_map(|(rest, _)| parts(rest)) {
        match names.iter_mut().find(|(known, _)| *known == kernel) {
            Some((_, largest)) => *largest = size,
            None => names.push((kernel, size)),
        }
    }
    let row = |&(kernel, size): &(&str, &str)| {
        let of = |dtype: &str| file.row(&format!("{prefix}{kernel}/{dtype}/{size}"));
        let ns = |key: &'static str| or_dash(of(DTYPES[0]).and_then(|row| row[key].as_f64()).map(time));
        let speeds = DTYPES.iter().map(|dtype| or_dash(of(dtype).and_then(speed)));
        [format!("`{kernel}`"), size.into(), ns("torch_ns"), ns("ns")].into_iter().chain(speeds).collect()
    };
    let columns = ["kernel", "size", "PyTorch, f32", "vramlab, f32", "speed, f32", "f16", "bf16"];
    let torch = file.head["torch"].as_str().unwrap_or("–");
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    let rounds = match file.head["rounds"].as_u64() {
        Some(1) => "one round".to_string(),
        rounds => format!("{} rounds in turn", rounds.unwrap_or_default()),
    };
    format!("{}\ntorch {torch}, {rounds}.\n", markdown(&strings(columns), &rows))
}

/// Kernel, type and size.
fn parts(rest: &str) -> Option<[&str; 3]> {
    let mut parts = rest.split('/');
    Some([parts.next()?, parts.next()?, parts.next()?])
}

fn speed(row: &Value) -> Option<String> {
    Some(format!("**{:.2}**", row["torch_ns"].as_f64()? / row["ns"].as_f64()?))
}
