//! Premises of an answer: type, tokens, batch, the source of each, and further settings for a `config.json` of transformers.

use crate::common;
use crate::common::{done, fits, json, refused, run};

use lab::huggingface::REPRESENTED;
use serde_json::{Value, json};
use std::fs;

/// Makes a folder with a small `config.json` with these keys.
struct Folder {
    directory: tempfile::TempDir,
    config: String,
}

impl Folder {
    fn new(keys: Value) -> Self {
        let mut config = json!({ "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 600, "max_position_embeddings": 1024 });
        keys.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, config.to_string()).unwrap();
        Self { directory, config: path.display().to_string() }
    }

    fn words<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[command, "--model-file", &self.config, "--steps", "2"], more].concat()
    }

    fn peak(&self, more: &[&str]) -> Value {
        json(&self.words("predict", more))["peak"]["bytes"].clone()
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// Joins the lines of a wrapped text.
fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The release of transformers, of which none is installed for tests.
fn release() -> String {
    format!("transformers {REPRESENTED} (the newest known, none is installed)")
}

const MAXIMUM: &str = "1 024 tokens (the configuration's maximum, --sequence N)";

#[test]
fn weights_have_the_type_that_the_file_names() {
    for (name, precision) in [("bfloat16", "bf16"), ("float16", "fp16"), ("float32", "fp32")] {
        for key in ["dtype", "torch_dtype"] {
            let folder = Folder::new(json!({ key: name }));
            let found = json(&folder.words("predict", &["--sequence", "32"]));
            assert_eq!(found["settings"]["precision"], precision);
            assert_eq!(found["peak"]["bytes"], folder.peak(&["--sequence", "32", "--precision", precision]));
            assert_eq!(found["premises"][0], json!({ "name": "precision", "value": name, "source": "config.json" }));
        }
    }
    let half = Folder::new(json!({ "dtype": "bfloat16" }));
    assert_ne!(half.peak(&["--sequence", "32"]), half.peak(&["--sequence", "32", "--precision", "fp32"]));
    let wide = Folder::new(json!({ "dtype": "float64" }));
    let said = refused(2, &wide.words("predict", &[]));
    assert!(said.contains("dtype: vramlab does not support \"float64\" weights"), "{said}");
    let text = unbroken(&done(&wide.words("predict", &["--precision", "fp32", "--sequence", "8"])));
    assert!(text.contains("float32 (--precision instead of float64 in config.json)"), "{text}");
}

#[test]
fn every_answer_names_type_tokens_and_batch_and_where_each_came_from() {
    let folder = Folder::new(json!({ "dtype": "bfloat16" }));
    let lock = folder.path("memory.lock.json");
    let page = folder.path("page.html");
    let release = release();
    let all = format!("vramlab assumes bfloat16 (config.json), {release}, {MAXIMUM}, batch 1 (default, --batch N).");
    let check = ["--update", "--baseline", &lock];
    for (command, more) in
        [("predict", &["--gpu", "24GiB", "--html", &page][..]), ("train", &["--backend", "meta"]), ("check", &check)]
    {
        let text = done(&folder.words(command, more));
        fits(&text);
        assert!(unbroken(&text).contains(&all), "{command}: {text}");
    }
    let html = fs::read_to_string(&page).unwrap();
    let said = format!("bfloat16 (config.json), {release}, 1 024 tokens");
    assert!(unbroken(&html).contains(&said), "the page does not say it");
    let fit = done(&folder.words("fit", &["--gpu", "1GiB"]));
    assert!(
        unbroken(&fit).contains(&format!(
            "vramlab assumes bfloat16 (config.json), {release}, {MAXIMUM}. vramlab takes a size as free memory,"
        )),
        "{fit}"
    );
    let fit = done(&folder.words("fit", &["--gpu", "100MiB", "--of", "sequence", "--precision", "fp32"]));
    let line = format!(
        "float32 (--precision instead of bfloat16 in config.json), {release}, batch 1 (default, --batch N). vramlab takes a size as free memory,"
    );
    assert!(unbroken(&fit).contains(&line), "{fit}");
    assert_eq!(json(&folder.words("predict", &[]))["settings"]["sequence"], 1024);
    let typed = unbroken(&done(&folder.words("predict", &["--sequence", "16", "--batch", "2", "--precision", "bf16"])));
    let line = format!("bfloat16 (--precision), {release}, 16 tokens (--sequence), batch 2 (--batch).");
    assert!(typed.contains(&line), "{typed}");
    let old = unbroken(&done(&folder.words("predict", &["--sequence", "16", "--transformers", "4.51"])));
    let line =
        "float32 (default of transformers 4.51, --precision TYPE), transformers 4.51 (--transformers), 16 tokens";
    assert!(old.contains(line), "{old}");
    let scan = unbroken(&done(&folder.words("predict", &["--sequence", "16", "-L", "batch", "1,2"])));
    assert!(
        scan.contains(&format!("bfloat16 (config.json), {release}, 16 tokens (--sequence)"))
            && !scan.contains("batch 1"),
        "{scan}"
    );
    let unnamed = unbroken(&done(&Folder::new(json!({})).words("predict", &["--sequence", "16"])));
    assert!(
        unnamed.contains(&format!("float32 (config.json names no type, --precision TYPE), {release}, 16 tokens")),
        "{unnamed}"
    );
}

#[test]
fn bf16_of_arguments_keeps_the_type_of_the_weights() {
    let folder = Folder::new(json!({ "torch_dtype": "bfloat16" }));
    let asked = |words: &[&str]| unbroken(&done(&folder.words("predict", &[&["--sequence", "8"], words].concat())));
    assert!(asked(&["--bf16", "True"]).contains("bfloat16, autocast to bfloat16 (--bf16)"));
    assert!(asked(&["--bf16", "--precision", "bf16"]).contains("bfloat16 (--precision)"));
    assert!(unbroken(&done(&["predict", "mlp", "--bf16"])).contains("float32, autocast to bfloat16 (--bf16)"));
    let error = refused(2, &folder.words("predict", &["--fp16"]));
    assert!(error.contains("fp16=true over bfloat16 weights"), "{error}");
}

#[test]
fn networks_without_a_configuration_say_it_too() {
    let text = unbroken(&done(&["predict", "--model", "gpt2", "--batch", "2"]));
    let line = "float32 (default, --precision TYPE), 1 024 tokens (default, --sequence N), batch 2 (--batch), \
        attention as matmul and softmax (default, --attention sdpa).";
    assert!(text.contains(line), "{text}");
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("own.toml");
    let text = "batch = 8\nsteps = 2\nprecision = \"bf16\"\n[input]\nshape = [64]\n[[layer]]\ntype = \"linear\"\nout = 10\n\
        [loss]\ntype = \"cross-entropy\"\n";
    fs::write(&model, text).unwrap();
    let text = unbroken(&done(&["predict", "--model-file", &model.display().to_string()]));
    assert!(text.contains("bfloat16 (own.toml), batch 8 (own.toml)."), "{text}");
}

#[test]
fn autocast_over_weights_in_bfloat16_can_be_said() {
    let folder = Folder::new(json!({ "model_type": "bert", "dtype": "bfloat16" }));
    let of = |precision| json(&folder.words("predict", &["--sequence", "256", "--precision", precision]));
    let (both, narrow, wide) = (of("bf16-autocast-bf16"), of("bf16"), of("autocast-bf16"));
    let weights = |found: &Value| found["by_category"]["parameter"].as_u64().unwrap();
    assert_eq!((weights(&both), weights(&wide) > weights(&both)), (weights(&narrow), true));
    assert_ne!(both["steps"], narrow["steps"], "norms are computed in float32");
    let text = unbroken(&done(&folder.words("predict", &["--sequence", "8", "--precision", "autocast-bf16"])));
    assert!(text.contains("float32, autocast to bfloat16 (--precision instead of bfloat16 in config.json)"), "{text}");
}

#[test]
fn the_librarys_trainer_is_one_option() {
    let folder = Folder::new(json!({}));
    let found = json(&folder.words("predict", &["--loop", "trainer", "--sequence", "32"]));
    let settings = &found["settings"];
    assert_eq!((&settings["loop"], &settings["optimizer-impl"]), (&"trainer".into(), &"fused".into()));
    assert_eq!((&settings["clip-grad-norm"], &settings["lr"]), (&1.0.into(), &5e-5.into()));
    let labels: Vec<&str> = found["steps"].as_array().unwrap().iter().filter_map(|row| row[0].as_str()).collect();
    assert_eq!(labels[..7], ["model", "s0.input", "s0.forward", "s0.backward", "s0.clip", "s0.step", "s0.zero_grad"]);
    let foreach = json(&folder.words("predict", &["--loop", "trainer", "--optimizer-impl", "foreach"]));
    assert_eq!(foreach["settings"]["optimizer-impl"], "foreach");
    for (words, part) in [
        (&["--keep", "output"][..], "--keep: with --loop trainer"),
        (&["--zero-grad", "zero"], "sets gradients to none"),
        (&["--schedule", "input,forward,backward,step"], "schedule"),
        (&["--devices", "meta:0,meta:1"], "--loop trainer: vramlab does not support it with --devices"),
        (&["--data-parallel", "2"], "--loop: vramlab does not support a Trainer with data-parallel"),
    ] {
        let said = refused(2, &[&folder.words("predict", &["--loop", "trainer"])[..], words].concat());
        assert!(said.contains(part), "{words:?}: {said}");
    }
    let said = refused(2, &["predict", "--model", "gpt2", "--loop", "trainer"]);
    assert!(said.contains("--loop: only a config.json of transformers has it"), "{said}");
}

#[test]
fn masks_and_the_place_where_a_network_is_made_can_be_said() {
    let folder = Folder::new(json!({}));
    let peak = |more: &[&str]| folder.peak(&[&["--sequence", "256"], more].concat()).as_u64().unwrap();
    let (none, full, padded) = (peak(&[]), peak(&["--attention-mask", "full"]), peak(&["--attention-mask", "padded"]));
    assert!(none < full && full < padded, "{none} {full} {padded}");
    assert_eq!(peak(&["--attention-mask", "none"]), none);
    assert!(peak(&["--attention-mask", "padded", "--attention", "eager"]) > padded);
    let settings =
        json(&folder.words("predict", &["--attention-mask", "padded", "--built-on-device"]))["settings"].clone();
    assert_eq!((&settings["attention-mask"], &settings["built-on-device"]), (&"padded".into(), &true.into()));
    for flag in [&["--attention-mask", "full"][..], &["--built-on-device"]] {
        let said = refused(2, &[&["predict", "--model", "gpt2"], flag].concat());
        assert!(said.contains(&format!("{}: only a config.json", flag[0])), "{said}");
        let divided = folder.words("predict", &["--data-parallel", "2", "--batch", "2", "--zero", "3"]);
        let said = refused(2, &[&divided[..], flag].concat());
        assert!(said.contains(&format!("{}: vramlab does not support it with zero", flag[0])), "{said}");
    }
}

#[test]
fn variables_of_the_environment_are_given_and_kept() {
    const VARIABLE: &str = "CUBLAS_WORKSPACE_CONFIG";
    let words = |more: &[&'static str]| [&["predict", "--model", "mlp", "--batch", "8", "--steps", "2"], more].concat();
    let larger = json(&words(&["--env", "CUBLAS_WORKSPACE_CONFIG=:65536:2"]));
    let peak = |found: &Value| found["peak"]["bytes"].as_u64().unwrap();
    let usual = json(&words(&[]));
    // Forward and backward are computed by threads with a workspace of their own each.
    assert_eq!(peak(&larger) - peak(&usual), 2 * (96 << 20), "128 MiB instead of 32");
    assert_eq!(larger["settings"]["env"], json!(["CUBLAS_WORKSPACE_CONFIG=:65536:2"]));
    let text = unbroken(&done(&words(&["--env", "CUBLAS_WORKSPACE_CONFIG=:65536:2"])));
    assert!(text.contains("CUBLAS_WORKSPACE_CONFIG=:65536:2 (--env)"), "{text}");
    // The environment of this program says nothing about the simulated PyTorch's.
    let ran = common::vramlab().args(words(&["--json", "-"])).env(VARIABLE, ":0:0").output().unwrap();
    let ran: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(peak(&ran), peak(&usual));
    assert!(ran["premises"].to_string().contains("set here, not taken; --env CUBLAS_WORKSPACE_CONFIG=VALUE"));
    for (value, part) in [
        ("HOME=/", "--env: HOME: vramlab does not support it; known: CUBLAS_WORKSPACE_CONFIG"),
        ("PYTORCH_ALLOC_CONF=x", "--alloc-conf"),
        ("CUBLAS_WORKSPACE_CONFIG=4096", "pairs of KiB and count"),
        ("CUBLAS_WORKSPACE_CONFIG", "expected NAME=VALUE"),
    ] {
        let said = run(&words(&["--env", value]));
        assert!(said.code == Some(2) && said.stderr.contains(part), "{value}: {}", said.stderr);
    }
    let said = refused(2, &words(&["--like", "native", "--env", "CUBLASLT_WORKSPACE_SIZE=32"]));
    assert!(said.contains("profile native is not a PyTorch's"), "{said}");
    let ran = json(&["run", "steady-state", "--backend", "meta", "--env", "CUBLAS_WORKSPACE_CONFIG=:65536:2"]);
    assert_eq!(ran["settings"]["env"], json!(["CUBLAS_WORKSPACE_CONFIG=:65536:2"]));
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (lock, config) = (path("lock.json"), path("config.toml"));
    let env = ["--env", "CUBLAS_WORKSPACE_CONFIG=:0:0", "--env", "CUBLASLT_WORKSPACE_SIZE=0"];
    done(&[&["check", "--baseline", &lock, "--update", "--model", "mlp"], &env[..]].concat());
    let kept: Value = serde_json::from_str(&fs::read_to_string(&lock).unwrap()).unwrap();
    let both = json!(["CUBLAS_WORKSPACE_CONFIG=:0:0", "CUBLASLT_WORKSPACE_SIZE=0"]);
    assert_eq!(kept["runs"]["default"]["flags"]["env"], both);
    done(&["check", "--baseline", &lock]);
    fs::write(&config, format!("model = \"mlp\"\nenv = {both}\n")).unwrap();
    assert_eq!(json(&["predict", "--config", &config])["settings"]["env"], both);
}
