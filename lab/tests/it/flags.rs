//! Combinations of flags that were drawn at random, beside recorded runs of the real PyTorch (`golden/flags.json.gz`, and with frozen parameters
//! `golden/flags_frozen.json.gz`, made by `scripts/loop/flags.py`): every row in every column, or a refusal that says why.

use std::io::Read;
use std::ops::ControlFlow;

use flate2::read::GzDecoder;
use lab::record::{COLUMNS, Row};
use lab::run::{Divided, RunSpec, resolve};
use memcore::device::HostUsage;
use serde_json::{Value, json};

pub(crate) fn recorded(name: &str) -> Value {
    let path = format!("{}/tests/golden/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The rows of a run of these fields; of a divided one, those of its first rank.
pub(crate) fn rows(spec: &RunSpec) -> lab::Result<Vec<Row>> {
    rows_and_host(spec).map(|(rows, _)| rows)
}

/// The same, with the bytes of the host that saved tensors took.
pub(crate) fn rows_and_host(spec: &RunSpec) -> lab::Result<(Vec<Row>, HostUsage)> {
    let session = resolve(&spec.alone(), &[])?;
    let on_step = &mut |_| ControlFlow::Continue(());
    if spec.parallel.ranks.data_parallel.is_none() {
        let device = session.target.open()?;
        return Ok((session.train(&device, on_step)?.rows, device.host().usage()));
    }
    let divided = Divided::from_spec(spec, session)?;
    let result = divided.train(&divided.open(false)?, on_step)?;
    Ok((result.ranks.into_iter().next().unwrap().rows, HostUsage::default()))
}

/// The first figure that differs; `None` if all are equal.
pub(crate) fn difference(ours: &[Row], theirs: &[Row]) -> Option<String> {
    let labels = |rows: &[Row]| rows.iter().map(|row| row.label.clone()).collect::<Vec<String>>();
    let (a, b) = (labels(ours), labels(theirs));
    if a != b {
        let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
        return Some(format!("row {at} is {:?}, PyTorch's {:?}", a.get(at), b.get(at)));
    }
    let figures = ours.iter().zip(theirs).flat_map(|(ours, theirs)| {
        let columns = COLUMNS[1..].iter().zip(ours.figures()).zip(theirs.figures());
        columns.map(|((column, here), there)| (ours.label.clone(), *column, here, there)).collect::<Vec<_>>()
    });
    let mut wrong = figures.filter(|(_, _, here, there)| here != there);
    let (label, column, here, there) = wrong.next()?;
    Some(format!("{label}: {column} {here}, PyTorch {there}; {} more", wrong.count()))
}

#[test]
fn flags_drawn_at_random_take_what_pytorch_takes() {
    compare("flags", 60);
}

/// Parameters that are excluded from training, with checkpointing in two of three: it makes the embeddings of a frozen table require a gradient.
#[test]
fn frozen_parameters_take_what_pytorch_takes() {
    compare("flags_frozen", 36);
}

fn compare(name: &str, count: usize) {
    let found = recorded(name);
    let programs = found["programs"].as_array().unwrap();
    assert_eq!(programs.len(), count);
    let folder = tempfile::tempdir().unwrap();
    let (mut wrong, mut refused) = (Vec::new(), Vec::new());
    for (number, program) in programs.iter().enumerate() {
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(&path, program["config"].to_string()).unwrap();
        let mut fields = program["fields"].as_object().unwrap().clone();
        fields.remove("model-type");
        fields.insert("transformers".into(), found["transformers"].clone());
        fields.insert("model-file".into(), json!(path));
        let theirs: Vec<Row> = serde_json::from_value(program["rows"].clone()).unwrap();
        match RunSpec::of_fields(&fields).and_then(|spec| rows(&spec)) {
            Ok(mut ours) => {
                assert_eq!(ours.pop().unwrap().label, "end");
                wrong.extend(difference(&ours, &theirs).map(|text| format!("{number} {}: {text}", program["fields"])));
            }
            Err(error) if error.is_usage() => refused.push(format!("{number} {}: {error}", program["fields"])),
            Err(error) => panic!("{number} {}: {error}", program["fields"]),
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused.is_empty(), "{} are refused:\n{}", refused.len(), refused.join("\n"));
}
