//! Recorded operators with the origins of allocations and frees, and the same operators here.

use std::sync::Arc;

use memcore::autograd::{Autocast, NoGrad};
use memcore::backend::Meta;
use memcore::{Array, DType, Device, Profile, Result, Tensor, ops};
use serde_json::Value;

use super::ones::ones_like;
use super::{Events, Watch};

const F32: DType = DType::F32;

/// Operator of a recording's row, with inputs in `dtype`.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) autocast: bool,
    pub(crate) records: bool,
    /// Values that outlive the row, without their gradients.
    pub(crate) parameters: Inputs,
    /// Values that the row makes first and frees last.
    pub(crate) inputs: Inputs,
    pub(crate) run: Run,
}

type Inputs = Box<dyn Fn(&Device, DType) -> Vec<Tensor>>;
type Run = Box<dyn Fn(&[Tensor], &[Tensor]) -> Result<Tensor>>;

/// A row without parameters; under autocast, or without a tape, where the name says so.
pub(crate) fn row(
    name: impl Into<String>,
    dtype: DType,
    inputs: impl Fn(&Device, DType) -> Vec<Tensor> + 'static,
    run: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
) -> Row {
    row_with(name, dtype, |_, _| Vec::new(), inputs, move |_, t| run(t))
}

/// The same with parameters.
pub(crate) fn row_with(
    name: impl Into<String>,
    dtype: DType,
    parameters: impl Fn(&Device, DType) -> Vec<Tensor> + 'static,
    inputs: impl Fn(&Device, DType) -> Vec<Tensor> + 'static,
    run: impl Fn(&[Tensor], &[Tensor]) -> Result<Tensor> + 'static,
) -> Row {
    let name = name.into();
    let (autocast, records) = (name.contains("autocast"), !name.ends_with("no_grad"));
    let (parameters, inputs, run) = (Box::new(parameters), Box::new(inputs), Box::new(run));
    Row { name, dtype, autocast, records, parameters, inputs, run }
}

/// The function's result is transposed, so the gradient arrives transposed.
pub(crate) fn turned_back(x: &Tensor) -> Result<Tensor> {
    ops::contiguous(&ops::t(x)?)
}

pub(crate) fn leaf(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::leaf(Array::empty(device, dims, dtype).unwrap())
}

pub(crate) fn data(device: &Device, dims: &[usize], dtype: DType) -> Tensor {
    Tensor::from_array(Array::empty(device, dims, dtype).unwrap())
}

/// One leaf.
pub(crate) fn leaf_of(dims: &'static [usize]) -> impl Fn(&Device, DType) -> Vec<Tensor> {
    move |d, t| vec![leaf(d, dims, t)]
}

/// A function of a matrix, contiguous or transposed, under autocast and in bfloat16.
pub(crate) fn in_every_form(rows: &mut Vec<Row>, name: &str, f: fn(&Tensor) -> Result<Tensor>) {
    rows.extend([
        row(name, F32, leaf_of(&[64, 256]), move |t| f(&t[0])),
        row(format!("{name}_turned"), F32, leaf_of(&[256, 64]), move |t| f(&ops::t(&t[0])?)),
        row(format!("{name}_autocast_f16"), DType::F16, leaf_of(&[64, 256]), move |t| f(&t[0])),
        row(format!("{name}_bf16"), DType::BF16, leaf_of(&[64, 256]), move |t| f(&t[0])),
    ]);
}

/// Events of each phase: input, forward, gradient of the output, backward, teardown.
pub(crate) type Phases = [Vec<(i64, String)>; 5];

pub(crate) const PHASES: [&str; 5] = ["input", "forward", "gradient of the output", "backward", "teardown"];

pub(crate) fn observe(row: &Row, profile: Profile) -> Result<Phases> {
    let device = Device::builder(Arc::new(Meta::default())).profile(profile).build();
    warm_up(&device)?;
    let parameters = (row.parameters)(&device, row.dtype);
    device.set_history(true);
    let mut watch = Watch::new(&device);
    let mut inputs = (row.inputs)(&device, row.dtype);
    // The origins of inputs and seed are the test's own.
    let unnamed = |events: Events| events.into_iter().map(|event| (event, String::new())).collect();
    let input = unnamed(watch.since());
    let y = {
        let _autocast = row.autocast.then(|| Autocast::new(row.dtype));
        let _no_grad = (!row.records).then(NoGrad::new);
        (row.run)(&parameters, &inputs)?
    };
    let forward = watch.since_by();
    let grad = ones_like(y.array())?;
    let seed = unnamed(watch.since());
    if y.requires_grad() {
        y.backward_with(grad.clone(), false)?;
    }
    let backward = watch.since_by();
    drop(y);
    drop(grad);
    while inputs.pop().is_some() {}
    parameters.iter().for_each(|parameter| parameter.set_grad(None));
    Ok([input, forward, seed, backward, watch.since_by()])
}

/// The libraries' workspaces exist before the first row, as in the recordings.
pub(crate) fn warm_up(device: &Device) -> Result<()> {
    let (a, w, b) = (leaf(device, &[8, 8], F32), leaf(device, &[8, 8], F32), leaf(device, &[8], F32));
    let y = ops::linear(&a, &w, Some(&b))?;
    y.backward_with(Array::ones(device, &[8, 8], F32)?, false)
}

/// The rows of a recording that a release of PyTorch ran.
fn recorded(file: &str, release: &str) -> Vec<(String, Phases)> {
    let file: Value = serde_json::from_str(file).unwrap();
    let label = |i: &Value| file["labels"][i.as_u64().unwrap() as usize].as_str().unwrap().to_string();
    let phase = |events: &Value| {
        events.as_array().unwrap().iter().map(|event| (event[0].as_i64().unwrap(), label(&event[1]))).collect()
    };
    let row = |row: &Value| (row[0].as_str().unwrap().to_string(), std::array::from_fn(|i| phase(&row[i + 1])));
    file[release].as_array().unwrap().iter().map(row).collect()
}

/// PyTorch's accumulation of gradients has a longer name, and inside of some operators its casts call the inner operator at once.
fn same_label(ours: &str, theirs: &str) -> bool {
    let theirs = theirs.trim_start_matches("torch::autograd::");
    let ours = &shortened(ours);
    ours == theirs || ours.replace(">to>_to_copy", ">_to_copy") == theirs
}

/// Of a path of more than three names, the recording has the first two and the last.
fn shortened(label: &str) -> String {
    match label.split('>').collect::<Vec<_>>()[..] {
        [first, second, _, .., last] => format!("{first}>{second}>{last}"),
        _ => label.to_string(),
    }
}

/// Fails if `rows` and the recording differ, in either direction; a recording may be marked as partial.
pub(crate) fn assert_same(rows: &[Row], file: &str, release: &str, profile: &Profile) {
    let recorded = recorded(file, release);
    let is_part = serde_json::from_str::<Value>(file).unwrap()["part"] == true;
    assert!(!recorded.is_empty(), "nothing is recorded of {release}");
    let not_recorded = rows.iter().filter(|row| !is_part && !recorded.iter().any(|(name, _)| *name == row.name));
    let mut differences: Vec<String> = not_recorded.map(|row| format!("{} is not recorded", row.name)).collect();
    for (name, want) in recorded {
        let Some(row) = rows.iter().find(|row| row.name == name) else {
            differences.push(format!("{name} is recorded, and not here"));
            continue;
        };
        match observe(row, profile.clone()) {
            Ok(found) => differences.extend(parts(&name, &found, &want)),
            Err(error) => differences.push(format!("{name}: {error}")),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Fails if `rows` and a recording of sizes alone differ, in either direction.
pub(crate) fn assert_same_sizes(rows: &[Row], file: &str) {
    let file: Value = serde_json::from_str(file).unwrap();
    let recorded = file["rows"].as_array().unwrap();
    let mut differences = Vec::new();
    for row in rows {
        let Some(want) = recorded.iter().find(|want| want[0] == row.name) else {
            differences.push(format!("{} is not recorded", row.name));
            continue;
        };
        let found = match observe(row, Profile::torch_2_11(90)) {
            Ok(found) => found,
            Err(error) => {
                differences.push(format!("{}: {error}", row.name));
                continue;
            }
        };
        for ((phase, found), want) in PHASES.iter().zip(&found).zip(&want.as_array().unwrap()[1..]) {
            let found: Events = found.iter().map(|(event, _)| *event).collect();
            let want: Events = want.as_array().unwrap().iter().map(|event| event.as_i64().unwrap()).collect();
            if found != want {
                differences.push(format!("{}, {phase}:\n  here     {found:?}\n  recorded {want:?}", row.name));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(rows.len(), recorded.len(), "every recorded row is here");
}

fn parts(name: &str, found: &Phases, want: &Phases) -> Vec<String> {
    let mut out = Vec::new();
    for (i, (found, want)) in found.iter().zip(want).enumerate() {
        let by = |found: &str, want: &str| i == 0 || i == 2 || same_label(found, want);
        let same = found.len() == want.len() && found.iter().zip(want).all(|(f, w)| f.0 == w.0 && by(&f.1, &w.1));
        if !same {
            out.push(format!("{name}, {}:\n  here     {found:?}\n  recorded {want:?}", PHASES[i]));
        }
    }
    out
}

/// Defines a test for each release (and card) of a recording: name, key in the recording, profile.
macro_rules! against_recordings {
    ($recording:literal, $rows:expr; $($name:ident: $release:literal, $profile:expr;)+) => {
        const RECORDED: &str = include_str!($recording);

        $(#[test]
        fn $name() {
            $crate::common::labelled::assert_same(&$rows, RECORDED, $release, &$profile);
        })+
    };
}
pub(crate) use against_recordings;

/// Defines a test for each release except the two of the other recordings.
macro_rules! against_other_releases {
    ($recording:literal, $rows:expr, |$profile:ident| $changed:expr) => {
        mod other_releases {
            use super::*;

            $crate::common::labelled::against_recordings! {
                $recording, $rows;
                as_pytorch_2_7: "2.7", { let $profile = Profile::named("torch-2.7-sm90").unwrap(); $changed };
                as_pytorch_2_8: "2.8", { let $profile = Profile::named("torch-2.8-sm90").unwrap(); $changed };
                as_pytorch_2_9: "2.9", { let $profile = Profile::named("torch-2.9-sm90").unwrap(); $changed };
                as_pytorch_2_10: "2.10", { let $profile = Profile::named("torch-2.10-sm90").unwrap(); $changed };
                as_pytorch_2_12: "2.12", { let $profile = Profile::named("torch-2.12-sm90").unwrap(); $changed };
                as_pytorch_2_13: "2.13", { let $profile = Profile::named("torch-2.13-sm90").unwrap(); $changed };
                as_pytorch_2_14: "2.14", { let $profile = Profile::named("torch-2.14-sm90").unwrap(); $changed };
            }
        }
    };
}
pub(crate) use against_other_releases;

/// Defines a test for a recording of sizes alone.
macro_rules! against_sizes {
    ($recording:literal, $rows:expr) => {
        #[test]
        fn sizes_are_those_of_pytorch() {
            $crate::common::labelled::assert_same_sizes(&$rows, include_str!($recording));
        }
    };
}
pub(crate) use against_sizes;
