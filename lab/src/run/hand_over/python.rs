//! The arguments of libraries of Python as a program of Python says them.

use lab_base::error::Result;
use serde_json::{Map, Value};

use super::arguments;
use super::plan::HandedPlan;
use super::{HandOver, Maker};
use crate::run::dry_runner::DryRunner;
use crate::run::spec::RunSpec;

/// A run in the words of transformers, PEFT and bitsandbytes.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonArguments {
    /// The calls, one after another.
    pub text: String,
    /// Settings of the run that they give which this one has otherwise: a trainer decides them by itself.
    pub differs: Vec<String>,
}

impl PythonArguments {
    /// Writes a run; `Err` holds why they do not have it.
    ///
    /// # Errors
    /// A network's file that cannot be read; those of dry runs.
    pub fn of_run(runner: &DryRunner<'_>, spec: &RunSpec) -> Result<Result<Self, String>> {
        let session = runner.session(spec)?;
        let Some(plan) = HandedPlan::around(spec, &session) else {
            return Ok(Err("TrainingArguments are for networks of transformers.".into()));
        };
        let maker = Maker { runner, plan: &plan, heading: "", must_fit: false };
        let mut found = HandOver::default();
        maker.add_arguments(&mut found)?;
        let Some((file, _)) = found.files.first() else {
            let why = found.left_out.first().map_or("they do not say this run", |left| left.why.as_str());
            return Ok(Err(format!("Not as TrainingArguments: {why}.")));
        };
        let calls = [
            ("BitsAndBytesConfig", arguments::few_bits(&plan)),
            ("LoraConfig", arguments::lora(&plan)),
            ("TrainingArguments", plan.optim().map(|optim| Value::Object(arguments::training(&plan, optim)))),
        ];
        let mut text = String::new();
        if let Some(settings) = spec.allocator.alloc_conf.as_deref().filter(|settings| !settings.is_empty()) {
            text += &format!("# PYTORCH_CUDA_ALLOC_CONF={settings}\n");
        }
        for (class, arguments) in calls {
            if let Some(Value::Object(arguments)) = arguments {
                text += &call(class, &arguments);
            }
        }
        Ok(Ok(Self { text, differs: file.differs.clone() }))
    }
}

/// A call with keyword arguments, one a line.
fn call(class: &str, arguments: &Map<String, Value>) -> String {
    let lines: String = arguments.iter().map(|(name, value)| format!("    {name}={},\n", literal(value))).collect();
    format!("{class}(\n{lines})\n")
}

/// A value as Python's. JSON's strings and numbers are Python's, too.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Array(values) => format!("[{}]", values.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let pairs: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), literal(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(fields: Value) -> Result<PythonArguments, String> {
        let spec = RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
        PythonArguments::of_run(&DryRunner::new(&[], &|| false), &spec).unwrap()
    }

    #[test]
    fn a_run_is_said_in_the_words_of_python() {
        let fields = json!({ "model": "qwen3-0.6b", "batch": 8, "sequence": 64, "accumulate": 2, "lora": 16, "load-in-4bit": true,
            "checkpoint": "blocks", "precision": "bf16", "alloc-conf": "expandable_segments:True" });
        let text = said(fields).unwrap().text;
        for line in [
            "# PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
            "BitsAndBytesConfig(\n    load_in_4bit=True,\n",
            "LoraConfig(\n    task_type=\"CAUSAL_LM\",\n    r=16,\n",
            "    per_device_train_batch_size=8,\n    gradient_accumulation_steps=2,\n",
            "    gradient_checkpointing_kwargs={\"use_reentrant\": False},\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn what_they_cannot_say_has_a_reason() {
        let why = said(json!({ "model": "mlp" })).unwrap_err();
        assert!(why.contains("networks of transformers"), "{why}");
    }
}
