//! `plan`: the fastest way to train with so many examples a step.

use serde_json::Value;

use crate::common::{json, refused, run};

const GPT: [&str; 12] = [
    "plan",
    "gpt",
    "--layers",
    "2",
    "--width",
    "128",
    "--global-batch",
    "64",
    "--sequence",
    "256",
    "--optimizer",
    "adamw",
];

fn gpt(more: &[&'static str]) -> Value {
    json(&[GPT.as_slice(), more].concat())
}

fn bytes(plan: &Value) -> u64 {
    plan["changes"]["reserved_bytes"].as_u64().unwrap()
}

fn seconds(plan: &Value) -> f64 {
    plan["seconds"].as_f64().unwrap()
}

#[test]
fn the_plan_is_the_prediction_of_its_own_command() {
    let found = gpt(&["--gpu", "250MiB"]);
    let best = &found["best"];
    assert_eq!((&found["schema"], &best["fits"]), (&"vramlab-plan-1".into(), &true.into()));
    let product = best["micro_batch"].as_u64().unwrap() * best["accumulate"].as_u64().unwrap();
    assert_eq!(product, 64);
    let command = best["changes"]["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let predicted = json(&words);
    assert_eq!(predicted["needs"]["reserved_here_bytes"], bytes(best));
    assert_eq!(predicted["fits"], true);
}

#[test]
fn nothing_that_fits_is_faster_and_less_memory_takes_more_time() {
    let found = gpt(&["--gpu", "250MiB"]);
    let front = found["front"].as_array().unwrap();
    assert!(front.len() > 3, "{front:?}");
    for pair in front.windows(2) {
        assert!(seconds(&pair[0]) <= seconds(&pair[1]) && bytes(&pair[0]) > bytes(&pair[1]), "{pair:?}");
    }
    let fastest = front.iter().filter(|one| one["fits"] == true).map(seconds).fold(f64::INFINITY, f64::min);
    assert!(seconds(&found["best"]) <= fastest * 1.021, "{found}");
    assert!(front.iter().any(|one| one["changes"]["change"].as_str().unwrap().contains("checkpointing")), "{front:?}");
    // No division is faster than the whole batch at once.
    assert!(front.iter().all(|one| seconds(one) >= found["unlimited_seconds"].as_f64().unwrap()));
}

#[test]
fn more_memory_is_never_slower_and_needs_no_more_changes() {
    let of = |gpu| gpt(&["--gpu", gpu])["best"].clone();
    let plans = ["120MiB", "180MiB", "250MiB", "24GiB"].map(of);
    for pair in plans.windows(2) {
        assert!(seconds(&pair[1]) <= seconds(&pair[0]) * 1.021, "{pair:?}");
    }
    assert_eq!(plans[3]["accumulate"], 1);
}

#[test]
fn results_change_only_if_that_is_allowed() {
    let plain = gpt(&["--gpu", "250MiB"]);
    let allowed = gpt(&["--gpu", "250MiB", "--allow", "numbers,optimizer"]);
    let changes = |found: &Value| found["best"]["changes"]["flags"].as_str().unwrap().to_string();
    assert!(!changes(&plain).contains("--precision") && !changes(&plain).contains("--optimizer "), "{plain}");
    assert!(changes(&allowed).contains("--precision"), "{allowed}");
    assert_eq!(allowed["settings"]["allow"], "numbers,optimizer");
    // A form of the optimizer is that of the run's own.
    let rows = allowed["front"].as_array().unwrap().iter().chain([&allowed["best"]]);
    assert!(
        rows.map(|row| row.to_string()).all(|row| !(row.contains(" for AdamW") && row.contains("fused AdamW"))),
        "{allowed}"
    );
    assert!(seconds(&allowed["best"]) < seconds(&plain["best"]));
}

#[test]
fn cards_divide_the_batch_and_the_states() {
    let alone = gpt(&["--gpu", "180MiB"]);
    let four = gpt(&["--gpu", "180MiB", "--data-parallel", "4"]);
    assert_eq!(four["cards"], 4);
    assert!(seconds(&four["best"]) < seconds(&alone["best"]) / 2.0, "{four}");
    // What cards send between machines takes longer.
    let world = gpt(&["--gpu", "180MiB", "--world", "4"]);
    let apart = gpt(&["--gpu", "180MiB", "--world", "4", "--nodes", "4"]);
    assert_eq!((&world["best"], &world["machines"], &apart["machines"]), (&four["best"], &1.into(), &4.into()));
    assert!(seconds(&apart["best"]) > seconds(&four["best"]), "{apart}");
}

#[test]
fn a_card_that_holds_no_plan_is_a_no_with_the_least_that_one_takes() {
    let ran = run(&[GPT.as_slice(), &["--gpu", "40MiB"]].concat());
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.starts_with("No plan surely fits into 40 MiB: the least is"), "{}", ran.stdout);
    assert!(ran.stdout.contains("checkpointing"), "{}", ran.stdout);
}

#[test]
fn what_leaves_nothing_to_plan_is_refused() {
    let says = |more: &[&'static str], words: &str| {
        let said = refused(2, &[GPT.as_slice(), more].concat());
        assert!(said.contains(words), "{said}");
    };
    says(&[], "Name a card or a size with --gpu");
    says(&["--gpu", "1GiB", "--batch", "4"], "--global-batch and --batch");
    says(&["--gpu", "1GiB", "--accumulate", "4"], "--accumulate: a plan chooses it");
    says(&["--gpu", "1GiB", "--batches", "3,4"], "--batches: it does not go with batch");
    says(&["--gpu", "1GiB", "--allow", "everything"], "everything");
    says(&["--gpu", "1GiB", "--data-parallel", "5"], "5 cards do not divide 64 examples");
    says(&["--gpu", "1GiB", "--world", "4", "--zero", "1"], "--world");
}

#[test]
fn cards_are_compared_by_memory_or_by_price() {
    let of = |more: &[&str]| {
        let words: Vec<&str> = GPT.iter().copied().chain(more.iter().copied()).collect();
        json(&words)
    };
    let names = |found: &Value| -> Vec<String> {
        let plans = found["plans"].as_array().unwrap().iter();
        plans.map(|plan| plan["card"].as_str().unwrap().to_string()).collect()
    };
    let gpus = "a100-80,rtx4060,rtx4090";
    let found = of(&["--gpus", gpus]);
    assert_eq!(found["schema"], "vramlab-plan-cards-1");
    assert_eq!(names(&found), ["rtx4060", "rtx4090", "a100-80"]);
    let alone = of(&["--gpu", "rtx4090"]);
    assert_eq!(found["plans"][1]["best"], alone["best"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, "rtx4060 = 3\n\"RTX 4090\" = 0.25\n").unwrap();
    let file = file.display().to_string();
    let found = of(&["--gpus", gpus, "--prices", &file]);
    assert_eq!(names(&found), ["rtx4090", "rtx4060", "a100-80"]);
    let plan = &found["plans"][0];
    let price = 0.25 * seconds(&plan["best"]) * 1000.0 / 3600.0;
    assert!((plan["price_of_1000_steps"].as_f64().unwrap() / price - 1.0).abs() < 1e-9, "{plan}");
    assert!(found["plans"][2]["price_per_hour"].is_null());
    std::fs::write(&file, "rtx4091 = 3\n").unwrap();
    let words: Vec<&str> = GPT.iter().copied().chain(["--gpus", gpus, "--prices", &file]).collect();
    assert!(refused(2, &words).contains("rtx4091: no such card"));
}

/// A small decoder's `config.json`.
const DECODER: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "vocab_size": 512}"#;

#[test]
fn a_plan_is_handed_over_as_files_that_give_its_peak() {
    let folder = tempfile::tempdir().unwrap();
    let [config, out] = ["decoder.json", "out"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&config, DECODER).unwrap();
    let plan = [
        "plan",
        &config,
        "--loop",
        "trainer",
        "--optimizer",
        "adamw",
        "--global-batch",
        "8",
        "--sequence",
        "48",
        "--gpu",
        "1GiB",
        "--transformers",
        "5.23",
        "--hand-over",
        &out,
    ];
    let found = json(&plan);
    let files = found["hand_over"]["files"].as_array().unwrap();
    let peak_of = |name: &str| files.iter().find(|file| file["name"] == name).map(|file| file["peak_bytes"].clone());
    let peak = found["best"]["changes"]["peak_bytes"].clone();
    assert_eq!((peak_of("plan.toml"), peak_of("training_args.json")), (Some(peak.clone()), Some(peak.clone())));
    let path = |name: &str| format!("{out}/{name}");
    let own = json(&["predict", "--config", &path("plan.toml"), "--transformers", "5.23"]);
    assert_eq!(own["needs"]["allocated_bytes"], peak);
    let more = ["--sequence", "48", "--precision", "fp32", "--gpu", "1GiB", "--transformers", "5.23"];
    let of_arguments =
        json(&[&["predict", &config, "--hf-args", &path("training_args.json")], more.as_slice()].concat());
    assert_eq!(of_arguments["needs"]["allocated_bytes"], peak);
    // Nothing is replaced.
    let before = std::fs::read(path("train.py")).unwrap();
    assert!(refused(2, &plan).contains("files lie there already"));
    assert_eq!(std::fs::read(path("train.py")).unwrap(), before);
    assert!(refused(2, &[&plan[..plan.len() - 1], &[config.as_str()]].concat()).contains("it is not a folder"));
}

#[test]
fn the_blocks_of_a_budget_are_a_prediction_of_their_own() {
    let gpt = ["predict", "gpt", "--layers", "4", "--batch", "16", "--optimizer", "adamw"];
    let with = |more: &[&str]| json(&[gpt.as_slice(), more].concat());
    let chosen = with(&["--checkpoint-budget", "110MiB"]);
    let found = &chosen["checkpoints"];
    let blocks = found["blocks"].as_str().unwrap();
    assert!((1..4).contains(&blocks.split(',').count()), "{found}");
    assert_eq!(chosen["needs"], with(&["--checkpoint", blocks])["needs"]);
    let rows = found["rows"].as_array().unwrap();
    let seconds = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap()["seconds"].as_f64().unwrap();
    assert!(seconds("none") < seconds("chosen") && seconds("chosen") < seconds("blocks"), "{found}");
    assert!(rows.iter().any(|row| row["name"] == "sqrt") && rows.iter().any(|row| row["fits"] == false), "{found}");
    let says = |more: &[&str], reason: &str| {
        let error = refused(2, &[&gpt[..2], more].concat());
        assert!(error.contains(reason), "{error}");
    };
    says(&["--checkpoint-budget", "1MiB"], "with every block computed again the run reserves");
    says(&["--checkpoint-budget", "1GiB", "--checkpoint", "blocks"], "cannot be used with");
    says(&["--checkpoint-budget", "1GiB", "--parameter-list", "batch", "1,2"], "one run on one card");
}

#[test]
fn a_first_answer_comes_also_where_workspaces_of_convolutions_are_not_known() {
    let ran = run(&[
        "plan",
        "resnet18",
        "--image",
        "64",
        "--global-batch",
        "64",
        "--optimizer",
        "momentum",
        "--gpu",
        "rtx4090",
        "-v",
    ]);
    assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("fits: ")).count(), 1, "{}", ran.stderr);
}
