//! `watch -- COMMAND`: the training runs, its figures stand beside it, and the exit code is its own. PyTorch is a stand-in (`cli/tests/watch/torch`).

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::common::{fits, vramlab};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch")
}

/// Watches a command in a folder that has a snapshot of a U-Net that ran out of memory.
fn watch(folder: &Path, flags: &[&str], command: &[&str]) -> Output {
    let snapshot = folder.join("recorded.pickle");
    let packed = tests().join("../../../lab/traces/tests/golden/recordings/unet_oom.pickle.gz");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(packed).unwrap()).read_to_end(&mut bytes).unwrap();
    std::fs::File::create(&snapshot).unwrap().write_all(&bytes).unwrap();
    let mut words = vramlab();
    words.current_dir(folder).env("PYTHONPATH", tests()).env("STAND_IN_SNAPSHOT", snapshot);
    words.env("VRAMLAB_RUNTIME_DIR", folder.join("run")).arg("watch").args(flags).arg("--").args(command);
    words.output().unwrap()
}

fn train(folder: &Path, flags: &[&str], arguments: [&str; 2]) -> (i32, String) {
    let script = tests().join("train.py").display().to_string();
    let output = watch(folder, flags, &["python3", &script, arguments[0], arguments[1]]);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_training_is_summed_up_with_its_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("watched.json").display().to_string();
    let predicted = serde_json::json!({ "schema": "vramlab-rehearsal-1", "command": [], "gpu": {
        "name": "", "count": 1, "total_bytes": 0, "context_bytes": 0, "capability": "9.0" } });
    std::fs::write(folder.path().join("p.json"), predicted.to_string()).unwrap();
    let refused = train(folder.path(), &["--predicted", "p.json"], ["1", "1"]);
    assert!(refused.0 == 2 && refused.1.contains("not a prediction of one run"), "{}", refused.1);
    let (code, said) = train(folder.path(), &["--json", &result], ["60", "7"]);
    assert_eq!(code, 0, "{said}");
    fits(&said);
    assert!(said.contains("420 B allocated at most") && said.contains("grows by 7 B a step"), "{said}");
    let result: Value = serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap();
    let one = &result["processes"][0];
    assert_eq!(
        (&result["schema"], &one["steps"], &one["growth"]["bytes_per_step"]),
        (&"vramlab-watch-1".into(), &60.into(), &7.into())
    );
    assert!(!folder.path().join("vramlab-oom.pickle").exists());
    assert_eq!(std::fs::read_dir(folder.path().join("run")).unwrap().count(), 0, "the status is gone");
}

#[test]
fn a_training_that_runs_out_says_why_and_keeps_its_code_and_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = train(folder.path(), &["--snapshot", "out.pickle"], ["40", "90"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("Out of memory in step 12: 90 B requested, 10 B free on the NVIDIA stand-in"), "{said}");
    // Who held it, as the snapshot says.
    assert!(said.contains("train.py:21 forward") && said.contains("vramlab open out.pickle"), "{said}");
    assert!(folder.path().join("out.pickle").is_file());
}

#[test]
fn without_a_training_on_a_card_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let code_and_text = |output: Output| (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
    for (command, code, text) in [
        (&["true"][..], 3, "no Python that could be watched"),
        (&["python3", "-c", "print(1)"], 3, "no Python of the command imported torch"),
        (&["python3", "-c", "import torch"], 3, "no optimizer of torch.optim made a step"),
        (
            &["env", "STAND_IN=absent", "python3", "-c", "import torch"],
            3,
            "sees no CUDA device; what it takes on a card that is not here: vramlab predict --gpu rtx4090 -- env",
        ),
        (&["python3", "-c", "exit(7)"], 7, "no Python of the command imported torch"),
        (&["python3", "-c", "import os; os.kill(os.getpid(), 9)"], 137, "no Python of the command"),
        (&["vramlab-no-such-program"], 2, "cannot be started"),
    ] {
        let (ended, said) = code_and_text(watch(folder.path(), &[], command));
        assert_eq!(ended, Some(code), "{command:?}: {said}");
        assert!(said.contains(text), "{command:?}: {said}");
    }
    let once = code_and_text(watch(folder.path(), &["--once"], &["true"]));
    assert!(once.0 == Some(2) && once.1.contains("--once"), "{}", once.1);
}

#[test]
fn the_scripts_own_start_and_output_are_as_without_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sitecustomize.py"), "import os\nos.environ['OWN'] = 'ran'\n").unwrap();
    let mut words = vramlab();
    words.current_dir(folder.path()).env("PYTHONPATH", folder.path());
    let program = "import os, sys; print(os.environ['OWN'], any('vramlab' in entry for entry in sys.path))";
    let output = words.args(["watch", "--", "python3", "-c", program]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran False\n");
}
