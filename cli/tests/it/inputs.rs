//! What commands read: pipes are waited for and can be interrupted, and what a file says is shown safely.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program, with nothing on its standard input.
fn vramlab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Asks a process to end, and returns its exit code.
fn ended(mut child: Child) -> Option<i32> {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    panic!("it did not end");
}

#[test]
fn a_reader_that_waits_for_a_pipe_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let pipe = pipe.to_str().unwrap();
    let snapshot = "../lab/traces/tests/golden/snapshots/mlp_oom_plain.pickle";
    let out = folder.path().join("out.json");
    for words in [
        &["snapshot", "show", pipe][..],
        &["snapshot", "diff", snapshot, pipe],
        &["snapshot", "convert", pipe, out.to_str().unwrap()],
        &["snapshot", "replay", pipe],
        &["replay", pipe],
        &["tune", pipe],
        &["explain", pipe],
        &["open", pipe],
        &["open", snapshot, pipe],
        &["report", pipe, "-o", out.to_str().unwrap()],
        &["check", pipe],
        &["check", "--baseline", pipe],
    ] {
        let child = vramlab(words).spawn().unwrap();
        // Long enough to be waiting in most runs; wherever it is, it ends.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(ended(child), Some(130), "{words:?}");
        assert!(!out.exists());
    }
    // What cannot wait for a pipe refuses it.
    let words = ["train", "--backend", "meta", "--load", pipe];
    let output = vramlab(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_pipe_with_a_writer_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let bytes = std::fs::read("../lab/traces/tests/golden/snapshots/mlp_oom_plain.pickle").unwrap();
    for words in [&["snapshot", "show"][..], &["snapshot", "replay"], &["replay"]] {
        let child = vramlab(&[words, &[pipe.to_str().unwrap()]].concat()).spawn().unwrap();
        std::fs::write(&pipe, &bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("MiB"), "{words:?}: {text}");
    }
}

/// What a message says is not lost to a look at its beginning.
#[test]
fn a_message_from_a_pipe_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let child = vramlab(&["open", pipe.to_str().unwrap()]).spawn().unwrap();
    let message = "CUDA out of memory. Tried to allocate 20.00 GiB (GPU 0; 10.76 GiB total capacity; 1.00 GiB already allocated; \
        9.00 GiB free; 1.50 GiB reserved in total by PyTorch)";
    std::fs::write(&pipe, message).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("Out of memory: one request was larger than GPU 0."), "{text}");
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, bytes).unwrap();
    packed.finish().unwrap()
}

/// A pipe has no name that says what it is.
#[test]
fn a_pipe_is_opened_by_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = "../lab/traces/tests/golden/snapshots/mlp_oom_plain.pickle";
    let pickle = std::fs::read(snapshot).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let [json, events, page] = ["s.json", "events.json", "page.html"].map(path);
    let train = ["train", "--backend", "meta", "--model", "mlp", "--steps", "1", "--events", &events];
    for words in [&["snapshot", "convert", snapshot, &json][..], &train] {
        assert!(vramlab(words).output().unwrap().status.success(), "{words:?}");
    }
    let [json, events] = [json, events].map(|file| std::fs::read(file).unwrap());
    let message = b"OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which \
        1.00 GiB is free.";
    let of_file = vramlab(&["open", snapshot]).output().unwrap().stdout;
    let of_file = String::from_utf8(of_file).unwrap();
    let rest = of_file.split_once('\n').unwrap().1;
    let opened = |bytes: &[u8], words: &[&str]| {
        let mut child = vramlab(words).stdin(Stdio::piped()).spawn().unwrap();
        // A program that has seen enough closes the pipe.
        drop(std::io::Write::write_all(&mut child.stdin.take().unwrap(), bytes));
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &said)
    };
    for source in ["-", "/dev/stdin"] {
        for bytes in [&pickle, &gzipped(&pickle), &json, &gzipped(&json)] {
            let (code, text) = opened(bytes, &["open", source]);
            assert_eq!((code, text.split_once('\n').unwrap().1), (Some(0), rest), "{source}: {text}");
        }
        for (bytes, part) in [
            (&message[..], "the request needed 2.00 GiB"),
            (&gzipped(message), "the request needed 2.00 GiB"),
            (&events, "operations"),
        ] {
            let (code, text) = opened(bytes, &["open", source]);
            assert!(code == Some(0) && text.contains(part), "{source}: {text}");
        }
        let (code, text) = opened(&pickle, &["open", source, snapshot]);
        assert!(code == Some(0) && text.contains("allocated: 107.17 MiB → 107.17 MiB"), "{text}");
        assert_eq!(opened(&events, &["open", source, "-o", &page]).0, Some(0));
        assert_eq!(opened(&gzipped(&pickle), &["report", source, "-o", &page]).0, Some(0));
        let (code, text) = opened(b"{\"model_type\": \"llama\"}", &["open", source]);
        assert!(code == Some(2) && text.contains("a configuration of transformers"), "{text}");
        let (code, text) = opened(b"BZh91AY&SY", &["open", source]);
        assert!(code == Some(2) && text.contains("packed with bzip2; unpack it first"), "{text}");
        let (code, text) = opened(&pickle[..pickle.len() / 2], &["open", source]);
        assert!(code == Some(2) && text.contains("byte"), "{text}");
    }
}

/// A snapshot with one allocation, made by a line of a file of this name.
fn of_file(name: &str) -> String {
    let size = 2u64 << 20;
    serde_json::json!({
        "segments": [{ "address": 1u64 << 40, "total_size": size, "segment_type": "small",
            "blocks": [{ "size": size, "requested_size": size, "state": "active_allocated" }] }],
        "device_traces": [[
            { "action": "segment_alloc", "addr": 1u64 << 40, "size": size, "stream": 0 },
            { "action": "alloc", "addr": 1u64 << 40, "size": size, "stream": 0,
                "frames": [{ "filename": name, "line": 3, "name": "step" }] }
        ]]
    })
    .to_string()
}

#[test]
fn what_a_file_says_is_no_formula_no_markup_and_not_invisible() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    let shown = |name: &str, flags: &[&str]| {
        std::fs::write(&file, of_file(name)).unwrap();
        let output = vramlab(&[&["snapshot", "show", file.to_str().unwrap()][..], flags].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let csv = shown("=HYPERLINK(A1).py", &["--export-csv", "-"]);
    assert!(csv.contains("'=HYPERLINK(A1).py:3") && !csv.contains(",=") && !csv.contains("\n="), "{csv}");
    let markdown = shown("a<img src=x onerror=y>[a](javascript:z).py", &["--export-markdown", "-"]);
    assert!(markdown.contains("a&lt;img") && !markdown.contains("<img") && !markdown.contains("[a]("), "{markdown}");
    let text = shown("a\u{200b}b\u{2028}c\u{feff}d\u{e0041}.py", &[]);
    assert!(text.contains("a\\u{200b}b\\u{2028}c\\u{feff}d\\u{e0041}.py"), "{text}");
    let json = shown("a\u{e0041}.py", &["--json", "-"]);
    assert!(json.contains("\\udb40\\udc41") && serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    let page = folder.path().join("page.html");
    shown(&"x".repeat(3 << 20), &["--html", page.to_str().unwrap()]);
    assert!(page.metadata().unwrap().len() < 2 << 20, "{}", page.metadata().unwrap().len());
}

#[test]
fn a_name_of_any_length_makes_no_page_of_that_length() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.json");
    std::fs::write(&file, of_file(&"é".repeat(1 << 20))).unwrap();
    let file = file.to_str().unwrap();
    let page = folder.path().join("page");
    let page = page.to_str().unwrap();
    for words in [
        &["snapshot", "show", file, "--full"][..],
        &["snapshot", "show", file, "--html", page],
        &["snapshot", "show", file, "--export-markdown", page],
        &["snapshot", "show", file, "--export-csv", page],
        &["snapshot", "show", file, "--json", page],
        &["snapshot", "diff", file, file],
        &["report", file, "-o", page],
    ] {
        let output = vramlab(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        let written = std::fs::metadata(page).map_or(0, |metadata| metadata.len());
        assert!(output.stdout.len() < 1 << 20 && written < 1 << 20, "{words:?}: {written} bytes");
    }
    // What is converted keeps everything.
    let out = folder.path().join("out.json");
    let output = vramlab(&["snapshot", "convert", file, out.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::metadata(&out).unwrap().len() > 2 << 20);
}

/// A gzip file of 1 MB that unpacks to 1 GiB, beginning with these bytes.
fn bomb(path: &Path, begin: &[u8], filler: u8) {
    let file = std::fs::File::create(path).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::new(6));
    std::io::Write::write_all(&mut packed, begin).unwrap();
    let chunk = vec![filler; 1 << 20];
    for _ in 0..1 << 10 {
        std::io::Write::write_all(&mut packed, &chunk).unwrap();
    }
    packed.finish().unwrap();
}

#[test]
fn a_small_file_that_unpacks_to_very_much_is_refused_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let [pickle, json] = ["bomb.pickle.gz", "bomb.json.gz"].map(path);
    bomb(Path::new(&pickle), b"\x80\x04](", b'N');
    bomb(Path::new(&json), b"{\"schema\":\"", b'a');
    for words in [
        &["snapshot", "show", &pickle][..],
        &["snapshot", "show", &json],
        &["snapshot", "replay", &pickle],
        &["snapshot", "diff", &pickle, &pickle],
        &["replay", &json],
        &["tune", &pickle],
        &["report", &json],
        &["explain", &json],
        &["check", "--baseline", &json],
    ] {
        // Kibibytes of address space: the program's own, and a few times the 64 MiB that any file may unpack to.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 3000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_vramlab")]).args(words);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.len() < 1000, "{words:?}: {said}");
    }
}

#[test]
fn where_the_disk_or_a_limit_is_reached_nothing_half_written_stays() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = "../lab/traces/tests/golden/snapshots/mlp_oom_plain.pickle";
    for (words, flag) in [
        (&["snapshot", "show", snapshot][..], "--html"),
        (&["snapshot", "show", snapshot], "--json"),
        (&["report", snapshot], "-o"),
        (&["snapshot", "convert", snapshot], ""),
    ] {
        // What is converted is named for its format.
        let out = folder.path().join(if flag.is_empty() { "out.json" } else { "out" });
        for earlier in [None, Some("earlier")] {
            drop(std::fs::remove_file(&out));
            earlier.iter().for_each(|text| std::fs::write(&out, text).unwrap());
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_vramlab")]).args(words);
            command.args(Some(flag).filter(|flag| !flag.is_empty())).arg(&out);
            let output = command.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(3), "{words:?}: {said}");
            assert!(said.contains("cannot write") && said.contains("File too large"), "{words:?}: {said}");
            assert_eq!(std::fs::read_to_string(&out).ok().as_deref(), earlier, "{words:?}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), usize::from(earlier.is_some()));
        }
        drop(std::fs::remove_file(&out));
    }
    if Path::new("/dev/full").exists() {
        for words in [&["cards", "--json", "/dev/full"][..], &["snapshot", "show", snapshot, "--html", "/dev/full"]] {
            assert_eq!(vramlab(words).output().unwrap().status.code(), Some(3), "{words:?}");
        }
    }
}
