//! Plans as files for other programs: what this program reads back is the plan.

use std::fs;
use std::path::Path;

use lab::hf_args::{self, Around};
use lab::huggingface::Configuration;
use lab::recipes::Recipe;
use lab::run::{DryRunner, HandOver, RunSpec};
use serde_json::{Map, Value, json};

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": 512, "dtype": "bfloat16"}"#;

fn never() -> bool {
    false
}

fn runner() -> DryRunner<'static> {
    DryRunner::new(&[], &never)
}

/// A run around a `config.json` in a folder.
fn spec(folder: &Path, fields: Value) -> RunSpec {
    let config = folder.join("config.json");
    fs::write(&config, CONFIG).unwrap();
    let mut all = json!({
        "model-file": config, "sequence": 48, "batch": 2, "accumulate": 4, "gpu": "1GiB", "optimizer": "adamw", "optimizer-impl": "fused",
        "transformers": "5.23",
    });
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    RunSpec::of_fields(all.as_object().unwrap()).unwrap()
}

/// The files of a plan, written into its folder.
fn handed(folder: &Path, spec: &RunSpec) -> HandOver {
    let made = HandOver::of_plan(&runner(), spec, "a plan").unwrap();
    made.files.iter().for_each(|(file, text)| fs::write(folder.join(&file.name), text).unwrap());
    made
}

fn names(made: &HandOver) -> Vec<&str> {
    made.files.iter().map(|(file, _)| file.name.as_str()).collect()
}

fn why<'a>(made: &'a HandOver, name: &str) -> &'a str {
    made.left_out.iter().find(|file| file.name == name).map_or("", |file| file.why.as_str())
}

fn peak(spec: &RunSpec) -> (u64, u64) {
    let figures = runner().figures(spec).unwrap();
    (figures.allocated_bytes, figures.reserved_bytes)
}

/// The run of fields that were read from a file, with the plan's network and card.
fn read(plan: &RunSpec, fields: &Map<String, Value>, beside: &[&str]) -> RunSpec {
    let said = plan.said();
    let kept = ["model-file", "gpu", "transformers", "alloc-conf"].iter().chain(beside);
    let mut all: Map<String, Value> =
        kept.filter_map(|name| Some(((*name).to_string(), said.get(*name)?.clone()))).collect();
    all.extend(fields.clone());
    RunSpec::of_fields(&all).unwrap()
}

/// What this program reads of a recipe.
fn of_recipe(path: &Path, plan: &RunSpec) -> Map<String, Value> {
    let recipe = Recipe::read(path).unwrap().unwrap();
    let around = Around {
        config: plan.model.configuration(),
        release: plan.model.transformers,
        script: None,
        plain: plan.model.load_in_4bit,
    };
    let counted = recipe.counted(&around).unwrap();
    assert!(counted.args.refusals.is_empty(), "{path:?}: {:?}", counted.args.refusals);
    assert!(counted.args.unknown.is_empty(), "{path:?}: {:?}", counted.args.unknown);
    counted.args.fields
}

#[test]
fn what_is_read_of_a_trainers_plan_is_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let fields = json!({
        "loop": "trainer", "precision": "bf16-autocast-bf16", "checkpoint": "blocks", "alloc-conf": "expandable_segments:True",
    });
    let plan = spec(folder.path(), fields);
    let made = handed(folder.path(), &plan);
    let trainers = ["training_args.json", "axolotl.yaml", "trl.yaml"];
    for name in trainers.into_iter().chain(["train.py", "config.json", "environment.sh"]) {
        assert!(names(&made).contains(&name), "{name}: {}", why(&made, name));
    }
    let around = Around { config: plan.model.configuration(), release: plan.model.transformers, ..Around::default() };
    let of_arguments = hf_args::read(&folder.path().join("training_args.json"), &around).unwrap();
    assert!(of_arguments.refusals.is_empty() && of_arguments.unknown.is_empty(), "{of_arguments:?}");
    for name in trainers {
        let (file, _) = made.files.iter().find(|(file, _)| file.name == name).unwrap();
        assert!(file.differs.is_empty(), "{name}: {:?}", file.differs);
        let run = match name {
            "training_args.json" => read(&plan, &of_arguments.fields, &["sequence", "precision"]),
            _ => read(&plan, &of_recipe(&folder.path().join(name), &plan), &[]),
        };
        assert_eq!(peak(&run), peak(&plan), "{name}");
        assert_eq!(file.peak_bytes, Some(peak(&plan).0), "{name}");
    }
    // LLaMA-Factory trains float32 weights under autocast, or bfloat16 without it.
    assert_eq!(why(&made, "llama-factory.yaml"), "it cannot say precision = bf16-autocast-bf16");
}

#[test]
fn adapters_over_four_bits_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let fields = json!({
        "precision": "bf16", "lora": 8, "lora-target": "all-linear", "load-in-4bit": true, "optimizer": "paged-adamw8bit",
        "optimizer-impl": Value::Null, "keep": "loss", "clip-grad-norm": 1.0,
    });
    let plan = spec(folder.path(), fields);
    let made = handed(folder.path(), &plan);
    for name in ["llama-factory.yaml", "trl.yaml"] {
        assert!(names(&made).contains(&name), "{name}: {}", why(&made, name));
        let run = read(&plan, &of_recipe(&folder.path().join(name), &plan), &[]);
        assert_eq!(peak(&run), peak(&plan), "{name}");
    }
    let parts: Vec<Value> = ["peft.json", "bitsandbytes.json"]
        .map(|name| serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap())
        .into();
    assert_eq!((&parts[0]["r"], &parts[0]["target_modules"]), (&json!(8), &json!("all-linear")));
    assert_eq!((&parts[1]["load_in_4bit"], &parts[1]["bnb_4bit_use_double_quant"]), (&json!(true), &json!(false)));
}

#[test]
fn a_file_that_cannot_say_the_plan_is_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let of = |fields: Value| HandOver::of_plan(&runner(), &spec(folder.path(), fields), "a plan").unwrap();
    let chunked = of(json!({ "loss": "chunked:4" }));
    for name in ["training_args.json", "axolotl.yaml", "llama-factory.yaml", "trl.yaml"] {
        assert_eq!(why(&chunked, name), "it cannot say loss = chunked:4", "{name}");
    }
    assert!(names(&chunked).contains(&"train.py"));
    let one_by_one = of(json!({ "optimizer-impl": "loop" }));
    let reason = "transformers has no name for torch.optim.AdamW(lr=0.0001, foreach=False)";
    assert_eq!(why(&one_by_one, "trl.yaml"), reason);
    let average = of(json!({ "ema": "parameters" }));
    assert_eq!(why(&average, "train.py"), "its script does not say --ema");
    let clears = of(json!({ "zero-grad": "zero" }));
    assert_eq!(why(&clears, "axolotl.yaml"), "it cannot say zero-grad = zero");
    let fields = json!({ "model": "gpt", "batch": 2, "gpu": "1GiB" });
    let own =
        HandOver::of_plan(&runner(), &RunSpec::of_fields(fields.as_object().unwrap()).unwrap(), "a plan").unwrap();
    assert!(own.files.is_empty() && own.left_out.len() == 5, "{own:?}");
}

#[test]
fn a_script_says_what_is_kept_of_a_forward_pass() {
    let folder = tempfile::tempdir().unwrap();
    let script = |fields: Value| {
        let made = HandOver::of_plan(&runner(), &spec(folder.path(), fields), "a plan").unwrap();
        made.files.into_iter().find(|(file, _)| file.name == "train.py").map(|(_, text)| text).ok_or(made.left_out)
    };
    let kept =
        script(json!({ "checkpoint": "blocks", "checkpoint-save": "mm,addmm", "save-on-cpu": "pinned" })).unwrap();
    for line in [
        "from torch.utils.checkpoint import create_selective_checkpoint_contexts\n",
        "\nkept = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]\n",
        "gradient_checkpointing_kwargs={\"use_reentrant\": False, \"context_fn\": contexts})",
        "        with torch.autograd.graph.save_on_cpu(pin_memory=True):\n            out = model(**batch)\n",
    ] {
        assert!(kept.contains(line), "{line}: {kept}");
    }
    let liger = script(json!({ "loss": "liger" })).unwrap();
    assert!(
        liger.contains("import LigerForCausalLMLoss\n") && liger.contains("loss = loss_of(model, batch)"),
        "{liger}"
    );
    let every_second = script(json!({ "checkpoint": "blocks", "checkpoint-save": "mm:2" })).unwrap_err();
    assert!(every_second.iter().any(|left| left.name == "train.py" && left.why.contains("every second product")));
}

#[test]
fn an_optimizer_has_the_arguments_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, arguments) in [
        ("rmsprop-momentum", "momentum=0.9, foreach=True"),
        ("rmsprop-centered", "centered=True, foreach=True"),
        ("nadamw", "weight_decay=0.01, decoupled_weight_decay=True, foreach=True"),
    ] {
        let fields = json!({ "optimizer": kind, "optimizer-impl": "foreach" });
        let made = HandOver::of_plan(&runner(), &spec(folder.path(), fields), "a plan").unwrap();
        let script = made.files.iter().find(|(file, _)| file.name == "train.py").map(|(_, text)| text).unwrap();
        assert!(script.contains(&format!(", {arguments})")), "{kind}: {script}");
    }
}

#[test]
fn several_cards_have_accelerates_and_deepspeeds_files() {
    let folder = tempfile::tempdir().unwrap();
    let of = |zero: Value| {
        let fields = json!({ "data-parallel": 2, "zero": zero, "precision": "bf16", "keep": "loss", "batch": 4 });
        HandOver::of_plan(&runner(), &spec(folder.path(), fields), "a plan").unwrap()
    };
    let text = |made: &HandOver, name: &str| {
        made.files.iter().find(|(file, _)| file.name == name).map(|(_, text)| text.clone()).unwrap_or_default()
    };
    let sharded = of(3.into());
    let yaml = text(&sharded, "accelerate.yaml");
    assert!(yaml.contains("distributed_type: FSDP") && yaml.contains("num_processes: 2"), "{yaml}");
    assert!(!why(&sharded, "deepspeed.json").is_empty());
    assert!(text(&of(Value::Null), "accelerate.yaml").contains("distributed_type: MULTI_GPU"));
}

#[test]
fn known_networks_are_named_as_on_the_hub() {
    let fields = json!({ "model": "llama-3.2-1b", "sequence": 64, "batch": 1, "gpu": "h200", "precision": "bf16", "optimizer": "adamw" });
    let plan = RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
    let made = HandOver::of_plan(&runner(), &plan, "a plan").unwrap();
    let (_, recipe) = made.files.iter().find(|(file, _)| file.name == "trl.yaml").unwrap();
    assert!(recipe.contains("model_name_or_path: \"meta-llama/Llama-3.2-1B\""), "{recipe}");
    assert!(matches!(plan.model.configuration(), Some(Configuration::Known(_))));
}

/// Peaks of allocated and reserved memory, MiB, of the script that is handed over: rehearsed with PyTorch 2.11 and transformers 5.24, with so many of the first
/// blocks of six computed again.
const REHEARSED: [(&str, f64, f64); 4] = [
    ("0", 811.590_332_031_25, 858.0),
    ("0,1", 715.433_105_468_75, 758.0),
    ("0,1,2", 619.275_878_906_25, 658.0),
    ("0,1,2,3", 523.118_652_343_75, 578.0),
];

#[test]
fn some_blocks_computed_again_take_what_was_rehearsed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    let decoder = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1792, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512, "vocab_size": 8000, "dtype": "bfloat16",
        "tie_word_embeddings": false,
    });
    fs::write(&config, decoder.to_string()).unwrap();
    for (blocks, allocated, reserved) in REHEARSED {
        let fields = json!({
            "model-file": config, "sequence": 256, "batch": 16, "precision": "bf16", "optimizer": "adamw", "optimizer-impl": "fused", "keep": "loss",
            "loss": "chunked:8", "checkpoint": blocks, "alloc-conf": "expandable_segments:True", "gpu": "2GiB", "transformers": "5.23",
        });
        let plan = RunSpec::of_fields(fields.as_object().unwrap()).unwrap();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (found_allocated, found_reserved) = peak(&plan);
        assert_eq!((mib(found_allocated), mib(found_reserved)), (allocated, reserved), "{blocks}");
        let made = handed(folder.path(), &plan);
        let (_, script) = made.files.iter().find(|(file, _)| file.name == "train.py").unwrap();
        assert!(
            script.contains(&format!("gradient_checkpointing = number in [{}]", blocks.replace(',', ", "))),
            "{script}"
        );
        assert!(why(&made, "training_args.json").starts_with("it cannot say"), "{:?}", made.left_out);
    }
}
