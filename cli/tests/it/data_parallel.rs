//! `--data-parallel` and `--zero`: steps divided among ranks.

use crate::common;
use crate::common::{done, fits, json, refused};

use serde_json::Value;

const GPT: [&str; 8] = ["predict", "--model", "gpt", "--batch", "64", "--steps", "2", "--quiet"];

fn divided(more: &[&str]) -> Value {
    json(&GPT.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn each_rank_has_its_account() {
    let run = divided(&["--data-parallel", "8", "--zero", "3", "--precision", "bf16"]);
    assert_eq!(run["schema"], "vramlab-train-1");
    assert_eq!(run["data_parallel"]["examples_per_rank"], 8);
    assert_eq!((&run["settings"]["zero"], &run["settings"]["data-parallel"]), (&3.into(), &8.into()));
    let ranks = run["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 7]);
    for rank in ranks {
        let categories = rank["peak"]["by_category"].as_object().unwrap().values().map(|v| v.as_u64().unwrap());
        assert_eq!(categories.sum::<u64>(), rank["peak"]["bytes"].as_u64().unwrap(), "the parts add up");
        assert!(rank["gathered_bytes"].as_u64().unwrap() > 0);
        let sent = &rank["sent_bytes_per_step"];
        assert_eq!(sent["all_gather"].as_u64().unwrap(), 2 * sent["reduce_scatter"].as_u64().unwrap());
        assert_eq!(rank["steps"].as_array().unwrap().last().unwrap()[0], "end");
        let (states, formula) = (&rank["model_states"]["total_bytes"], &run["data_parallel"]["formula"]["total_bytes"]);
        let (states, formula) = (states.as_u64().unwrap(), formula.as_u64().unwrap());
        assert_eq!(formula, 2 * run["parameters"].as_u64().unwrap());
        assert!((formula..formula + 8192).contains(&states), "{states} {formula}");
    }
}

#[test]
fn a_thousand_ranks_are_as_quick_as_two() {
    let run = divided(&["--data-parallel", "1024", "--batch", "1024", "--zero", "2", "--precision", "bf16"]);
    assert_eq!(run["ranks"][1]["rank"], 1023);
    assert_eq!(run["ranks"][0]["peak"], run["ranks"][1]["peak"]);
}

#[test]
fn one_rank_is_the_plain_run() {
    let (plain, one) = (divided(&[]), divided(&["--data-parallel", "1"]));
    assert_eq!(plain["steps"], one["ranks"][0]["steps"]);
    assert_eq!(plain["peak"]["bytes"], one["ranks"][0]["peak"]["bytes"]);
}

#[test]
fn people_read_a_row_per_rank() {
    let words = ["--data-parallel", "4", "--zero", "1", "--precision", "bf16", "--full"];
    let text = done(&GPT.into_iter().chain(words).collect::<Vec<_>>());
    fits(&text);
    for part in ["ZeRO-1", "rank 3", "formula", "all-gather", "float32 master", "The other ranks hold the same"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let here =
        done(&["train", "--backend", "meta", "--model", "mlp", "--batch", "8", "--data-parallel", "2", "--full"]);
    assert!(here.contains("all-reduce") && here.contains("ZeRO-0"), "{here}");
}

#[test]
fn memory_that_runs_out_names_the_rank() {
    let args = ["predict", "--model", "gpt2", "--data-parallel", "2", "--gpu", "1GiB"];
    let error = refused(1, &[&["train", "--backend", "meta"], &args[1..5], &["--memory-limit", "1GiB"]].concat());
    assert!(error.contains("on rank 0"), "{error}");
    let ran = common::run(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("No: ") && ran.stdout.contains("are missing"), "{}", ran.stdout);
}

#[test]
fn several_cards_have_a_verdict_with_what_to_try() {
    let words = ["--model", "gpt2", "--batch", "8", "--data-parallel", "4", "--gpu"];
    let run =
        |memory: &'static str| common::run(&[&["predict", "--json", "-", "--quiet"], &words[..], &[memory]].concat());
    let fits = run("40GiB");
    let found: Value = serde_json::from_str(&fits.stdout).unwrap();
    assert_eq!((fits.code, &found["fits"]), (Some(0), &true.into()), "{}", fits.stderr);
    let needs = found["needs"]["reserved_bytes"].as_u64().unwrap();
    let ranks = found["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["peak"]["reserved_bytes"].as_u64().unwrap()).max(), Some(needs));
    let less = run("2GiB");
    let found: Value = serde_json::from_str(&less.stdout).unwrap();
    assert_eq!((less.code, &found["fits"]), (Some(1), &false.into()), "{}", less.stderr);
    let tries = found["tries"]["entries"].as_array().unwrap();
    let first = tries.first().expect("something makes it fit");
    let command = first["command"].as_str().unwrap();
    assert!(command.contains("--data-parallel 4") && command.contains("--gpu 2GiB"), "{command}");
    let again: Vec<&str> = command.split(' ').skip(1).chain(["--json", "-", "--quiet"]).collect();
    let again = common::run(&again);
    let found: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(found["needs"]["reserved_here_bytes"], first["reserved_bytes"]);
}

#[test]
fn the_largest_batch_is_that_of_each_card() {
    let words = ["--model", "gpt2", "--data-parallel", "4", "--gpu", "8GiB"];
    let found = json(&[&["fit", "--quiet"], &words[..]].concat());
    let largest = found["largest"].as_u64().unwrap();
    let text = done(&[&["fit"], &words[..]].concat());
    assert!(text.contains(&format!("{largest} examples on each of 4 cards fit into 8 GiB")), "{text}");
    let code = |each: u64| common::run(&[&["predict", "--batch", &(4 * each).to_string()], &words[..]].concat()).code;
    assert_eq!((code(largest), code(largest + 1)), (Some(0), Some(1)));
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let two = ["--data-parallel", "2"];
    for (args, part) in [
        (&["train", "--backend", "cpu", two[0], two[1]][..], "counted and not sent"),
        (&["train", "--devices", "meta:0,meta:1", two[0], two[1]], "it does not go with devices"),
        (&["predict", "--zero", "2"], "--zero: it goes only with data-parallel"),
        (&["predict", two[0], two[1], "--zero", "4"], "--zero"),
        (&["predict", two[0], "0"], "--data-parallel"),
        (&["predict", two[0], two[1], "--batch", "3"], "shares must be equal"),
        (&["predict", two[0], two[1], "--zero", "1", "--precision", "autocast-fp16"], "one decision of all ranks"),
        (&["predict", two[0], two[1], "--micro-batches", "2"], "--micro-batches: it goes only with devices"),
        (&["predict", two[0], two[1], "--cut", "1"], "--cut: it goes only with devices"),
        (&["predict", two[0], two[1], "--zero", "1", "--gradient-as-bucket-view"], "--gradient-as-bucket-view"),
        (&["predict", two[0], two[1], "--html", "/nonexistent/page.html"], "--data-parallel means several"),
        (&["predict", two[0], two[1], "-L", "batch", "8,16"], "scan:"),
        (&["predict", "-L", "data-parallel", "1,2"], "scan:"),
    ] {
        let error = refused(2, args);
        assert!(error.contains(part) || common::run(args).stderr.contains(part), "{args:?}: {error}");
    }
}
