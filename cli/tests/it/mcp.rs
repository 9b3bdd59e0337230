//! `vramlab mcp` as a client uses it: messages over pipes.

use crate::common;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::common::{done, refused, run};

/// A small network.
const MODEL: &str = include_str!("../../../examples/models/digits-mlp.toml");
const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
     23.52 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 22.31 GiB memory in use. Of the allocated memory \
     20.01 GiB is allocated by PyTorch, and 1.81 GiB is reserved by PyTorch but unallocated.";

struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    sent: u64,
}

impl Client {
    /// Starts a server and initializes the session.
    fn start(dir: &Path, more: &[&str]) -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(["--quiet", "mcp", "--dir"]).arg(dir).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let (to, from) = (server.stdin.take(), BufReader::new(server.stdout.take().unwrap()));
        let mut client = Client { server, to, from, sent: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
        let answer = client.ask("initialize", hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "vramlab", "{answer}");
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}));
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(answer["id"], self.sent, "{answer}");
        answer
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone()
    }

    /// Calls a tool, which must succeed. Returns its text and JSON.
    fn answer(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{result}");
        (result["content"][0]["text"].as_str().unwrap().into(), result["structuredContent"].clone())
    }

    /// Calls a tool, which must refuse. Returns its message.
    fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().into()
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().into()).collect()
    }

    /// Closes the connection. The server must end.
    fn leave(mut self) {
        drop(self.to.take());
        assert_eq!(self.server.wait().unwrap().code(), Some(0));
    }
}

/// Removes the values that differ between two runs of one command.
fn lasting(mut json: Value) -> Value {
    json.as_object_mut().unwrap().remove("command");
    json
}

#[test]
fn a_session_has_the_commands_own_answers() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.toml");
    std::fs::write(&model, MODEL).unwrap();
    let model = model.canonicalize().unwrap().display().to_string();
    let snapshot = folder.path().join("snapshot.pickle");
    done(&["train", "--model-file", &model, "--backend", "meta", "--snapshot", snapshot.to_str().unwrap()]);
    let snapshot = snapshot.canonicalize().unwrap().display().to_string();
    let mut client = Client::start(folder.path(), &[]);
    assert_eq!(client.tools(), ["predict", "fit", "explain", "snapshot_show"]);
    let words = ["predict", "--model-file", &model, "--batch", "8", "--gpu", "rtx4090"];
    let (text, json) = client.answer("predict", json!({"model_file": "model.toml", "batch": 8, "gpu": "rtx4090"}));
    assert_eq!(text, done(&words));
    assert_eq!(lasting(json), lasting(common::json(&words)));
    let (text, json) = client.answer("fit", json!({"model_file": &model, "gpu": "1GiB", "maximum": 64}));
    assert_eq!(text, done(&["fit", "--model-file", &model, "--gpu", "1GiB", "--maximum", "64"]));
    assert_eq!(json["schema"], "vramlab-fit-1");
    let (text, json) = client.answer("explain", json!({"message": MESSAGE}));
    assert_eq!(text, done(&["explain", MESSAGE]));
    assert_eq!(json["schema"], "vramlab-explain-1");
    let (text, _) = client.answer("snapshot_show", json!({"file": "snapshot.pickle"}));
    assert_eq!(text, done(&["snapshot", "show", &snapshot]));
    // Code 1 is an answer.
    let (text, _) = client.answer("predict", json!({"model_file": "model.toml", "batch": 4096, "gpu": "40MiB"}));
    assert!(text.starts_with("No"), "{text}");
    let (text, _) = client.answer("predict", json!({"model_file": "model.toml", "batch": 4096, "gpu": "1MiB"}));
    assert!(text.contains("No: a batch of 4096 takes "), "{text}");
    client.leave();
}

#[test]
fn what_is_refused_is_said_and_the_session_goes_on() {
    let outside = tempfile::tempdir().unwrap();
    let dir = outside.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(outside.path().join("model.toml"), MODEL).unwrap();
    let mut client = Client::start(&dir, &[]);
    let path = outside.path().join("model.toml");
    for name in ["../model.toml", path.to_str().unwrap(), "/etc/passwd"] {
        assert!(client.refusal("predict", json!({"model_file": name})).contains("outside"), "{name}");
        assert!(client.refusal("snapshot_show", json!({"file": name})).contains("outside"), "{name}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&path, dir.join("link.toml")).unwrap();
        assert!(client.refusal("predict", json!({"model_file": "link.toml"})).contains("symbolic link"));
    }
    assert!(client.refusal("predict", json!({"model": "no-such-network"})).contains("no-such-network"));
    assert!(client.refusal("predict", json!({"model": "mlp", "html": "page.html"})).contains("no argument"));
    assert!(client.refusal("explain", json!({"message": path})).contains("message"));
    let unknown = client.ask("tools/call", json!({"name": "rehearse", "arguments": {"script": "train.py"}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(client.answer("predict", json!({"model": "mlp"})).0.contains("mlp"));
    client.leave();
}

#[test]
fn a_call_has_bounds_and_the_session_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::start(folder.path(), &["--seconds", "1"]);
    // It would run for hours.
    let endless = json!({"model": "gpt2", "batch": 8, "steps": 100_000_000});
    let said = client.refusal("predict", endless);
    assert!(said.contains("stopped after 1 seconds") && said.contains("--seconds N"), "{said}");
    client.leave();
    let mut client = Client::start(folder.path(), &[]);
    let many = client.call("predict", json!({"model": "linear", "steps": 2000}));
    let texts: Vec<&str> =
        many["content"].as_array().unwrap().iter().map(|text| text["text"].as_str().unwrap()).collect();
    assert!(many["structuredContent"].is_null() && texts.concat().contains("more than 262144"), "{texts:?}");
    // Gigabytes at once: the process ends, or stops at the batch.
    let huge = client.call("predict", json!({"model": "gpt2", "batch": u64::MAX, "sequence": u64::MAX}));
    assert!(huge.to_string().len() < 10_000, "{huge}");
    let long = "x".repeat(1 << 20);
    let said = client.call("explain", json!({"message": long})).to_string();
    assert!(said.len() < 100_000, "{} bytes", said.len());
    assert!(client.answer("predict", json!({"model": "mlp"})).0.contains("mlp"));
    client.leave();
}

#[cfg(target_os = "linux")]
#[test]
fn scripts_run_only_from_the_folder_that_was_allowed() {
    let [dir, scripts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    std::fs::write(dir.path().join("other.py"), "").unwrap();
    std::fs::write(scripts.path().join("train.py"), "import sys; sys.exit(7)").unwrap();
    let mut client = Client::start(dir.path(), &["--allow-rehearse", scripts.path().to_str().unwrap()]);
    assert_eq!(client.tools().last().unwrap(), "rehearse");
    let other = dir.path().join("other.py");
    for name in ["../other.py", other.to_str().unwrap()] {
        assert!(client.refusal("rehearse", json!({"script": name})).contains("outside"), "{name}");
    }
    assert!(client.refusal("rehearse", json!({"script": "other.py"})).contains("No such file"));
    // The command works, or the library of rehearsals was not built.
    let ran = client.refusal("rehearse", json!({"script": "train.py", "arguments": ["--batch", 4]}));
    assert!(ran.contains("exit code 7") || ran.contains("not found beside this program"), "{ran}");
    client.leave();
}

#[test]
fn a_folder_is_needed() {
    let missing = tempfile::tempdir().unwrap().path().join("missing");
    assert!(refused(2, &["mcp", "--dir", missing.to_str().unwrap()]).contains("missing"));
    assert_eq!(run(&["mcp"]).code, Some(2));
}
