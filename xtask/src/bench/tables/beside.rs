//! Kernels one by one beside PyTorch's: `scripts/torch-kernels.py` measures both in one run.

use serde_json::Value;

use super::cells::{markdown, or_dash, strings, time};
use crate::bench::results::File;

const DTYPES: [&str; 3] = ["float32", "float16", "bfloat16"];

/// Each kernel at its largest size: both times in float32, and in each type the speed, which is PyTorch's time divided by this program's.
pub(super) fn table(file: &File) -> String {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for [kernel, _, size] in file.of("beside/cpu/").filter_map(|(rest, _)| parts(rest)) {
        match names.iter_mut().find(|(known, _)| *known == kernel) {
            Some((_, largest)) => *largest = size,
            None => names.push((kernel, size)),
        }
    }
    let row = |&(kernel, size): &(&str, &str)| {
        let of = |dtype: &str| file.row(&format!("beside/cpu/{kernel}/{dtype}/{size}"));
        let ns = |key: &'static str| or_dash(of(DTYPES[0]).and_then(|row| row[key].as_f64()).map(time));
        let speeds = DTYPES.iter().map(|dtype| or_dash(of(dtype).and_then(speed)));
        [format!("`{kernel}`"), size.into(), ns("torch_ns"), ns("ns")].into_iter().chain(speeds).collect()
    };
    let columns = ["kernel", "size", "PyTorch, f32", "vramlab, f32", "speed, f32", "f16", "bf16"];
    let torch = file.head["torch"].as_str().unwrap_or("–");
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    format!("{}\ntorch {torch}, {} rounds in turn.\n", markdown(&strings(columns), &rows), file.head["rounds"])
}

/// Kernel, type and size.
fn parts(rest: &str) -> Option<[&str; 3]> {
    let mut parts = rest.split('/');
    Some([parts.next()?, parts.next()?, parts.next()?])
}

fn speed(row: &Value) -> Option<String> {
    Some(format!("**{:.2}**", row["torch_ns"].as_f64()? / row["ns"].as_f64()?))
}
