//! A network from the inside: its modules, and what the forward pass leaves for the backward pass.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lab_base::error::{Error, Result};
use lab_results::{ModuleResult, NetworkResult, OperatorResult, Settings};
use lab_training::{Continuation, Phase, RunSettings, Schedule};
use memcore::memory::{AllocId, Category, CategoryBytes, Ledger, Live, ScopeId};
use memcore::tape::{TapeEntry, TapeResult};
use memcore::{Deviations, Device};

use super::network::Network;
use super::session::Session;
use super::spec::{RunSpec, TrainingSpec};

/// Operator's name for saved tensors that belong to no node of the graph: the inputs of checkpointed modules.
const KEPT: &str = "checkpoint";

/// Figures of one place: a module, with the line of the program if the network's file has it.
#[derive(Default)]
struct Modules {
    all: Vec<ModuleResult>,
    /// Index by path.
    by_path: BTreeMap<String, usize>,
}

impl Modules {
    /// The module with this path, after the modules around it.
    fn at(&mut self, path: &str) -> &mut ModuleResult {
        let index = match self.by_path.get(path) {
            Some(index) => *index,
            None => {
                if !path.is_empty() {
                    self.at(path.rsplit_once('.').map_or("", |(outer, _)| outer));
                }
                self.all.push(ModuleResult { path: path.into(), ..ModuleResult::default() });
                self.by_path.insert(path.into(), self.all.len() - 1);
                self.all.len() - 1
            }
        };
        &mut self.all[index]
    }

    /// Calls with the module and all modules around it.
    fn up(&mut self, path: &str, tell: &dyn Fn(&mut ModuleResult)) {
        tell(self.at(path));
        if let Some((outer, _)) = path.rsplit_once('.') {
            self.up(outer, tell);
        } else if !path.is_empty() {
            tell(self.at(""));
        }
    }

    fn operator(&mut self, (path, line): (&str, Option<&str>), name: &str, saved_bytes: u64) {
        self.up(path, &|module| module.saved_bytes += saved_bytes);
        let operators = &mut self.at(path).operators;
        let found = operators.iter().position(|one| one.name == name && one.line.as_deref() == line);
        let index = found.unwrap_or_else(|| {
            operators.push(OperatorResult { name: name.into(), line: line.map(String::from), ..Default::default() });
            operators.len() - 1
        });
        operators[index].times += 1;
        operators[index].saved_bytes += saved_bytes;
    }
}

/// Splits a scope into module and line: exports attribute memory to `layers.0 (model.py:41)`, or to `model.py:41` alone.
fn place(scope: &str) -> (&str, Option<&str>) {
    match scope.strip_suffix(')').and_then(|scope| scope.split_once(" (")) {
        Some((module, line)) => (module, Some(line)),
        None if scope.contains(':') => ("", Some(scope)),
        None => (scope, None),
    }
}

impl Session {
    /// Makes a dry run of forward and loss with enough memory. Returns what each module has, returns and saves; and the ways in which it differs from
    /// PyTorch.
    ///
    /// # Errors
    /// Settings that cannot work; [`Error::Interrupted`] if it was stopped.
    pub fn inside(&self, stop: &dyn Fn() -> bool) -> Result<(NetworkResult, Deviations)> {
        let device = self.target.endless()?.open()?;
        device.tape().keep_results();
        let order = vec![Phase::Input, Phase::Forward, Phase::Loss];
        let schedule = Schedule { order, rows: Vec::new(), ..self.run.schedule.clone() };
        let run = RunSettings { steps: 1, accumulate: 1, schedule, ..self.run.clone() };
        let mut found = None;
        let look = &mut |_| {
            found = Some(self.looked_at(&device));
            ControlFlow::Break(())
        };
        let result = self.network.train(&device, &run, &self.source, &mut Continuation::default(), look)?;
        match found {
            Some(found) if !stop() => {
                Ok((NetworkResult { parameters: result.parameters, ..found }, device.deviations()))
            }
            _ => Err(Error::Interrupted),
        }
    }

    /// Fields that decide the answer.
    fn settings_inside(&self) -> Settings {
        let TrainingSpec { batch, precision, .. } = self.in_force.training;
        let (model, profile) = (self.in_force.model.clone(), self.in_force.profile.clone());
        let training = TrainingSpec { batch, precision, ..TrainingSpec::default() };
        RunSpec { model, training, profile, ..RunSpec::default() }.fields()
    }

    /// The pieces of an exported network, which `--cut` numbers.
    fn pieces(&self) -> Option<String> {
        let Network::Exported(model, _) = &self.network else { return None };
        model.adversary().is_none().then(|| model.pieces_in_words())
    }

    /// Contents of the device now, with the graph.
    fn looked_at(&self, device: &Device) -> NetworkResult {
        let (entries, results) = (device.tape().entries(), device.tape().results());
        let (modules, sums) = device.with_ledger(|ledger| modules(ledger, &entries, &results));
        NetworkResult {
            settings: self.settings_inside(),
            model: self.in_force.model.shown_name(),
            description: self.description(),
            premises: self.premises.clone(),
            parameters: 0,
            parameter_bytes: sums[Category::Parameter as usize],
            buffer_bytes: sums[Category::Buffer as usize],
            input_bytes: sums[Category::Input as usize],
            saved_bytes: sums[Category::Activation as usize],
            modules,
            pieces: self.pieces(),
            notes: self.warnings(),
        }
    }
}

/// Modules, and bytes by category.
fn modules(ledger: &Ledger, entries: &[TapeEntry], results: &[TapeResult]) -> (Vec<ModuleResult>, CategoryBytes) {
    let mut modules = Modules::default();
    modules.at("");
    let usage = ledger.usage();
    let path = |scope: ScopeId| place(ledger.scope_path(scope));
    // First, so that modules stand in the order in which they run.
    for result in results {
        let (module, _) = path(result.scope);
        modules.up(module, &|module| {
            (module.output, module.output_dtype) = (Some(result.dims.clone()), Some(result.dtype.to_string()));
        });
    }
    let mut live: Vec<(AllocId, &Live)> = usage.all_live().collect();
    live.sort_by_key(|(id, _)| *id);
    for (_, held) in &live {
        let (module, bytes) = (path(held.origin.scope).0, held.bytes);
        match held.category {
            Category::Parameter => modules.up(module, &|module| module.parameter_bytes += bytes),
            Category::Buffer => modules.up(module, &|module| module.buffer_bytes += bytes),
            _ => {}
        }
    }
    let mut seen = BTreeSet::new();
    let saved = |id: AllocId| usage.live(id).filter(|held| held.category == Category::Activation);
    for entry in entries {
        let new = entry.allocations.iter().flatten().filter(|id| saved(**id).is_some() && seen.insert(**id));
        let bytes = new.filter_map(|id| saved(*id)).map(|held| held.bytes).sum();
        modules.operator(path(entry.scope), entry.name, bytes);
    }
    for (id, held) in live.iter().filter(|(_, held)| held.category == Category::Activation) {
        if seen.insert(*id) {
            modules.operator(path(held.origin.scope), KEPT, held.bytes);
        }
    }
    (modules.all, *usage.by_category())
}
