//! `vramlab predict MODEL` of networks that are not built in. A shell script plays the user's Python with the driver's recorded answers; with
//! `VRAMLAB_REHEARSAL_PYTHON` the PyTorch of that Python builds them.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{self, Ran};

/// What the driver told of an OLMo 2 (transformers 5.17.0).
const CHOSEN: &str = r#"{"name": "olmo", "library": "transformers 5.17.0", "class": "Olmo2ForCausalLM", "head": "", "loss": "the class's own, from labels", "dtype": "bfloat16", "dtype_from": "config.json", "tokens": 2048, "tokens_from": "default; --sequence N", "inputs": [], "notes": [], "program": "import torch\nprint(1)", "parameters": 12, "layers": 2}"#;
const REFUSED: &str =
    r#"{"refused": "transformers 4.40.0 has no model_type 'olmo2'", "instead": "pip install -U transformers"}"#;

/// The program, which may start a Python.
fn vramlab() -> Command {
    let mut command = common::vramlab();
    command.env_remove("VRAMLAB_ONLY_BUILT_IN");
    command
}

fn run(args: &[&str]) -> Ran {
    common::ran(vramlab().args(args), args)
}

/// Runs the program, which must end with this code and one error. Returns the error's first line.
fn refused(code: i32, args: &[&str]) -> String {
    common::error_of(code, args, run(args))
}

/// A folder with a network that is not built in, and a program that plays Python.
struct Played {
    folder: TempDir,
}

impl Played {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({ "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 64 });
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let python = folder.path().join("python");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    /// Predicts what lies in the folder under this name, with the played Python.
    fn predict(&self, name: &str, flags: &[&str]) -> Ran {
        let (model, python) = (self.path(name), self.path("python"));
        run(&[&["predict", model.as_str(), "--python", python.as_str()][..], flags].concat())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

#[test]
fn the_program_is_printed_and_nothing_is_rehearsed() {
    let played = Played::new(&format!("echo 'Loading'; printf '%s\\n' '{}'", CHOSEN.replace('\'', "'\\''")));
    let ran = run(&["predict", &played.path("config.json"), "--script", "--python", &played.path("python")]);
    assert_eq!((ran.code, ran.stdout.trim_end()), (Some(0), "import torch\nprint(1)"), "{}", ran.stderr);
}

/// What a library does to a network is left to that library, also where the network is built in.
#[test]
fn a_network_that_is_built_in_is_left_to_python_for_what_libraries_do() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let played = Played::new(&format!("cp \"$2\" {}; echo '{{\"refused\": \"no peft\"}}'", seen.path().display()));
    let config = json!({ "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100 });
    fs::write(played.folder.path().join("config.json"), config.to_string()).unwrap();
    for flags in [
        &["--lora", "8"][..],
        &["--lora", "8", "--checkpoint", "blocks", "--dora"],
        &["--lora", "8", "--precision", "autocast-bf16"],
        &["--lora", "8", "--precision", "bf16", "--load-in-4bit", "--double-quant"],
        &["--lora", "8", "--precision", "bf16", "--load-in-8bit", "--checkpoint", "blocks"],
    ] {
        let built_in = played.predict("config.json", flags);
        assert!(
            built_in.code == Some(0) && !built_in.stderr.contains("not built in"),
            "{flags:?}: {}",
            built_in.stderr
        );
    }
    for (flags, why) in [
        (&["--load-in-4bit", "--precision", "bf16"][..], "--load-in-4bit (quantized weights without adapters)"),
        (&["--load-in-8bit", "--lora", "8"], "--load-in-8bit (weights that are quantized from float32)"),
    ] {
        let ran = played.predict("config.json", &[flags, &["--script"]].concat());
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.stderr);
        let ran = played.predict("config.json", flags);
        assert!(ran.stderr.contains(&format!("not built in: {why}")), "{flags:?}: {}", ran.stderr);
    }
    let request: Value = serde_json::from_slice(&fs::read(seen.path()).unwrap()).unwrap();
    assert_eq!((&request["bits"], &request["lora"]), (&json!(8), &json!(8)));
    let gpt = run(&["predict", "gpt2", "--load-in-4bit"]);
    assert!(
        gpt.code == Some(2) && gpt.stderr.contains("your Python and its bitsandbytes build the network"),
        "{}",
        gpt.stderr
    );
}

#[test]
fn the_driver_is_told_the_flags() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let played =
        Played::new(&format!("cp \"$2\" {}; echo '{REFUSED}'", seen.path().display()).replace("'olmo2'", "olmo2"));
    let flags = ["--batch", "4", "--sequence", "128", "--optimizer", "sgd", "--checkpoint", "blocks", "--script"];
    let ran = played.predict("", &flags);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let request: Value = serde_json::from_slice(&fs::read(seen.path()).unwrap()).unwrap();
    let sgd = ["torch.optim.SGD", "lr=1e-3"];
    let expected = json!({ "batch": 4, "sequence": 128, "optimizer": sgd, "checkpoint": "blocks", "mode": "plan" });
    expected.as_object().unwrap().iter().for_each(|(name, value)| assert_eq!(&request[name], value, "{name}"));
}

#[test]
fn the_phases_of_a_run_are_asked_of_a_python() {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let played = Played::new(&format!(
        "cp \"$2\" {}; printf '%s\\n' '{}'",
        seen.path().display(),
        CHOSEN.replace('\'', "'\\''")
    ));
    let told = |flags: &[&str]| {
        let ran = played.predict("config.json", &[flags, &["--script"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let request: Value = serde_json::from_slice(&fs::read(seen.path()).unwrap()).unwrap();
        (request["phases"].clone(), request["steps"].clone())
    };
    assert_eq!(told(&["--phases"]), (json!(32), json!(3)));
    assert_eq!(told(&["--phases=8", "--steps", "5"]), (json!(8), json!(5)));
    assert_eq!(told(&[]).0, Value::Null);
    for model in ["model.pt2", "own.toml"] {
        let error = refused(2, &["predict", "--model-file", model, "--phases"]);
        assert!(error.contains("vramlab rehearse --phases --gpu h100 python train.py"), "{model}: {error}");
    }
    let mut command = vramlab();
    command
        .args(["predict", "bert-base", "--phases"])
        .env("PATH", "")
        .env_remove("VIRTUAL_ENV")
        .env_remove("CONDA_PREFIX");
    let error = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(error.contains("vramlab predict bert-base --phases --python PATH"), "{error}");
}

#[test]
fn a_refusal_ends_in_what_works() {
    // Under a rehearsal the answer is a file.
    let tell = "cat > \"$(dirname \"$VRAMLAB_REHEARSAL_LOG\")/answers/model.plan\"";
    let played = Played::new(&format!("{tell} <<'END'\n{REFUSED}\nEND\nexit 3"));
    let error = refused(2, &["predict", &played.path("config.json"), "--python", &played.path("python"), "-q"]);
    assert!(error.contains("has no model_type 'olmo2'; instead: pip install -U transformers"), "{error}");
    // Without a Python the user's own file is in the command.
    let config = played.path("config.json");
    let mut command = vramlab();
    command.args(["predict", &config]).env("PATH", "").env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX");
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(&format!("vramlab predict {config} --python PATH")), "{error}");
}

#[test]
fn a_python_that_gives_no_answer_is_told() {
    let played = Played::new("exit 0");
    let ran = run(&["predict", &played.path("config.json"), "--python", &played.path("python")]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains("no Python of the command imported PyTorch"), "{}", ran.stderr);
    let error = refused(2, &["predict", &played.path("config.json"), "--script", "--python", &played.path("python")]);
    assert!(error.contains("it gave no answer"), "{error}");
}

#[test]
fn flags_that_it_cannot_do_are_named_before_anything_runs() {
    let played = Played::new("exit 9");
    let flags = [
        &["--ema", "model"][..],
        &["--layers", "3"],
        &["--loop", "trainer"],
        &["--checkpoint", "sqrt"],
        &["--events", "e.json"],
    ];
    for flags in flags {
        let ran = played.predict("config.json", flags);
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(flags[0]), "{flags:?}: {}", ran.stderr);
    }
}

/// A network of this program is answered as before, whether its file or its folder is named.
#[test]
fn what_is_built_in_needs_no_python() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64 });
    let path = folder.path().join("config.json");
    fs::write(&path, config.to_string()).unwrap();
    let answer = |words: &[&str]| {
        let ran = run(&[&["predict"][..], words, &["--json", "-"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["needs"].clone()
    };
    let (file, of_folder) = (path.display().to_string(), folder.path().display().to_string());
    let by_flag = answer(&["--model-file", &file]);
    assert_eq!(answer(&[&file]), by_flag);
    assert_eq!(answer(&[&of_folder]), by_flag);
}

/// What an assistant's tools set: no Python is started, whatever is named.
#[test]
fn nothing_is_started_where_only_files_may_be_read() {
    let played = Played::new("touch \"$0.started\"; exit 9");
    for word in [played.path("config.json"), format!("{}:make_model", played.path("own.py"))] {
        let mut command = vramlab();
        let words = ["predict", "--model-file", &word, "--python", &played.path("python")];
        let output = command.args(words).env("VRAMLAB_ONLY_BUILT_IN", "1").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(!Path::new(&played.path("python.started")).exists());
}

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("VRAMLAB_REHEARSAL_PYTHON").map(PathBuf::from);
    if python.is_none() {
        eprintln!("skipped: VRAMLAB_REHEARSAL_PYTHON names no Python with PyTorch");
    }
    python
}

fn predicted(python: &Path, words: &[&str]) -> (Ran, Value) {
    let python = python.display().to_string();
    let ran = run(&[&["predict"][..], words, &["--python", python.as_str(), "--json", "-"]].concat());
    let found = serde_json::from_str(&ran.stdout).unwrap_or(Value::Null);
    (ran, found)
}

/// The class's documentation as a script, without the driver, takes the same to the byte.
#[test]
fn a_network_that_is_not_built_in_takes_what_a_plain_script_takes() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 5000, "torch_dtype": "bfloat16" });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let file = folder.path().join("config.json").display().to_string();
    let (ran, found) = predicted(&python, &[&file, "--batch", "2", "--sequence", "256", "--gpu", "rtx4090"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!((&found["fits"], &found["chosen"]["class"]), (&true.into(), &"Olmo2ForCausalLM".into()), "{found}");
    fs::write(folder.path().join("train.py"), SCRIPT).unwrap();
    let words = ["rehearse", "--gpu", "rtx4090", "--json", "-", "--", python.to_str().unwrap(), "train.py"];
    let output = vramlab().current_dir(folder.path()).args(words).output().unwrap();
    let truth: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rank = &truth["ranks"][0];
    assert_eq!(found["needs"]["allocated_bytes"], rank["peak_allocated"], "{truth}");
    assert_eq!(found["needs"]["reserved_bytes"], rank["peak_reserved"], "{truth}");
}

const SCRIPT: &str = "import torch
from transformers import AutoConfig, AutoModelForCausalLM

model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('config.json'), dtype=torch.bfloat16).to('cuda')
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    ids = torch.randint(0, 5000, (2, 256)).to('cuda')
    labels = torch.randint(0, 5000, (2, 256)).to('cuda')
    optimizer.zero_grad()
    out = model(input_ids=ids, labels=labels)
    out.loss.backward()
    optimizer.step()
";

/// What the script does besides: it evaluates, generates, saves and resumes.
const LIFE: &str = "
def evaluate():
    model.eval()
    for _ in range(2):
        ids, labels = torch.randint(0, 5000, (2, 256)).to('cuda'), torch.randint(0, 5000, (2, 256)).to('cuda')
        with torch.no_grad():
            out = model(input_ids=ids, labels=labels)

def sample():
    model.generation_config.eos_token_id = None
    ids = torch.randint(0, 5000, (2, 256))[:, :252].to('cuda')
    model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, min_new_tokens=4, do_sample=False)

def resume():
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = torch.load('checkpoint.pt', map_location='cuda')
    model.load_state_dict(checkpoint['model'])
    optimizer.load_state_dict(checkpoint['optimizer'])

evaluate()
sample()
torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'checkpoint.pt')
del optimizer, ids, labels, out
model.zero_grad(set_to_none=True)
torch.cuda.empty_cache()
resume()
";

#[test]
fn the_phases_of_a_run_are_those_of_a_plain_script() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 5000, "torch_dtype": "bfloat16" });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let file = folder.path().join("config.json").display().to_string();
    let flags = ["--phases=4", "--batch", "2", "--sequence", "256", "--gpu", "rtx4090"];
    let (ran, found) = predicted(&python, &[&[file.as_str()], &flags[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fs::write(folder.path().join("train.py"), format!("{SCRIPT}{LIFE}")).unwrap();
    let words = ["rehearse", "--phases", "--gpu", "rtx4090", "--json", "-", "--", python.to_str().unwrap(), "train.py"];
    let output = vramlab().current_dir(folder.path()).args(words).output().unwrap();
    let truth: Value = serde_json::from_slice(&output.stdout).unwrap();
    let phases = |found: &Value| {
        let phases = found["phases"].as_array().unwrap().iter();
        phases.map(|one| ["name", "peak_allocated", "peak_reserved"].map(|key| one[key].clone())).collect::<Vec<_>>()
    };
    assert_eq!(phases(&found["rehearsal"]), phases(&truth));
    assert_eq!(truth["phases"].as_array().map(Vec::len), Some(6), "{truth}");
}

/// `from_pretrained` of a folder that has only `config.json`, and of a name that is nowhere.
#[test]
fn weights_that_are_not_there_are_made_up() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 5000, "torch_dtype": "bfloat16" });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let rehearse = |text: &str| {
        fs::write(folder.path().join("train.py"), text).unwrap();
        let words =
            ["rehearse", "--gpu", "rtx4090", "--json", "answer.json", "--", python.to_str().unwrap(), "train.py"];
        let empty = folder.path().join("cache");
        let output = vramlab().current_dir(folder.path()).args(words).env("HF_HOME", empty).output().unwrap();
        let text = fs::read_to_string(folder.path().join("answer.json")).unwrap();
        (serde_json::from_str::<Value>(&text).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (truth, _) = rehearse(SCRIPT);
    let made = SCRIPT.replace("from_config(AutoConfig.from_pretrained('config.json'), ", "from_pretrained('.', ");
    let tokens = "from transformers import AutoTokenizer\nassert len(AutoTokenizer.from_pretrained('.')('two words').input_ids) == 2\n";
    let (found, errors) = rehearse(&format!("{made}{tokens}"));
    assert_eq!(found["fits"], true, "{errors}");
    assert_eq!(found["ranks"][0]["peak_allocated"], truth["ranks"][0]["peak_allocated"], "{found}");
    assert_eq!(found["made_up"].as_array().map(Vec::len), Some(2), "{found}");
    assert!(!folder.path().join("model.safetensors").exists());
    let (found, errors) = rehearse(&made.replace("'.'", "'nobody/nothing-of-this-name'"));
    assert_eq!(found["fits"], Value::Null, "{errors}");
    assert!(found["asked"][0].as_str().unwrap_or_default().contains("nobody/nothing-of-this-name"), "{found} {errors}");
    assert!(!found["problems"].to_string().contains("device cuda"), "{found}");
}

/// A network that is known by name is answered as with its `config.json`, by any of its names.
#[test]
fn a_name_is_answered_as_the_configuration_that_it_means() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    // Published: https://huggingface.co/Qwen/Qwen2.5-0.5B
    let qwen = json!({ "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 896,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936 });
    fs::write(&config, qwen.to_string()).unwrap();
    let flags = [
        "--lora",
        "16",
        "--load-in-4bit",
        "--optimizer",
        "paged-adamw8bit",
        "--sequence",
        "512",
        "--gpu",
        "rtx4090",
        "--json",
        "-",
    ];
    let answer = |words: &[&str]| {
        let ran = run(&[&["predict"], words, &flags].concat());
        let mut answer: Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{words:?}: {}", ran.stderr));
        [answer["peak"].take(), answer["parameters"].take(), answer["prediction"]["needs"].take()]
    };
    let by_file = answer(&[config.to_str().unwrap()]);
    for words in [&["--model", "qwen2.5-0.5b"][..], &["--model", "Qwen/Qwen2.5-0.5B-Instruct"], &["qwen/qwen2.5-0.5b"]]
    {
        assert_eq!(answer(words), by_file, "{words:?}");
    }
    // An own network keeps its name.
    let own = run(&["predict", "--model", "gpt2", "--steps", "2", "--json", "-"]);
    assert!(own.stdout.contains("decoder of 12 blocks"), "{}", own.stdout);
    let error = refused(2, &["predict", "--model", "lama-3.1-8b"]);
    assert!(error.contains("did you mean \"llama-3.1-8b\"?"), "{error}");
}

/// The second question leaves a graph, which answers the third as a rehearsal does.
#[test]
fn the_third_question_is_answered_from_a_graph() {
    let Some(python) = python() else { return };
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = json!({ "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
        "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 5000, "torch_dtype": "bfloat16" });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let ask = |sizes: [&str; 2], more: &[&str]| {
        let words = ["predict", "config.json", "--gpu", "rtx4090", "--json", "-", "--python", python.to_str().unwrap()];
        let mut command = vramlab();
        command.current_dir(folder.path()).env("XDG_CACHE_HOME", cache.path());
        let output =
            command.args(words).args(["--batch", sizes[0], "--sequence", sizes[1]]).args(more).output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let origin = found["notes"].to_string().contains("From the graph");
        ([found["peak"]["bytes"].clone(), found["peak"]["reserved_bytes"].clone()], origin)
    };
    assert!(!ask(["2", "256"], &[]).1 && !ask(["3", "192"], &[]).1, "rehearsed");
    for (sizes, more) in [(["4", "320"], &[][..]), (["2", "512"], &["--optimizer", "sgd"])] {
        let (graph, rehearsal) = (ask(sizes, more), ask(sizes, &[more, &["--no-cache"]].concat()));
        assert!(graph.1 && !rehearsal.1);
        assert_eq!(graph.0, rehearsal.0, "{sizes:?} {more:?}");
    }
    assert!(!ask(["2", "256"], &["--keep", "loss"]).1, "no graph says this");
}
