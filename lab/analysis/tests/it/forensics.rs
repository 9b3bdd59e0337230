//! Ten programs that leak and more than ten that do not are all classified correctly; also the step at which memory runs out.

use std::sync::Arc;

use lab_analysis::forensics::{Cause, Leak, Watch};
use lab_models::{ModelOptions, architecture};
use lab_training::{OptimizerKind, OptimizerSettings, RunSettings, Schedule, Source, Trainer};
use memcore::backend::kernel::Reduction;
use memcore::backend::{Limited, Meta};
use memcore::memory::Category;
use memcore::nn::{Init, Linear, Module, Parameter};
use memcore::optim::{Adam, AdamOptions, Optimizer};
use memcore::{Array, DType, Device, NoGrad, Profile, Result, Tensor, ops};

const STEPS: usize = 40;
const BATCH: usize = 32;

/// `Linear(10, 20) → ReLU → Linear(20, 1)` with Adam, and a script's variables.
struct Script {
    device: Device,
    hidden: Linear,
    output: Linear,
    parameters: Vec<Parameter>,
    optimizer: Adam,
    x: Option<Tensor>,
    y: Option<Tensor>,
    out: Option<Tensor>,
    loss: Option<Tensor>,
    list: Vec<Tensor>,
    optimizers: Vec<Adam>,
    gradients: Vec<Array>,
}

fn adam(parameters: Vec<Parameter>) -> Result<Adam> {
    Adam::new(parameters, AdamOptions::adam())
}

fn random(device: &Device, dims: &[usize]) -> Result<Tensor> {
    let _op = memcore::context::op("to>_to_copy");
    let array = Array::empty_as(device, dims, DType::F32, Category::Input)?;
    array.uniform_(-1.0, 1.0)?;
    Ok(Tensor::from_array(array))
}

impl Script {
    fn new(device: &Device) -> Result<Self> {
        let init = Init::new(device, DType::F32, 0);
        let hidden = Linear::new(&init.at("hidden"), 10, 20, true)?;
        let output = Linear::new(&init.at("output"), 20, 1, true)?;
        let parameters = init.parameters();
        let optimizer = adam(parameters.clone())?;
        let (x, y, out, loss) = (None, None, None, None);
        let (list, optimizers, gradients) = (Vec::new(), Vec::new(), Vec::new());
        let device = device.clone();
        Ok(Self { device, hidden, output, parameters, optimizer, x, y, out, loss, list, optimizers, gradients })
    }

    fn load(&mut self, batch: usize) -> Result<()> {
        self.x = Some(random(&self.device, &[batch, 10])?);
        self.y = Some(random(&self.device, &[batch, 1])?);
        Ok(())
    }

    /// Returns the hidden activations.
    fn forward(&mut self) -> Result<Tensor> {
        let before = self.hidden.forward(self.x.as_ref().unwrap())?;
        let h = ops::relu(&before)?;
        drop(before);
        self.out = Some(self.output.forward(&h)?);
        Ok(h)
    }

    fn compute_loss(&mut self) -> Result<Tensor> {
        let loss = ops::mse_loss(self.out.as_ref().unwrap(), self.y.as_ref().unwrap(), Reduction::Mean)?;
        self.loss = Some(loss.clone());
        Ok(loss)
    }

    /// Makes a complete step; returns the hidden activations.
    fn train(&mut self, batch: usize) -> Result<Tensor> {
        self.load(batch)?;
        self.optimizer.zero_grad(true)?;
        let h = self.forward()?;
        self.compute_loss()?.backward(false)?;
        self.optimizer.step()?;
        Ok(h)
    }
}

/// Actions of a program in step `.1`.
type Step = fn(&mut Script, usize) -> Result<()>;

/// Programs that leak, each with its kind of mistake.
const LEAKING: &[(&str, Cause, Step)] = &[
    ("activations in a list", Cause::KeptTensors, |s, _| {
        let h = s.train(BATCH)?;
        s.list.push(h);
        Ok(())
    }),
    ("losses in a list", Cause::KeptLosses, |s, _| {
        drop(s.train(BATCH)?);
        s.list.extend(s.loss.clone());
        Ok(())
    }),
    ("losses in a list, never backward", Cause::LivingGraph, |s, _| {
        s.load(BATCH)?;
        drop(s.forward()?);
        let loss = s.compute_loss()?;
        s.list.push(loss);
        Ok(())
    }),
    ("retain_graph, losses in a list", Cause::LivingGraph, |s, _| {
        s.load(BATCH)?;
        s.optimizer.zero_grad(true)?;
        drop(s.forward()?);
        let loss = s.compute_loss()?;
        loss.backward(true)?;
        s.optimizer.step()?;
        s.list.push(loss);
        Ok(())
    }),
    ("evaluation in a list, with its graph", Cause::LivingGraph, |s, _| {
        s.load(BATCH)?;
        drop(s.forward()?);
        s.list.extend(s.out.clone());
        Ok(())
    }),
    ("evaluation in a list, without a graph", Cause::KeptTensors, |s, _| {
        drop(s.train(BATCH)?);
        let _no_grad = NoGrad::new();
        drop(s.forward()?);
        s.list.extend(s.out.clone());
        Ok(())
    }),
    ("batches in a list", Cause::KeptBatches, |s, _| {
        drop(s.train(BATCH)?);
        s.list.extend(s.x.clone());
        Ok(())
    }),
    ("a history that is concatenated", Cause::GrowingTensor, |s, _| {
        drop(s.train(BATCH)?);
        let new = s.x.as_ref().unwrap().detach();
        let _no_grad = NoGrad::new();
        let joined = match s.list.pop() {
            Some(history) => ops::cat(&[&history, &new], 0)?,
            None => ops::clone(&new)?,
        };
        s.list.push(joined);
        Ok(())
    }),
    ("a result kept in every third step", Cause::KeptTensors, |s, i| {
        drop(s.train(BATCH)?);
        if i % 3 == 0 {
            s.list.push(s.out.as_ref().unwrap().detach());
        }
        Ok(())
    }),
    ("a new optimizer in each step, the old ones kept", Cause::KeptOptimizers, |s, _| {
        drop(s.train(BATCH)?);
        let new = adam(s.parameters.clone())?;
        s.optimizers.push(std::mem::replace(&mut s.optimizer, new));
        Ok(())
    }),
    ("copies of the gradients in a list", Cause::KeptGradients, |s, _| {
        drop(s.train(BATCH)?);
        let _op = memcore::context::op("clone");
        let copies: Result<Vec<Array>> = s
            .parameters
            .iter()
            .filter_map(Parameter::grad)
            .map(|g| {
                let copy = g.empty_like()?.with_category(Category::Gradient);
                copy.copy_(&g)?;
                Ok(copy)
            })
            .collect();
        s.gradients.extend(copies?);
        Ok(())
    }),
    ("activations kept, batches of any size", Cause::KeptTensors, |s, i| {
        let h = s.train([32, 7, 64, 19][i % 4])?;
        s.list.push(h);
        Ok(())
    }),
];

/// Programs that do not leak, although some look as if they did.
const CLEAN: &[(&str, Step)] = &[
    ("plain training", |s, _| s.train(BATCH).map(drop)),
    ("the list is cleared in each step", |s, _| {
        let h = s.train(BATCH)?;
        s.list.push(h);
        s.list.clear();
        Ok(())
    }),
    ("the list is cleared in every eighth step", |s, i| {
        let h = s.train(BATCH)?;
        s.list.push(h);
        if i % 8 == 7 {
            s.list.clear();
        }
        Ok(())
    }),
    ("the last four results", |s, _| {
        drop(s.train(BATCH)?);
        s.list.extend(s.out.clone());
        if s.list.len() > 4 {
            s.list.remove(0);
        }
        Ok(())
    }),
    ("retain_graph, the next loss takes the variable", |s, _| {
        s.load(BATCH)?;
        s.optimizer.zero_grad(true)?;
        drop(s.forward()?);
        s.compute_loss()?.backward(true)?;
        s.optimizer.step()
    }),
    ("never zero_grad", |s, _| {
        s.load(BATCH)?;
        drop(s.forward()?);
        s.compute_loss()?.backward(false)?;
        s.optimizer.step()
    }),
    ("batches of any size", |s, i| s.train([32, 7, 640, 19, 128][i % 5]).map(drop)),
    ("a larger batch in each step", |s, i| s.train(100 + 20 * i).map(drop)),
    ("evaluation now and then", |s, i| {
        drop(s.train(BATCH)?);
        if i % 5 == 4 {
            let _no_grad = NoGrad::new();
            s.load(500)?;
            drop(s.forward()?);
        }
        Ok(())
    }),
    ("accumulation over four batches", |s, i| {
        s.load(BATCH)?;
        drop(s.forward()?);
        s.compute_loss()?.backward(false)?;
        if i % 4 == 3 {
            s.optimizer.step()?;
            s.optimizer.zero_grad(true)?;
        }
        Ok(())
    }),
    ("layers that are used from some step on", |s, i| {
        // The second layer's parameters get gradients and state from step 15 on, the bias of the first from step 27 on.
        s.load(BATCH)?;
        s.optimizer.zero_grad(true)?;
        let bias = s.hidden.bias.as_ref().filter(|_| i > 27).map(Parameter::tensor);
        let h = ops::linear(s.x.as_ref().unwrap(), s.hidden.weight.tensor(), bias)?;
        let out = if i > 15 { s.output.forward(&h)? } else { ops::narrow(&h, 1, 0, 1)? };
        s.out = Some(out);
        s.compute_loss()?.backward(false)?;
        s.optimizer.step()
    }),
    ("losses as numbers on the host", |s, _| {
        drop(s.train(BATCH)?);
        s.loss = s.loss.take().map(|loss| loss.detach());
        Ok(())
    }),
    ("a new optimizer now and then", |s, i| {
        drop(s.train(BATCH)?);
        if i % 9 == 8 {
            s.optimizer = adam(s.parameters.clone())?;
        }
        Ok(())
    }),
];

fn device(profile: &str) -> Device {
    Device::builder(Arc::new(Meta::default())).profile(Profile::named(profile).unwrap()).build()
}

fn watched(profile: &str, step: Step, steps: usize) -> (Option<Leak>, u64) {
    let device = device(profile);
    let mut script = Script::new(&device).unwrap();
    let mut watch = Watch::new(&device);
    let mut after = Vec::new();
    for i in 0..steps {
        step(&mut script, i).unwrap();
        watch.step();
        after.push(device.usage().allocated_bytes());
    }
    watch.look();
    (watch.leak().cloned(), after[steps - 1].saturating_sub(after[steps - 2]))
}

#[test]
fn ten_leaking_and_ten_clean_programs_are_told_apart() {
    const { assert!(LEAKING.len() >= 10 && CLEAN.len() >= 10) };
    for profile in ["native", "torch-2.11-sm90"] {
        for (name, cause, step) in LEAKING {
            for steps in [STEPS, 15, 200] {
                let (leak, _) = watched(profile, *step, steps);
                let leak = leak.unwrap_or_else(|| panic!("{name} under {profile} in {steps} steps: nothing found"));
                assert_eq!(leak.cause, *cause, "{name} under {profile}: {leak:?}");
                assert!(leak.growth_bytes_per_step > 0 && !leak.advice.is_empty(), "{name}: {leak:?}");
                assert!(!leak.holder.is_empty() && !leak.sites[0].op.is_empty(), "{name}: {leak:?}");
            }
        }
        for (name, step) in CLEAN {
            for steps in [STEPS, 15, 200] {
                let (leak, _) = watched(profile, *step, steps);
                assert!(leak.is_none(), "{name} under {profile} in {steps} steps: {leak:?}");
            }
        }
    }
}

#[test]
fn the_growth_is_exact_and_the_path_leads_to_the_memory() {
    let of = |name: &str| LEAKING.iter().find(|(known, ..)| *known == name).unwrap().2;
    let (leak, added) = watched("native", of("activations in a list"), STEPS);
    let leak = leak.unwrap();
    assert_eq!((leak.growth_bytes_per_step, added), (2560, 2560));
    assert_eq!((leak.sites[0].bytes_per_step, leak.sites[0].op.as_str()), (2560, "relu>clamp_min"), "{leak:?}");
    let (leak, added) = watched("native", of("losses in a list, never backward"), STEPS);
    let leak = leak.unwrap();
    assert_eq!(leak.growth_bytes_per_step, added);
    assert!(leak.nodes_per_step >= 5, "{leak:?}");
    let sum: u64 = leak.sites.iter().map(|site| site.bytes_per_step).sum();
    assert_eq!(sum, added, "the sites explain all of it: {leak:?}");
    let path: Vec<&str> = leak.holder.iter().map(|hop| hop.what.as_str()).collect();
    assert!(path[0].contains("MseLossBackward0") && path[1] == "MseLossBackward0", "{path:?}");
    assert!(path[path.len() - 2].starts_with("saved "), "{path:?}");
}

#[test]
fn the_step_that_runs_out_of_memory_is_foretold() {
    let leak = LEAKING[0].2;
    let open = |bytes| {
        let backend = Limited::new(Meta::default(), bytes);
        Device::builder(Arc::new(backend)).profile(Profile::native()).build()
    };
    let device = open(16 << 20);
    let mut script = Script::new(&device).unwrap();
    let mut watch = Watch::new(&device);
    let (mut foretold, mut failed) = (None, None);
    for i in 0..20_000 {
        if let Err(error) = leak(&mut script, i) {
            assert!(error.is_out_of_memory(), "{error}");
            failed = Some(i as u64 + 1);
            break;
        }
        watch.step();
        if i == 30 {
            foretold = watch.leak().unwrap().out_of_memory_step;
        }
    }
    let (foretold, failed) = (foretold.unwrap(), failed.unwrap());
    // The uncertainty is one small segment.
    let uncertain = (2 << 20) / 2560;
    assert!(failed <= foretold && foretold <= failed + uncertain, "{foretold} foretold, {failed} failed");
    assert_eq!(watch.leak().unwrap().growth_bytes_per_step, 2560, "known when memory has run out");
}

#[test]
fn networks_that_keep_things_are_found_in_training() {
    for (model, op) in [("two-layer", "clamp_min"), ("seq2seq-attention", "softmax")] {
        for (keeps, clears) in [(false, false), (true, false), (true, true)] {
            let device = device("native");
            let options = ModelOptions { keep_intermediate: keeps, ..ModelOptions::default() };
            let network = architecture(model, &options).unwrap();
            let mut settings = RunSettings::new(8, 12, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
            if clears {
                let order = ["input", "zero_grad", "forward", "loss", "backward", "step", "clear"];
                settings.schedule = Schedule::new(&order.map(String::from), "s").unwrap();
            }
            let mut trainer = Trainer::build(&*network, &device, &settings, Source::Synthetic { seed: 0 }, "").unwrap();
            let mut watch = Watch::new(&device);
            for step in 0..settings.steps {
                trainer.step(step).unwrap();
                watch.step();
            }
            watch.look();
            let leak = watch.leak().cloned();
            assert_eq!(leak.is_some(), keeps && !clears, "{model}, keeps {keeps}, clears {clears}: {leak:?}");
            if let Some(leak) = leak {
                assert!(leak.sites[0].op.contains(op), "{model}: {leak:?}");
                assert_eq!(leak.cause, Cause::KeptTensors, "{model}: {leak:?}");
            }
        }
    }
}
