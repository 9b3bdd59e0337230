//! `train` and `predict`: what they print and what they write.

use crate::common;
use crate::common::{done, fits, json, refused, run};

use serde_json::Value;
use std::fs;

const SMALL: [&str; 9] = ["train", "--model", "mlp", "--width", "16", "--batch", "8", "--steps", "4"];

fn small(more: &[&'static str]) -> Vec<&'static str> {
    SMALL.iter().chain(more).copied().collect()
}

#[test]
fn a_configuration_of_transformers_is_a_model_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let gpt2 = file("config.json", r#"{ "model_type": "gpt2", "n_layer": 2, "colour": "green" }"#);
    let steps = ["--sequence", "64", "--batch", "2", "--steps", "2"];
    let predict = |more: &[&str]| json(&[&["predict", "--model-file", &gpt2][..], &steps, more].concat());
    let whole = predict(&[]);
    assert_eq!(whole["parameters"], 53_561_088);
    let of_step = |run: &Value| run["steps"][3][1].as_u64().unwrap();
    assert_ne!(of_step(&predict(&["--attention", "eager"])), of_step(&whole), "after forward");
    assert!(of_step(&predict(&["--checkpoint", "blocks"])) < of_step(&whole), "after forward");
    assert!(of_step(&predict(&["--keep", "loss"])) <= of_step(&whole));
    let noted = run(&[&["predict", "--model-file", &gpt2][..], &steps].concat());
    assert!(noted.stderr.contains("colour: unknown key"), "{}", noted.stderr);
    let t5 = file("t5.json", r#"{ "model_type": "umt5" }"#);
    let said = refused(2, &["predict", "--model-file", &t5, "--gpu", "h100"]);
    assert!(said.contains("vramlab does not support \"umt5\""), "{said}");
    assert!(said.ends_with("instead: vramlab predict train.py --gpu h100"), "{said}");
    let said = refused(2, &["predict", "--model-file", &t5, "--gpu", "8GiB"]);
    assert!(said.ends_with("instead: vramlab predict train.py --gpu 8GiB"), "{said}");
    let quantized = file("q.json", r#"{ "model_type": "gpt2", "quantization_config": { "bits": 4 } }"#);
    let said = refused(2, &["predict", "--model-file", &quantized]);
    assert!(said.ends_with("instead: vramlab predict train.py --gpu rtx4090"), "{said}");
    assert!(refused(2, &["predict", "--model-file", &gpt2, "--width", "64"]).contains("--width"));
    assert!(
        refused(2, &["predict", "--model-file", &gpt2, "--checkpoint", "sqrt"])
            .contains("has none, blocks, blocks:N and numbers of blocks")
    );
    assert_eq!(of_step(&predict(&["--checkpoint", "none"])), of_step(&whole));
    assert!(refused(2, &["predict", "--model-file", &gpt2, "--sequence", "2048"]).contains("1024 positions"));
}

#[test]
fn blocks_of_our_own_networks_are_computed_again() {
    let predict = |more: &[&str]| json(&[&["predict", "--steps", "2", "--batch", "4"], more].concat());
    let after_forward = |run: &Value| run["steps"][3][1].as_u64().unwrap();
    for model in [
        &["--model", "mlp", "--layers", "4"][..],
        &["--model", "gpt", "--layers", "4", "--dropout", "0.1"],
        &["--model", "resnet18", "--image", "64"],
        &["--model", "vgg16"],
        &["--model", "mobilenet_v2", "--image", "64"],
        &["--model", "convnext-tiny", "--image", "64"],
    ] {
        let of = |checkpoint: &'static str| {
            let run = predict(&[model, &["--checkpoint", checkpoint]].concat());
            assert_eq!(run["settings"]["checkpoint"], checkpoint);
            after_forward(&run)
        };
        let (none, blocks, sqrt, some) = (of("none"), of("blocks"), of("sqrt"), of("1,2"));
        assert_eq!(none, after_forward(&predict(model)), "{model:?}");
        assert!(sqrt < blocks && blocks <= some && some <= none, "{model:?}: {sqrt} {blocks} {some} {none}");
        assert!(blocks < none || model[1] == "mlp", "{model:?}");
    }
    for (model, checkpoint, problem) in [
        ("simple-cnn", "blocks", "model simple-cnn has no blocks"),
        ("two-layer", "sqrt", "model two-layer has no blocks"),
        ("gpt", "0,2", "gpt has no block 2; its blocks are 0 to 1"),
        ("resnet50", "16", "resnet50 has no block 16"),
        ("convnext-tiny", "17,18", "convnext-tiny has no block 18"),
        ("densenet121", "sqrt", "none and blocks"),
        ("gpt", "every", "numbers of blocks"),
    ] {
        let refusal = refused(2, &["predict", "--model", model, "--checkpoint", checkpoint]);
        assert!(refusal.contains("--checkpoint") && refusal.contains(problem), "{refusal}");
    }
    assert!(
        refused(2, &["predict", "--layers", "0", "--model", "mlp", "--checkpoint", "blocks"]).contains("no blocks")
    );
}

#[cfg(feature = "cpu")]
#[test]
fn json_has_the_shape_that_other_programs_read() {
    let run = json(&small(&["--backend", "cpu"]));
    assert_eq!(run["schema"], "vramlab-train-1");
    let columns: Vec<&str> = run["step_columns"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    assert_eq!(columns, lab::record::COLUMNS);
    let steps = run["steps"].as_array().unwrap();
    let labels: Vec<&str> = steps.iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!((labels.len(), labels[0], labels[1], labels[25]), (26, "model", "s0.input", "end"));
    let peak = &run["peak"];
    let highest = steps.iter().map(|row| row[2].as_u64().unwrap()).max();
    assert_eq!(peak["bytes"].as_u64(), highest);
    assert!(labels.contains(&peak["label"].as_str().unwrap()), "{peak}");
    assert!(peak["op"].is_string() && peak["scope"].is_string());
    let sum = |by: &Value| by.as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum::<u64>();
    assert_eq!(Some(sum(&peak["by_category"])), highest);
    assert_eq!(Some(sum(&run["by_category"])), run["rings"]["allocated"].as_u64());
    for ring in ["requested", "allocated", "active", "reserved", "driver"] {
        assert!(run["rings"].get(ring).is_some(), "{ring}");
    }
    assert_eq!(run["overheads"], Value::Null, "the processor's backend measures nothing beside tensors");
    assert_eq!(run["losses"].as_array().unwrap().len(), 4);
    assert!(run["ms_per_step_median"].as_f64().unwrap() > 0.0);
    assert_eq!(run["parameters"], 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10);
    assert_eq!((&run["settings"]["batch"], &run["settings"]["lr"]), (&8.into(), &1e-3.into()));
    assert_eq!((&run["device"]["backend"], &run["reason"]), (&"cpu".into(), &Value::Null));
}

#[test]
fn without_values_there_is_a_reason() {
    let run = json(&small(&["--backend", "meta"]));
    for key in ["losses", "ms_per_step_median", "accuracy"] {
        assert_eq!(run[key], Value::Null, "{key}");
    }
    assert!(run["reason"].as_str().unwrap().contains("computes nothing"));
    assert_eq!(run["steps"].as_array().unwrap().len(), 26);
    let ran = common::done(&["train", "--model", "linear", "--steps", "0", "--backend", "cpu", "--json", "-"]);
    let run: Value = serde_json::from_str(&ran).unwrap();
    assert_eq!(run["reason"], "no step was finished");
    let text = common::done(&["train", "--model", "linear", "--steps", "0", "--backend", "cpu"]);
    assert!(text.contains("Losses and times are missing: no step was finished."), "{text}");
}

#[cfg(feature = "cpu")]
#[test]
fn one_seed_gives_the_same_losses_and_another_seed_others() {
    let losses = |seed| json(&small(&["--backend", "cpu", "--seed", seed]))["losses"].clone();
    assert_eq!(losses("7"), losses("7"));
    assert_ne!(losses("7"), losses("8"));
}

#[cfg(feature = "cpu")]
#[test]
fn digits_are_learnt() {
    let run = json(&["train", "--model", "mlp", "--data", "digits", "--backend", "cpu"]);
    let accuracy = run["accuracy"]["share"].as_f64().unwrap();
    assert!(accuracy >= 0.95, "{accuracy}");
    assert_eq!(run["settings"]["steps"], 20 * (run["steps"].as_array().unwrap().len() - 2) / 6 / 20);
}

#[cfg(feature = "cpu")]
#[test]
fn the_report_fits_and_has_its_parts() {
    fits(&done(&small(&["--backend", "cpu", "--summary"])));
    // The command that repeats it is one line, however long.
    let text = done(&small(&["--backend", "cpu", "--summary", "--full"]));
    for part in ["mlp: fully connected", "s0.forward", "at the peak", "The peak is", "requested", "reserved"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for part in ["● reserved", "loss: ", "ms (median)", "PyTorch CUDA memory summary"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // On the host what others use is left out.
    assert!(text.contains("cached segments") && !text.contains("as its driver reports"), "{text}");
}

#[test]
fn a_limit_that_does_not_suffice_is_1_and_its_account_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json").display().to_string();
    let gpt = ["train", "--backend", "meta", "--model", "gpt", "--like", "native"];
    let ran = run(&[&gpt[..], &["--memory-limit", "16MiB", "--full", "--json", &file]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: out of memory: tried to allocate"), "{}", ran.stderr);
    fits(&ran.stderr);
    let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&json["schema"], &json["reason"].is_string()), (&"vramlab-train-1".into(), &true));
    assert_eq!(json["out_of_memory"]["total_bytes"], 16 << 20);
    let sum = |by: &Value| by.as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    let (held, most) = (sum(&json["by_category"]), sum(&json["peak"]["by_category"]));
    assert_eq!((json["rings"]["allocated"].as_u64(), json["peak"]["bytes"].as_u64()), (Some(held), Some(most)));
    assert!(held <= most && most - held < 1 << 20, "what was held when it failed is nearly what was held at most");
    assert!(json["peak"]["bytes"].as_u64() > json["steps"][4][2].as_u64() && json["peak"]["label"].is_null(), "{json}");
    assert_eq!((&json["peak"]["phase"], &json["parameters"]), (&"backward".into(), &Value::Null));
    // What was measured until then is there, in the file and for people.
    let labels: Vec<&str> = json["steps"].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(labels, ["model", "s0.input", "s0.zero_grad", "s0.forward", "s0.loss"], "{json}");
    assert!(json["steps"][0][1].as_u64().unwrap() > 1 << 20);
    assert!(ran.stdout.contains("until memory ran out") && ran.stdout.contains("s0.loss"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| !line.contains("s0.backward")), "{}", ran.stdout);
    fits(&ran.stdout);
    let predicted = run(&["predict", "--model", "gpt2", "--batch", "64", "--gpu", "8GiB"]);
    assert_eq!(predicted.code, Some(1), "{}", predicted.stderr);
    let fraction = run(&["predict", "--model", "gpt2", "--memory-fraction", "0.0000001"]);
    assert_eq!(fraction.code, Some(1), "{}", fraction.stderr);
}

#[test]
fn a_run_of_a_configuration_keeps_its_rows_when_memory_runs_out() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    fs::write(&config, r#"{ "model_type": "gpt2", "n_layer": 2 }"#).unwrap();
    let config = config.display().to_string();
    let run = run(&[
        "predict",
        "--model-file",
        &config,
        "--sequence",
        "64",
        "--batch",
        "2",
        "--memory-limit",
        "900MiB",
        "--json",
        "-",
    ]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = json["steps"].as_array().unwrap();
    assert_eq!(rows.last().unwrap()[0], "s0.backward", "the optimizer's state does not fit: {json}");
    assert_eq!(json["losses"], Value::Null);
}

#[test]
fn running_out_without_a_limit_is_3() {
    let ran = run(&["predict", "--model", "gpt2", "--batch", "10000000"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    // The host could not even make this batch.
    assert!(refused(3, &["train", "--batch", "99999999999999"]).contains("a batch of 99999999999999"));
}

#[test]
fn a_prediction_is_what_the_meta_device_measures() {
    let options = ["--model", "mlp", "--steps", "3", "--batch", "32"];
    let predict: Vec<&str> = ["predict"].iter().chain(&options).copied().collect();
    let like = ["--backend", "meta", "--like", "torch-2.11-sm90"];
    let train: Vec<&str> = ["train"].iter().chain(&options).chain(&like).copied().collect();
    assert_eq!(json(&predict)["steps"], json(&train)["steps"]);
    let workspace = ["predict", "--steps", "1", "--cudnn-workspace", "7MiB"];
    assert_ne!(json(&workspace)["steps"], json(&["predict", "--steps", "1"])["steps"]);
}

#[test]
fn events_have_the_columns_of_the_recorded_scripts() {
    let text = done(&["predict", "--model", "mlp", "--steps", "2", "--events", "-"]);
    let events: Value = serde_json::from_str(&text).unwrap();
    let kinds = events["ev"].as_str().unwrap();
    let count = |of: &str| kinds.chars().filter(|c| of.contains(*c)).count();
    let len = |key: &str| events[key].as_array().unwrap().len();
    assert_eq!((len("ev_size"), len("ev_addr512")), (kinds.len() - count("f"), kinds.len() - count("f")));
    assert_eq!((len("ev_free_ref"), len("ev_op")), (count("f"), count("af")));
    let last = events["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last[10].as_u64().unwrap() as usize, count("af"));
    assert_eq!(last[9].as_u64().unwrap() as usize, count("S") - count("F"));
    let names: Vec<&str> = events["op_names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert!(names.contains(&"AddmmBackward0>mm"), "{names:?}");
}

#[test]
fn allocators_and_their_settings_show() {
    let run = |more: &[&'static str]| {
        let gpt = ["train", "--backend", "meta", "--model", "gpt", "--steps", "2"];
        json(&[&gpt, more].concat())
    };
    let reserved = |run: &Value| run["peak"]["reserved_bytes"].as_u64().unwrap();
    let segments = |run: &Value| run["steps"][3][9].as_u64().unwrap();
    let caching = run(&[]);
    assert!(reserved(&run(&["--allocator", "direct"])) < reserved(&caching));
    let expandable = run(&["--alloc-conf", "expandable_segments:True"]);
    assert!(segments(&caching) > 0 && reserved(&expandable) > 0);
    // Pages of an expandable segment are mapped, not counted as segments.
    assert_eq!(segments(&expandable), 0);
    assert_eq!(expandable["settings"]["alloc-conf"], "expandable_segments:True");
}

#[test]
fn tables_are_exported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (csv_file, md_file) = (path("rows.csv"), path("rows.md"));
    done(&["predict", "--steps", "1", "--export-csv", &csv_file, "--export-markdown", &md_file]);
    let mut reader = csv::Reader::from_path(&csv_file).unwrap();
    assert_eq!(reader.headers().unwrap(), vec!["phase", "allocated", "peak in phase", "reserved"]);
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!((rows.len(), &rows[3][0]), (8, "s0.forward"));
    assert!(rows[3][1].parse::<u64>().unwrap() > 1 << 20);
    let markdown = fs::read_to_string(&md_file).unwrap();
    assert!(markdown.contains("| phase | allocated |") && markdown.contains("MiB ("), "{markdown}");
    assert!(markdown.contains("What the peak consisted of"), "{markdown}");
}

#[test]
fn colour_is_for_those_who_want_it() {
    let coloured = |more: &[&'static str]| done(&[&["predict", "--steps", "1"], more].concat()).contains('\x1b');
    assert!(!coloured(&[]), "a pipe is not a terminal");
    assert!(coloured(&["--color", "always"]));
    assert!(!coloured(&["--color=never"]));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["predict", "--model", "mlp", "--steps", "400", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn memory_that_grows_is_named_with_its_holder() {
    let leaking = ["train", "--backend", "meta", "--model", "two-layer", "--keep-intermediate", "--steps", "12"];
    let leak = &json(&leaking)["leak"];
    assert_eq!((&leak["growth_bytes_per_step"], &leak["cause"]), (&2560.into(), &"kept-tensors".into()), "{leak}");
    assert!(leak["sites"][0]["op"].as_str().unwrap().contains("clamp_min"), "{leak}");
    let text = done(&leaking);
    fits(&text);
    for part in ["Memory grows by", "held by", "advice: clear the list"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let cured = ["--schedule", "input,zero_grad,forward,loss,backward,step,clear"];
    let clean = json(&[&leaking[..], &cured].concat());
    assert!(clean["leak"].is_null(), "{}", clean["leak"]);
    assert_eq!(clean["steps"][7][0], "s0.clear");
    assert!(!done(&[&leaking[..], &cured].concat()).contains("Memory grows"));
    // Known also when memory has run out.
    let small = ["--like", "native", "--memory-limit", "8MiB", "--steps", "100000", "--batch", "256"];
    let ran = run(&[&leaking[..6], &small, &["--json", "-"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let failed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(failed["leak"]["growth_bytes_per_step"], 20_480, "{}", failed["leak"]);
    assert!(refused(2, &["train", "--model", "mlp", "--keep-intermediate"]).contains("--keep-intermediate"));
}

#[test]
fn pytorchs_instruments_are_flags() {
    let run = json(&small(&["--backend", "meta", "--stats", "--summary"]));
    let stats = run["memory_stats"].as_object().unwrap();
    assert!(stats.len() > 100, "{}", stats.len());
    assert_eq!(stats["allocated_bytes.all.current"], run["rings"]["allocated"]);
    assert_eq!(stats["num_ooms"], 0);
    let text = done(&small(&["--backend", "meta", "--stats"]));
    assert!(text.contains("\nreserved_bytes.all.peak "), "{text}");
    // Resetting the peak between steps lowers what is told of the steps behind.
    let order = "input,zero_grad,forward,loss,backward,step,del,empty_cache,reset_peak";
    let reset = json(&small(&["--backend", "meta", "--schedule", order]));
    let labels: Vec<&str> = reset["steps"].as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(labels[7..10], ["s0.del", "s0.empty_cache", "s0.reset_peak"]);
    let row = &reset["steps"][9];
    assert_eq!(row[1], row[2], "max_allocated after a reset is what is allocated: {row}");
    assert!(refused(2, &small(&["--schedule", "input,backward"])).starts_with("--schedule: "));
    assert!(refused(2, &small(&["--schedule", "walk"])).contains("known: input"));
}

/// As in a container that allows no further process.
#[test]
fn a_run_does_without_threads_where_none_can_be_made() {
    let words = ["train", "--backend", "cpu", "--model", "mlp", "--steps", "2", "--json", "-"];
    let losses = |command: &mut assert_cmd::Command| {
        let output = command.args(words).output().unwrap();
        let (code, error) = (output.status.code(), String::from_utf8_lossy(&output.stderr).to_string());
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["losses"].clone()
    };
    // No address space holds such a stack.
    let alone = losses(common::vramlab().env("RUST_MIN_STACK", (1u64 << 60).to_string()));
    assert_eq!(alone, losses(&mut common::vramlab()));
}

#[cfg(feature = "cpu")]
#[test]
fn a_limit_that_is_too_small_is_full_by_what_the_whole_run_needs() {
    let words = ["train", "--model", "simple-cnn", "--batch", "128", "--backend", "cpu", "--steps", "3", "--like"];
    let words = [&words[..], &["torch-2.11-sm90", "--memory-limit", "64MiB"]].concat();
    let ran = run(&words);
    assert_eq!(ran.code, Some(1));
    let said = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!said.contains("fragmented") && said.contains("more than there is"), "{said}");
    let failed: serde_json::Value =
        serde_json::from_str(&run(&[&words[..], &["--json", "-"]].concat()).stdout).unwrap();
    let enough = json(&words[..words.len() - 2]);
    let needs = &failed["out_of_memory"]["needs"];
    assert_eq!(needs["allocated_bytes"], enough["peak"]["bytes"]);
    assert_eq!(needs["reserved_bytes"], enough["peak"]["reserved_bytes"]);
    let missing = needs["reserved_bytes"].as_u64().unwrap() - (64 << 20);
    assert_eq!(
        (&failed["out_of_memory"]["missing_bytes"], &failed["out_of_memory"]["verdict"]),
        (&missing.into(), &"full".into())
    );
}

#[cfg(feature = "cpu")]
#[test]
fn the_memory_of_the_host_is_no_part_of_a_run_on_it() {
    let text = done(&["train", "--full", "--model", "mlp", "--backend", "cpu", "--steps", "1"]);
    assert!(text.contains("rounding to blocks") && !text.contains("other processes"), "{text}");
}
