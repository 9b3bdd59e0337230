//! Makes the tables of workspaces that cuDNN names for the built-in networks' convolutions (`lab/src/run/workspaces/`). cuDNN plans for cards that are not
//! there, so no card is needed. It takes some minutes.
//!
//! ```sh
//! cargo build --release -p rehearsal
//! VRAMLAB_REHEARSAL_LIBRARY=target/release/libvramlab_rehearsal.so cargo run --release -p vramlab-lab --example workspace_tables -- .venv/bin/python
//! ```
//!
//! The Python needs PyTorch for CUDA with cuDNN 9.8 or later.

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
const BATCHES: [usize; 17] = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256];
#[cfg(target_os = "linux")]
const PRECISIONS: [&str; 3] = ["fp32", "autocast-bf16", "autocast-fp16"];
/// Compute capabilities of cards that PyTorch's current releases have kernels for.
#[cfg(target_os = "linux")]
const CAPABILITIES: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::Write;
    use std::path::Path;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use lab::rehearse::{RequestedCard, ask_cudnn};
    use lab::run::{Paper, RunSpec, packed_rows};
    use serde_json::json;

    let python = std::env::args_os().nth(1).ok_or("name the Python that has PyTorch")?;
    let paper = Paper::new(&[], &|| false);
    let mut cases = BTreeSet::new();
    for model in NETWORKS {
        for (batch, precision) in BATCHES.iter().flat_map(|batch| PRECISIONS.map(|precision| (batch, precision))) {
            let fields = json!({ "model": model, "batch": batch, "precision": precision });
            let spec = RunSpec::of_fields(fields.as_object().ok_or("no fields")?)?;
            cases.extend(paper.convolutions(&spec)?);
        }
    }
    let cases: Vec<_> = cases.into_iter().collect();
    for sm in CAPABILITIES {
        let table = ask_cudnn(Path::new(&python), &RequestedCard::of_capability(sm), &cases)?;
        for (dtype, rows) in ["float32", "float16", "bfloat16"].into_iter().zip(packed_rows(&table.rows)) {
            let name = format!("src/run/workspaces/tables/sm{sm}-{dtype}.gz");
            let file = File::create(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))?;
            let mut file = GzEncoder::new(file, Compression::best());
            file.write_all(&rows)?;
            file.finish()?;
        }
        println!("{sm}: {} convolutions by cuDNN {}", table.rows.len(), table.cudnn);
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("rehearsals need Linux");
}
