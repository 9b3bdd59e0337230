//! Experiments in dry runs: predictions without residual, verdicts, interruption.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use lab_experiments::{ALL, Outcome, Setup, Verdict, by_name};
use memcore::backend::{DeviceProfile, Meta};
use memcore::memory::{AllocatorConfig, Caching};
use memcore::{Device, Profile};

const PROFILES: [&str; 2] = ["native", "torch-2.11-sm90"];

fn run_with(name: &str, profile: &str, sizes: &[(&str, &[usize])], stop_at: Option<usize>) -> Outcome {
    run_on(&|| dry(profile, AllocatorConfig::default()), name, sizes, stop_at)
}

fn dry(profile: &str, config: AllocatorConfig) -> Device {
    let profile = Profile::named(profile).unwrap();
    let meta = Arc::new(Meta::new(DeviceProfile::default()));
    let caching = Caching::new(meta.clone(), config).unwrap();
    Device::builder(meta).profile(profile).allocator(Box::new(caching)).build()
}

fn run_on(open: &dyn Fn() -> Device, name: &str, sizes: &[(&str, &[usize])], stop_at: Option<usize>) -> Outcome {
    let calls = Cell::new(0);
    let progress = |_: &str, share: f64| {
        assert!((0.0..=1.0).contains(&share), "{share}");
        calls.set(calls.get() + 1);
        if stop_at.is_some_and(|at| calls.get() > at) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let sizes: BTreeMap<String, Vec<usize>> = sizes.iter().map(|(k, v)| (k.to_string(), v.to_vec())).collect();
    let open = || Ok(open());
    by_name(name)
        .unwrap()
        .ask(&Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &progress })
        .unwrap()
}

fn run(name: &str, profile: &str) -> Outcome {
    let outcome = run_with(name, profile, &[], None);
    if std::env::var_os("SHOW").is_some() {
        print(name, profile, &outcome);
    }
    outcome
}

fn print(name: &str, profile: &str, outcome: &Outcome) {
    println!("==== {name} under {profile}");
    for claim in &outcome.claims {
        println!("{:?}: {}\n    {}", claim.verdict, claim.claim.text, claim.condition);
    }
    for table in &outcome.tables {
        println!("-- {}\n{}", table.title, table.columns.join(" | "));
        for row in &table.rows {
            println!("{}", serde_json::to_string(row).unwrap());
        }
    }
    println!("{}", outcome.notes.join("\n"));
}

/// Fails unless there are predictions and all of them equal the measurements.
fn check(name: &str, outcome: &Outcome) {
    assert_eq!(outcome.unexplained(), [], "{name}");
    // Dry runs find what fits; there is no closed form.
    assert!(name == "fit" || outcome.rows.iter().any(|row| !row.residual.is_empty()), "{name} predicts nothing");
    assert_eq!(outcome.claims.len(), by_name(name).unwrap().claims().len(), "{name}");
    assert!(outcome.claims.iter().all(|claim| claim.condition.chars().any(|c| c.is_ascii_digit())), "{name}");
    for table in &outcome.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {}", table.title);
    }
    for curve in &outcome.curves {
        assert!(curve.series.iter().all(|(_, values)| values.len() == curve.labels.len()), "{name}: {}", curve.title);
    }
}

fn verdicts(outcome: &Outcome) -> Vec<Verdict> {
    outcome.claims.iter().map(|claim| claim.verdict).collect()
}

#[test]
fn batch_size() {
    for profile in PROFILES {
        let outcome = run("batch-size", profile);
        check("batch-size", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Depends, Verdict::Depends, Verdict::Depends], "{profile}");
    }
}

#[test]
fn steady_state() {
    for profile in PROFILES {
        let outcome = run("steady-state", profile);
        check("steady-state", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Holds, Verdict::Holds], "{profile}");
    }
}

#[test]
fn leak() {
    for profile in PROFILES {
        let outcome = run("leak", profile);
        check("leak", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Holds, Verdict::Holds, Verdict::Fails], "{profile}");
        let ran_out: Vec<i64> =
            outcome.rows.iter().filter_map(|row| *row.measured.get("out_of_memory_step")?).collect();
        // Each step keeps 255 · 20 floats, in blocks of 512 bytes: this is the most that 16 MiB can hold, and segments waste less than half.
        let most = (16 << 20) / 20_480;
        assert!(matches!(ran_out[..], [step] if (most / 2..=most).contains(&step)), "{profile}: {ran_out:?} of {most}");
    }
}

#[test]
fn release() {
    for profile in PROFILES {
        let outcome = run("release", profile);
        check("release", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Depends, Verdict::Depends], "{profile}");
        let timed = outcome.rows.iter().filter(|row| row.measured.contains_key("step_us"));
        assert!(
            timed.clone().count() > 0 && timed.clone().all(|row| row.measured["step_us"].is_none()),
            "a dry device"
        );
    }
}

#[test]
fn equation() {
    for profile in PROFILES {
        let outcome = run("equation", profile);
        check("equation", &outcome);
        use Verdict::{Depends, Fails, Holds};
        assert_eq!(verdicts(&outcome), [Holds, Depends, Holds, Depends, Fails, Holds], "{profile}");
    }
}

#[test]
fn network_size() {
    for profile in PROFILES {
        let outcome = run("network-size", profile);
        check("network-size", &outcome);
        assert_eq!(verdicts(&outcome)[..3], [Verdict::Holds; 3], "{profile}");
        let named = |row: &&lab_experiments::Measurement, network: &str| {
            row.setting.get("network").is_some_and(|name| name == network)
        };
        let of = |network: &str| outcome.rows.iter().find(|row| named(row, network)).unwrap();
        assert_eq!(of("small-network").measured["parameters"], Some(1_843_776));
        assert_eq!(of("larger-conv").measured["parameters"], Some(7_374_720));
    }
}

#[test]
fn optimizer() {
    for profile in PROFILES {
        let outcome = run("optimizer", profile);
        check("optimizer", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Holds, Verdict::Fails], "{profile}");
    }
}

#[test]
fn accumulation() {
    for profile in PROFILES {
        let outcome = run("accumulation", profile);
        check("accumulation", &outcome);
        use Verdict::{Depends, NotTested};
        assert_eq!(verdicts(&outcome), [NotTested, Depends, NotTested, NotTested], "{profile}");
    }
    let computed = run_on(&|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()), "accumulation", &[], None);
    use Verdict::{Depends, Holds};
    assert_eq!(verdicts(&computed), [Holds, Depends, Holds, Holds]);
}

#[test]
fn checkpointing() {
    for profile in PROFILES {
        let outcome = run("checkpointing", profile);
        check("checkpointing", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Depends, Verdict::Holds], "{profile}");
        let of = |network: &str, what: &str| -> Vec<i64> {
            let rows = outcome.rows.iter().filter(|row| row.setting["network"] == network);
            rows.map(|row| row.measured[what].unwrap()).collect()
        };
        let [plain, blocks, sqrt, others] = of("decoder", "peak_bytes")[..] else { panic!() };
        assert!(blocks < plain && sqrt < plain && others < plain, "{profile}");
        let perceptron = of("perceptron", "activation_bytes");
        assert_eq!(perceptron[0], perceptron[1], "{profile}");
        let in_the_update = of("decoder, 8 tokens, Adam", "peak_bytes");
        // Under PyTorch's profile with a workspace of its own for what backward's thread computes again.
        assert!((0..=1 << 20).contains(&(in_the_update[1] - in_the_update[0])), "{profile}: {in_the_update:?}");
        assert!(outcome.rows.iter().all(|row| row.measured["step_us"].is_none()), "a dry device");
    }
    let computed = run_on(&|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()), "checkpointing", &[], None);
    let same = computed.rows.iter().filter_map(|row| row.residual.get("gradient_values_that_differ"));
    assert_eq!(same.collect::<Vec<_>>(), [&0; 5]);
}

#[test]
fn precision() {
    use Verdict::{Depends, Holds, NotTested};
    for profile in PROFILES {
        let outcome = run("precision", profile);
        check("precision", &outcome);
        assert_eq!(verdicts(&outcome), [Depends, Depends, NotTested, NotTested], "{profile}");
        let trainings = outcome.rows.iter().filter(|row| row.setting.contains_key("training"));
        assert!(trainings.clone().count() > 5 && trainings.flat_map(|row| row.measured.values()).all(Option::is_none));
        assert!(outcome.notes.iter().any(|note| note.contains("computes nothing")), "{profile}");
    }
    let outcome = run_on(&|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()), "precision", &[], None);
    if std::env::var_os("SHOW").is_some() {
        print("precision", "cpu", &outcome);
    }
    check("precision", &outcome);
    assert_eq!(verdicts(&outcome), [Depends, Depends, Depends, Holds]);
    let of = |training: &str, what: &str| {
        let row = outcome.rows.iter().find(|row| row.setting.get("training").is_some_and(|name| name == training));
        row.unwrap().measured[what]
    };
    let steps = of("fp32", "finite_steps").unwrap();
    assert!(of("fp16", "finite_steps").unwrap() < steps / 2);
    assert_eq!(of("fp16, Adam's ε 1e-4", "finite_steps"), Some(steps));
    let loss = |training| of(training, "last_loss_millionths").unwrap() as f64;
    let (first, small) = (loss("autocast-fp16, small, no scaler"), loss("fp32, small"));
    assert!(first > 2.0e6 && small < 1.2e6, "{first} {small}");
    assert!((loss("autocast-fp16, small, scaler") - small).abs() < 0.02 * small);
    for like in ["autocast-fp16", "autocast-bf16"] {
        assert!((loss(like) - loss("fp32")).abs() < 0.05 * loss("fp32"), "{like}: {}", loss(like));
    }
}

#[test]
fn sequence_length() {
    for profile in PROFILES {
        let outcome = run("sequence-length", profile);
        check("sequence-length", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Depends, Verdict::Depends], "{profile}");
        let grows = |row: &&lab_experiments::Measurement| row.residual.contains_key("growth_bytes");
        let growths: Vec<_> = outcome.rows.iter().filter(grows).map(|row| row.measured["growth_bytes"]).collect();
        assert_eq!(growths, [0, 0, 0, 16_384, 65_536, 147_456].map(Some), "{profile}: 4·B·T² with the list");
    }
}

#[test]
fn beliefs() {
    for profile in PROFILES {
        let outcome = run("beliefs", profile);
        check("beliefs", &outcome);
        use Verdict::{Depends, Fails};
        let scaling = if profile == "native" { outcome.claims[2].verdict } else { Fails };
        assert_eq!(verdicts(&outcome), [Fails, Fails, scaling], "{profile}");
        assert!([Depends, Fails].contains(&scaling), "{profile}: {}", outcome.claims[2].condition);
        for few in [[4, 2], [16, 3]] {
            check("beliefs", &run_with("beliefs", profile, &[("batch", &few)], None));
        }
    }
}

#[test]
fn placement() {
    for profile in PROFILES {
        let outcome = run("placement", profile);
        check("placement", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Fails, Verdict::Depends], "{profile}");
        let up: Vec<_> = outcome.rows.iter().map(|row| row.measured["uploaded_per_step_bytes"]).collect();
        assert_eq!(up, [0, 8192, 8192, 135_168].map(Some), "{profile}");
    }
    let computed = run_on(&|| Device::new(backend_cpu::Cpu::with_threads(1).unwrap()), "placement", &[], None);
    check("placement", &computed);
    let down = computed.rows.iter().map(|row| row.measured["downloaded_per_step_bytes"]);
    assert_eq!(down.collect::<Vec<_>>(), [0, 0, 0, 131_072].map(Some));
    let losses: Vec<i64> = computed.rows.iter().map(|row| row.measured["last_loss_millionths"].unwrap()).collect();
    assert_eq!(losses[0], losses[1]);
    assert_eq!(losses[1], losses[2]);
    assert!((losses[3] - losses[0]).abs() <= 20, "the same training wherever the table is: {losses:?}");
    let few = run_with("placement", "native", &[("vocabulary", &[64])], None);
    check("placement", &few);
    assert_eq!(few.claims[1].verdict, Verdict::Holds, "more tokens than rows: {}", few.claims[1].condition);
}

#[test]
fn quantization() {
    for profile in PROFILES {
        let outcome = run("quantization", profile);
        check("quantization", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Depends], "{profile}");
        let weights: Vec<_> = outcome.rows.iter().map(|row| row.measured["weights_bytes"]).collect();
        assert_eq!(weights, [104_960, 29_184, 29_184].map(Some), "{profile}");
    }
    let computed = run_on(&|| Device::new(backend_cpu::Cpu::with_threads(2).unwrap()), "quantization", &[], None);
    check("quantization", &computed);
    let right: Vec<i64> = computed.rows.iter().map(|row| row.measured["digits_right"].unwrap()).collect();
    assert!(right[0] > 330 && (right[1] - right[0]).abs() <= 4 && right[1] == right[2], "of 359: {right:?}");
    let error = computed.rows[1].measured["largest_error_millionths"].unwrap();
    assert!((1..1_000_000).contains(&error), "{error}");
}

#[test]
fn fit() {
    for profile in PROFILES {
        let outcome = run("fit", profile);
        check("fit", &outcome);
        assert!(outcome.notes.iter().any(|note| note.contains("without cuDNN")), "{:?}", outcome.notes);
        assert!(outcome.rows.iter().all(|row| row.predicted.is_empty()), "{profile}: a dry run is not a prediction");
        let figure = |quantity: &str| outcome.rows[0].measured[quantity].unwrap();
        for quantity in ["peak_bytes", "reserved_bytes"] {
            assert_eq!(figure(quantity), figure(&format!("dry_{quantity}")), "{profile}");
        }
        assert_eq!(figure("requested_peak_bytes"), figure("law_requested_peak_bytes"), "{profile}");
        let fits: Vec<Option<i64>> = outcome.rows.iter().map(|row| row.measured["fits"]).collect();
        assert_eq!(fits, [Some(1), Some(0)], "{profile}");
    }
    let larger = run_with("fit", "native", &[("memory_mib", &[128])], None);
    let batch = |outcome: &Outcome| outcome.rows[0].setting["batch"].as_u64();
    assert!(batch(&larger) > batch(&run("fit", "native")));
}

#[test]
fn cache() {
    for profile in PROFILES {
        let outcome = run("cache", profile);
        check("cache", &outcome);
        assert_eq!(verdicts(&outcome)[..2], [Verdict::Holds, Verdict::Holds], "{profile}");
        assert!(outcome.rows.iter().any(|row| row.measured.get("pair_us") == Some(&None)), "a dry device");
    }
}

#[test]
fn fragmentation() {
    for profile in PROFILES {
        let outcome = run("fragmentation", profile);
        check("fragmentation", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Holds, Verdict::Depends, Verdict::Holds], "{profile}");
        let orders = || outcome.rows.iter().filter(|row| row.measured.contains_key("assembled_bytes"));
        assert_eq!(orders().count(), 2, "{profile}: the best and the worst order");
        assert!(orders().all(|row| row.measured["replayed_bytes"] == row.measured["assembled_bytes"]), "{profile}");
        let own =
            || outcome.rows.iter().filter(|row| row.setting.get("policy").is_some_and(|p| p == "the device's own"));
        assert!(own().count() > 0 && own().all(|row| row.predicted.is_empty()), "{profile}");
        assert!(own().all(|row| row.measured["replayed_bytes"] == row.measured["reserved_bytes"]), "{profile}");
    }
}

#[test]
fn every_experiment_stops_when_told_and_keeps_what_it_has() {
    for experiment in ALL {
        let whole = run_with(experiment.name(), "native", &[], None);
        let stopped = run_with(experiment.name(), "native", &[], Some(2));
        assert!(stopped.interrupted && !whole.interrupted, "{}", experiment.name());
        assert!(stopped.rows.len() < whole.rows.len() && !stopped.rows.is_empty(), "{}", experiment.name());
    }
}

#[test]
fn the_figures_of_the_recorded_pytorch_runs() {
    let outcome = run("batch-size", "torch-2.11-sm90");
    let of =
        |run: &str| outcome.rows.iter().find(|row| row.setting.get("run").is_some_and(|name| name == run)).unwrap();
    for (batch, peak, reserved) in [("128", 96_616_960, 111_149_056), ("32", 75_510_272, 94_371_840)] {
        let row = of(batch);
        assert_eq!((row.measured["peak_bytes"], row.measured["reserved_bytes"]), (Some(peak), Some(reserved)));
    }
}

#[test]
fn under_other_settings_of_the_allocator_no_prediction_is_wrong() {
    for settings in ["expandable_segments:True", "roundup_power2_divisions:4", "max_split_size_mb:20"] {
        let config = AllocatorConfig::parse(settings).unwrap();
        for experiment in ALL {
            let outcome = run_on(&|| dry("native", config.clone()), experiment.name(), &[], None);
            assert_eq!(outcome.unexplained(), [], "{} with {settings}", experiment.name());
            assert_eq!(outcome.claims.len(), experiment.claims().len());
        }
    }
}

#[test]
fn every_experiment_computes_too() {
    // The settings of the table of claims: on the CPU, with the default profile.
    let open = || {
        let cpu = Arc::new(backend_cpu::Cpu::with_threads(2).unwrap());
        Device::builder(cpu).profile(Profile::torch_2_11(90)).build()
    };
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/claims.md")).unwrap();
    for experiment in ALL {
        let start = std::time::Instant::now();
        let outcome = run_on(&open, experiment.name(), &[], None);
        println!("{}: {:?}", experiment.name(), start.elapsed());
        check(experiment.name(), &outcome);
        for judged in &outcome.claims {
            let row = table.lines().find(|line| line.starts_with(&format!("| {} |", judged.claim.text)));
            let row = row.unwrap_or_else(|| panic!("not in docs/claims.md: {}", judged.claim.text));
            assert!(row.contains(&format!("| {} |", judged.verdict.name())), "{}: {row}", judged.verdict.name());
        }
        let timed = outcome.rows.iter().filter_map(|row| row.measured.get("step_us"));
        assert!(timed.clone().all(|us| us.is_some_and(|us| us > 0)));
    }
}

#[test]
fn impossible_sizes_are_errors() {
    let impossible = [
        ("batch-size", "batch"),
        ("steady-state", "batch"),
        ("leak", "steps"),
        ("release", "batch"),
        ("equation", "width"),
        ("network-size", "batch"),
        ("optimizer", "width"),
        ("accumulation", "pieces"),
        ("model-parallel", "devices"),
        ("checkpointing", "blocks"),
        ("precision", "steps"),
        ("sequence-length", "sequence"),
        ("beliefs", "batch"),
        ("placement", "batches"),
        ("quantization", "width"),
        ("cache", "batch"),
        ("fragmentation", "batch"),
        ("resume", "layers"),
        ("evaluation", "batch"),
        ("sharded-saving", "ranks"),
        ("loader", "workers"),
        ("contexts", "ranks"),
        ("checkpointing-in-vain", "blocks"),
    ];
    for (name, size) in impossible {
        let open = || Ok(dry("native", AllocatorConfig::default()));
        let sizes = BTreeMap::from([(size.to_string(), vec![0])]);
        let setup = Setup {
            open: &open,
            places: &[],
            model: None,
            sizes,
            seed: 0,
            progress: &|_, _| ControlFlow::Continue(()),
        };
        assert!(by_name(name).unwrap().ask(&setup).is_err(), "{name}");
    }
}

#[test]
fn model_parallel() {
    for profile in PROFILES {
        let outcome = run("model-parallel", profile);
        check("model-parallel", &outcome);
        assert_eq!(verdicts(&outcome), [Verdict::Depends, Verdict::Depends, Verdict::Holds], "{profile}");
        assert!(outcome.rows.iter().all(|row| row.measured.get("values_apart").is_none_or(Option::is_none)));
    }
    let open = || Device::builder(Arc::new(backend_cpu::Cpu::new().unwrap())).build();
    let sizes: &[(&str, &[usize])] = &[("devices", &[2]), ("batch", &[32]), ("pieces", &[4])];
    let outcome = run_on(&open, "model-parallel", sizes, None);
    check("model-parallel", &outcome);
    let compared = outcome.rows.iter().filter(|row| row.residual.contains_key("values_apart"));
    assert_eq!(compared.count(), 3, "each split against one device with the same micro-batches, to the bit");
}

/// Words in place of a name lead to the experiments whose question or claims say most of them.
#[test]
fn a_claim_in_words_leads_to_its_experiment() {
    let error = |words: &str| by_name(words).err().unwrap().to_string();
    assert!(error("gradient checkpointing saves memory").contains("about this: vramlab ask checkpointing. "));
    assert!(error("Adam needs 16 bytes per parameter").contains("vramlab ask optimizer"));
    assert!(error("xyzzy").contains("no such experiment; there are"), "{}", error("xyzzy"));
}
