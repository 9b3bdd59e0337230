//! Malicious input, and a host without free memory.

use crate::common::{refused, vramlab};

use std::fs;
use std::path::Path;
use std::process::Output;

/// Text with a control character of each kind: sets a title, clears the screen, reverses text.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{2066}x";

/// Finds control characters for the terminal in the output of a command.
fn hidden(printed: &[u8]) -> Vec<char> {
    let bidirectional = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let text = String::from_utf8_lossy(printed).into_owned();
    text.chars().filter(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || bidirectional(*c)).collect()
}

/// Runs a command, whose output must have no control characters.
fn shown(args: &[&str]) -> Output {
    let output = vramlab().args(args).env("COLUMNS", "80").output().unwrap();
    for printed in [&output.stdout, &output.stderr] {
        assert_eq!(hidden(printed), [], "{args:?}: {:?}", String::from_utf8_lossy(printed));
    }
    assert!(matches!(output.status.code(), Some(0..=3)), "{args:?}: {:?}", output.status);
    output
}

/// Runs a command, whose output must show the malicious text escaped.
fn made_visible(args: &[&str]) {
    let output = shown(args);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).replace('\n', "");
    assert!(text.contains("\\u{1b}") || text.contains("\\u001b"), "{args:?}: {text}");
}

fn put(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn text_of_files_is_made_visible() {
    let directory = tempfile::tempdir().unwrap();
    let quoted = serde_json::to_string(HOSTILE).unwrap();
    let config = format!(
        "{{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":1,\"vocab_size\":8,\"n_positions\":8,{quoted}:1}}"
    );
    let config = put(directory.path(), "config.json", config);
    made_visible(&["predict", "--model-file", &config, "--steps", "1"]);
    let model = format!("[input]\nshape = [4]\n[[layer]]\ntype = {quoted}\n").replace('\u{7f}', "\\u007f");
    made_visible(&["predict", "--model-file", &put(directory.path(), "model.toml", model)]);
    let events = format!(
        "{{\"format\":\"vramlab-events-1\",\"name\":{quoted},\"ev\":\"a\",\"ev_size\":[8],\"ev_addr512\":[0],\"alloc_conf\":{quoted}}}"
    );
    shown(&["replay", &put(directory.path(), "events.json", events)]);
    let lock = format!("{{\"schema\":\"vramlab-lock-1\",\"version\":\"0\",\"runs\":{{{quoted}:1}}}}");
    shown(&["check", "--baseline", &put(directory.path(), "lock.json", lock)]);
    made_visible(&["check", "--baseline", &put(directory.path(), "other.json", format!("{{\"schema\":{quoted}}}"))]);
    shown(&["explain", HOSTILE]);
}

#[test]
fn frames_of_a_snapshot_are_made_visible() {
    let directory = tempfile::tempdir().unwrap();
    let quoted = serde_json::to_string(HOSTILE).unwrap();
    let frame = format!("{{\"filename\":{quoted},\"line\":1,\"name\":{quoted}}}");
    let entry =
        format!("{{\"action\":\"alloc\",\"addr\":4096,\"size\":512,\"stream\":0,\"time_us\":1,\"frames\":[{frame}]}}");
    let text = format!(
        "{{\"segments\":[],\"device_traces\":[[{entry}]],\"allocator_settings\":{{}},\"external_annotations\":[]}}"
    );
    let file = put(directory.path(), "snapshot.json", text);
    made_visible(&["snapshot", "show", &file]);
    made_visible(&["snapshot", "show", &file, "--json", "-"]);
    shown(&["snapshot", "show", &file, "--export-csv", "-"]);
    shown(&["snapshot", "show", &file, "--export-markdown", "-"]);
    made_visible(&["snapshot", "convert", &file, "-"]);
    // Exports have no hidden characters in files either.
    for flag in ["--json", "--export-csv", "--export-markdown"] {
        let out = directory.path().join("out").display().to_string();
        shown(&["snapshot", "show", &file, flag, &out]);
        assert_eq!(hidden(&fs::read(&out).unwrap()), [], "{flag}");
    }
    let page = directory.path().join("page.html").display().to_string();
    for flag in ["--export-trace", "--export-folded"] {
        let out = directory.path().join("export").display().to_string();
        assert_eq!(shown(&["report", &file, "-o", &page, flag, &out]).status.code(), Some(0), "{flag}");
        let written = fs::read(&out).unwrap();
        assert!(String::from_utf8_lossy(&written).contains("owned"), "{flag}: the frame is named");
        assert_eq!(hidden(&written), [], "{flag}");
    }
}

#[test]
fn arguments_and_paths_are_made_visible() {
    let absent = format!("{HOSTILE}.json");
    for args in [
        &["replay", &absent][..],
        &["report", &absent, "-o", "x.html"],
        &["predict", "--model", HOSTILE],
        &["predict", "--steps", HOSTILE],
        &["predict", HOSTILE],
        &[HOSTILE],
        &["predict", "--color", "always", "--model", HOSTILE],
        &["predict", "-L", "batch", HOSTILE],
    ] {
        let output = vramlab().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let ours = String::from_utf8_lossy(&output.stderr).replace("\u{1b}[1;31merror:\u{1b}[0m", "error:");
        assert_eq!(hidden(ours.as_bytes()), [], "{args:?}: {ours}");
    }
    let colored = vramlab().args(["predict", "--color", "always", "--model", "x"]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&colored.stderr).starts_with("\u{1b}[1;31merror:\u{1b}[0m "),
        "our own colours are kept"
    );
}

#[test]
fn a_report_reads_no_more_than_a_file_may_have() {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out.html").display().to_string();
    let bomb = directory.path().join("bomb.gz");
    let mut packer = flate2::write::GzEncoder::new(fs::File::create(&bomb).unwrap(), flate2::Compression::fast());
    packer.write_all(b"[").unwrap();
    for _ in 0..160 {
        packer.write_all(&[b' '; 1 << 20]).unwrap();
    }
    packer.finish().unwrap();
    let error = refused(2, &["report", &bomb.display().to_string(), "-o", &out]);
    assert!(error.contains("is more than 67108864 bytes, uncompressed"), "{error}");
    let zeros = put(directory.path(), "zeros", [0; 100]);
    let error = refused(2, &["report", &zeros, "-o", &out]);
    assert!(error.ends_with("zeros: begins neither as JSON nor as a pickle"), "{error}");
    if cfg!(unix) {
        let error = refused(2, &["report", "/dev/zero", "-o", &out]);
        assert_eq!(error, "/dev/zero: begins neither as JSON nor as a pickle");
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn exports_that_cannot_be_made_are_refused_before_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let result = put(directory.path(), "a.json", "{\"schema\": \"vramlab-fit-1\"}");
    let (page, trace) = (directory.path().join("p.html"), directory.path().join("t.json").display().to_string());
    let words = ["report", &result, "-o", &page.display().to_string(), "--export-trace", &trace];
    assert!(refused(2, &words).contains("an export is made of one recording"));
    assert!(!page.exists(), "with code 2 nothing is written");
}

#[cfg(target_os = "linux")]
mod without_memory {
    use super::*;
    use std::process::Command;

    /// Runs the program with this many KiB of address space.
    fn limited(kib: u32, args: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string(), env!("CARGO_BIN_EXE_vramlab")]);
        command.args(args).env("RAYON_NUM_THREADS", "1").output().unwrap()
    }

    #[test]
    fn a_host_without_memory_ends_the_run_with_a_sentence() {
        let directory = tempfile::tempdir().unwrap();
        let save = directory.path().join("weights.safetensors").display().to_string();
        let train = ["train", "--model", "mlp", "--width", "1024", "--layers", "4", "--steps", "2", "--batch", "256"];
        let train = [&train[..], &["--backend", "cpu", "--optimizer", "adamw", "--save", &save]].concat();
        // The command allocates nothing on a device: memory that is missing is the program's own.
        let predict = ["predict", "--model", "mlp", "--layers", "1000", "--steps", "1"];
        // Below this the system cannot even load the program, and kills it.
        let loads = |kib: &u32| limited(*kib, &["--version"]).status.success();
        let least = (10_000..400_000).step_by(2_000).find(loads).unwrap();
        let limits =
            [0, 1_000, 3_000, 6_000, 10_000, 20_000, 40_000, 80_000, 120_000, 210_000].map(|more| least + more);
        let mut ended = 0;
        for (words, kib) in [&train[..], &predict].into_iter().flat_map(|words| limits.map(|kib| (words, kib))) {
            let output = limited(kib, words);
            let error = String::from_utf8_lossy(&output.stderr);
            // Where a new thread's own request is the first that fails, the C library ends the program itself.
            let by_the_library = error.contains("Fatal glibc error: failed to register TLS destructor");
            let is_told = matches!(output.status.code(), Some(0 | 3)) || by_the_library;
            assert!(is_told, "{kib} KiB: {:?} {error}", output.status);
            ended += usize::from(error.starts_with("error: out of host memory: "));
            let left = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(left.collect::<Vec<_>>().iter().all(|name| name == "weights.safetensors"), "{kib} KiB: a part");
        }
        assert!(ended > 0, "none of these limits was reached");
    }

    #[test]
    fn a_killed_run_leaves_no_part_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let save = directory.path().join("weights.safetensors").display().to_string();
        let words = ["train", "--model", "mlp", "--width", "2048", "--layers", "4", "--steps", "1", "--batch", "1"];
        for delay in [50, 100, 150, 200, 300, 400, 600] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_vramlab"))
                .args([&words[..], &["--backend", "cpu", "-q", "--save", &save]].concat())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(delay));
            let _ = child.kill();
            child.wait().unwrap();
            let left: Vec<_> =
                fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(left.iter().all(|name| name == "weights.safetensors"), "{left:?}");
        }
    }
}
