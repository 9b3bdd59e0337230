//! A valid file of every input format, and every flag.

use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) struct Kind {
    /// Name of the file: some readers depend on it.
    pub name: &'static str,
    /// Contents of a valid file.
    pub whole: Vec<u8>,
    /// Commands that read the file: `FILE` stands for its path, `OUT` for an output's path without the ending.
    pub readers: Vec<Vec<&'static str>>,
}

/// Command in the help.
#[derive(Debug)]
pub(crate) struct Subcommand {
    /// Words of the command: `snapshot`, `show`.
    pub words: Vec<String>,
    pub flags: Vec<Flag>,
}

/// Flag of a command.
#[derive(Debug)]
pub(crate) struct Flag {
    /// Name, with dashes.
    pub name: String,
    /// Number of values.
    pub values: usize,
}

/// Material for the cases.
pub(crate) struct Seeds {
    pub commands: Vec<Subcommand>,
    pub kinds: Vec<Kind>,
    events: String,
    pickle: String,
    lock: String,
}

const NETWORK: &str = "--model mlp --layers 2 --width 8 --steps 1 --batch 2";
const CONFIG: &str = r#"{"model_type":"gpt2","n_layer":1,"n_embd":8,"n_head":2,"vocab_size":16,"n_positions":8}"#;
const LLAMA: &str = r#"{"model_type":"llama","num_hidden_layers":1,"hidden_size":8,"intermediate_size":16,"num_attention_heads":2,
    "num_key_value_heads":1,"vocab_size":16,"max_position_embeddings":8,"rope_theta":10000.0}"#;
const MODEL: &str = "batch = 2\nsteps = 1\n[input]\nshape = [3, 8, 8]\n[[layer]]\ntype = \"conv2d\"\nout = 4\nkernel = 3\n[[layer]]\ntype = \"relu\"\n\
    [[layer]]\ntype = \"flatten\"\n[[layer]]\ntype = \"linear\"\nout = 10\n[loss]\ntype = \"cross-entropy\"\n[optimizer]\nname = \"adamw\"\nlr = 0.01\n";
const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which \
    11.12 MiB is free. Process 1 has 23.67 GiB memory in use. Of the allocated memory 22.91 GiB is allocated by PyTorch, and 452.35 MiB is reserved \
    by PyTorch but unallocated.";

/// Id of a process that always exists.
const STATUS: &str = r#"{"schema":"vramlab-status-1","pid":1,"model":"mlp","device":{"backend":"cpu","index":0,"name":"x","computes":true,
    "total_bytes":9,"free_bytes":null,"max_segment_bytes":null,"max_binding_bytes":null,"dtypes":["float32"]},"started_ms":1,
    "updated_ms":1,"step":1,"steps":5,"loss":1.5,"rings":{"requested":1,"allocated":2,"active":2,"reserved":3,"driver":null},
    "by_category":{"parameter":5},"peak_bytes":7,"leak":{"steps":9,"growth_bytes_per_step":5,"nodes_per_step":0,"sites":[],"holder":[],
    "cause":"growing_tensor","advice":"x","out_of_memory_step":9}}"#;
/// Two images of 8 × 8, without their pixels; their labels.
const IMAGES: &[u8] = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x08\0\0\0\x08";
const LABELS: &[u8] = b"\0\0\x08\x01\0\0\0\x02\x01\x02";

fn words(text: &'static str) -> Vec<&'static str> {
    text.split(' ').collect()
}

fn vramlab(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

impl Seeds {
    pub(crate) fn make(directory: &Path) -> Self {
        let place = |name: &str| directory.join(name).display().to_string();
        let [events, json, pickle, state, lock] =
            ["events.json", "snapshot.json", "snapshot.pickle", "state.safetensors", "lock.json"].map(place);
        let network = words(NETWORK);
        let train = [&["train", "--backend", "cpu", "--json", "-"][..], &network].concat();
        let result = vramlab(&[&train[..], &["--events", &events]].concat());
        vramlab(&[&["predict", "-q", "--snapshot", &json][..], &network].concat());
        vramlab(&[&["predict", "-q", "--snapshot", &pickle][..], &network].concat());
        vramlab(&[&["train", "-q", "--backend", "cpu", "--save", &state][..], &network].concat());
        vramlab(&[&["check", "--update", "--baseline", &lock][..], &network].concat());
        let scan = vramlab(&words("train --backend meta --model linear --steps 1 -L batch 1,2 --json -"));
        let read = |path: &String| fs::read(path).unwrap();
        let kind = |name, whole, readers: &[&'static str]| Kind {
            name,
            whole,
            readers: readers.iter().map(|reader| words(reader)).collect(),
        };
        let report = "report FILE -o OUT.html";
        let kinds = vec![
            kind("e.json", read(&events), &["replay FILE", "replay FILE --compare all", report]),
            kind(
                "s.json",
                read(&json),
                &["snapshot show FILE", "snapshot replay FILE", report, "snapshot diff FILE FILE"],
            ),
            kind(
                "s.pickle",
                read(&pickle),
                &["snapshot show FILE", "snapshot replay FILE", report, "snapshot convert FILE -"],
            ),
            kind("l.json", read(&lock), &["check --baseline FILE", "check --baseline FILE --update"]),
            kind("r.json", result, &[report]),
            kind(
                "scan.json",
                scan,
                &["train --backend meta --model linear --steps 1 -L batch 1,2 --continue FILE", report],
            ),
            kind(
                "m.toml",
                MODEL.into(),
                &["predict --model-file FILE --steps 1", "train --backend meta --model-file FILE --steps 1"],
            ),
            kind("config.json", CONFIG.into(), &["predict --model-file FILE --steps 1"]),
            kind("llama.json", LLAMA.into(), &["predict --model-file FILE --steps 1 --batch 1"]),
            kind(
                "c.toml",
                b"model = \"mlp\"\nbatch = 4\nlr = 0.5\nsteps = 1\n".to_vec(),
                &["train --backend meta --config FILE --steps 1"],
            ),
            kind(
                "w.safetensors",
                read(&state),
                &[
                    "train --backend cpu --model mlp --layers 2 --width 8 --steps 1 --batch 2 --load FILE",
                    "train --backend cpu --model mlp --layers 2 --width 8 --steps 1 --batch 2 --resume FILE",
                ],
            ),
            kind(
                "t.json.gz",
                read(&golden("memcore/tests/golden/traces/default_bigsmall.json.gz")),
                &["replay FILE", "replay FILE --compare caching,direct"],
            ),
            kind("1.json", STATUS.into(), &["monitor --once", "monitor --once --json -"]),
            kind(
                "x-images-idx3-ubyte",
                images(),
                &["train --backend cpu --model mlp --layers 2 --width 8 --steps 1 --batch 2 --data FILE"],
            ),
            kind(
                "x-labels-idx1-ubyte",
                LABELS.to_vec(),
                &[
                    "train --backend cpu --model mlp --layers 2 --width 8 --steps 1 --batch 2 --data x-images-idx3-ubyte",
                ],
            ),
        ];
        Self { commands: commands(), kinds, events, pickle, lock }
    }

    /// Further arguments with which the command works, so that one flag can be added.
    pub(crate) fn base(&self, command: &[String], own: &Path) -> Vec<String> {
        let own = |name: &str| own.join(name).display().to_string();
        let with = |more: &str| [command, &more.split(' ').map(String::from).collect::<Vec<_>>()].concat();
        let strings = |more: &[&str]| [command, &more.iter().map(|word| word.to_string()).collect::<Vec<_>>()].concat();
        match command.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["train"] => with(&format!("--backend meta {NETWORK}")),
            ["predict"] => with(NETWORK),
            ["fit"] => with("--model linear --gpu 1GiB --maximum 8"),
            ["run"] => with("release --backend meta"),
            ["check"] => strings(&["--baseline", &self.lock]),
            // Measuring takes seconds; this name is refused after the other flags were read.
            ["bench"] => with("--backend meta --seconds 0.01"),
            ["monitor"] => with("--once"),
            ["replay"] => strings(&[&self.events]),
            ["tune"] | ["snapshot", "show" | "replay"] => strings(&[&self.pickle]),
            ["snapshot", "diff"] => strings(&[&self.pickle, &self.pickle]),
            ["snapshot", "convert"] => strings(&[&self.pickle, &own("out.json")]),
            ["explain"] => strings(&[MESSAGE]),
            ["report"] => strings(&[&self.events, "-o", &own("page.html")]),
            // Refused after the file was read: nothing here is a terminal.
            ["view"] => strings(&[&self.events]),
            ["completions"] => with("bash"),
            _ => command.to_vec(),
        }
    }
}

/// A file of the repository.
fn golden(path: &str) -> String {
    format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Further files that a reader needs.
pub(crate) fn companions() -> [(&'static str, Vec<u8>); 2] {
    [("x-images-idx3-ubyte", images()), ("x-labels-idx1-ubyte", LABELS.to_vec())]
}

fn images() -> Vec<u8> {
    [IMAGES, &[7; 2 * 8 * 8]].concat()
}

/// The commands that read flags; `open`, `ask`, `info` and `watch` choose among them.
const COMMANDS: [&str; 19] = [
    "bench",
    "cards",
    "check",
    "completions",
    "devices",
    "explain",
    "fit",
    "list",
    "models",
    "monitor",
    "predict",
    "replay",
    "report",
    "run",
    "show",
    "snapshot",
    "train",
    "tune",
    "view",
];

/// Returns all commands.
fn commands() -> Vec<Subcommand> {
    let mut found = Vec::new();
    for name in COMMANDS.map(String::from) {
        let below = listed(&[&name]);
        let paths = if below.is_empty() {
            vec![vec![name]]
        } else {
            below.into_iter().map(|sub| vec![name.clone(), sub]).collect()
        };
        found.extend(paths.into_iter().map(|words| Subcommand { flags: flags(&words), words }));
    }
    assert!(found.len() > 15, "{found:?}");
    found
}

fn help(path: &[&str]) -> String {
    String::from_utf8(vramlab(&[path, &["--help"]].concat())).unwrap()
}

fn listed(path: &[&str]) -> Vec<String> {
    let text = help(path);
    let Some((_, list)) = text.split_once("\nCommands:\n") else { return Vec::new() };
    let entries = list
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    entries.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(String::from).collect()
}

/// Returns the flags of a command, except `--interval` and `--seconds`, which make it wait.
fn flags(path: &[String]) -> Vec<Flag> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let text = help(&path);
    let flag = |line: &str| {
        let start = line.find("--")?;
        let before = &line[..start];
        let is_flag = before.trim().is_empty() || before.trim_end().ends_with(',');
        let rest = line[start..].split("  ").next()?;
        let name = rest.split_whitespace().next()?;
        let left_out = ["--interval", "--seconds", "--help", "--version"].contains(&name);
        (is_flag && !left_out).then(|| Flag { name: name.to_string(), values: rest.matches('<').count() })
    };
    text.lines().filter_map(flag).collect()
}
