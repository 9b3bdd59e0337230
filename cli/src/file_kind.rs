//! Tells the kind of a file by its beginning, so that a file of the wrong kind is an error with its kind, and with what to do with it instead.

use std::io::{self, Read};
use std::path::Path;

use lab::input;
use lab::unpacked::{GZIP, Unpacked};
use serde_json::Value;

use crate::exit::{Failure, Result};

/// Advice for files that no other command reads.
const ANY_SCRIPT: &str = "rehearse your script: vramlab predict --gpu rtx4090 -- python train.py";

/// Bytes read to tell the kind.
const HEAD: usize = 64 << 10;

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A snapshot of PyTorch's memory: a pickle, or JSON.
    Snapshot,
    /// A trace of allocations in the format of recorded ones.
    Trace,
    /// Output of a command with `--json`.
    Finding,
    /// A memory lock file.
    Lock,
    /// `config.json` of transformers.
    Config,
    /// Arguments of transformers' `Trainer`, as JSON.
    Arguments,
    /// PEFT's `adapter_config.json`.
    Adapter,
    /// A configuration of DeepSpeed.
    DeepSpeed,
    /// A network or pipeline of diffusers.
    Diffusers,
    /// `tokenizer_config.json`.
    Tokenizer,
    /// Index of the files that hold the weights: `*.index.json`.
    WeightIndex,
    /// Output of `torch.save`.
    Weights,
    /// Weights as `safetensors`.
    Safetensors,
    /// Output of `torch.export.save`.
    Exported,
    /// A Python script.
    Script,
}

impl Kind {
    /// Returns the kind of an existing file, packed with gzip or not; `None` if its beginning does not tell.
    pub(crate) fn guess(path: &Path) -> Option<Self> {
        if path.is_dir() {
            return Some(Kind::Directory);
        }
        // Checked first: opening a pipe would wait for a writer.
        if !path.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return None;
        }
        Self::of_head(&head(path).ok()?, path)
    }

    /// Returns the kind of a file or a pipe by its [`head`] and its name; `None` if they do not tell.
    pub(crate) fn of_head(head: &[u8], path: &Path) -> Option<Self> {
        let ends = |end: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(end));
        match head {
            [b'P', b'K', 3, 4, ..] if ends("pt2") => Some(Kind::Exported),
            // A snapshot, pickled or given to torch.save, names its segments first.
            [0x80, 2..=5, ..] | [b'P', b'K', 3, 4, ..]
                if contains(head, b"segments") && contains(head, b"total_size") =>
            {
                Some(Kind::Snapshot)
            }
            [b'P', b'K', 3, 4, ..] => contains(head, b"data.pkl").then_some(Kind::Weights),
            [0x80, 2..=5, ..] => Some(if ends("pt") || ends("pth") { Kind::Weights } else { Kind::Snapshot }),
            [_, _, _, _, _, _, _, _, b'{', b'"', ..] if ends("safetensors") => Some(Kind::Safetensors),
            [b'{' | b'[', ..] => of_json(head),
            // Cut off or damaged: who reads snapshots says what is wrong with it.
            _ if ends("pickle") || ends("pkl") => Some(Kind::Snapshot),
            _ => ends("py").then_some(Kind::Script),
        }
    }

    /// Returns the name of the kind.
    fn name(self) -> &'static str {
        match self {
            Kind::Directory => "a directory",
            Kind::Snapshot => "a snapshot of PyTorch's memory",
            Kind::Trace => "a trace of allocations",
            Kind::Finding => "a result of vramlab",
            Kind::Lock => "a memory lock file",
            Kind::Config => "a configuration of transformers",
            Kind::Arguments => "arguments of transformers' Trainer",
            Kind::Adapter => "an adapter of PEFT (LoRA and its kind)",
            Kind::DeepSpeed => "a configuration of DeepSpeed",
            Kind::Diffusers => "a configuration of diffusers",
            Kind::Tokenizer => "a tokenizer's configuration",
            Kind::WeightIndex => "an index of weights",
            Kind::Weights => "weights (torch.save)",
            Kind::Safetensors => "weights (safetensors)",
            Kind::Exported => "an exported program (torch.export)",
            Kind::Script => "a Python program",
        }
    }

    /// Returns the refusal of such a file where `wanted` is needed, with what to do with it instead.
    pub(crate) fn refused(self, path: &Path, wanted: &str) -> Failure {
        let refused = format!("{}: {}, not {wanted}", input::name(path), self.name());
        // What was read of a pipe is gone: the other command needs the file.
        let instead = if input::is_pipe(path) { Path::new("FILE") } else { path };
        Failure::usage(format!("{refused}; {}", self.instead(instead)))
    }

    /// Returns what to do with such a file.
    fn instead(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Kind::Directory => "name a file in it".into(),
            Kind::Snapshot => format!("instead: vramlab open {path}"),
            Kind::Trace => format!("instead: vramlab open {path}"),
            Kind::Finding => format!("instead: vramlab open {path}"),
            Kind::Lock => format!("instead: vramlab check {path}"),
            Kind::Config | Kind::Exported => format!("instead: vramlab predict {path}"),
            Kind::Arguments => format!("instead: vramlab predict config.json --hf-args {path}"),
            Kind::Adapter => format!("vramlab does not read adapters; {ANY_SCRIPT}"),
            Kind::DeepSpeed => {
                format!("its settings are flags here (`vramlab predict --help` lists them), or {ANY_SCRIPT}")
            }
            Kind::Diffusers => format!("instead: vramlab predict {path}"),
            Kind::Tokenizer | Kind::WeightIndex => "name the config.json beside it".into(),
            Kind::Weights | Kind::Safetensors => "weights do not say what training takes: \
                vramlab predict takes config.json, a .pt2 of torch.export, or a TOML file"
                .into(),
            Kind::Script => format!("instead: vramlab predict {path}"),
        }
    }
}

/// Returns the beginning of a file or a pipe, unpacked if it is packed with gzip. Who opens the pipe next reads it whole.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn head(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = input::head(path, HEAD)?;
    if !bytes.starts_with(&GZIP) {
        return Ok(bytes);
    }
    let mut head = Vec::new();
    // The packed bytes are cut, so that reading ends in an error; what was unpacked until then stays.
    let _cut = Unpacked::new(bytes.as_slice()).take(HEAD as u64).read_to_end(&mut head);
    Ok(head)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Tells the kind by a key that only this kind has. A long document is cut, so it is parsed as JSON only if it is whole.
fn of_json(head: &[u8]) -> Option<Kind> {
    if let Ok(Value::Object(map)) = serde_json::from_slice(head)
        && let Some(schema) = map.get("schema").and_then(Value::as_str)
    {
        return of_schema(schema);
    }
    let text = String::from_utf8_lossy(head);
    // A key, not one of the values: a list of columns may name segments too.
    let has = |key: &str| {
        let quoted = format!("\"{key}\"");
        text.match_indices(&quoted).any(|(at, _)| text[at + quoted.len()..].trim_start().starts_with(':'))
    };
    let schema = text.split("\"schema\":\"").nth(1).and_then(|rest| rest.split('"').next());
    match schema {
        Some(schema) => of_schema(schema),
        None if text.contains("\"oracle-trace-1\"") => Some(Kind::Trace),
        None if has("device_traces") || has("segments") => Some(Kind::Snapshot),
        None if has("model_type") => Some(Kind::Config),
        None if has("per_device_train_batch_size") => Some(Kind::Arguments),
        None if has("peft_type") => Some(Kind::Adapter),
        None if has("zero_optimization") || has("train_micro_batch_size_per_gpu") => Some(Kind::DeepSpeed),
        None if has("_diffusers_version") => Some(Kind::Diffusers),
        None if has("tokenizer_class") => Some(Kind::Tokenizer),
        None if has("weight_map") => Some(Kind::WeightIndex),
        None => None,
    }
}

fn of_schema(schema: &str) -> Option<Kind> {
    match schema.strip_prefix("vramlab-")? {
        kind if kind.starts_with("lock") => Some(Kind::Lock),
        // A recording, which several commands read.
        kind if kind.starts_with("events") => None,
        _ => Some(Kind::Finding),
    }
}

/// Refuses a file whose kind is known and not allowed; `wanted` says what the file should be.
///
/// # Errors
/// Such a file, with what to do with it instead.
pub(crate) fn check(path: &Path, allowed: &[Kind], wanted: &str) -> Result<()> {
    match Kind::guess(path) {
        Some(kind) if !allowed.contains(&kind) => Err(kind.refused(path, wanted)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_for_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let zip = b"PK\x03\x04\x00\x00archive/data.pkl".as_slice();
        let cases: [(&str, &[u8], Option<Kind>); 23] = [
            ("weights.pt", zip, Some(Kind::Weights)),
            (
                "memory.pt",
                b"PK\x03\x04\x00\x00memory/data.pkl\x80\x02X\x08\0\0\0segmentsX\x0a\0\0\0total_size",
                Some(Kind::Snapshot),
            ),
            ("pickled.pt", b"\x80\x04\x8c\x08segments\x8c\x0atotal_size", Some(Kind::Snapshot)),
            ("old.pth", b"\x80\x02\x8a\x0a", Some(Kind::Weights)),
            ("unet.pt2", zip, Some(Kind::Exported)),
            ("other.zip", b"PK\x03\x04\x00\x00readme", None),
            ("model.safetensors", b"\x10\0\0\0\0\0\0\0{\"a\":{}}", Some(Kind::Safetensors)),
            ("unet.py", b"import torch\n", Some(Kind::Script)),
            ("snapshot.pickle", b"\x80\x04\x95", Some(Kind::Snapshot)),
            ("damaged.pickle", b"no pickle", Some(Kind::Snapshot)),
            ("snapshot.json", b"{\"segments\": [], \"device_traces\"", Some(Kind::Snapshot)),
            ("columns.json", b"{\"columns\": [\"label\", \"segments\"], \"runs", None),
            ("config.json", b"{\"model_type\": \"llama\"}", Some(Kind::Config)),
            ("args.json", b"{\"per_device_train_batch_size\": 4}", Some(Kind::Arguments)),
            ("adapter_config.json", b"{\"peft_type\": \"LORA\", \"r\": 8}", Some(Kind::Adapter)),
            ("ds.json", b"{\"zero_optimization\": {\"stage\": 3}}", Some(Kind::DeepSpeed)),
            ("unet.json", b"{\"_diffusers_version\": \"0.31\"}", Some(Kind::Diffusers)),
            ("tokenizer_config.json", b"{\"tokenizer_class\": \"LlamaTokenizer\"}", Some(Kind::Tokenizer)),
            ("model.safetensors.index.json", b"{\"weight_map\": {}}", Some(Kind::WeightIndex)),
            ("run.json", b"{\"schema\":\"vramlab-train-1\",\"sett", Some(Kind::Finding)),
            ("memory.lock.json", b"{\n \"schema\": \"vramlab-lock-1\" }", Some(Kind::Lock)),
            ("events.json", b"{\"schema\":\"vramlab-events-1\"}", None),
            ("model.toml", b"[input]\n", None),
        ];
        for (name, contents, kind) in cases {
            let path = directory.path().join(name);
            std::fs::write(&path, contents).unwrap();
            assert_eq!(Kind::guess(&path), kind, "{name}");
        }
        assert_eq!(Kind::guess(directory.path()), Some(Kind::Directory));
        assert_eq!(Kind::guess(&directory.path().join("absent")), None);
    }
}
