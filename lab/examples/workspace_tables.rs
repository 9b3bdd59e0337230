//! Makes the tables of workspaces that cuDNN names for convolutions of the built-in networks, torchvision, timm, and encoders of pictures and speech
//! (`lab/src/run/workspaces/`). cuDNN plans for cards that are not there, so no card is needed. It takes some six minutes for each capability.
//!
//! ```sh
//! cargo build --release -p rehearsal
//! gunzip -k benches/results/2026-11-28-h200-cudnn-workspaces.json.gz
//! .venv/bin/python scripts/record/convolutions.py > convolutions.json
//! VRAMLAB_REHEARSAL_LIBRARY=target/release/libvramlab_rehearsal.so cargo run --release -p vramlab-lab --example workspace_tables -- \
//!     .venv/bin/python benches/results/2026-11-28-h200-cudnn-workspaces.json convolutions.json
//! ```
//!
//! The Python needs PyTorch for CUDA with cuDNN 9.8 or later. The first file has what a card took for the same convolutions (`scripts/card/workspaces.py --tables`);
//! the table of its capability has those figures. The second has the convolutions of networks that are not built in. Further words name capabilities: only
//! their tables are made.

#[cfg(target_os = "linux")]
use std::collections::BTreeMap;

#[cfg(target_os = "linux")]
use memcore::DType;
#[cfg(target_os = "linux")]
use memcore::profile::ConvolutionCase;
#[cfg(target_os = "linux")]
use serde_json::Value;

/// Networks with convolutions.
#[cfg(target_os = "linux")]
const NETWORKS: [&str; 13] = [
    "simple-cnn",
    "small-network",
    "larger-conv",
    "resnet18",
    "resnet34",
    "resnet50",
    "vgg16",
    "mobilenet_v2",
    "densenet121",
    "convnext-tiny",
    "convnext-small",
    "convnext-base",
    "convnext-large",
];
#[cfg(target_os = "linux")]
const BATCHES: [usize; 32] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 28, 30, 32, 36, 40, 48, 50, 60, 64, 80, 96, 100, 128,
    192, 256,
];
/// Batches of networks that are not built in.
#[cfg(target_os = "linux")]
const USUAL_BATCHES: [usize; 13] = [1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 64, 128];
/// Types of a convolution's values.
#[cfg(target_os = "linux")]
const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
#[cfg(target_os = "linux")]
const PRECISIONS: [&str; 3] = ["fp32", "autocast-bf16", "autocast-fp16"];
/// Compute capabilities of cards that PyTorch's current releases have kernels for.
#[cfg(target_os = "linux")]
const CAPABILITIES: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];
/// Compute capability of the card that was measured.
#[cfg(target_os = "linux")]
const MEASURED: u32 = 90;

/// What a card took for the convolutions of a file.
#[cfg(target_os = "linux")]
fn measured(path: &std::ffi::OsStr) -> Result<BTreeMap<ConvolutionCase, [u64; 3]>, Box<dyn std::error::Error>> {
    #[derive(serde::Deserialize)]
    struct Measured {
        columns: Vec<String>,
        rows: Vec<Vec<Value>>,
    }
    let Measured { columns, rows } = serde_json::from_slice(&std::fs::read(path)?)?;
    let row = |cells: &Vec<Value>| {
        let cell = |name: &str| cells.get(columns.iter().position(|column| column == name)?).cloned();
        let bytes = |name: &str| cell(name)?.as_u64();
        let numbers = |name: &str| serde_json::from_value(cell(name)?).ok();
        let pair = |name: &str| serde_json::from_value(cell(name)?).ok();
        let dtype = match cell("type")?.as_str()? {
            "float32" => DType::F32,
            "float16" => DType::F16,
            _ => DType::BF16,
        };
        let case = ConvolutionCase {
            dtype,
            channels_last: cell("format")? == "channels_last",
            input: numbers("input")?,
            weight: numbers("weight")?,
            stride: pair("stride")?,
            padding: pair("padding")?,
            dilation: pair("dilation")?,
            groups: usize::try_from(bytes("groups")?).ok()?,
        };
        Some((case, [bytes("forward")?, bytes("input_gradient")?, bytes("weight_gradient")?]))
    };
    Ok(rows.iter().map(row).collect::<Option<_>>().ok_or("a row lacks a figure")?)
}

/// Sizes of the input and the weight, stride, padding, dilation and groups.
#[cfg(target_os = "linux")]
type Shape = ([usize; 4], [usize; 4], [usize; 2], [usize; 2], [usize; 2], usize);

/// The convolutions of a file, at the usual batches, but for those of floats that PyTorch computes by its own kernel for channels one by one.
#[cfg(target_os = "linux")]
fn listed(path: &std::ffi::OsStr) -> Result<Vec<ConvolutionCase>, Box<dyn std::error::Error>> {
    let shapes: Vec<Shape> = serde_json::from_slice(&std::fs::read(path)?)?;
    let cases = shapes.into_iter().flat_map(|(input, weight, stride, padding, dilation, groups)| {
        let is_by_channel = groups > 1 && groups == input[1];
        let types = TYPES.into_iter().filter(move |dtype| !(is_by_channel && *dtype == DType::F32));
        types.flat_map(move |dtype| {
            USUAL_BATCHES.map(|batch| {
                let input = [batch, input[1], input[2], input[3]];
                ConvolutionCase { dtype, channels_last: false, input, weight, stride, padding, dilation, groups }
            })
        })
    });
    Ok(cases.collect())
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::collections::BTreeSet;
    use std::path::Path;

    use lab::rehearse::{RequestedCard, ask_cudnn};
    use lab::run::{DryRunner, RunSpec, packed_workspaces};
    use serde_json::json;

    let mut words = std::env::args_os().skip(1);
    let python = words.next().ok_or("name the Python that has PyTorch")?;
    let measured = measured(&words.next().ok_or("name the file of what a card took")?)?;
    let listed = listed(&words.next().ok_or("name the file of convolutions")?)?;
    let named: Vec<u32> =
        words.map(|word| Ok(word.to_string_lossy().parse()?)).collect::<Result<_, Box<dyn std::error::Error>>>()?;
    let runner = DryRunner::new(&[], &|| false);
    let mut cases = BTreeSet::from_iter(listed);
    for model in NETWORKS {
        for (batch, precision) in BATCHES.iter().flat_map(|batch| PRECISIONS.map(|precision| (batch, precision))) {
            let fields = json!({ "model": model, "batch": batch, "precision": precision });
            let spec = RunSpec::of_fields(fields.as_object().ok_or("no fields")?)?;
            cases.extend(runner.convolutions(&spec)?);
        }
    }
    let cases: Vec<_> = cases.into_iter().collect();
    for sm in CAPABILITIES.into_iter().filter(|sm| named.is_empty() || named.contains(sm)) {
        let mut table = ask_cudnn(Path::new(&python), &RequestedCard::of_capability(sm), &cases)?;
        let taken = measured.iter().filter(|_| sm == MEASURED);
        for (case, bytes) in taken {
            if let Some(named) = table.rows.get_mut(case) {
                (named.bytes, named.measured) = (*bytes, 0b111);
            }
        }
        for (dtype, file) in ["float32", "float16", "bfloat16"].into_iter().zip(packed_workspaces(&table.rows)) {
            let name = format!("src/run/workspaces/tables/sm{sm}-{dtype}.rows");
            std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(name), file)?;
        }
        println!("{sm}: {} convolutions by cuDNN {}", table.rows.len(), table.cudnn);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("rehearsals need Linux");
}
