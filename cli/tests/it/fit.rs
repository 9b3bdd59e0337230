//! `fit`: the largest batch or sequence for a card.

use crate::common::{done, fits, json, refused, run};

const CNN: [&str; 7] = ["fit", "--model", "simple-cnn", "--optimizer", "adam", "--gpu", "128MiB"];

#[test]
fn the_answer_is_borne_out_by_predictions_of_both_sizes() {
    let found = json(&CNN);
    assert_eq!((&found["schema"], &found["of"]), (&"vramlab-fit-1".into(), &"batch".into()));
    assert_eq!(found["budget_bytes"], 128 << 20);
    // The card is too small for cuDNN's part of the context, so none fits surely.
    assert!(found["largest"].is_null(), "{found}");
    let largest = found["largest_without_cudnn"].as_u64().unwrap();
    let predict = |batch: u64| {
        let batch = batch.to_string();
        run(&[
            "predict",
            "--model",
            "simple-cnn",
            "--optimizer",
            "adam",
            "--gpu",
            "128MiB",
            "--steps",
            "3",
            "--batch",
            &batch,
        ])
    };
    assert_eq!((predict(largest).code, predict(largest + 1).code), (Some(0), Some(1)));
    let runs = found["runs"].as_array().unwrap();
    let of = |size: u64| runs.iter().find(|run| run["size"] == size).unwrap();
    assert_eq!((&of(largest)["fits"], &of(largest + 1)["fits"]), (&true.into(), &false.into()));
    let asked_for = of(largest)["law_requested_bytes"].as_u64().unwrap();
    let allocated = of(largest)["peak_allocated_bytes"].as_u64().unwrap();
    assert!(asked_for <= allocated && allocated < asked_for + (8 << 20), "{asked_for} {allocated}");
}

#[test]
fn a_card_has_a_name_a_context_and_a_profile_of_its_own() {
    let card = ["fit", "--model", "gpt2", "--optimizer", "adamw", "--gpu", "rtx4090"];
    let found = json(&card);
    assert_eq!(found["settings"]["like"], "torch-2.11-sm89");
    assert_eq!(found["settings"]["multiprocessors"], 128);
    let total = found["card"]["total_bytes"].as_u64().unwrap();
    assert_eq!(found["budget_bytes"].as_u64(), Some(total - found["card"]["context_bytes"].as_u64().unwrap()));
    let text = done(&card);
    fits(&text);
    for part in ["examples fit on the GeForce RTX 4090", " do not", "From 1 to "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().count() <= 22, "{text}");
    let whole = done(&[&card[..], &["--full"]].concat());
    assert!(whole.contains("highest when") && whole.contains("Verified"), "{whole}");
}

#[test]
fn a_release_without_a_card_is_that_of_the_card() {
    let like = |more: &[&str]| {
        let words = ["predict", "--model", "mlp", "--like", "torch-2.13"];
        json(&[&words[..], more].concat())["settings"]["like"].clone()
    };
    assert_eq!(like(&["--gpu", "a100-80"]), "torch-2.13-sm80");
    assert_eq!(like(&[]), "torch-2.13-sm90");
}

#[test]
fn a_sequence_can_be_fitted_too() {
    let gpt = ["fit", "--of", "sequence", "--model", "gpt", "--batch", "2", "--gpu", "1GiB"];
    let found = json(&gpt);
    let largest = found["largest"].as_u64().unwrap();
    assert!(largest > 64, "{largest}");
    let pieces = found["law"]["pieces"].as_array().unwrap();
    assert!(pieces.last().unwrap()["square"].as_u64().unwrap() > 0);
    assert!(done(&[&gpt[..], &["--full"]].concat()).contains("squared"));
    assert!(refused(2, &["fit", "--of", "sequence", "--model", "mlp", "--gpu", "1GiB"]).contains("--of: sequence: "));
}

#[test]
fn what_cannot_be_answered_is_refused() {
    assert!(refused(2, &["fit", "--model", "mlp"]).contains("--gpu"));
    assert!(refused(2, &["fit", "--gpu", "rtx9999"]).contains("did you mean"));
    assert!(refused(2, &["fit", "--gpu", "1GiB", "--maximum", "1"]).contains("--maximum"));
    let tiny = run(&["fit", "--gpu", "1MiB"]);
    assert_eq!(tiny.code, Some(1));
    assert!(tiny.stdout.contains("No: not even one example fits"), "{}", tiny.stdout);
    let enough = json(&["fit", "--model", "linear", "--gpu", "h200", "--maximum", "64"]);
    assert_eq!((&enough["largest"], &enough["at_maximum"]), (&64.into(), &true.into()));
}

#[test]
fn the_law_is_few_lines_and_the_exact_pieces_are_in_the_json() {
    let mlp = ["fit", "--model", "mlp", "--gpu", "1GiB"];
    let found = json(&mlp);
    assert!(found["law"]["pieces"].as_array().unwrap().len() > 20);
    let outline = found["law"]["outline"].as_array().unwrap();
    assert!(outline.len() <= 8, "{outline:?}");
    for stretch in outline {
        let (bytes, off) = (stretch["bytes"].as_i64().unwrap(), stretch["off_bytes"].as_i64().unwrap());
        assert!(bytes > 0 && off <= stretch["bytes"].as_i64().unwrap() / 50, "{stretch}");
    }
    let text = done(&mlp);
    fits(&text);
    assert!(text.contains("without torch.compile"), "{text}");
    assert!(!text.contains("-40.54 GiB") && text.lines().count() <= 22, "{text}");
}

#[test]
fn between_the_smallest_and_the_largest_context_only_the_card_tells() {
    let words = ["fit", "--model", "mlp", "--width", "4096", "--gpu", "rtx3070ti", "--steps", "2"];
    let found = json(&words);
    let [least, most] = ["largest_with_least_context", "largest"].map(|key| found[key].as_u64().unwrap());
    assert!(least > most + 1000, "{least} {most}");
    let text = done(&words).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains(&format!("{} perhaps", lab::figures::grouped(least, ' ')))
            || text.contains(&format!("{least} perhaps")),
        "{text}"
    );
    let fits = |batch: u64| {
        let batch = batch.to_string();
        let predicted = run(&[
            "predict",
            "--model",
            "mlp",
            "--width",
            "4096",
            "--gpu",
            "rtx3070ti",
            "--steps",
            "2",
            "--batch",
            &batch,
            "--json",
            "-",
        ]);
        let predicted: serde_json::Value = serde_json::from_str(&predicted.stdout).unwrap();
        (predicted["fits"].clone(), predicted["needs"]["fits_with_least_context"].clone())
    };
    assert_eq!(fits(most), (true.into(), true.into()));
    assert_eq!(fits(least), (serde_json::Value::Null, true.into()));
    assert_eq!(fits(least + 1), (false.into(), false.into()));
}

#[test]
fn what_does_not_fit_says_what_the_whole_run_lacks() {
    let ran = run(&["fit", "--model", "gpt2", "--gpu", "1GiB", "--full"]);
    assert_eq!(ran.code, Some(1));
    let needs =
        json(&["predict", "--model", "gpt2", "--batch", "1", "--steps", "3"])["needs"]["reserved_bytes"].clone();
    let missing = lab::figures::short(needs.as_u64().unwrap() - (1 << 30));
    assert!(ran.stdout.contains(&format!("no: {missing} more")), "{missing}: {}", ran.stdout);
    let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.starts_with("No: not even one example fits") && said.contains(&format!("{missing} more are needed")),
        "{missing}: {said}"
    );
    assert_eq!(ran.stderr, "", "a No is an answer, not an error");
}

/// For this network the largest batch is smaller once memory is flat than for three steps.
#[test]
fn what_fits_for_three_steps_alone_is_not_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json").display().to_string();
    let config = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 1024,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
        "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "transformers_version": "4.51.3",
    });
    std::fs::write(&file, config.to_string()).unwrap();
    // Where a card may reserve as much more as it may, 4 GiB are left.
    let words = ["--model-file", &file, "--sequence", "128", "--gpu", "4488240825B"];
    let largest = |more: &[&str]| json(&[&["fit"], &words[..], more].concat())["largest"].as_u64().unwrap();
    let (few, all) = (largest(&["--steps", "3"]), largest(&[]));
    assert!(all < few, "{all} by the steps of a prediction, {few} by three");
    let predict = |batch: u64| {
        let told = run(&[&["predict"], &words[..], &["--batch", &batch.to_string(), "--json", "-"]].concat()).stdout;
        serde_json::from_str::<serde_json::Value>(&told).unwrap()["fits"].clone()
    };
    assert_eq!((predict(all), predict(all + 1)), (true.into(), serde_json::Value::Null));
    // The same card with the smallest possible CUDA context.
    let words = ["--model-file", &file, "--sequence", "128", "--gpu", "rtx3070ti"];
    let found = json(&[&["fit"], &words[..]].concat());
    assert!(found["settings"]["steps"].is_null(), "as many as it takes until memory is flat");
    let perhaps = found["largest_with_least_context"].as_u64().unwrap();
    assert!(perhaps > found["largest"].as_u64().unwrap());
    let predicted = run(&[&["predict"], &words[..], &["--batch", &perhaps.to_string(), "--json", "-"]].concat());
    let predicted: serde_json::Value = serde_json::from_str(&predicted.stdout).unwrap();
    assert_eq!(predicted["needs"]["fits_with_least_context"], true, "{perhaps}");
}

#[test]
fn one_example_fits() {
    let ran = crate::common::run(&["predict", "gpt2", "--largest", "--gpu", "4GiB"]);
    assert!(ran.stdout.starts_with("1 example fits into 4 GiB, 2 do not"), "{}", ran.stdout);
}
