//! A run's fields by name: scans, lock files and other programs edit them.

use std::path::PathBuf;

use lab_base::error::{Error, Result};
use lab_training::pipeline;
use serde_json::{Map, Value};

use super::spec::RunSpec;

/// Pairs of fields of which a run has one or the other: setting one unsets the other, and a typed flag replaces the other one of a file.
pub const RIVALS: [(&str, &str); 4] =
    [("model", "model-file"), ("load", "resume"), ("batch", "batches"), ("load-in-4bit", "load-in-8bit")];

/// Fields that cannot be combined.
const EXCLUSIVE: [(&str, &str); 34] = [
    ("modules-to-save", "data-parallel"),
    ("modules-to-save", "liger"),
    ("liger", "data-parallel"),
    ("liger", "devices"),
    ("liger", "logits-to-keep"),
    ("liger", "loss"),
    ("step-in-backward", "adversary"),
    ("step-in-backward", "data-parallel"),
    ("step-in-backward", "devices"),
    ("lora", "freeze"),
    ("lora", "adversary"),
    ("lora", "channels-last"),
    ("lora", "devices"),
    ("lora", "ema"),
    ("freeze", "adversary"),
    ("freeze", "devices"),
    ("save-on-cpu", "adversary"),
    ("save-on-cpu", "data-parallel"),
    ("save-on-cpu", "devices"),
    ("save-on-cpu", "schedule"),
    ("checkpoint-save", "adversary"),
    ("checkpoint-save", "data-parallel"),
    ("checkpoint-save", "devices"),
    ("logits-to-keep", "loss"),
    ("logits-to-keep", "data-parallel"),
    ("logits-to-keep", "devices"),
    ("logits-to-keep", "eval-every"),
    ("packing", "data-parallel"),
    ("packing", "devices"),
    ("data-parallel", "devices"),
    ("backend", "devices"),
    ("device", "devices"),
    ("load", "data-parallel"),
    ("resume", "data-parallel"),
];

/// Fields that have a meaning only beside another one.
const NEEDS: [(&str, &str); 16] = [
    ("checkpoint-save", "checkpoint"),
    ("lora-target", "lora"),
    ("lora-dropout", "lora"),
    ("dora", "lora"),
    ("modules-to-save", "lora"),
    ("rslora", "lora"),
    ("double-quant", "load-in-4bit"),
    ("eval-batch", "eval-every"),
    ("eval-steps", "eval-every"),
    ("eval-keep", "eval-every"),
    ("micro-batches", "devices"),
    ("cut", "devices"),
    ("pipeline-schedule", "devices"),
    ("zero", "data-parallel"),
    ("gradient-as-bucket-view", "data-parallel"),
    ("sync-each", "data-parallel"),
];

/// The largest size of one dimension. Products of two stay within 64 bits.
const MAX_SIZE: usize = 1 << 30;

/// The most layers: each needs memory on the host even if it needs none on the device.
const MAX_LAYERS: usize = 1 << 16;

impl RunSpec {
    /// Returns every field by name; null (or false) if it was not set.
    pub fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            // A struct of numbers and text can always be written in JSON.
            _ => Map::new(),
        }
    }

    /// Returns the fields that were set, by name.
    pub fn said(&self) -> Map<String, Value> {
        let mut fields = self.fields();
        fields.retain(|_, value| is_set(value));
        fields
    }

    /// Returns the fields of a command that repeats the run: those that were set, and a release of transformers that `--python` or a lock file gave.
    pub fn repeated(&self) -> Map<String, Value> {
        let mut spec = self.clone();
        spec.model.transformers = spec.model.transformers.or(spec.model.usual_release.given());
        spec.said()
    }

    /// True if a run has a field of this name.
    pub fn has_field(name: &str) -> bool {
        Self::default().fields().contains_key(name)
    }

    /// Returns the run with these fields changed; null unsets a field. Text is read as it would be on the command line.
    ///
    /// # Errors
    /// [`Error::Usage`] naming a field that a run does not have, or whose value cannot be read.
    pub fn with<'a>(&self, changes: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Result<Self> {
        let mut fields = self.fields();
        for (name, value) in changes {
            if !fields.contains_key(name) {
                return Err(Error::usage(name, unknown(name, &fields)));
            }
            let pipelined = name == "schedule" && is_of_a_pipeline(value);
            let name = if pipelined { "pipeline-schedule" } else { name };
            fields.insert(name.into(), understood(name, value)?);
            let rival = RIVALS.iter().find_map(|&(a, b)| match name {
                _ if name == a => Some(b),
                _ if name == b => Some(a),
                _ => None,
            });
            if let Some(rival) = rival.filter(|_| is_set(value)) {
                let unset =
                    if fields.get(rival).is_some_and(Value::is_boolean) { Value::Bool(false) } else { Value::Null };
                fields.insert(rival.into(), unset);
            }
        }
        let changed = serde_json::from_value(Value::Object(fields));
        let mut changed: Self = changed.map_err(|error| Error::usage("run", error.to_string()))?;
        changed.model.reads = self.model.reads.clone();
        changed.model.usual_release = self.model.usual_release;
        changed.model.graph.clone_from(&self.model.graph);
        changed.left_out.clone_from(&self.left_out);
        changed.of_files.clone_from(&self.of_files);
        keep(&mut changed.model.model_file, &self.model.model_file);
        keep(&mut changed.model.adversary, &self.model.adversary);
        keep(&mut changed.begin.load, &self.begin.load);
        keep(&mut changed.begin.resume, &self.begin.resume);
        Ok(changed)
    }

    /// Reads a table of a configuration file or of another program, which contains only fields of a run.
    ///
    /// # Errors
    /// Those of [`with`](Self::with); both fields of a pair of which a run has only one.
    pub fn of_fields(fields: &Map<String, Value>) -> Result<Self> {
        let stands = |name: &str| fields.get(name).is_some_and(is_set);
        if let Some((one, other)) = RIVALS.iter().find(|(one, other)| stands(one) && stands(other)) {
            return Err(Error::usage(*other, format!("it does not go with {one}")));
        }
        Self::default().with(fields.iter().map(|(name, value)| (name.as_str(), value)))
    }

    /// Refuses numbers that no run can have, and fields that cannot be combined.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the field.
    pub fn check(&self) -> Result<()> {
        self.check_part()?;
        let said = self.said();
        match NEEDS.iter().find(|(one, other)| said.contains_key(*one) && !said.contains_key(*other)) {
            Some((one, other)) => Err(Error::usage(*one, format!("it goes only with {other}{}", example(other)))),
            None => Ok(()),
        }
    }

    /// Like [`check`](Self::check), for fields to which others may be added.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the field.
    pub fn check_part(&self) -> Result<()> {
        let said = self.said();
        let together = |(one, other): &&(&str, &str)| said.contains_key(*one) && said.contains_key(*other);
        if let Some((one, other)) = EXCLUSIVE.iter().find(together) {
            return Err(Error::usage(*one, format!("it does not go with {other}")));
        }
        if let Some((one, other)) = RIVALS.iter().find(together) {
            return Err(Error::usage(*other, format!("it does not go with {one}")));
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<()> {
        let Self { model, training, shape, allocator, parallel, .. } = self;
        let sizes = [
            ("layers", model.layers, MAX_LAYERS),
            ("width", model.width, MAX_SIZE),
            ("heads", model.heads, MAX_SIZE),
            ("sequence", model.sequence, MAX_SIZE),
            ("vocabulary", model.vocabulary, MAX_SIZE),
            ("features", model.features, MAX_SIZE),
            ("image", model.image, MAX_SIZE),
            ("classes", model.classes, MAX_SIZE),
            ("choices", model.choices, MAX_SIZE),
            ("lora", training.lora, MAX_SIZE),
            ("eval-every", shape.eval_every, MAX_SIZE),
            ("eval-batch", shape.eval_batch, MAX_SIZE),
            ("eval-steps", shape.eval_steps, MAX_SIZE),
            ("data-parallel", parallel.ranks.data_parallel, MAX_SIZE),
        ];
        if let Some((name, size, most)) =
            sizes.iter().find_map(|&(name, size, most)| Some((name, size?, most)).filter(|_| size > Some(most)))
        {
            return Err(Error::usage(name, format!("{size} is more than {most}")));
        }
        let at_least_1 = [
            ("batch", training.batch),
            ("eval-every", shape.eval_every),
            ("eval-batch", shape.eval_batch),
            ("eval-steps", shape.eval_steps),
            ("accumulate", training.accumulate),
            ("micro-batches", parallel.split.micro_batches),
            ("data-parallel", parallel.ranks.data_parallel),
            ("multiprocessors", self.profile.multiprocessors.map(usize::from)),
        ];
        if let Some((name, _)) = at_least_1.iter().find(|(_, size)| *size == Some(0)) {
            return Err(Error::usage(*name, "must be at least 1"));
        }
        number("dropout", model.dropout, |p| (0.0..=1.0).contains(&p), "must lie between 0 and 1")?;
        number("memory-fraction", allocator.memory_fraction, |p| (0.0..=1.0).contains(&p), "must lie between 0 and 1")?;
        number("lr", training.lr, |lr| lr >= 0.0, "must not be negative")?;
        number("weight-decay", training.weight_decay, |decay| decay >= 0.0, "must not be negative")?;
        number("clip-grad-norm", training.clip_grad_norm, |norm| norm > 0.0, "must be above 0")?;
        if parallel.ranks.zero.is_some_and(|stage| stage > 3) {
            return Err(Error::usage("zero", "there are stages 0 to 3"));
        }
        Ok(())
    }
}

/// True if a field with this value was set.
fn is_set(value: &Value) -> bool {
    !value.is_null() && *value != Value::Bool(false)
}

/// Keeps a path as it was: its text form may lack bytes that are not text.
fn keep(now: &mut Option<PathBuf>, before: &Option<PathBuf>) {
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    if shown(now) == shown(before) {
        now.clone_from(before);
    }
}

fn number(name: &str, value: Option<f64>, is_right: impl Fn(f64) -> bool, problem: &str) -> Result<()> {
    match value {
        Some(value) if !value.is_finite() => Err(Error::usage(name, "must be finite")),
        Some(value) if !is_right(value) => Err(Error::usage(name, problem)),
        _ => Ok(()),
    }
}

/// True if a `schedule` orders the passes of a pipeline. Results of earlier versions have that order under this name.
fn is_of_a_pipeline(value: &Value) -> bool {
    value.as_str().is_some_and(|name| pipeline::Schedule::NAMES.contains(&name))
}

/// Returns a value in the form that the field takes: the value itself; for text, the number or truth value that it spells; for a number, its text; for
/// a single entry, a list with it.
fn understood(name: &str, value: &Value) -> Result<Value> {
    let alone = |value: &Value| {
        let field = Value::Object(Map::from_iter([(name.to_string(), value.clone())]));
        serde_json::from_value::<RunSpec>(field)
    };
    let problem = match alone(value) {
        Ok(_) => return Ok(value.clone()),
        Err(error) => error,
    };
    // A field that takes text, and refuses this one, does not mean a number.
    let takes_text = !problem.to_string().starts_with("invalid type: string");
    let spelled = value.as_str().filter(|_| !takes_text);
    let spelled = spelled.and_then(|text| serde_json::from_str::<Value>(text.trim()).ok());
    let as_text = value.is_number().then(|| Value::String(value.to_string()));
    let as_list = value.is_string().then(|| Value::Array(vec![value.clone()]));
    let taken = [spelled, as_text, as_list].into_iter().flatten().find(|taken| alone(taken).is_ok());
    taken.ok_or_else(|| Error::usage(name, said_plainly(&problem.to_string(), value)))
}

/// Rewrites serde's message in the words of this program.
fn said_plainly(problem: &str, value: &Value) -> String {
    match problem.rsplit_once("expected ") {
        Some((_, kind)) if problem.starts_with("invalid ") => {
            let kind = match kind {
                "usize" | "u64" | "u16" | "u8" => "a whole number",
                "f64" => "a number",
                "a boolean" => "true or false",
                other => other,
            };
            format!("expected {kind}, found {value}")
        }
        _ => problem.to_string(),
    }
}

fn unknown(name: &str, fields: &Map<String, Value>) -> String {
    let near = |known: &&String| strsim::jaro_winkler(known, name) > 0.85;
    match fields.keys().find(near) {
        Some(near) => format!("a run has no such field; did you mean {near:?}?"),
        None => "a run has no such field".into(),
    }
}

/// Returns how a field is given that others need, if its value is not plain.
fn example(field: &str) -> &'static str {
    match field {
        "data-parallel" => ", as in --data-parallel 8",
        "devices" => ", as in --devices meta:0,meta:1",
        "eval-every" => ", as in --eval-every 100",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_spec(fields: &Value) -> Result<RunSpec> {
        RunSpec::of_fields(fields.as_object().unwrap())
    }

    #[test]
    fn fields_are_edited_by_name_as_they_would_be_typed() {
        let spec =
            read_spec(&json!({ "model": "gpt", "batch": "4", "tied": true, "lr": "0.5", "memory-limit": "2GiB" }))
                .unwrap();
        assert_eq!((spec.model.name(), spec.training.batch, spec.model.tied), ("gpt", Some(4), true));
        assert_eq!((spec.training.lr, spec.fields()["memory-limit"].as_u64()), (Some(0.5), Some(2 << 30)));
        let other = spec.with([("model-file", &json!("m.toml")), ("batch", &Value::Null)]).unwrap();
        assert!(other.model.model.is_none() && other.training.batch.is_none() && other.model.tied);
        let four = read_spec(&json!({ "load-in-4bit": true, "load-in-8bit": false })).unwrap();
        let eight = four.with([("load-in-8bit", &json!(true))]).unwrap();
        assert!(four.model.load_in_4bit && eight.model.load_in_8bit && !eight.model.load_in_4bit);
        assert!(read_spec(&json!({ "load-in-4bit": true, "load-in-8bit": true })).is_err());
        assert_eq!(RunSpec::of_fields(&other.said()).unwrap(), other);
    }

    /// Values of fields that are neither numbers nor switches nor free text, or are compared with others.
    const VALUES: &str = r#"{
        "attention": "eager", "checkpoint": "1,3", "checkpoint-save": "mm,attention", "head": "causal-lm", "transformers": "4.51", "keep": "loss",
        "attention-mask": "padded", "loop": "trainer", "loss": "mean", "batches": "2,1", "lengths": "8,4", "eval-keep": "logits", "ema": "model",
        "hold": "inputs,loss", "save-on-cpu": "pinned", "optimizer": "adamw", "optimizer-impl": "fused", "freeze": "embed,!head",
        "lora-target": "q_proj,v_proj", "precision": "autocast-bf16", "zero-grad": "zero", "schedule": "input,forward", "like": "torch-2.8",
        "cudnn-workspace": 0, "env": ["A=b"], "memory-limit": 1073741824, "alloc-conf": "expandable_segments:True", "allocator": "direct",
        "gpu": "rtx4090", "backend": "meta", "tf32": "conv", "devices": "meta:0,meta:1", "cut": "1,2", "pipeline-schedule": "gpipe"
    }"#;

    /// The value of a field that a test sets: its own, or the first of a few plain ones that it takes.
    fn value_of(name: &str) -> Value {
        let own: Map<String, Value> = serde_json::from_str(VALUES).unwrap();
        let plain = [json!(true), json!(2), json!(0.25), json!("a text")];
        let takes = |value: &Value| {
            let read = read_spec(&json!({ name: value }));
            read.is_ok_and(|spec| spec.said().get(name) == Some(value))
        };
        let found = own.get(name).cloned().into_iter().chain(plain).find(takes);
        found.unwrap_or_else(|| panic!("{name}: give it a value in VALUES"))
    }

    #[test]
    fn every_field_survives_its_json() {
        let rivals = ["model-file", "load-in-8bit", "batch", "resume"];
        let fields = RunSpec::default().fields();
        let tried = fields.keys().filter(|name| !rivals.contains(&name.as_str()));
        let all: Map<String, Value> = tried.map(|name| (name.clone(), value_of(name))).collect();
        assert_eq!(read_spec(&Value::Object(all.clone())).unwrap().said(), all);
        for name in rivals {
            let one = Map::from_iter([(name.to_string(), value_of(name))]);
            assert_eq!(read_spec(&Value::Object(one.clone())).unwrap().said(), one);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_text_is_still_that_path() {
        use std::os::unix::ffi::OsStringExt;
        let path = PathBuf::from(std::ffi::OsString::from_vec(b"m\xff.toml".to_vec()));
        let mut spec = RunSpec::default();
        spec.model.model_file = Some(path.clone());
        assert_eq!(spec.fields()["model-file"], "m\u{fffd}.toml");
        let other = spec.with([("batch", &json!(4))]).unwrap();
        assert_eq!((other.model.model_file, other.training.batch), (Some(path), Some(4)));
    }

    #[test]
    fn earlier_files_name_both_schedules_alike() {
        let spec = read_spec(&json!({ "devices": "meta:0,meta:1", "schedule": "gpipe" })).unwrap();
        assert_eq!(
            (spec.parallel.split.pipeline_schedule, spec.training.schedule),
            (Some(pipeline::Schedule::Gpipe), None)
        );
    }

    #[test]
    fn what_a_run_cannot_have_is_named() {
        for (fields, message) in [
            (json!({ "batchs": 4 }), "batchs: a run has no such field; did you mean \"batch\"?"),
            (json!({ "json": "x" }), "json: a run has no such field"),
            (json!({ "batch": "many" }), "batch: expected a whole number, found \"many\""),
            (json!({ "tied": "yes" }), "tied: expected true or false, found \"yes\""),
            (json!({ "optimizer": "nosuch" }), "optimizer: unknown optimizer \"nosuch\"; known: sgd, momentum"),
            (json!({ "memory-limit": "8" }), "memory-limit: 8 bytes? Say a unit"),
        ] {
            let error = read_spec(&fields).unwrap_err().to_string();
            assert!(error.starts_with(message), "{fields}: {error}");
        }
        for (fields, message) in [
            (json!({ "layers": 1 << 20 }), "layers: 1048576 is more than 65536"),
            (json!({ "lr": -1 }), "lr: must not be negative"),
            (json!({ "dropout": 1.5 }), "dropout: must lie between 0 and 1"),
            (json!({ "batch": 0 }), "batch: must be at least 1"),
            (json!({ "zero": 4 }), "zero: there are stages 0 to 3"),
        ] {
            assert_eq!(read_spec(&fields).unwrap().check().unwrap_err().to_string(), message);
        }
    }
}
