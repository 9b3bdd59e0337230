//! `vramlab snapshot`, `tune`, `explain`, and the snapshots of our own runs.

use crate::common::{done, fits, json, refused, vramlab};
use crate::viewer;
use serde_json::Value;

/// From this package's folder, where tests run: the program prints paths, and lines of text have a width to keep.
const GOLDEN: &str = "../lab/traces/tests/golden/snapshots";
const NAMES: [&str; 6] = [
    "cnn_b128_plain",
    "cnn_b128_stacks",
    "cnn_b128_then_b32_plain",
    "gpt_untied_plain",
    "mlp_expandable",
    "mlp_oom_plain",
];

fn golden(name: &str) -> String {
    format!("{GOLDEN}/{name}.pickle")
}

fn loaded(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_is_converted_to_standard_output_is_what_a_file_gets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.json").display().to_string();
    done(&["snapshot", "convert", &golden("cnn_b128_stacks"), &path]);
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file.len() > 1 << 16, "more than one piece: {}", file.len());
    assert_eq!(done(&["snapshot", "convert", &golden("cnn_b128_stacks"), "-"]), file);
}

#[test]
fn what_is_converted_opens_in_the_viewer() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    for name in NAMES {
        done(&["snapshot", "convert", &golden(name), &path("s.json")]);
        viewer::opens(&loaded(&path("s.json")));
        done(&["snapshot", "convert", &path("s.json"), &path("s.pickle")]);
        viewer::pickle_opens(&std::fs::read(path("s.pickle")).unwrap());
        done(&["snapshot", "convert", &path("s.pickle"), &path("again.json")]);
        assert_eq!(loaded(&path("s.json")), loaded(&path("again.json")), "{name}");
    }
}

#[test]
fn our_own_runs_open_in_the_viewer() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let (pickle, text) = (path("own.pickle"), path("own.json"));
    for (flags, code) in [
        (&["--memory-limit", "16MiB"][..], 1),
        (&["--allocator", "caching"], 0),
        (&["--alloc-conf", "expandable_segments:True"], 0),
        (&["--allocator", "direct"], 0),
    ] {
        for file in [&pickle, &text] {
            let base = [
                "train",
                "--model",
                "simple-cnn",
                "--batch",
                "64",
                "--backend",
                "meta",
                "--steps",
                "3",
                "--snapshot",
                file,
            ];
            let ran = vramlab().args(base).args(flags).output().unwrap();
            assert_eq!(ran.status.code(), Some(code), "{flags:?}: {}", String::from_utf8_lossy(&ran.stderr));
        }
        viewer::pickle_opens(&std::fs::read(&pickle).unwrap());
        let own = loaded(&text);
        viewer::opens(&own);
        let of = |action: &str| {
            let trace = own["device_traces"][0].as_array().unwrap();
            trace.iter().filter(|entry| entry["action"] == action).count()
        };
        assert!(code == 1 || of("alloc") > 50 && of("free_completed") > 20, "{flags:?}");
        assert_eq!(of("oom"), usize::from(code == 1), "{flags:?}");
        if flags[1] != "direct" {
            // Read back, the program gives its own segments again.
            let replayed = json(&["snapshot", "replay", &pickle]);
            assert_eq!(replayed["self_check"]["exact"], true, "{flags:?}: {}", replayed["self_check"]);
        }
    }
    let shown = json(&["snapshot", "show", &pickle]);
    let stacks = shown["peak"]["by_stack"].to_string();
    assert!(stacks.contains("module:0") && stacks.contains("phase:0 forward"), "{stacks}");
}

#[test]
fn figures_are_those_of_the_file() {
    let shown = json(&["snapshot", "show", &golden("mlp_oom_plain")]);
    assert_eq!(shown["schema"], "vramlab-snapshot-1");
    // 246.0 MiB, 107.2 MiB, 138.8 MiB by `_memory_viz.py stats`.
    assert_eq!(shown["totals"]["reserved"], 246 << 20);
    assert_eq!(shown["totals"]["segments"], 14);
    let requested = shown["totals"]["requested"].as_f64().unwrap() / f64::from(1 << 20);
    assert_eq!(format!("{requested:.1}"), "107.2");
    let held: u64 = shown["held"].as_array().unwrap().iter().map(|held| held["bytes"].as_u64().unwrap()).sum();
    assert!(held > 0 && held <= shown["totals"]["requested"].as_u64().unwrap());
    for name in NAMES {
        fits(&done(&["snapshot", "show", &golden(name)]));
    }
}

#[test]
fn a_snapshot_is_replayed_and_checked() {
    for name in NAMES {
        for command in [&["snapshot", "replay"][..], &["replay"]] {
            let replayed = json(&[command, &[&golden(name)]].concat());
            let check = &replayed["self_check"];
            assert_eq!(check["exact"], true, "{name}: {check}");
            assert_eq!(check["segments"], check["equal_segments"]);
            assert_eq!(replayed["policies"][0]["peak"]["reserved"], check["peak_reserved"]["recorded"]);
        }
    }
    let text = done(&["snapshot", "replay", &golden("cnn_b128_plain"), "--compare", "caching,expandable,planned"]);
    assert!(text.contains("Self-check") && text.contains("exactly."), "{text}");
    fits(&text);
    // As JSON, packed and from standard input.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.json");
    done(&["snapshot", "convert", &golden("cnn_b128_plain"), path.to_str().unwrap()]);
    assert_eq!(json(&["replay", path.to_str().unwrap()])["self_check"]["exact"], true);
    let piped =
        vramlab().args(["replay", "-", "--json", "-"]).write_stdin(std::fs::read(path).unwrap()).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&piped.stdout).unwrap()["self_check"]["exact"], true);
}

#[test]
fn two_runs_that_are_made_now_differ_where_they_should() {
    let same = json(&["diff", "mlp --steps 2", "mlp --steps 2"]);
    assert_eq!((&same["requests"]["asked"], &same["requests"]["places"]), (&Value::Null, &serde_json::json!([])));
    assert_eq!(same["requests"]["requests"][0], same["requests"]["equal"]);
    let other = json(&["diff", "mlp --steps 2", "mlp --steps 2 --batch 128"]);
    // The parameters are equal, and the first batch is not.
    assert_eq!(other["requests"]["equal"], 6, "{other}");
    let asked = |at: usize| other["requests"]["asked"][at]["bytes"].as_u64().unwrap();
    assert_eq!(asked(1), 2 * asked(0));
    assert!(other["requests"]["peak_bytes"][1].as_u64() > other["requests"]["peak_bytes"][0].as_u64());
    assert!(refused(2, &["diff", "mlp --batch x", "mlp"]).contains("`vramlab predict mlp --batch x`: "));
    assert!(refused(2, &["diff", "mlp 'x", "mlp"]).contains("quotation mark"));
}

#[test]
fn a_difference_is_a_difference() {
    let same = json(&["snapshot", "diff", &golden("cnn_b128_stacks"), &golden("cnn_b128_stacks")]);
    assert_eq!((&same["changes"], &same["segments_only_in"]), (&serde_json::json!([]), &serde_json::json!([0, 0])));
    let other = json(&["snapshot", "diff", &golden("cnn_b128_plain"), &golden("cnn_b128_then_b32_plain")]);
    let sum = |at: usize| -> i64 {
        other["changes"].as_array().unwrap().iter().map(|change| change["bytes"][at].as_i64().unwrap()).sum()
    };
    let requested = |at: usize| other["totals"][at]["requested"].as_i64().unwrap();
    assert_eq!(sum(1) - sum(0), requested(1) - requested(0));
    assert_ne!(requested(0), requested(1));
}

#[test]
fn tuning_is_checked_on_what_it_did_not_see() {
    for name in ["mlp_oom_plain", "gpt_untied_plain", "mlp_expandable"] {
        let tuned = json(&["tune", &golden(name)]);
        let cost = |of: &Value| {
            let number = |key: &str| of[key].as_u64().unwrap();
            (number("failed"), number("peak_reserved"), number("driver_calls"))
        };
        let (recorded, best) = (&tuned["recorded"], &tuned["best"]);
        assert!(cost(&best["searched"]) <= cost(&recorded["searched"]), "{name}");
        assert!(cost(&best["held_out"]) <= cost(&recorded["held_out"]), "{name}");
        assert!(tuned["tried"].as_array().unwrap().len() > 15, "{name}");
        assert_eq!(tuned["self_check"]["exact"], true);
        // What is printed is what a replay of the whole accepts.
        let conf = best["alloc_conf"].as_str().unwrap();
        done(&["replay", &golden(name), "--alloc-conf", conf]);
        fits(&done(&["tune", &golden(name)]));
    }
}

#[test]
fn nothing_is_proposed_for_a_recording_that_is_not_reproduced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.json");
    done(&["snapshot", "convert", &golden("mlp_expandable"), path.to_str().unwrap()]);
    // As if it had been recorded under other settings.
    let mut snapshot = loaded(path.to_str().unwrap());
    snapshot["allocator_settings"]["expandable_segments"] = false.into();
    snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "".into();
    std::fs::write(&path, snapshot.to_string()).unwrap();
    let output = vramlab().args(["tune", path.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("nothing is proposed") && text.contains("not exact") && !text.contains("_CONF="), "{text}");
    let output = vramlab().args(["tune", path.to_str().unwrap(), "--json", "-"]).output().unwrap();
    let tuned: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&tuned["best"], &tuned["self_check"]["exact"]), (&Value::Null, &false.into()));
}

/// Recordings of whole programs.
fn recording(name: &str) -> String {
    format!("../lab/traces/tests/golden/recordings/{name}.pickle.gz")
}

#[test]
fn what_waits_is_not_called_allocated() {
    let text = done(&["snapshot", "show", "--full", &recording("streams_pending")]);
    assert!(text.contains("(8392704) allocated") && text.contains("waiting for another stream"), "{text}");
    let shown = json(&["snapshot", "show", &recording("streams_pending")]);
    let held: u64 = shown["held"].as_array().unwrap().iter().map(|held| held["bytes"].as_u64().unwrap()).sum();
    assert!(held <= shown["peak"]["requested_bytes"].as_u64().unwrap(), "{shown}");
    let shown = json(&["snapshot", "show", &recording("mlp_oom_expandable")]);
    assert_eq!(shown["growing"], serde_json::json!([]), "three steps, of which one rose");
}

#[test]
fn a_failed_request_counts_in_no_figure() {
    for policy in json(&["replay", &golden("mlp_oom_plain"), "--compare", "all"])["policies"].as_array().unwrap() {
        let drawn = policy["samples"].as_array().unwrap().iter().map(|sample| sample[2].as_u64().unwrap()).max();
        assert_eq!(policy["peak"]["reserved"].as_u64(), drawn, "{}", policy["policy"]);
        if let Some(plan) = policy["plan"]["bytes"].as_u64() {
            assert_eq!(policy["peak"]["reserved"], plan);
        }
    }
}

#[test]
fn a_message_is_explained() {
    let message = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.60 GiB already \
                   allocated; 7.44 MiB free; 9.64 GiB reserved in total by PyTorch)";
    let explained = json(&["explain", message]);
    assert_eq!((&explained["verdict"], &explained["device"]), (&"fragmented".into(), &0.into()));
    // Of a release that has no expandable segments: none are proposed.
    let text = done(&["explain", message]);
    assert!(text.contains("Update PyTorch") && !text.contains("expandable_segments:True"), "{text}");
    fits(&text);
    let text = vramlab().args(["explain", "-"]).write_stdin(MESSAGE_2_2).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "{text}");
    assert!(text.contains("vramlab snapshot replay"), "{text}");
    fits(&text);
    assert!(refused(2, &["explain", "hello"]).contains("not an out-of-memory message"));
}

const MESSAGE_2_2: &str = "CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which \
                           235.06 MiB is free. Of the allocated memory 13.06 GiB is allocated by PyTorch, and 330.42 MiB is \
                           reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
                           PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

#[test]
fn a_message_in_a_file_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    let explained = json(&["explain", MESSAGE_2_2]);
    // A log of several MiB, with bytes that are not text: its end is read.
    let mut log = vec![0xff; 3 << 20];
    log.extend_from_slice(b"\nTraceback (most recent call last):\n");
    log.extend_from_slice(MESSAGE_2_2.as_bytes());
    std::fs::write(path("train.log"), &log).unwrap();
    assert_eq!(json(&["explain", &path("train.log")]), explained);
    let piped = vramlab().args(["explain", "-", "--json", "-"]).write_stdin(log).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&piped.stdout).unwrap(), explained);
    // As PowerShell redirects it.
    let units = MESSAGE_2_2.encode_utf16().flat_map(u16::to_le_bytes);
    std::fs::write(path("windows log.txt"), [0xff, 0xfe].into_iter().chain(units).collect::<Vec<u8>>()).unwrap();
    assert_eq!(json(&["explain", &path("windows log.txt")]), explained);
    assert!(refused(2, &["explain", "nosuch.log"]).contains("nosuch.log: there is no such file"));
    assert!(refused(2, &["explain", &path("missing")]).contains("there is no such file"));
    assert!(refused(2, &["explain", directory.path().to_str().unwrap()]).contains("a directory"));
}

#[test]
fn bad_input_is_refused_by_its_byte() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let evil = write("evil.pickle", b"\x80\x04cos\nsystem\n(X\x02\x00\x00\x00lstR.");
    let cut = write("cut.pickle", &std::fs::read(golden("gpt_untied_plain")).unwrap()[..5000]);
    for file in [&evil, &cut] {
        for command in [&["snapshot", "show"][..], &["snapshot", "replay"], &["replay"], &["tune"]] {
            let error = refused(2, &[command, &[file.as_str()]].concat());
            assert!(error.contains(file) && error.contains(": byte "), "{error}");
        }
    }
    assert!(refused(2, &["snapshot", "show", &evil]).contains("byte 2: vramlab does not read GLOBAL"));
    let out = directory.path().join("out.json");
    refused(2, &["snapshot", "convert", &evil, out.to_str().unwrap()]);
    assert!(!out.exists(), "nothing is written");
    assert!(refused(2, &["snapshot", "convert", &golden("mlp_expandable"), "out.txt"]).contains("must end in"));
    assert!(refused(2, &["snapshot", "show", &golden("mlp_expandable"), "--device", "3"]).contains("--device 3"));
    let empty = write("empty.json", b"{\"segments\": [], \"device_traces\": []}");
    assert!(refused(2, &["snapshot", "replay", &empty]).contains("no requests were recorded"));
}

/// Two recordings with other peaks are compared there: what is held at the end may be nearly the same.
#[test]
fn a_difference_of_peaks_is_told_by_who_holds_more_at_the_peak() {
    let of = [golden("cnn_b128_stacks"), golden("mlp_oom_plain")];
    let text = done(&["snapshot", "diff", &of[0], &of[1]]);
    assert!(text.starts_with("+") && text.lines().next().unwrap().contains(" at the peak: "), "{text}");
    assert!(text.contains("Who holds more at the peak, or less") && !text.contains("At the end of"), "{text}");
    let text = done(&["snapshot", "diff", &of[0], &of[1], "--full"]);
    assert!(text.contains("At the end of the recordings:"), "{text}");
}

/// Stacks that differ only in who called a line are one row, and a device that only the first file has is named.
#[test]
fn a_difference_is_by_line() {
    let text = done(&["snapshot", "diff", &recording("cut"), &recording("cut_expandable")]);
    assert!(text.contains("No line holds more or less."), "{text}");
    let text = done(&["snapshot", "diff", &recording("states_alone"), &recording("cut")]);
    assert!(!text.contains("train/kinds.py:6 net (to)"), "both hold the same by this line:\n{text}");
    let directory = tempfile::tempdir().unwrap();
    let two = directory.path().join("two.json").to_str().unwrap().to_string();
    let segment = |device: u64, bytes: u64| {
        serde_json::json!({"device": device, "address": 1 << 30, "total_size": bytes, "allocated_size": 0, "active_size": 0, "stream": 0,
            "segment_type": "large", "blocks": [{"size": bytes, "requested_size": 0, "state": "inactive"}]})
    };
    let file = serde_json::json!({"segments": [segment(0, 2 << 20), segment(1, 6 << 20)], "device_traces": [[], []]});
    std::fs::write(&two, file.to_string()).unwrap();
    let text = done(&["snapshot", "diff", &two, &recording("cut")]);
    assert!(text.contains("The first file also has device 1 (6 MiB reserved): --device N."), "{text}");
}

/// `torch.xpu.memory._snapshot()` of PyTorch 2.11 documents fewer fields: no pool, no time, no settings of the allocator.
#[test]
fn a_snapshot_of_intels_xpu_is_read() {
    let block = |size: u64, state: &str| serde_json::json!({"address": 1_u64 << 30, "size": size, "requested_size": size, "state": state, "frames": []});
    let segment = serde_json::json!({"address": 1_u64 << 30, "total_size": 20 << 20, "stream": 0, "segment_type": "large", "allocated_size": 20 << 20,
        "active_size": 20 << 20, "blocks": [block(20 << 20, "active_allocated")]});
    let entry = |action: &str| serde_json::json!({"action": action, "addr": 1_u64 << 30, "size": 20 << 20, "stream": 0, "frames": []});
    let file = serde_json::json!({"segments": [segment], "device_traces": [[entry("segment_alloc"), entry("alloc")]]});
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xpu.json").to_str().unwrap().to_string();
    std::fs::write(&path, file.to_string()).unwrap();
    assert!(done(&["snapshot", "show", &path]).contains("20 MiB at the peak"));
    assert!(done(&["replay", &path]).contains("caching reserves 20 MiB"));
}

/// Defaults that are better than what was recorded are named, and the command that repeats that works.
#[test]
fn the_defaults_are_proposed_in_words() {
    let text = done(&["tune", &recording("pool_expandable")]);
    assert!(text.contains("the defaults are better than the recorded settings"), "{text}");
    assert!(text.contains("without expandable_segments:True") && text.contains("--alloc-conf ''"), "{text}");
    done(&["replay", &recording("pool_expandable"), "--alloc-conf", ""]);
}

/// What a trace lacks is said, and nothing is claimed of it.
#[test]
fn what_a_recording_lacks_is_told() {
    let shown =
        |name: &str| done(&["snapshot", "show", &recording(name)]).split_whitespace().collect::<Vec<_>>().join(" ");
    let text = shown("cut");
    assert!(
        text.contains("The trace begins with 94.3 MiB in 27 blocks held: earlier entries were overwritten"),
        "{text}"
    );
    assert!(!shown("nanogpt").contains("The trace begins with"));
    let text = shown("states_alone");
    assert!(text.contains("154 MiB reserved, 113.32 MiB allocated Held at the end"), "{text}");
    assert!(text.contains("The trace has no requests") && !text.contains("at the peak"), "{text}");
    let text = shown("refused_and_went_on");
    assert!(text.contains("asked for 4 TiB, outside of the network, as a batch is made or moved (step 3)"), "{text}");
    assert!(text.contains("the last of 2 requests that failed. The program went on: 62 allocations follow."), "{text}");
    assert!(text.contains("No setting of the allocator helps"), "{text}");
    let text = shown("limited");
    assert!(text.contains("does not say where the limit lies") && !text.contains("Try"), "{text}");
    let text = shown("larger_batches");
    assert!(
        text.contains("Larger in every step: a tensor that grows, or larger batches") && !text.contains("leak"),
        "{text}"
    );
}

#[test]
fn the_snapshot_of_a_network_of_ones_own_is_told_on_one_screen() {
    let unet = recording("unet_oom");
    let text = done(&["snapshot", "show", &unet]);
    assert!(text.lines().count() <= 22, "{text}");
    fits(&text);
    assert!(text.contains("train.py:21 forward asked for 3 GiB, in the forward pass, at entry 413 of 416."), "{text}");
    assert!(text.contains("train.py:7 forward (conv2d") && text.contains("activation?"), "{text}");
    assert!(!text.contains("unwind"), "{text}");
    let text = done(&["snapshot", "show", "--full", &unet]);
    assert!(text.contains("train.py:19 forward") && text.contains("Segments"), "{text}");
    let shown = json(&["snapshot", "show", &unet, "--match", "conv2d"]);
    assert!(shown["moment"]["by_line"].as_array().unwrap().iter().all(|line| line["where"] == "train.py:7"), "{shown}");
    let early = json(&["snapshot", "show", &unet, "--range", "..200"]);
    assert_eq!((&early["out_of_memory"], &early["moment"]["what"]), (&serde_json::Value::Null, &"peak".into()));
    assert!(refused(2, &["snapshot", "show", &unet, "--match", "conv4d"]).contains("no stack"));
    assert!(refused(2, &["snapshot", "show", &unet, "--range", "900..1000"]).contains("the trace has 416 entries"));
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("unet.html");
    done(&["snapshot", "show", &unet, "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("train.py:7 forward") && page.contains("guessed from stacks"));
}

#[test]
fn ranges_that_the_program_named_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ranges.json").display().to_string();
    done(&["snapshot", "convert", &recording("unet_oom"), &path]);
    let mut snapshot = loaded(&path);
    let begin = snapshot["device_traces"][0][0]["time_us"].as_i64().unwrap();
    let mark = |name: &str, stage: &str, time: i64| serde_json::json!({ "name": name, "stage": stage, "device": 0, "time_us": begin + time });
    let marks = [
        mark("epoch", "START", 0),
        mark("load", "START", 1),
        mark("load", "END", 2),
        mark("step\u{1b}[2J", "START", 3),
    ];
    snapshot["external_annotations"].as_array_mut().unwrap().extend(marks);
    std::fs::write(&path, snapshot.to_string()).unwrap();
    let shown = json(&["snapshot", "show", &path]);
    assert_eq!(shown["moment"]["ranges"], serde_json::json!(["epoch", "step\u{1b}[2J"]));
    assert_eq!(shown["ranges"][1], serde_json::json!({ "name": "load", "count": 1 }));
    let text = done(&["snapshot", "show", &path]);
    assert!(text.contains("in the forward pass, in epoch > step") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_recording_without_times_takes_no_time_for_a_range() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("older.json").display().to_string();
    done(&["snapshot", "convert", &recording("unet_oom"), &path]);
    let mut snapshot = loaded(&path);
    for entry in snapshot["device_traces"][0].as_array_mut().unwrap() {
        entry.as_object_mut().unwrap().remove("time_us");
    }
    snapshot.as_object_mut().unwrap().remove("allocator_settings");
    std::fs::write(&path, snapshot.to_string()).unwrap();
    let problem = refused(2, &["snapshot", "show", &path, "--range", "..200ms"]);
    assert!(problem.contains("has no times") && problem.contains("416"), "{problem}");
    done(&["snapshot", "show", &path, "--range", "..200"]);
}

#[test]
fn the_devices_of_a_snapshot_are_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let [file, page] = ["two.json", "page.html"].map(|name| folder.path().join(name).display().to_string());
    done(&["snapshot", "convert", &golden("mlp_oom_plain"), &file]);
    let mut snapshot = loaded(&file);
    let traces = snapshot["device_traces"].as_array_mut().unwrap();
    let first = traces[0].clone();
    traces.push(first);
    std::fs::write(&file, snapshot.to_string()).unwrap();
    done(&["snapshot", "show", &file, "--html", &page]);
    let all = std::fs::read_to_string(&page).unwrap();
    assert_eq!((all.matches("<article ").count(), all.matches("data-run=").count()), (2, 2));
    assert!(all.contains("<h2>Device 1: ") && all.contains("href=\"#part-1\""), "a part for each");
    done(&["snapshot", "show", &file, "--device", "1", "--html", &page]);
    assert!(!std::fs::read_to_string(&page).unwrap().contains("<h2>Device"), "one that was asked for stands alone");
}
