//! Memory that the device's libraries and its driver take besides tensors: on the emulated device with stand-ins for
//! cuBLASLt and NVML. Tests run one after another, since each reads memory that all share.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use backend_cuda::Cuda;
use lab::experiments::{Setup, by_name};
use lab::models::{ModelOptions, architecture};
use lab::training::{self, OptimizerKind, OptimizerSettings, RunSettings, Source, Trainer};
use libtest_mimic::{Arguments, Failed, Trial};
use memcore::array::Array;
use memcore::backend::kernel::{Fill, Unary, UnaryOp};
use memcore::backend::{Backend, DeviceMemory, DeviceProfile, KernelCall, Meta, Operand, Region};
use memcore::memory::{Category, Event};
use memcore::optim::Implementation;
use memcore::{DType, Device, Layout, Profile};

#[path = "device/attention.rs"]
mod attention;
#[path = "device/convolutions.rs"]
mod convolutions;
mod emulator;
#[path = "device/fills.rs"]
mod fills;
#[path = "device/optimizers.rs"]
mod optimizers;
#[path = "device/products.rs"]
mod products;
#[path = "../../lab/tests/runs/mod.rs"]
mod runs;
#[path = "device/tf32.rs"]
mod tf32;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !emulator::is_here() && !arguments.list {
        return emulator::run_again_with(true).unwrap_or_else(|problem| {
            eprintln!("the emulator does not start: {problem}");
            ExitCode::FAILURE
        });
    }
    arguments.test_threads = Some(1);
    let mut trials = vec![
        trial("bridge::each_step_is_what_the_driver_gave", steps),
        trial("bridge::little_is_unexplained_after_training", bridge),
        trial("workspace::predictions_know_it", predictions),
        trial("compiler::a_device_opens_as_it_does_for_a_user", as_a_user),
        trial("copies::the_source_is_free_at_once", copies),
        trial("compiler::a_damaged_file_is_made_again", damaged),
        trial("graphs::a_zero_of_another_sign_is_another", signs),
        trial("graphs::a_full_device_goes_on_without_them", full),
        trial("products::the_library_takes_every_type", library),
        trial("products::the_fastest_algorithm_is_kept", products::fastest),
        trial("products::the_first_algorithm_is_kept_on_request", products::first),
        trial("products::what_adds_to_its_result_runs_once", products::adding),
        trial("products::the_choice_is_kept_on_disk", products::stored),
        trial("fills::single_elements_are_filled_together", fills::together),
        trial("optimizers::a_parameter_that_joins_later_counts_its_own_steps", optimizers::a_parameter_joins_later),
        trial("convolutions::the_library_takes_every_type", convolutions::types),
        trial("convolutions::the_faster_one_is_kept", convolutions::faster),
        trial("convolutions::what_the_library_does_not_take_is_computed", convolutions::refused),
        trial("convolutions::a_graph_has_them_too", convolutions::graph),
        trial("attention::the_library_takes_16_bits", attention::types),
        trial("attention::masks_are_added", attention::masks),
        trial("attention::the_faster_one_is_kept", attention::faster),
        trial("attention::what_the_library_does_not_take_is_computed", attention::refused),
        trial("attention::a_graph_has_it_too", attention::graph),
        trial("attention::batches_have_what_workspace_there_is", attention::batches),
        trial("tf32::convolutions_round_their_factors", tf32::convolutions),
        trial("tf32::so_do_those_of_the_own_kernels", tf32::own_convolutions),
        trial("tf32::products_do_where_all_may", tf32::products),
        trial("tf32::so_do_products_that_the_library_does_not_take", tf32::own_products),
    ];
    for name in ["mlp", "simple-cnn", "gpt"] {
        trials.push(trial(&format!("workspace::on_paper_as_on_the_device::{name}"), move || workspace(name)));
    }
    for (name, model, implementation) in [
        ("mlp", "mlp", Implementation::Foreach),
        ("mlp_fused", "mlp", Implementation::Fused),
        ("simple-cnn", "simple-cnn", Implementation::Foreach),
        ("gpt", "gpt", Implementation::Foreach),
    ] {
        trials.push(trial(&format!("graphs::nothing_else_changes::{name}"), move || graphs(model, implementation)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, run: impl Fn() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(Failed::from))
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, ours: T, theirs: T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}: {ours:?}, the driver gave {theirs:?}")) }
}

/// The figure of every step equals the emulated driver's.
fn steps() -> Result<(), String> {
    let cuda = emulator::open()?;
    let opened = cuda.memory_steps();
    equal("other processes", opened.others_bytes, Some(emulator::part("others")?))?;
    equal("the context", opened.context_bytes, emulator::part("context")?)?;
    equal("cuBLASLt's handle", opened.libraries_bytes, emulator::part("blas")?)?;
    equal("the scratch", opened.scratch_bytes, cuda.scratch_bytes())?;
    equal("kernels before any is used", opened.modules.len(), 0)?;
    if opened.others_bytes == Some(0) || opened.context_bytes == 0 || opened.libraries_bytes == 0 {
        return Err(format!("the emulator gives nothing: {opened:?}"));
    }
    cuda.load_kernels().map_err(|error| error.to_string())?;
    let modules = cuda.memory_steps().modules;
    equal("files of kernels", modules.len(), 15)?;
    modules.iter().try_for_each(|(file, bytes)| equal(file, *bytes, emulator::part(file)?))?;
    let (parts, info) = (cuda.overheads(), cuda.memory_info().ok_or("no memory info")?);
    let sum: u64 = parts.iter().map(|part| part.bytes).sum();
    equal("all parts", sum, info.total_bytes - info.free_bytes)
}

/// Uses the stand-in for NVRTC instead of the tests' compiler.
fn as_a_user() -> Result<(), String> {
    equal("devices", Cuda::count().map_err(|error| error.to_string())?, 1)?;
    let cuda = Cuda::open(0).map_err(|error| error.to_string())?;
    cuda.load_kernels().map_err(|error| error.to_string())?;
    equal("files of kernels", cuda.memory_steps().modules.len(), 15)
}

/// After a run, the library has loaded its kernels, and only memory that no step measures remains unexplained.
fn bridge() -> Result<(), String> {
    let device = Device::builder(Arc::new(emulator::open()?)).build();
    let options = ModelOptions::small("mlp");
    let network = architecture("mlp", &options).map_err(|error| error.to_string())?;
    let settings = runs::settings("mlp", &options, None, 2).map_err(|error| error.to_string())?;
    let result = training::train(&*network, &device, &settings, Source::Synthetic { seed: 5 }, &mut |_| {
        ControlFlow::Continue(())
    });
    let result = result.map_err(|failed| failed.error.to_string())?;
    let of = |name: &str| result.overheads.iter().find(|part| part.name == name).map(|part| part.bytes);
    equal("cuBLASLt", of("cuBLASLt"), Some(emulator::part("blas")?))?;
    let unexplained = result.rings.unexplained_bytes(&result.overheads).ok_or("no figure of the driver's")?;
    equal("unexplained", unexplained, emulator::part("staging")? as i64)?;
    let difference = result.rings.driver_bytes.unwrap_or(0) - result.rings.reserved_bytes;
    if unexplained > 0 && unexplained as u64 * 20 <= difference {
        return Ok(());
    }
    Err(format!("{unexplained} of {difference} bytes are unexplained"))
}

/// Under `native:cuda`, a run without a device and one on the device have the same events. Among them are the
/// workspaces, one for each role, of PyTorch's size on compute capability 8.0.
fn workspace(name: &str) -> Result<(), String> {
    let options = ModelOptions::small(name);
    let cuda: Arc<dyn Backend> = Arc::new(emulator::open()?);
    let on = |backend: Arc<dyn Backend>| {
        runs::train(name, &options, None, runs::device(backend, Profile::native())).map_err(|error| error.to_string())
    };
    let paper = Meta::new(DeviceProfile { total_bytes: 2 << 30, ..DeviceProfile::default() });
    let (dry, _) = on(Arc::new(paper.with_workspaces_of(Arc::clone(&cuda))))?;
    let (events, losses) = on(cuda)?;
    runs::same(("cuda", &events), ("paper", &dry))?;
    let sizes = events.iter().filter_map(|event| match event {
        Event::Alloc { category: Category::Workspace, requested_bytes, .. } => Some(*requested_bytes),
        _ => None,
    });
    let large: Vec<u64> = sizes.filter(|bytes| *bytes == 8_519_680).collect();
    equal("workspaces of products", large.len(), 2)?;
    if losses.iter().all(|loss| loss.is_finite()) { Ok(()) } else { Err(format!("{losses:?}")) }
}

/// The closed forms of an experiment include the workspaces of the backend that it runs on.
fn predictions() -> Result<(), String> {
    let cuda: Arc<dyn Backend> = Arc::new(emulator::open()?);
    let open = || Ok(Device::builder(Arc::clone(&cuda)).build());
    let sizes = [("steps", vec![2]), ("batch", vec![4, 2]), ("largest", vec![8])];
    let sizes: BTreeMap<String, Vec<usize>> = sizes.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    let setup =
        Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &|_, _| ControlFlow::Continue(()) };
    let outcome = by_name("batch-size").and_then(|experiment| experiment.ask(&setup));
    equal("unexplained bytes", outcome.map_err(|error| error.to_string())?.unexplained(), Vec::new())
}

/// Losses, events, and number of launches in each step.
struct Run {
    losses: Vec<f64>,
    events: Vec<Event>,
    launches: Vec<usize>,
}

fn steps_of(model: &str, implementation: Implementation, graphs: bool) -> Result<Run, String> {
    let cuda = emulator::open()?;
    if graphs {
        cuda.use_graphs().map_err(|error| error.to_string())?;
    }
    let device = runs::device(Arc::new(cuda), Profile::native());
    let network = architecture(model, &ModelOptions::small(model)).map_err(|error| error.to_string())?;
    let optimizer = OptimizerSettings { implementation, ..OptimizerSettings::new(OptimizerKind::AdamW, 1e-3) };
    let settings = RunSettings { seed: 3, ..RunSettings::new(2, 6, optimizer) };
    let mut run = Run { losses: Vec::new(), events: Vec::new(), launches: Vec::new() };
    let source = Source::Synthetic { seed: 5 };
    let mut trainer = Trainer::build(&*network, &device, &settings, source, "").map_err(|error| error.to_string())?;
    for step in 0..settings.steps {
        let before = emulator::launches()?;
        run.losses.extend(trainer.step(step).map_err(|error| error.to_string())?);
        device.synchronize().map_err(|error| error.to_string())?;
        run.launches.push(emulator::launches()? - before);
    }
    if graphs {
        let held = device.overheads().into_iter().find(|part| part.name == "graphs").map(|part| part.bytes);
        equal("graphs", held, Some(emulator::part("graphs")?))?;
    }
    trainer.finish(Some("end"));
    run.events = device.with_ledger(|ledger| ledger.history().to_vec());
    Ok(run)
}

/// A copy to the device transfers the bytes of the source at the time of the call, however many they are.
fn copies() -> Result<(), String> {
    let text = |error: memcore::Error| error.to_string();
    let cuda = emulator::open()?;
    let len = (18 << 20) + 7;
    let region = Region { segment: cuda.alloc_segment(len).map_err(text)?, offset: 0, len };
    let mut bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let expected = bytes.clone();
    cuda.upload(&bytes, region).map_err(text)?;
    bytes.fill(0xEE);
    let mut found = vec![0; bytes.len()];
    cuda.download(region, &mut found).map_err(text)?;
    if found == expected { Ok(()) } else { Err("the copy is another".into()) }
}

/// Machine code on disk that the driver refuses is compiled again.
fn damaged() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("vramlab-damaged-{}", std::process::id()));
    let files = || -> Result<BTreeMap<_, _>, String> {
        let entries = std::fs::read_dir(&folder).map_err(|error| error.to_string())?.flatten();
        entries
            .map(|entry| Ok((entry.path(), std::fs::read(entry.path()).map_err(|error| error.to_string())?)))
            .collect()
    };
    let load = |told: bool| {
        let cuda = emulator::open()?;
        equal("files to compile are told", cuda.first_use().is_some(), told)?;
        cuda.load_kernels().map_err(|error| error.to_string())
    };
    // SAFETY: one test runs at a time, and no other thread of this process looks at the environment.
    unsafe { std::env::set_var("VRAMLAB_KERNEL_CACHE", &folder) };
    let outcome = (|| {
        load(true)?;
        let right = files()?;
        for path in right.keys() {
            std::fs::write(path, "cut off").map_err(|error| error.to_string())?;
        }
        load(false)?;
        if right.is_empty() || right != files()? { Err("the files are not what they were".into()) } else { Ok(()) }
    })();
    // SAFETY: as above.
    unsafe { std::env::set_var("VRAMLAB_KERNEL_CACHE", "") };
    std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    outcome
}

/// An argument with equal value but other bits (a zero of the other sign) is written into the graph.
fn signs() -> Result<(), String> {
    let text = |error: memcore::Error| error.to_string();
    let cuda = emulator::open()?;
    cuda.use_graphs().map_err(text)?;
    let region = Region { segment: cuda.alloc_segment(512).map_err(text)?, offset: 0, len: 4 };
    let x = Operand { region, dtype: DType::F32, layout: Layout::contiguous(&[1]).map_err(text)? };
    for slope in [0.0, 0.0, 0.0, -0.0] {
        cuda.launch(&KernelCall::Fill(Fill { value: -1.0, out: x })).map_err(text)?;
        cuda.launch(&KernelCall::Unary(Unary { op: UnaryOp::LeakyRelu { slope }, x, out: x })).map_err(text)?;
        let mut found = [0; 4];
        cuda.download(region, &mut found).map_err(text)?;
        equal("the product", f32::from_le_bytes(found).to_bits(), (-slope as f32).to_bits())?;
    }
    Ok(())
}

/// The first product makes the library load its kernels, which takes memory.
fn library() -> Result<(), String> {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let device = Device::builder(Arc::new(emulator::open()?)).build();
        let before = emulator::part("blas")?;
        let product = || Array::zeros(&device, &[32, 32], dtype).and_then(|x| x.matmul(&x));
        product().map_err(|error| error.to_string())?;
        if emulator::part("blas")? == before {
            return Err(format!("a product of {dtype} went to the own kernels"));
        }
    }
    Ok(())
}

/// Without memory for a graph, a sequence is launched kernel by kernel every time.
fn full() -> Result<(), String> {
    let text = |error: memcore::Error| error.to_string();
    let cuda = emulator::open()?;
    cuda.load_kernels().map_err(text)?;
    cuda.use_graphs().map_err(text)?;
    let id = cuda.alloc_segment(4096).map_err(text)?;
    let operand = Operand {
        region: Region { segment: id, offset: 0, len: 4096 },
        dtype: DType::F32,
        layout: Layout::contiguous(&[1024]).map_err(text)?,
    };
    let mut bytes = 256 << 20;
    while bytes >= 512 {
        match cuda.alloc_segment(bytes) {
            Ok(_) => (),
            Err(memcore::Error::DeviceFull { .. }) => bytes /= 2,
            Err(error) => return Err(text(error)),
        }
    }
    for turn in 0..4 {
        let fill = |value: i32| KernelCall::Fill(Fill { value: value.into(), out: operand });
        cuda.launch(&fill(7)).and_then(|()| cuda.launch(&fill(turn))).map_err(text)?;
        let mut found = [0; 4096];
        cuda.download(operand.region, &mut found).map_err(text)?;
        equal("the value", f32::from_le_bytes([found[0], found[1], found[2], found[3]]), turn as f32)?;
    }
    equal("graphs", emulator::part("graphs")?, 0)
}

/// With graphs the losses are the same to the bit and the events are the same, with far fewer launches once the steps
/// are alike.
fn graphs(model: &str, implementation: Implementation) -> Result<(), String> {
    // Algorithms that are timed are launches too, of whichever run is the first.
    let both = || [false, true].map(|graphs| steps_of(model, implementation, graphs));
    let [plain, graphs] = products::with_first(|| convolutions::with_first(both));
    let (plain, graphs) = (plain?, graphs?);
    runs::same(("graphs", &graphs.events), ("launches", &plain.events))?;
    let bits = |losses: &[f64]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    if bits(&plain.losses) != bits(&graphs.losses) || plain.losses.len() != 6 {
        return Err(format!("losses {:?} with graphs, {:?} without", graphs.losses, plain.losses));
    }
    equal("kernels of the first step", graphs.launches[0], plain.launches[0])?;
    let (one, other) = (graphs.launches[5], plain.launches[5]);
    if one <= 3 && other >= 10 * one {
        return Ok(());
    }
    Err(format!("launches by step: {:?} with graphs, {:?} without", graphs.launches, plain.launches))
}
