//! `vramlab replay`: recordings through any policy.

use crate::common::{done, fits, json, refused, run, vramlab};
use serde_json::Value;

/// From this package's folder, where tests run: the program prints paths, and lines of text have a width to keep.
const GOLDEN: &str = "../memcore/tests/golden/traces";

fn golden(name: &str) -> String {
    format!("{GOLDEN}/{name}.json.gz")
}

/// A file with this text, and its path.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_string();
    (directory, path)
}

fn unpacked(path: &str) -> Value {
    serde_json::from_reader(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap())).unwrap()
}

#[test]
fn the_columns_of_every_recording_are_its_own() {
    let mut count = 0;
    for entry in std::fs::read_dir(GOLDEN).unwrap() {
        let path = entry.unwrap().path();
        let path = path.to_str().unwrap();
        let columns: Value = serde_json::from_str(&done(&["replay", path, "--columns", "-"])).unwrap();
        let recorded = unpacked(path);
        let columns = columns.as_object().unwrap();
        assert_eq!(columns.len(), 14);
        for (name, column) in columns {
            assert_eq!(column, &recorded[name], "{path}: {name}");
        }
        count += 1;
    }
    assert!(count >= 50, "{count}");
}

#[test]
fn figures_are_those_of_the_recording() {
    for name in ["default_pressure_train", "exp_mixed", "gc40_collects", "default_fraction"] {
        let recorded = unpacked(&golden(name));
        let replayed = json(&["replay", &golden(name)]);
        assert_eq!(replayed["schema"], "vramlab-replay-1");
        let policy = &replayed["policies"][0];
        let stat = |name: &str| recorded["final_stats"][name].as_u64().unwrap_or(0);
        assert_eq!(policy["policy"], "caching");
        assert_eq!(policy["final"]["allocated"], stat("allocated_bytes.all.current"), "{name}");
        assert_eq!(policy["final"]["reserved"], stat("reserved_bytes.all.current"), "{name}");
        assert_eq!(policy["retries"], stat("num_alloc_retries"), "{name}");
        assert_eq!(policy["out_of_memory"], stat("num_ooms"), "{name}");
        assert_eq!(policy["last_oom_message"], recorded["last_oom_message"], "{name}");
        let calls = recorded["driver"]["kind"].as_str().unwrap().len();
        assert_eq!(policy["driver_calls"]["total"], calls, "{name}");
        assert_eq!(replayed["settings"]["memory-limit"], recorded["capacity"]);
        assert_eq!(replayed["settings"]["memory-fraction"], recorded["memory_fraction"]);
        assert_eq!(replayed["settings"]["alloc-conf"], recorded["alloc_conf"]);
        // The recorded peaks start anew where the program resets them.
        let sums = |column: &str, unit: i64| {
            let mut sum = 0;
            let changes = recorded[column].as_array().unwrap().iter();
            changes
                .map(|change| {
                    sum += change.as_i64().unwrap();
                    sum * unit
                })
                .max()
                .unwrap()
        };
        assert_eq!(policy["peak"]["allocated"], sums("d_peak512", 512), "{name}");
        assert_eq!(policy["peak"]["reserved"], sums("d_rpeak2m", 2 << 20), "{name}");
    }
}

#[test]
fn policies_stand_side_by_side_above_the_bound() {
    let trace = golden("default_train");
    let replayed = json(&["replay", &trace, "--compare", "all"]);
    let policies = replayed["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().map(|policy| policy["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["caching", "expandable", "direct", "bfc", "buddy", "tlsf", "planned"]);
    let bound = replayed["lower_bound"]["bytes"].as_u64().unwrap();
    for policy in policies {
        assert!(policy["peak"]["reserved"].as_u64().unwrap() >= bound, "{policy}");
        assert_eq!(policy["out_of_memory"], 0);
    }
    let plan = &policies[6]["plan"];
    assert_eq!(
        (plan["bytes"].as_u64(), plan["bound_bytes"].as_u64()),
        (policies[6]["peak"]["reserved"].as_u64(), Some(bound))
    );
    let text = done(&["replay", &trace, "--compare", "planned,direct,planned", "--full"]);
    fits(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Lower bound of any allocator") && words.contains("no two that live together overlap"),
        "{text}"
    );
    assert_eq!(text.lines().filter(|line| line.starts_with("planned ")).count(), 3, "one row in each table: {text}");
    let csv = done(&["replay", &trace, "--compare", "caching,tlsf", "--export-csv", "-"]);
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.lines().nth(2).unwrap().starts_with("tlsf,"), "{csv}");
    let markdown = done(&["replay", &trace, "--export-markdown", "-"]);
    assert!(markdown.contains("| caching |") && markdown.contains("peak reserved"), "{markdown}");
}

#[test]
fn flags_win_over_the_recording() {
    let trace = golden("default_mixed");
    let own = json(&["replay", &trace]);
    let expandable = json(&["replay", &trace, "--alloc-conf", "expandable_segments:True"]);
    assert_ne!(own["policies"][0]["driver_calls"], expandable["policies"][0]["driver_calls"]);
    assert!(expandable["policies"][0]["driver_calls"]["maps"].as_u64().unwrap() > 0);
    let direct = json(&["replay", &trace, "--allocator", "direct"]);
    assert_eq!(direct["policies"][0]["peak"]["reserved"], direct["policies"][0]["peak"]["allocated"]);
    let text = done(&["replay", &trace, "--full"]);
    fits(&text);
    assert!(
        text.contains("Reserved over the operations") && text.contains("Fragmentation over the operations"),
        "{text}"
    );
}

#[test]
fn a_limit_that_does_not_suffice_is_a_failed_check() {
    let trace = golden("default_train");
    let peak = json(&["replay", &trace])["policies"][0]["peak"]["reserved"].as_u64().unwrap();
    let fits = peak.to_string();
    assert_eq!(run(&["replay", &trace, "--memory-limit", &fits]).code, Some(0));
    let ran = run(&["replay", &trace, "--memory-limit", "64MiB", "--full"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.contains("CUDA out of memory"), "{}", ran.stdout);
    assert!(ran.stderr.contains("does not fit the given limit"), "{}", ran.stderr);
    // The recording's own limit is not a wish of the user.
    assert_eq!(run(&["replay", &golden("default_pressure_256m"), "--allocator", "buddy"]).code, Some(0));
    let planned = run(&["replay", &trace, "--allocator", "planned", "--memory-limit", "1MiB"]);
    assert_eq!(planned.code, Some(1));
    assert!(planned.stderr.contains("the plan takes"), "{}", planned.stderr);
}

#[test]
fn a_run_of_ones_own_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("run.json");
    let events = events.to_str().unwrap();
    for conf in ["", "expandable_segments:True"] {
        let mut train = vec!["train", "--model", "mlp", "--data", "synthetic", "--backend", "meta", "--events", events];
        if !conf.is_empty() {
            train.extend(["--alloc-conf", conf]);
        }
        let trained = json(&train);
        let replayed = json(&["replay", events]);
        let policy = &replayed["policies"][0];
        assert_eq!(replayed["trace"]["format"], "vramlab-events-1");
        assert_eq!(policy["peak"]["allocated"], trained["peak"]["bytes"], "{conf}");
        let last = trained["steps"].as_array().unwrap().last().unwrap();
        assert_eq!(policy["peak"]["reserved"], last[4], "{conf}: {last}");
    }
    let piped =
        vramlab().args(["replay", "-", "--json", "-"]).write_stdin(std::fs::read(events).unwrap()).output().unwrap();
    assert!(piped.status.success());
}

#[test]
fn what_is_no_recording_is_refused() {
    let trace = |op: &str, id: &str, size: &str| {
        format!(r#"{{"format":"oracle-trace-1","op":"{op}","id":[{id}],"size":[{size}]}}"#)
    };
    for (text, message) in [
        (trace("af", "0,3", "512"), "operation 1: frees allocation 3, but only 1 were made until then"),
        (trace("aff", "0,0,0", "512"), "operation 2: frees allocation 0, which was freed before"),
        (trace("aa", "0,1", "512,-1"), "operation 1: size -1 is negative"),
        (trace("aa", "0,1", "512"), "operation 1: has no size"),
        (trace("aa", "0,1", "512,7").replace(",7]}", ","), "operation 1: in column size"),
        ("not json".into(), "not JSON, or not all of it"),
        ("{}".into(), "has no \"format\""),
    ] {
        let (_directory, path) = file(&text);
        let error = refused(2, &["replay", &path]);
        assert!(error.starts_with(&path) && error.contains(message), "{error}");
    }
    assert!(refused(2, &["replay", "no/such/file.json"]).contains("no/such/file.json"));
    assert!(refused(2, &["replay", env!("CARGO_MANIFEST_DIR")]).contains("a directory, not a recording"));
}

#[test]
fn a_file_beyond_all_bounds_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("huge.json");
    std::fs::File::create(&path).unwrap().set_len(10_000_000_000).unwrap(); // sparse: it takes no room
    let error = refused(2, &["replay", path.to_str().unwrap()]);
    assert!(error.contains("10000000000 bytes long; at most 4294967296 bytes"), "{error}");
}

#[test]
fn flags_that_cannot_be_are_refused() {
    let trace = golden("default_mixed");
    for (flags, message) in [
        (&["--alloc-conf", "max_split_size_mb:5"][..], "--alloc-conf: "),
        (&["--alloc-conf", "nonsense:1"], "nonsense"),
        (
            &["--allocator", "direct", "--alloc-conf", "expandable_segments:True"],
            "only the caching allocator has settings",
        ),
        (&["--compare", "caching,best"], "invalid value 'best'"),
        (&["--compare", "caching", "--columns", "-"], "cannot be used with"),
        (&["--columns", "-", "--json", "-"], "only one result can go to standard output"),
        (&["--memory-fraction", "2"], "must lie between 0 and 1"),
    ] {
        let args: Vec<&str> = ["replay", &trace].iter().chain(flags).copied().collect();
        let ran = run(&args);
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{flags:?}: {}", ran.stderr);
    }
}

#[test]
fn policies_side_by_side_are_a_page_at_once_or_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (result, page, later) = (path("r.json"), path("r.html"), path("later.html"));
    let trace = golden("default_pressure_train");
    done(&["replay", &trace, "--compare", "caching,direct,planned", "--json", &result, "--html", &page]);
    let shown = std::fs::read_to_string(&page).unwrap();
    for part in ["the least", "Reserved over the operations", "lower bound", "planned", "vramlab replay", "<svg"] {
        assert!(shown.contains(part), "{part}");
    }
    // Four lines: what was allocated, and what each policy reserved; in the names, and in the drawing for a window and for a phone.
    assert_eq!(shown.matches("<path class=\"line").count(), 3 * 4);
    done(&["report", &result, "-o", &later]);
    assert_eq!(shown, std::fs::read_to_string(&later).unwrap());
}
