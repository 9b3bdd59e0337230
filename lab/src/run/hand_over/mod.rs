//! A plan as files that other programs read: a script, arguments, configurations, recipes.
//!
//! Of each file that this program reads, too, the run that it gives is compared with the plan, and run dry. A file is left out if it cannot say the plan, and
//! named with the reason.

mod arguments;
mod plan;
mod python;
mod read_back;
mod recipes;
mod script;
mod several;

use lab_base::error::Result;
use lab_imports::huggingface::{Configuration, End};
use lab_imports::recipes::Recipe;
use lab_models::TUNING_FIELDS;
use lab_results::{HandedFile, NotHanded};
use lab_training::OptimizerKind;
use serde_json::Value;

use super::dry_runner::DryRunner;
use super::spec::RunSpec;
use plan::HandedPlan;
pub use python::PythonArguments;
use read_back::{Back, ReadBack};

/// The files of a plan.
#[derive(Debug, Default)]
pub struct HandOver {
    /// Those that are written, with their texts.
    pub files: Vec<(HandedFile, String)>,
    /// Those that are not, and why.
    pub left_out: Vec<NotHanded>,
}

/// Fields that TrainingArguments leave to the script and the tokenizer, beside [`TUNING_FIELDS`].
const BESIDE_ARGUMENTS: &[&str] = &["sequence", "precision", "attention"];

impl HandOver {
    /// Writes a plan, in words of `heading`.
    ///
    /// # Errors
    /// A network's file that cannot be read; those of dry runs.
    pub fn of_plan(runner: &DryRunner<'_>, spec: &RunSpec, heading: &str) -> Result<Self> {
        let session = runner.session(spec)?;
        let mut found = Self::default();
        let allocator = spec.allocator.alloc_conf.as_deref().filter(|settings| !settings.is_empty());
        if let Some(settings) = allocator {
            let text = format!("# {heading}\nexport PYTORCH_CUDA_ALLOC_CONF={settings}\n");
            found.add("environment.sh", "the allocator's variable", text);
        }
        let Some(plan) = HandedPlan::around(spec, &session) else {
            found.leave("train.py", "vramlab writes scripts for decoders of transformers: make the changes above");
            for name in ["training_args.json", "axolotl.yaml", "llama-factory.yaml", "trl.yaml"] {
                found.leave(name, "it trains networks of transformers");
            }
            return Ok(found);
        };
        let maker = Maker { runner, plan: &plan, heading, must_fit: true };
        maker.add_parts(&mut found)?;
        maker.add_arguments(&mut found)?;
        maker.add_script(&mut found);
        maker.add_recipes(&mut found)?;
        maker.add_several(&mut found);
        Ok(found)
    }

    fn add(&mut self, name: &str, purpose: &str, text: String) {
        let file = HandedFile { name: name.into(), purpose: purpose.into(), ..HandedFile::default() };
        self.files.push((file, text));
    }

    fn leave(&mut self, name: &str, why: impl Into<String>) {
        self.left_out.push(NotHanded { name: name.into(), why: why.into() });
    }

    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|(file, _)| file.name == name)
    }

    /// Adds a file that this program reads, if the run that it gives is the plan's.
    fn add_read(&mut self, name: &str, purpose: &str, text: String, back: Back) {
        match back {
            Back::Says { differs, figures } => {
                let (peak_bytes, reserved_bytes) = figures;
                let file = HandedFile {
                    name: name.into(),
                    purpose: purpose.into(),
                    differs,
                    peak_bytes: Some(peak_bytes),
                    reserved_bytes: Some(reserved_bytes),
                };
                self.files.push((file, text));
            }
            Back::Cannot(why) => self.leave(name, why),
        }
    }
}

/// Maker of the files of a plan around a network of transformers.
struct Maker<'a> {
    runner: &'a DryRunner<'a>,
    plan: &'a HandedPlan<'a>,
    heading: &'a str,
    /// Whether a run that does not surely fit is refused.
    must_fit: bool,
}

impl Maker<'_> {
    fn read_back(&self) -> ReadBack<'_> {
        ReadBack { runner: self.runner, plan: self.plan, must_fit: self.must_fit }
    }

    /// The network's configuration, adapters, weights of few bits.
    fn add_parts(&self, found: &mut HandOver) -> Result<()> {
        let config = match self.plan.configuration {
            Configuration::Known(known) => pretty(&known.config_as_data()),
            Configuration::File(path) => lab_base::files::text(path, MAX_BYTES, "a configuration")?,
        };
        found.add("config.json", "the network's configuration", config);
        if let Some(lora) = arguments::lora(self.plan) {
            found.add("peft.json", "peft.LoraConfig", pretty(&lora));
        }
        if let Some(bits) = arguments::few_bits(self.plan) {
            found.add("bitsandbytes.json", "transformers.BitsAndBytesConfig", pretty(&bits));
        }
        Ok(())
    }

    fn add_arguments(&self, found: &mut HandOver) -> Result<()> {
        const NAME: &str = "training_args.json";
        let Some(optim) = self.plan.optim() else {
            found.leave(NAME, self.no_optim());
            return Ok(());
        };
        let given = arguments::training(self.plan, optim);
        let read_back = self.read_back();
        let read = lab_imports::hf_args::counted(&given, NAME, &read_back.around())?;
        let back = read_back.compared(&read, &[BESIDE_ARGUMENTS, &TUNING_FIELDS].concat())?;
        let purpose = "TrainingArguments, --hf-args";
        found.add_read(NAME, purpose, pretty(&Value::Object(given)), back);
        Ok(())
    }

    fn add_script(&self, found: &mut HandOver) {
        const NAME: &str = "train.py";
        let said = self.plan.spec.said();
        let is_said = |name: &&str| script::SAID.contains(name) || TUNING_FIELDS.contains(name);
        let unsaid: Vec<&str> = said.keys().map(String::as_str).filter(|name| !is_said(name)).collect();
        if !self.plan.model.predicts_next() {
            found.leave(NAME, "vramlab writes scripts for decoders of transformers: make the changes above");
        } else if !unsaid.is_empty() {
            let flags: Vec<String> = unsaid.iter().map(|name| format!("--{name}")).collect();
            found.leave(NAME, format!("its script does not say {}", flags.join(", ")));
        } else if self.plan.model.options().end == End::Kernels {
            found.leave(
                NAME,
                "vramlab writes no script with Liger's kernels: they are liger_kernel's patch of the model",
            );
        } else if self.plan.run.checkpoint_save.as_ref().is_some_and(|save| save.operators().1) {
            found.leave(NAME, "vramlab writes no script that computes every second product again");
        } else if self.plan.run.optimizer.kind == OptimizerKind::Muon {
            found.leave(
                NAME,
                "vramlab writes no script with Muon, which is an optimizer of some parameters beside another",
            );
        } else if self.plan.spec.model.by_trainer() && self.plan.chosen_blocks().is_some() {
            found.leave(NAME, "the Trainer checkpoints every block");
        } else if self.plan.spec.model.by_trainer() && !found.has("training_args.json") {
            found.leave(NAME, "it needs training_args.json");
        } else {
            found.add(NAME, "a script: python, vramlab rehearse", script::text(self.plan, self.heading));
        }
    }

    fn add_recipes(&self, found: &mut HandOver) -> Result<()> {
        let names = ["axolotl.yaml", "llama-factory.yaml", "trl.yaml"];
        let Some(optim) = self.plan.optim() else {
            names.iter().for_each(|name| found.leave(name, self.no_optim()));
            return Ok(());
        };
        if !self.plan.model.predicts_next() {
            names.iter().for_each(|name| found.leave(name, "it trains decoders"));
            return Ok(());
        }
        let of_trl = recipes::trl(self.plan, arguments::training(self.plan, optim));
        let all = [
            ("axolotl train", recipes::axolotl(self.plan, optim)),
            ("llamafactory-cli train", recipes::llama_factory(self.plan, optim)),
            ("trl sft --config", of_trl),
        ];
        for (name, (command, lines)) in names.into_iter().zip(all) {
            let heading = format!("{}\nYour data stand where the file says your-data.", self.heading);
            let text = recipes::text(&heading, &lines);
            let back = match Recipe::of_text(name, &text)? {
                Some(recipe) => {
                    self.read_back().compared(&recipe.counted(&self.read_back().around())?.args, &["alloc-conf"])?
                }
                None => Back::Cannot("vramlab does not recognise it".into()),
            };
            found.add_read(name, &format!("{command}, --recipe"), text, back);
        }
        Ok(())
    }

    /// Files for several cards.
    fn add_several(&self, found: &mut HandOver) {
        if self.plan.ranks() == 1 {
            let why = "one card needs none";
            ["accelerate.yaml", "deepspeed.json"].iter().for_each(|name| found.leave(name, why));
            return;
        }
        match several::deepspeed(self.plan) {
            Some(config) => found.add("deepspeed.json", "TrainingArguments(deepspeed=…)", pretty(&config)),
            None => found.leave("deepspeed.json", "the plan has none of ZeRO's first two stages"),
        }
        let text = several::accelerate(self.plan, self.heading);
        found.add("accelerate.yaml", "accelerate launch --config_file", text);
    }

    fn no_optim(&self) -> String {
        let (class, arguments) = self.plan.optimizer_call();
        format!("transformers has no name for {class}({arguments})")
    }
}

/// Largest configuration that is copied, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// JSON for people.
fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
