//! Reports and exports, as a user makes them.

use crate::common;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{done, refused, run};
use serde_json::Value;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn path(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

/// The data that the page's script is given.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

const RUN: [&str; 7] = ["train", "--model", "simple-cnn", "--backend", "meta", "--steps", "2"];

#[test]
fn a_page_of_a_run_is_the_same_at_once_and_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let (at_once, later) = (path(&folder, "a.html"), path(&folder, "b.html"));
    let (result, events) = (path(&folder, "r.json"), path(&folder, "e.json"));
    let name = |path: &Path| path.to_str().unwrap().to_string();
    let mut words: Vec<String> = RUN.map(String::from).to_vec();
    for (flag, file) in [("--html", &at_once), ("--json", &result), ("--events", &events)] {
        words.extend([flag.to_string(), name(file)]);
    }
    done(&words.iter().map(String::as_str).collect::<Vec<_>>());
    done(&["report", &name(&result), &name(&events), "-o", &name(&later)]);
    let (page, again) = (text(&at_once), text(&later));
    let (mut ours, mut theirs) = (data(&page), data(&again));
    // The file's addresses begin at its first segment, and it is called by its name.
    for data in [&mut ours, &mut theirs] {
        data["name"] = Value::Null;
        for part in ["blocks", "segments"] {
            data[part]["address"][0] = Value::Null;
        }
    }
    assert_eq!(ours, theirs);
    let run: Value = serde_json::from_str(&text(&result)).unwrap();
    let peak = ours["phase_peaks"].as_array().unwrap().iter().map(|peak| peak[3].as_u64().unwrap()).max();
    assert_eq!(peak, run["peak"]["bytes"].as_u64());
    for part in ["simple-cnn, batch 128, adam", "From requested bytes", "Do it again", "as its driver reports"] {
        assert!(page.contains(part) && again.contains(part), "{part}");
    }
}

#[test]
fn the_command_on_a_page_can_be_typed() {
    let folder = tempfile::tempdir().unwrap();
    let page = path(&folder, "p.html");
    let html = ["--html", page.to_str().unwrap()];
    for words in [
        &RUN[..],
        &["predict", "--model", "mlp", "--gpu", "rtx4090", "--steps", "1", "--alloc-conf", "max_split_size_mb:100"],
        &["fit", "--model", "mlp", "--gpu", "256MiB", "--steps", "1"],
        &["ask", "optimizer", "--backend", "meta", "--set", "batch=8"],
        &["train", "--model", "mlp", "--backend", "meta", "--steps", "1", "-L", "batch", "8,16"],
    ] {
        done(&words.iter().copied().chain(html).collect::<Vec<_>>());
        let shown = text(&page);
        let (_, rest) = shown.split_once("<pre class=\"command\" tabindex=\"0\"><code>vramlab ").unwrap();
        let command = rest.split_once("</code>").unwrap().0;
        assert!(!command.contains(['&', '\'']), "nothing here needs quotes: {command}");
        let again: Vec<&str> = command.split(' ').collect();
        assert_eq!(again[0], words[0]);
        done(&again.into_iter().chain(html).collect::<Vec<_>>());
        assert!(text(&page).contains(command), "{command}");
    }
}

#[test]
fn exports_are_files_of_their_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["trace.json", "peak.folded", "lives.csv"].map(|name| path(&folder, name));
    let names = files.each_ref().map(|file| file.to_str().unwrap());
    let exports = ["--export-trace", names[0], "--export-folded", names[1], "--export-minimalloc", names[2]];
    done(&RUN.iter().copied().chain(exports).collect::<Vec<_>>());
    let trace: Value = serde_json::from_str(&text(&files[0])).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 100);
    let folded = text(&files[1]);
    assert!(folded.lines().any(|line| line.starts_with("activation;relu;")), "{folded}");
    let lives = text(&files[2]);
    assert!(lives.starts_with("id,lower,upper,size\n0,"), "{lives}");
}

#[test]
fn experiments_searches_and_scans_are_pages_too() {
    let folder = tempfile::tempdir().unwrap();
    let page = path(&folder, "p.html");
    let html = page.to_str().unwrap();
    done(&["run", "optimizer", "release", "--backend", "meta", "--html", html]);
    let shown = text(&page);
    assert!(shown.matches("<article").count() == 2 && shown.contains("Adam tracks two values"), "two experiments");
    done(&["fit", "--model", "mlp", "--gpu", "256MiB", "--html", html]);
    assert!(text(&page).contains("formula (requested)"));
    done(&["train", "--model", "mlp", "--backend", "meta", "--steps", "2", "-L", "batch", "8,16,32", "--html", html]);
    assert!(text(&page).contains("allocated, predicted"));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "x.json");
    let name = file.to_str().unwrap();
    let page = path(&folder, "x.html");
    let out = page.to_str().unwrap();
    for contents in ["", "{}", "[1]", "{\"format\":\"vramlab-events-1\",\"ev\":\"a\"}", "not json"] {
        fs::write(&file, contents).unwrap();
        assert!(refused(2, &["report", name, "-o", out]).starts_with(name), "{contents}");
        assert!(!page.exists());
    }
    refused(2, &["report", &format!("{name}.not"), "-o", out]);
    fs::write(&file, "{\"schema\":\"vramlab-fit-1\"}").unwrap();
    assert!(refused(2, &["report", name, "--export-folded", out]).contains("one recording"));
    assert!(refused(2, &["train", "--model", "mlp", "-L", "batch", "1,2", "--export-trace", out]).contains("one run"));
}

#[test]
fn a_run_that_does_not_fit_is_drawn_with_memory_enough() {
    let folder = tempfile::tempdir().unwrap();
    let [page, result] = ["small.html", "small.json"].map(|name| folder.path().join(name).display().to_string());
    let small = run(&[
        "predict", "--model", "gpt2", "--batch", "1", "--steps", "2", "--gpu", "2GiB", "--json", &result, "--html",
        &page,
    ]);
    assert_eq!(small.code, Some(1), "{}", small.stderr);
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("<h1>No: ") && !page.contains("class=\"need"), "the verdict, once");
    let result: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    let data = data(&page);
    let peaks = data["phase_peaks"].as_array().unwrap().iter().filter_map(|peak| peak[3].as_u64());
    // What is drawn is what is needed, not what there was room for.
    assert_eq!(peaks.max(), result["needs"]["allocated_bytes"].as_u64());
    assert_eq!((&data["limit"][1], &data["failures"]), (&result["budget_bytes"], &Value::Array(Vec::new())));
}

#[test]
fn two_runs_lie_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, batch) in [("a.json", "8"), ("b.json", "16")] {
        done(&[
            "train",
            "--model",
            "mlp",
            "--backend",
            "meta",
            "--steps",
            "2",
            "--batch",
            batch,
            "--json",
            &path(name),
        ]);
    }
    done(&["report", &path("a.json"), &path("b.json"), "-o", &path("both.html")]);
    let page = std::fs::read_to_string(path("both.html")).unwrap();
    for part in ["<div class=\"beside\">", "What each takes", "Settings that differ", "<td>8</td><td>16</td>"] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<h1>").count(), 1);
}

#[test]
fn results_are_printed_unless_a_page_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["8", "16"].map(|batch| {
        let file = path(&folder, batch).display().to_string();
        done(&["predict", "--model", "mlp", "--batch", batch, "--json", &file]);
        file
    });
    let printed = run(&["report", &files[0], &files[1]]);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    assert!(printed.stdout.contains("more than the first (peak allocated)."), "{}", printed.stdout);
    assert!(printed.stdout.contains("Settings that differ"), "{}", printed.stdout);
    common::fits(&printed.stdout);
    let again = run(&["report", &files[0]]);
    assert!(again.stdout.contains("mlp, batch 8"), "{}", again.stdout);
}

#[test]
fn of_two_runs_each_is_drawn_by_its_own_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for batch in ["8", "16"] {
        let (result, events) = (path(&format!("{batch}.json")), path(&format!("{batch}.events")));
        let words =
            ["predict", "--model", "mlp", "--steps", "2", "--batch", batch, "--json", &result, "--events", &events];
        done(&words);
    }
    let page = |files: &[&str], flag: &str| {
        let files: Vec<String> = files.iter().map(|name| path(name)).collect();
        let out = path("page.html");
        done(&["report"].into_iter().chain(files.iter().map(String::as_str)).chain([flag, &out]).collect::<Vec<_>>());
        std::fs::read_to_string(out).unwrap()
    };
    // In whatever order the files are given.
    let both = page(&["8.json", "16.json", "16.events", "8.events"], "-o");
    assert_eq!(both, page(&["8.events", "8.json", "16.events", "16.json"], "--html"));
    assert!(both.contains("<div class=\"beside\">") && both.contains("What each takes"));
    assert_eq!((both.matches("<article ").count(), both.matches("data-run=").count()), (2, 2));
    // Each is drawn as it is alone.
    let drawn = |page: &str, article: &str| {
        let (_, page) = page.split_once(article).unwrap();
        data(page)["phase_peaks"].clone()
    };
    for (article, batch) in [("<article id=\"part-0\">", "8"), ("<article id=\"part-1\">", "16")] {
        let alone = page(&[&format!("{batch}.json"), &format!("{batch}.events")], "-o");
        assert_eq!(drawn(&both, article), drawn(&alone, "<article "), "{batch}");
    }
    // With the events of one run alone, the other has no drawing.
    let one = page(&["8.json", "16.json", "16.events"], "-o");
    assert_eq!((one.matches("<article ").count(), one.matches("data-run=\"run-1\"").count()), (2, 1));
}

#[test]
fn several_experiments_have_contents_and_their_verdicts_at_the_top() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("two.html").display().to_string();
    done(&["run", "leak", "beliefs", "--backend", "meta", "--html", &page]);
    let page = std::fs::read_to_string(&page).unwrap();
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(at("<a href=\"#part-1\">What is widely said about GPU memory") < at("aria-label=\"Verdicts\""));
    assert!(at("aria-label=\"Verdicts\"") < at("<article id=\"part-0\">"));
    assert_eq!((page.matches("<h1>").count(), page.matches("<nav").count()), (1, 1));
}
