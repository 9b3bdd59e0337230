//! Compares experiments on reports in forum threads with PyTorch: figures of release 2.11 on a card of compute capability 9.0, from the
//! allocator of the unmodified wheel under `vramlab rehearse`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lab_experiments::{Measurement, Outcome, Setup, Verdict, by_name};
use memcore::backend::{DeviceProfile, Meta};
use memcore::{Device, Profile};

const PROFILES: [&str; 2] = ["native", "torch-2.11-sm90"];

fn run(name: &str, profile: &str, sizes: &[(&str, usize)]) -> Outcome {
    let outcome = run_unchecked(name, profile, sizes);
    assert_eq!(outcome.unexplained(), [], "{name} under {profile}");
    assert!(outcome.rows.iter().any(|row| !row.residual.is_empty()), "{name} predicts nothing under {profile}");
    assert!(!outcome.answer.word.is_empty() && !outcome.answer.figures.is_empty(), "{name}");
    for claim in &outcome.claims {
        assert!(claim.condition.contains(|c: char| c.is_ascii_digit()), "{name}: {}", claim.condition);
    }
    outcome
}

fn run_unchecked(name: &str, profile: &str, sizes: &[(&str, usize)]) -> Outcome {
    let open = || {
        let meta = std::sync::Arc::new(Meta::new(DeviceProfile::default()));
        Ok(Device::builder(meta).profile(Profile::named(profile).unwrap()).build())
    };
    let sizes: BTreeMap<String, Vec<usize>> =
        sizes.iter().map(|(name, size)| (name.to_string(), vec![*size])).collect();
    let setup =
        Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &|_, _| ControlFlow::Continue(()) };
    by_name(name).unwrap().ask(&setup).unwrap()
}

fn verdicts(outcome: &Outcome) -> Vec<Verdict> {
    outcome.claims.iter().map(|claim| claim.verdict).collect()
}

/// The row whose setting has this value.
fn row<'a>(outcome: &'a Outcome, value: &str) -> &'a Measurement {
    let found = outcome.rows.iter().find(|row| row.setting.values().any(|of| of == value));
    found.unwrap_or_else(|| panic!("no row {value}: {:?}", outcome.rows))
}

/// These figures of a row.
fn figures<const N: usize>(row: &Measurement, names: [&str; N]) -> [i64; N] {
    names.map(|name| row.measured[name].unwrap())
}

/// `Linear(64, 512)` and three `Linear(512, 512)` with ReLU, `Linear(512, 10)`, Adam, 32 examples: `torch.load(…, map_location=…)`,
/// `load_state_dict` of both, three steps; `memory_allocated`, `max_memory_allocated` and `memory_reserved` of the last.
#[test]
fn resume_takes_what_pytorch_took() {
    let outcome = run("resume", "torch-2.11-sm90", &[]);
    let of =
        |start: &str| figures(row(&outcome, start), ["restored_bytes", "held_bytes", "peak_bytes", "reserved_bytes"]);
    assert_eq!(of("from the start"), [3_305_984, 81_392_128, 84_698_112, 85_983_232]);
    assert_eq!(of("map_location=\"cuda\""), [13_229_056, 84_703_232, 88_009_216, 90_177_536]);
    assert_eq!(of("the same, checkpoint = None"), [13_229_056, 81_397_248, 84_703_232, 85_983_232]);
    assert_eq!(of("map_location=\"cpu\""), [9_917_952, 81_392_128, 84_698_112, 85_983_232]);
}

#[test]
fn resume_at_other_sizes() {
    for profile in PROFILES {
        for sizes in [&[][..], &[("width", 16)], &[("layers", 1), ("batch", 3)], &[("batch", 1024)]] {
            assert_eq!(verdicts(&run("resume", profile, sizes)), [Verdict::Holds; 3], "{profile} {sizes:?}");
        }
    }
}

/// The same network with SGD, 128 examples: two steps of training, then three batches of evaluation; `memory_allocated` and
/// `max_memory_allocated` of the evaluation, and `max_memory_reserved`.
#[test]
fn evaluation_takes_what_pytorch_took() {
    let outcome = run("evaluation", "torch-2.11-sm90", &[]);
    let of = |way: &str| figures(row(&outcome, way), ["held_bytes", "peak_bytes", "reserved_bytes"]);
    assert_eq!(of("no_grad"), [74_808_832, 75_333_120, 77_594_624]);
    assert_eq!(of("without no_grad"), [75_863_040, 77_207_552, 77_594_624]);
    assert_eq!(of("without no_grad, training's tensors deleted"), [72_557_056, 73_901_568, 77_594_624]);
    assert_eq!(of("without no_grad, results in a list"), [78_035_968, 78_294_016, 79_691_776]);
    let training = outcome.rows.iter().map(|row| row.measured["training_peak_bytes"]);
    assert!(training.clone().all(|peak| peak == Some(75_462_656)), "{:?}", training.collect::<Vec<_>>());
    use Verdict::{Depends, Fails, Holds};
    assert_eq!(verdicts(&outcome), [Holds, Fails, Depends]);
}

#[test]
fn evaluation_at_other_sizes() {
    for profile in PROFILES {
        for sizes in [&[("width", 64)][..], &[("layers", 1), ("batch", 3)], &[("batch", 512)]] {
            let outcome = run("evaluation", profile, sizes);
            assert_eq!(verdicts(&outcome)[1], Verdict::Fails, "{profile} {sizes:?}");
        }
    }
}

/// The first network with Adam under `fully_shard` of each layer, on four ranks: what `get_model_state_dict` and `get_optimizer_state_dict` with
/// `full_state_dict` added to `memory_allocated`, and with `cpu_offload` to `max_memory_allocated`.
#[test]
fn sharded_saving_gathers_what_pytorch_gathered() {
    let outcome = run("sharded-saving", "torch-2.11-sm90", &[("ranks", 4)]);
    let gathered = |way: &str| row(&outcome, way).measured["gathered_bytes"].unwrap();
    assert_eq!(gathered("sharded"), 0);
    assert_eq!(gathered("full, weights"), 74_779_136 - 71_469_056);
    assert_eq!(gathered("full, weights and optimizer"), 81_399_296 - 71_469_056);
    assert_eq!(gathered("full, cpu_offload"), 72_517_632 - 71_469_056);
}

#[test]
fn sharded_saving_at_other_sizes() {
    use Verdict::{Depends, Holds};
    for profile in PROFILES {
        for sizes in [&[][..], &[("ranks", 2)], &[("ranks", 100), ("width", 96)], &[("layers", 1)]] {
            let outcome = run("sharded-saving", profile, sizes);
            assert_eq!(verdicts(&outcome), [Depends, Holds], "{profile} {sizes:?}");
        }
    }
}

/// `DataLoader` with `pin_memory`, batches of 393 216 bytes, a loop that takes 0.15 s for each: `allocated_bytes` of
/// `torch.cuda.host_memory_stats()` after the last batch. Whether a block more is taken depends on who is faster, once.
#[test]
fn loader_pins_what_pytorch_pinned() {
    let pinned = |workers: usize, prefetch_factor: usize| {
        let sizes = [("workers", workers), ("prefetch_factor", prefetch_factor), ("batch_bytes", 393_216)];
        let outcome = run("loader", "torch-2.11-sm90", &sizes);
        let of = |workers: &str| row(&outcome, workers).measured["pinned_bytes"].unwrap();
        of("slower than the loop's next line")..=of("faster than the loop's next line")
    };
    let alone = run("loader", "torch-2.11-sm90", &[("batch_bytes", 393_216)]);
    assert_eq!(figures(row(&alone, "none"), ["pinned_bytes", "pinned_blocks"]), [1_048_576, 2]);
    assert_eq!(pinned(2, 2), 5 * 524_288..=3_145_728);
    assert_eq!(pinned(2, 4), 4_718_592..=10 * 524_288);
}

/// `torch.empty(n, dtype=torch.uint8, pin_memory=True)`: bytes asked for, and by how much `allocated_bytes` rose.
#[test]
fn pinned_blocks_are_powers_of_two_as_pytorchs() {
    let asked = [1, 511, 512, 513, 5000, 700_000, 1_048_576, 1_048_577, 6_000_000, 100_000_000];
    let blocks = [1, 512, 512, 1024, 8192, 1_048_576, 1_048_576, 2_097_152, 8_388_608, 134_217_728];
    for (asked, block) in asked.into_iter().zip(blocks) {
        let outcome = run("loader", "native", &[("batch_bytes", asked), ("workers", 1), ("prefetch_factor", 1)]);
        let slow = row(&outcome, "slower than the loop's next line");
        assert_eq!(slow.measured["pinned_bytes"].unwrap(), 2 * block, "{asked}");
    }
}

#[test]
fn loader_at_other_sizes() {
    use Verdict::{Depends, Fails, NotTested};
    for sizes in [&[][..], &[("workers", 1), ("prefetch_factor", 1)], &[("batches", 200), ("batch_bytes", 1 << 20)]] {
        let outcome = run("loader", "native", sizes);
        assert_eq!(verdicts(&outcome), [Depends, Fails, Depends, NotTested], "{sizes:?}");
    }
    let short = run_unchecked("loader", "native", &[("batches", 3)]);
    assert_eq!(row(&short, "faster than the loop's next line").measured["batches_on_the_host"], Some(3));
}

/// Three ranks; a checkpoint of the first network and Adam that was saved from `cuda:0`, and small tensors: `memory_reserved(0)` of each of the other
/// two processes.
#[test]
fn contexts_reserve_what_pytorch_reserved() {
    let outcome = run("contexts", "torch-2.11-sm90", &[("ranks", 3)]);
    let of = |call: &str| figures(row(&outcome, call), ["contexts_of_others", "reserved_bytes"]);
    assert_eq!(of("torch.load(file)"), [2, 2 * 10_485_760]);
    assert_eq!(of("torch.ones(8).cuda()"), [2, 2 * 2_097_152]);
    assert_eq!(of("torch.cuda.empty_cache()"), [0, 0]);
    assert_eq!(verdicts(&outcome), [Verdict::Depends, Verdict::Holds]);
}

/// Eight `Linear(256, 256)`, 137 examples, SGD, squared error: `memory_allocated` when the loss is there, less that with the reentrant kind, and
/// `max_memory_allocated` of the second step.
#[test]
fn checkpointing_in_vain_takes_what_pytorch_took() {
    let outcome = run("checkpointing-in-vain", "torch-2.11-sm90", &[]);
    let of = |way: &str| {
        let linear =
            |row: &&Measurement| row.setting["program"] == "linear layers, SGD" && row.setting["checkpoint"] == way;
        outcome.rows.iter().find(linear).unwrap()
    };
    let (plain, each, reentrant) = (of("none"), of("each block"), of("reentrant, inputs without gradient"));
    assert_eq!(plain.measured["peak_bytes"], Some(73_087_488));
    assert_eq!(each.measured["peak_bytes"], Some(73_087_488));
    assert_eq!(reentrant.measured["peak_bytes"], Some(71_368_192));
    let kept = |row: &Measurement| row.measured["activation_bytes"].unwrap();
    assert_eq!(kept(plain) - kept(reentrant), 71_805_952 - 70_964_224);
    assert_eq!(figures(reentrant, ["parameters_with_gradient"]), [2]);
}

#[test]
fn checkpointing_in_vain_at_other_sizes() {
    use Verdict::{Depends, Holds};
    for profile in PROFILES {
        for sizes in [&[][..], &[("blocks", 2), ("width", 64)], &[("batch", 16)]] {
            let outcome = run("checkpointing-in-vain", profile, sizes);
            assert_eq!(verdicts(&outcome)[1..], [Holds, Depends], "{profile} {sizes:?}");
        }
        assert_eq!(verdicts(&run("checkpointing-in-vain", profile, &[]))[0], Depends, "{profile}");
    }
}

#[test]
fn sizes_beyond_reason_are_refused() {
    let open = || Ok(Device::new(Meta::new(DeviceProfile::default())));
    for name in ["resume", "evaluation", "sharded-saving", "loader", "contexts", "checkpointing-in-vain"] {
        for size in by_name(name).unwrap().sizes() {
            for value in [0, usize::MAX] {
                let sizes = BTreeMap::from([(size.name.to_string(), vec![value])]);
                let progress = |_: &str, _: f64| ControlFlow::Break(());
                let setup = Setup { open: &open, places: &[], model: None, sizes, seed: 0, progress: &progress };
                let error = by_name(name).unwrap().ask(&setup).unwrap_err().to_string();
                assert!(error.contains(size.name), "{name} {}: {error}", size.name);
            }
        }
    }
}
