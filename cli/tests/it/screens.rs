//! Commands on a terminal of 80 columns and 24 rows: the answer stands in the first line, and with a prompt above and below
//! nothing of it has scrolled away. `COMMANDS` names them; `docs/guide.md` says what they promise.

use crate::common::{json, run, vramlab};

use lab::experiments::ALL as EXPERIMENTS;
use std::path::Path;

const ROWS: usize = 22;

const TRACE: &str = "../memcore/tests/golden/traces/default_mixed.json.gz";
const SNAPSHOT: &str = "../lab/traces/tests/golden/snapshots/cnn_b128_stacks.pickle";
const OTHER: &str = "../lab/traces/tests/golden/snapshots/cnn_b128_then_b32_plain.pickle";
const FULL: &str = "../lab/traces/tests/golden/snapshots/mlp_oom_plain.pickle";
const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
    23.52 GiB of which 1.28 GiB is free. Including non-PyTorch memory, this process has 22.23 GiB memory in use. Of the \
    allocated memory 20.85 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.";

/// What is typed, and what of the answer is in the first line.
const COMMANDS: [(&[&str], &str); 22] = [
    (&["list"], "experiments: vramlab ask NAME"),
    (&["devices"], "meta:0"),
    (&["show", "gpt2", "--batch", "8"], "10.58 GiB saved for backward"),
    (&["show", "resnet18", "--batch", "8"], "165.57 MiB saved for backward"),
    (&["run", "batch-size", "--backend", "meta"], "No, on a fresh device."),
    (&["run", "steady-state", "--backend", "meta"], "No, after the first steps."),
    (&["run", "equation", "--backend", "meta"], "batch? No."),
    (&["run", "leak", "release", "--backend", "meta"], "2 experiments: 5 claims: 2 hold, 2 depend, 1 fail"),
    (&["run", "--claims", "leak", "release", "--backend", "meta"], "5 claims: 2 hold, 2 depend, 1 fail"),
    (&["run", "leak", "--backend", "meta", "-L", "batch", "16,32"], "6 claims: 4 hold"),
    (&["train", "--model", "gpt", "--layers", "2", "--backend", "meta", "--steps", "2"], "at the peak"),
    (
        &["train", "--model", "mlp", "--backend", "meta", "--steps", "2", "-P", "batch", "1", "30"],
        "Peaks by batch: 65.5",
    ),
    (&["train", "--model", "mlp", "--devices", "meta:0,meta:1", "--steps", "2"], "at the peak"),
    (&["train", "--model", "mlp", "--data-parallel", "2", "--backend", "meta", "--steps", "2"], "at the peak"),
    (&["snapshot", "show", SNAPSHOT], "cnn_b128_stacks.pickle: 91.14 MiB at the peak"),
    (&["snapshot", "show", FULL], "mlp_oom_plain.pickle: out of memory, free memory was fragmented"),
    (&["snapshot", "diff", SNAPSHOT, OTHER], "MiB allocated: cnn_b128_stacks.pickle"),
    (&["replay", TRACE], "default_mixed: caching reserves"),
    (&["replay", TRACE, "--compare", "all"], "the least"),
    (&["tune", SNAPSHOT], "PYTORCH_CUDA_ALLOC_CONF="),
    (&["explain", MESSAGE], "free memory of GPU 0 was fragmented"),
    (&["monitor", "--once"], "no training of vramlab runs"),
];

fn is_a_screen(words: &[&str], width: usize) -> String {
    let output = vramlab().args(words).env("COLUMNS", width.to_string()).output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
    // A word of a command is not broken: it could not be typed again.
    for line in text.lines().filter(|line| line.trim_end_matches(" \\").trim().contains(' ')) {
        assert!(line.chars().count() <= width, "{words:?}: {} columns: {line}", line.chars().count());
    }
    text
}

#[test]
fn answers_fit_a_screen_and_come_first() {
    let directory = tempfile::tempdir().unwrap();
    for (words, answer) in COMMANDS {
        // Nothing of this machine's trainings.
        let text = match words[0] {
            "monitor" => {
                let mut monitor = vramlab();
                monitor.args(words).env("VRAMLAB_RUNTIME_DIR", directory.path());
                String::from_utf8(monitor.output().unwrap().stdout).unwrap()
            }
            _ => is_a_screen(words, 80),
        };
        let rows = text.lines().count();
        // A list has a line for each entry, a head and what stands around them.
        let most = if words == ["list"] { EXPERIMENTS.len() + 3 } else { ROWS };
        assert!(rows <= most, "{words:?}: {rows} rows: {text}");
        assert!(text.lines().next().is_some_and(|line| line.contains(answer)), "{words:?}: no {answer:?}: {text}");
    }
}

#[test]
fn every_width_is_kept() {
    for (words, _) in COMMANDS.iter().filter(|(words, _)| !["monitor", "run", "tune"].contains(&words[0])) {
        for width in [40, 60, 120, 200] {
            is_a_screen(words, width);
            is_a_screen(&[words, &["--full"][..]].concat(), width);
        }
    }
}

#[test]
fn exact_bytes_wait_for_the_flag() {
    let exact =
        |text: &str| text.split(['(', ')']).any(|part| part.len() > 4 && part.bytes().all(|b| b.is_ascii_digit()));
    let words = ["train", "--model", "gpt", "--layers", "2", "--backend", "meta", "--steps", "2"];
    let full = is_a_screen(&[&words[..], &["--full"]].concat(), 80);
    assert!(exact(&full) && !exact(&is_a_screen(&words, 80)), "{full}");
    // Programs have them all the same.
    assert!(json(&words)["peak"]["bytes"].as_u64().is_some_and(|bytes| full.contains(&bytes.to_string())));
}

#[cfg(feature = "cpu")]
#[test]
fn a_lock_file_and_a_bench_fit_a_screen() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock.json").display().to_string();
    let check = ["check", "--baseline", &lock];
    let written = is_a_screen(&[&check[..], &["--update", "--model", "mlp", "--steps", "1"]].concat(), 80);
    assert!(written.contains("1 run written"), "{written}");
    assert!(is_a_screen(&check, 80).starts_with("1 locked run: none grew\n"));
    let bench = is_a_screen(&["bench", "--backend", "cpu", "--seconds", "0.2"], 80);
    assert!(bench.lines().count() <= ROWS && bench.lines().next().is_some_and(|line| line.contains("GB/s")), "{bench}");
}

/// A file, the command that is given it, and what is said of it.
#[test]
fn a_file_of_the_wrong_kind_is_named_for_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path.display().to_string()
    };
    let weights = file("weights.pt", b"PK\x03\x04\x00\x00archive/data.pkl");
    let script = file("unet.py", b"import torch\n");
    let config = file("config.json", b"{\"model_type\": \"llama\"}");
    let result = file("run.json", b"{\"schema\":\"vramlab-train-1\"}");
    let folder = directory.path().display().to_string();
    let snapshot = Path::new(SNAPSHOT).display().to_string();
    let cases: [(&[&str], &str, &str); 9] = [
        (&["snapshot", "show", &weights], "weights (torch.save), not a snapshot", "vramlab predict takes config.json"),
        (&["snapshot", "show", &config], "a configuration of transformers", "vramlab predict "),
        (&["snapshot", "show", &folder], "a directory, not a snapshot", "name a file in it"),
        (&["snapshot", "show", &result], "a result of vramlab", "vramlab open "),
        (&["predict", "--model-file", &script], "a Python program, not a network", "vramlab predict "),
        (&["predict", "--model-file", &snapshot], "a snapshot of PyTorch's memory", "vramlab open "),
        (&["fit", "--model-file", &weights, "--gpu", "t4"], "weights (torch.save), not a network", ".pt2"),
        (&["replay", &script], "a Python program, not a recording", "vramlab predict "),
        (&["explain", &snapshot], "a snapshot of PyTorch's memory, not a log", "vramlab open "),
    ];
    for (words, what, instead) in cases {
        let ran = run(words);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(what) && ran.stderr.contains(instead), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn slips_are_told_plainly() {
    let cases: [(&[&str], &str); 6] = [
        (
            &["run", "batchsize"],
            "ask batchsize: no such experiment; did you mean \"batch-size\"? `vramlab ask` lists all.",
        ),
        (&["predict", "--model", "gpt3"], "no network is called so; did you mean \"gpt\"?"),
        (&["predict", "--model", "unet"], "vramlab predict train.py"),
        (&["run", "checkpoint"], "ask checkpoint: no such experiment; did you mean \"checkpointing\"?"),
        (&["predict", "--model", "gpt2", "--gpu", "rtx490"], "did you mean"),
        (&["predict", "--model", "mlp", "--batch", "many"], "a whole number, not negative, is expected"),
    ];
    for (words, said) in cases {
        let ran = run(words);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
}
