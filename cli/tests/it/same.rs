//! One question asked in every way that there is: the answers have the same three figures and the same verdict.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::common::NO_PACKAGES;

const NETWORK: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256, "torch_dtype": "bfloat16"}"#;

const RECIPE: &str = "base_model: ./tiny\nsequence_len: 64\nmicro_batch_size: 2\ngradient_accumulation_steps: 3\noptimizer: adamw_torch_fused\n\
    learning_rate: 1e-4\nbf16: auto\ngradient_checkpointing: true\noutput_dir: out\ndatasets:\n  - path: org/texts\n";

/// Words after `predict`, and the verdict.
const QUESTIONS: [(&[&str], Option<bool>); 7] = [
    (&["gpt2", "--batch", "4", "--sequence", "256", "--gpu", "rtx4090", "--optimizer", "adamw"], Some(true)),
    (&["gpt2", "--batch", "64", "--sequence", "1024", "--gpu", "rtx4090"], Some(false)),
    (&["resnet50", "--batch", "64", "--gpu", "h200"], Some(true)),
    // Workspaces that a table has, and others.
    (&["resnet50", "--batch", "128", "--gpu", "rtx3060"], None),
    (&["resnet50", "--batch", "118", "--gpu", "rtx3060"], None),
    (&["tiny/config.json", "--batch", "2", "--sequence", "64", "--gpu", "a100-40-1g.5gb"], Some(true)),
    // A recipe, counted from its keys.
    (&["a.yml", "--gpu", "rtx4090"], Some(true)),
];

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("tiny")).unwrap();
    fs::write(folder.path().join("tiny/config.json"), NETWORK).unwrap();
    fs::write(folder.path().join("a.yml"), RECIPE).unwrap();
    folder
}

/// The program in a folder, without answers of cuDNN that were kept.
fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.env("VIRTUAL_ENV", NO_PACKAGES).env_remove("PYTHONPATH").env("VRAMLAB_ONLY_BUILT_IN", "1");
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

fn answer(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    })
}

/// Lower, expected and upper figure, and the verdict.
fn figures(found: &Value) -> Value {
    json!([found["lower_bytes"], found["expected_bytes"], found["upper_bytes"], found["fits"]])
}

/// The network of a run, and its other fields as `--config` reads them.
fn fields(found: &Value) -> (String, Map<String, Value>) {
    let mut fields = found["settings"].as_object().unwrap().clone();
    fields.retain(|_, value| !value.is_null() && *value != false);
    let network = ["model-file", "model"].iter().find_map(|name| fields.remove(*name));
    (network.unwrap().as_str().unwrap().to_string(), fields)
}

/// What the tool `predict` of an assistant answers to these arguments.
fn by_mcp(folder: &Path, arguments: &Value) -> Value {
    let mut command = program(folder);
    let mut server =
        command.args(["--quiet", "mcp", "--dir", "."]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
    let call = json!({"name": "predict", "arguments": arguments});
    writeln!(to, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})).unwrap();
    writeln!(to, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
    writeln!(to, "{}", json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})).unwrap();
    let mut line = String::new();
    for _ in 0..2 {
        line.clear();
        from.read_line(&mut line).unwrap();
    }
    drop(to);
    server.wait().unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    answer["result"]["structuredContent"].clone()
}

/// What `vramlab.estimate` of the package for Python answers: by the program, or in its own process by the library for C.
fn by_python(folder: &Path, network: &str, fields: &Map<String, Value>, library: Option<&Path>) -> Value {
    let text = "import json, sys, vramlab; print(json.dumps(vramlab.estimate(sys.argv[1], **json.loads(sys.argv[2]))))";
    let like_a_name = |(name, value): (&String, &Value)| (name.replace('-', "_"), value.clone());
    let fields: Map<String, Value> = fields.iter().map(like_a_name).collect();
    let mut command = Command::new("python3");
    // As `program`.
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).env("VRAMLAB_ONLY_BUILT_IN", "1");
    command.env("VIRTUAL_ENV", NO_PACKAGES).env("VRAMLAB_BINARY", env!("CARGO_BIN_EXE_vramlab"));
    command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env_remove("VRAMLAB_LIBRARY");
    if let Some(path) = library {
        command.env("VRAMLAB_LIBRARY", path);
    }
    answer(command.args(["-c", text, network]).arg(Value::Object(fields).to_string()))
}

/// The library for C, which lies beside the program where the whole workspace is built.
fn library() -> Option<PathBuf> {
    let name = format!("{}vramlab_c{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path = Path::new(env!("CARGO_BIN_EXE_vramlab")).with_file_name(name);
    path.is_file().then_some(path)
}

#[test]
fn every_way_to_ask_has_the_same_figures_and_verdict() {
    let folder = folder();
    for (words, fits) in QUESTIONS {
        let predicted = answer(program(folder.path()).arg("predict").args(words).args(["--json", "-"]));
        assert_eq!(predicted["fits"], json!(fits), "{words:?}: {}", predicted["sentence"]);
        let expected = figures(&predicted);
        let (network, fields) = fields(&predicted);
        let arguments = Value::Object(fields.clone()).to_string();

        let estimated = answer(program(folder.path()).args(["estimate", "--", &network, &arguments]));
        assert_eq!(figures(&estimated), expected, "vramlab estimate {network} {arguments}");

        let mut file: toml::Table = toml::from_str(&toml::to_string(&fields).unwrap()).unwrap();
        let named = if network.ends_with(".json") { "model-file" } else { "model" };
        file.insert(named.into(), network.clone().into());
        fs::write(folder.path().join("run.toml"), toml::to_string(&file).unwrap()).unwrap();
        let configured = answer(program(folder.path()).args(["predict", "--config", "run.toml", "--json", "-"]));
        assert_eq!(figures(&configured), expected, "--config: {file}");

        // The tool has no field for all that a recipe says.
        if !words[0].ends_with(".yml") {
            let mut arguments = json!({});
            arguments[named.replace('-', "_")] = network.clone().into();
            for name in ["batch", "sequence", "gpu", "optimizer"] {
                if let Some(value) = fields.get(name) {
                    arguments[name] = value.clone();
                }
            }
            assert_eq!(figures(&by_mcp(folder.path(), &arguments)), expected, "mcp: {arguments}");
        }

        let by_program = by_python(folder.path(), &network, &fields, None);
        assert_eq!(figures(&by_program), expected, "vramlab.estimate({network}, {arguments})");
        if let Some(library) = library() {
            let in_process = by_python(folder.path(), &network, &fields, Some(&library));
            assert_eq!(figures(&in_process), expected, "libvramlab_c: {network} {arguments}");
        }
    }
}
