//! `vramlab ui` as a browser and as a stranger use it: requests over a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::{done, refused};

/// A configuration of transformers.
const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256, "torch_dtype": "bfloat16"}"#;

pub(crate) struct Server {
    process: Child,
    port: u16,
    token: String,
}

/// An answer: its status, its headers, its body.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Server {
    pub(crate) fn start(more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
        command.args(["--quiet", "ui", "--no-open"]).args(more).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let rest = address.trim().strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{address}"));
        let (port, rest) = rest.split_once('/').unwrap();
        let token = rest.strip_prefix("?token=").unwrap_or_default();
        let token = token.split('#').next().unwrap().to_string();
        Self { process, port: port.parse().unwrap(), token }
    }

    /// Sends a request as it is. The connection ends with the answer.
    fn send(&self, head: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses the head may not read the body.
        let _ = stream.write_all(body);
        if !head.contains("Connection: close") {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_lowercase(), body: body.into() }
    }

    fn post(&self, path: &str, more: &str, body: &[u8]) -> Answer {
        let (port, token, length) = (self.port, &self.token, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Vramlab-Token: {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n{more}\r\n"
        );
        self.send(&head, body)
    }

    fn get(&self, path: &str, host: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"), b"")
    }

    fn ask(&self, question: &Value) -> Value {
        let answer = self.post("/api", "", question.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    pub(crate) fn predict(&self, spec: Value) -> Value {
        self.ask(&json!({ "ask": "predict", "spec": spec }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The fields that a table of techniques, every step and the changes are in: the page asks for none, or by itself.
const IN_FULL: [&str; 4] = ["techniques", "summits", "steps", "tries"];

fn without(mut result: Value) -> Value {
    let fields = result.as_object_mut().unwrap();
    fields.retain(|name, _| !IN_FULL.contains(&name.as_str()));
    result
}

#[test]
fn answers_are_those_of_predict() {
    let server = Server::start(&[]);
    for (flags, spec) in [
        (vec!["gpt", "--batch", "2", "--gpu", "rtx4090"], json!({ "model": "gpt", "batch": "2", "gpu": "rtx4090" })),
        (vec!["simple-cnn", "--precision", "bf16"], json!({ "model": "simple-cnn", "precision": "bf16" })),
        (
            vec!["mlp", "--batch", "32768", "--checkpoint", "blocks", "--accumulate", "2", "--gpu", "150MiB"],
            json!({ "model": "mlp", "batch": 32768, "checkpoint": "blocks", "accumulate": 2, "gpu": "150MiB" }),
        ),
    ] {
        let words: Vec<&str> = ["predict"].into_iter().chain(flags).chain(["--json", "-"]).collect();
        let run = Command::new(env!("CARGO_BIN_EXE_vramlab")).args(&words).output().unwrap();
        let typed: Value = serde_json::from_slice(&run.stdout).unwrap();
        let asked = server.predict(spec.clone());
        assert_eq!(without(asked["result"].clone()), without(typed.clone()), "{words:?}");
        let tries = server.ask(&json!({ "ask": "try", "spec": spec }));
        assert_eq!(tries["tries"]["entries"], typed.get("tries").map_or(json!([]), |tries| tries["entries"].clone()));
    }
}

#[test]
fn strangers_get_nothing() {
    let server = Server::start(&[]);
    let (port, token) = (server.port, &server.token);
    let here = format!("127.0.0.1:{port}");
    let page = server.get(&format!("/?token={token}"), &here);
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-security-policy: default-src 'none'") && !page.head.contains("access-control"));
    assert!(page.body.contains("class TimelineView"));
    let wrong = "0".repeat(token.len());
    for (path, host, status) in [
        ("/".to_string(), here.clone(), 403),
        ("/?token=".into(), here.clone(), 403),
        (format!("/?token={wrong}"), here.clone(), 403),
        (format!("/?token={token}x"), here.clone(), 403),
        (format!("/?token={token}"), "evil.example".into(), 421),
        (format!("/?token={token}"), format!("evil.example:{port}"), 421),
        (format!("/etc/passwd?token={token}"), here.clone(), 404),
        (format!("/../../etc/passwd?token={token}"), here, 404),
    ] {
        let answer = server.get(&path, &host);
        assert_eq!(answer.status, status, "{path} of {host}: {}", answer.body);
        assert!(!answer.body.contains(token) && !answer.body.contains("root:"), "{path}");
    }
    let question = br#"{"ask":"lists"}"#;
    assert_eq!(server.post("/api", "Origin: https://evil.example\r\n", question).status, 403);
    assert_eq!(server.post("/api", &format!("Origin: http://127.0.0.1:{port}\r\n"), question).status, 200);
    let no_token = format!(
        "POST /api HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: 15\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(server.send(&no_token, question).status, 403);
    let text = format!(
        "POST /api HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Vramlab-Token: {token}\r\nContent-Type: text/plain\r\n"
    );
    let text = format!("{text}Content-Length: 15\r\nConnection: close\r\n\r\n");
    assert_eq!(server.send(&text, question).status, 415);
}

#[test]
fn dropped_files_are_read_and_no_others() {
    let server = Server::start(&[]);
    let kept = server.post("/file?name=config.json", "", CONFIG.as_bytes()).json();
    let file = kept["file"].as_str().unwrap();
    let found = server.predict(json!({ "model-file": file, "batch": 2, "gpu": "rtx4090" }));
    assert_eq!(found["result"]["fits"], true, "{found}");
    assert!(found["repeat"]["command"].as_str().unwrap().contains("--model-file config.json "), "{}", found["repeat"]);
    for other in ["/etc/passwd", "../config.json", "1/../1/config.json", "2/config.json", "open.html", "1", ""] {
        let found = server.predict(json!({ "model-file": other }));
        assert!(found["error"].as_str().is_some_and(|text| text.contains("drop the file")), "{other}: {found}");
    }
    for name in ["x.toml", "..%2Fconfig.json", "", "a/b.json"] {
        assert_eq!(server.post(&format!("/file?name={name}"), "", b"{}").status, 400, "{name}");
    }
    // A file without a network has an error, and the next question an answer.
    for contents in [&b"{"[..], b"PK\x03\x04\xff\xff", b"\0\0\0\0", b""] {
        let kept = server.post("/file?name=model.pt2", "", contents).json();
        assert!(server.predict(json!({ "model-file": kept["file"] }))["error"].is_string());
    }
    assert_eq!(server.predict(json!({ "model": "mlp" }))["error"], Value::Null);
}

#[test]
fn a_public_server_takes_no_files_and_needs_no_token() {
    let server = Server::start(&["--public", "127.0.0.1"]);
    assert_eq!((server.token.as_str(), server.get("/", "lab.example").status), ("", 200));
    assert_eq!(server.post("/file?name=config.json", "", CONFIG.as_bytes()).status, 403);
    assert_eq!(server.predict(json!({ "model": "mlp" }))["error"], Value::Null);
    assert_eq!(server.ask(&json!({ "ask": "lists" }))["files"], false);
}

#[test]
fn it_answers_after_garbage_and_many_requests() {
    let server = Server::start(&[]);
    let large = vec![b'['; 70_000];
    let garbage: [&[u8]; 7] =
        [b"", b"{", b"null", b"\xff\xfe", &large, b"{\"ask\":\"predict\",\"spec\":[]}", b"[[[[[[[[[[[[[[[[["];
    for body in garbage {
        let answer = server.post("/api", "", body);
        assert!([200, 400, 413].contains(&answer.status), "{}: {}", answer.status, answer.body);
    }
    for head in ["\r\n\r\n", "GET\r\n\r\n", "POST /api HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\x00"] {
        server.send(head, b"");
    }
    let deep = format!("{{\"ask\":\"predict\",\"spec\":{}1{}}}", "[".repeat(20_000), "]".repeat(20_000));
    assert!(server.post("/api", "", deep.as_bytes()).json()["error"].is_string());
    for spec in [
        json!({ "model": "gpt2", "batch": 1e300 }),
        json!({ "model": "gpt2", "batch": u64::MAX }),
        json!({ "model": "gpt", "width": 1u64 << 30, "heads": 1, "vocabulary": 1u64 << 30 }),
        json!({ "model": "gpt", "sequence": u64::MAX, "lora": -1 }),
        json!({ "model": "\u{0}\u{202e}<script>", "gpu": "9".repeat(400) }),
    ] {
        assert!(server.predict(spec.clone())["error"].is_string(), "{spec}");
    }
    for i in 0..1000 {
        let batch = if i % 20 == 0 { "2" } else { "-1" };
        let question = json!({ "ask": "predict", "spec": { "model": "linear", "batch": batch } });
        let answer = server.post("/api", "", question.to_string().as_bytes());
        assert_eq!(answer.json()["error"].is_null(), batch == "2", "{i}: {}", answer.body);
        assert_eq!(answer.status, 200, "{i}: {}", answer.body);
    }
    assert_eq!(server.predict(json!({ "model": "mlp" }))["error"], Value::Null);
}

#[cfg(unix)]
#[test]
fn a_stop_ends_it_and_its_processes() {
    let mut server = Server::start(&[]);
    assert_eq!(server.predict(json!({ "model": "mlp" }))["error"], Value::Null);
    Command::new("kill").args(["-INT", &server.process.id().to_string()]).status().unwrap();
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err());
}

#[test]
fn what_cannot_be_served_is_an_error() {
    let server = Server::start(&[]);
    assert!(refused(3, &["ui", "--no-open", "--port", &server.port.to_string()]).contains("--port"));
    assert!(refused(2, &["ui", "--port", "70000"]).contains("--port"));
    assert!(done(&["ui", "--help"]).contains("--public"));
}
