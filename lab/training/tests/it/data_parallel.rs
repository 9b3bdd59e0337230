//! Steps divided among ranks: the ledger of a rank holds the bytes that the ZeRO paper gives, and those that the paper leaves out.

use std::ops::ControlFlow;
use std::sync::Arc;

use flate2::read::GzDecoder;
use lab_models::{Architecture, Model, ModelOptions, Recompute, architecture};
use lab_training::data_parallel::{
    Accounting, DataParallelSettings, ModelStates, Rank, RankFigures, Stage, TABLE_1, TABLE_1_PARAMETERS, printed,
    train,
};
use lab_training::record::Row;
use lab_training::{self as training, OptimizerKind, OptimizerSettings, Precision, RunSettings, Source};
use memcore::backend::{Backend, DeviceProfile, Meta};
use memcore::memory::{Category, Direct};
use memcore::nn::Init;
use memcore::{DType, Device, Profile};
use serde_json::Value;

const SOURCE: Source = Source::Synthetic { seed: 7 };

/// Blocks have the requested size, rounded up to 512 bytes.
fn meta() -> Device {
    let backend: Arc<dyn Backend> = Arc::new(Meta::default());
    Device::builder(backend.clone()).allocator(Box::new(Direct::new(backend))).build()
}

fn small(name: &str) -> Box<dyn Architecture> {
    architecture(name, &ModelOptions::small(name)).unwrap()
}

fn mixed(ranks: usize, stage: Stage) -> DataParallelSettings {
    let mut run = RunSettings::new(ranks, 2, OptimizerSettings::new(OptimizerKind::Adam, 1e-3));
    run.precision = Precision::Bf16;
    DataParallelSettings { run, ranks, stage, master_weights: true, gradient_as_bucket_view: false, sync_each: false }
}

fn run(network: &dyn Architecture, settings: &DataParallelSettings) -> Vec<RankFigures> {
    let devices: Vec<Device> = settings.shown().iter().map(|_| meta()).collect();
    train(network, &devices, settings, &SOURCE, &mut |_| ControlFlow::Continue(())).unwrap().ranks
}

fn first(network: &dyn Architecture, settings: &DataParallelSettings) -> RankFigures {
    run(network, settings).remove(0)
}

#[test]
fn one_rank_alone_is_the_plain_run() {
    for name in ["mlp", "gpt", "gpt2", "simple-cnn", "seq2seq-attention"] {
        for accumulate in [1, 2] {
            let network = small(name);
            let mut plain = RunSettings::new(4, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
            plain.accumulate = accumulate;
            let device = meta();
            let expected =
                training::train(&*network, &device, &plain, SOURCE, &mut |_| ControlFlow::Continue(())).unwrap();
            let settings = DataParallelSettings {
                run: plain,
                ranks: 1,
                stage: Stage::Replicated,
                master_weights: false,
                gradient_as_bucket_view: false,
                sync_each: false,
            };
            let rank = first(&*network, &settings);
            assert_eq!(rank.rows, expected.rows, "{name}, {accumulate}");
            assert_eq!(rank.account.peak.by_category, expected.peak.by_category);
            assert_eq!((rank.sent.total(), rank.bucket_bytes, rank.owned), (0, 0, expected.parameters));
        }
    }
}

/// Tensors of the model's states, each of which is rounded up to 512 bytes.
fn blocks(network: &dyn Architecture) -> u64 {
    5 * Model::build(network, &Init::new(&meta(), DType::F32, 0)).unwrap().parameters.len() as u64
}

#[test]
fn model_states_are_the_papers_up_to_padding_and_rounding() {
    for name in ["mlp", "gpt", "gpt2", "simple-cnn", "resnet18", "two-layer"] {
        let network = small(name);
        let blocks = blocks(&*network);
        for ranks in [1, 2, 3, 8, 61] {
            for stage in Stage::ALL {
                for (precision, kind) in [
                    (Precision::Bf16, OptimizerKind::Adam),
                    (Precision::Fp16, OptimizerKind::Momentum),
                    (Precision::Fp32, OptimizerKind::AdamW),
                    (Precision::Fp32, OptimizerKind::Sgd),
                ] {
                    let mut settings = mixed(ranks, stage);
                    settings.master_weights = precision != Precision::Fp32;
                    settings.run.precision = precision;
                    settings.run.optimizer = OptimizerSettings::new(kind, 1e-3);
                    settings.run.steps = 1;
                    let formula = Accounting::from_settings(&settings);
                    for rank in run(&*network, &settings) {
                        let least = formula.model_states(rank.parameters, ranks as u64, stage);
                        let padding = rank.padding * 16 + 512 * blocks;
                        let parts = |states: ModelStates| {
                            [states.parameter_bytes, states.gradient_bytes, states.optimizer_bytes]
                        };
                        for (held, least) in parts(rank.states).into_iter().zip(parts(least)) {
                            let bound = least..=least + padding;
                            assert!(bound.contains(&held), "{name} {ranks} {stage:?} {kind:?}: {held} in {bound:?}");
                        }
                    }
                }
            }
        }
    }
    assert_eq!(Accounting::from_settings(&mixed(2, Stage::Parameters)), Accounting::MIXED_ADAM);
}

/// A rank in three micro-batches per step, beside a rank of the real `DistributedDataParallel` (`scripts/loop/parallel.py`): what is allocated after
/// each phase, and the most within it. Where gradients are views of the buckets, reducing each micro-batch takes less than `no_sync` does.
fn rank_of(name: &str, gradient_as_bucket_view: bool, sync_each: bool) {
    let path = format!("{}/../tests/golden/{name}.json.gz", env!("CARGO_MANIFEST_DIR"));
    let recording: Value = serde_json::from_reader(GzDecoder::new(std::fs::File::open(path).unwrap())).unwrap();
    let theirs: Vec<Row> = serde_json::from_value(recording["steps"].clone()).unwrap();
    let sizes = (Some(4), Some(2048), Some(512), Some(10));
    let (layers, width, features, classes) = sizes;
    let network =
        architecture("mlp", &ModelOptions { layers, width, features, classes, ..ModelOptions::default() }).unwrap();
    let run =
        RunSettings { accumulate: 3, ..RunSettings::new(128, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3)) };
    let settings = DataParallelSettings {
        run,
        ranks: 2,
        stage: Stage::Replicated,
        master_weights: false,
        gradient_as_bucket_view,
        sync_each,
    };
    let card = DeviceProfile { total_bytes: 150_323_855_360, ..DeviceProfile::default() };
    let device = || Device::builder(Arc::new(Meta::new(card.clone()))).profile(Profile::torch_2_11(90)).build();
    let ranks = train(&*network, &[device(), device()], &settings, &SOURCE, &mut |_| ControlFlow::Continue(()));
    let ours = ranks.unwrap().ranks.remove(0).rows;
    let told = |rows: &[Row]| -> Vec<(String, u64, u64)> {
        rows.iter().map(|row| (row.label.clone(), row.allocated, row.phase_peak_allocated)).collect()
    };
    let (ours, theirs) = (told(&ours), told(&theirs));
    let wrong: Vec<_> = ours.iter().zip(&theirs).filter(|(here, there)| here != there).take(6).collect();
    assert!(ours.len() == theirs.len() && wrong.is_empty(), "{name}: {wrong:?}");
}

#[test]
fn micro_batches_are_reduced_at_their_end_or_each() {
    rank_of("p_last", false, false);
    rank_of("p_each", false, true);
    rank_of("p_last_view", true, false);
    rank_of("p_each_view", true, true);
}

/// A decoder of 7.5 billion parameters, and one vocabulary entry's worth.
fn seven_and_a_half_billion() -> Box<dyn Architecture> {
    let options = ModelOptions {
        layers: Some(36),
        width: Some(4096),
        heads: Some(32),
        sequence: Some(128),
        vocabulary: Some(30_493),
        ..ModelOptions::default()
    };
    architecture("gpt", &options).unwrap()
}

#[test]
fn the_papers_table_comes_out_of_the_ledger() {
    let network = seven_and_a_half_billion();
    for (ranks, expected) in TABLE_1 {
        for (stage, expected) in Stage::ALL[1..].iter().zip(expected) {
            let mut rank = Rank::new(&*network, &meta(), &mixed(ranks as usize, *stage), 0, SOURCE).unwrap();
            rank.step(0).unwrap();
            let rank = rank.finish();
            assert!((0..8192).contains(&(rank.parameters - TABLE_1_PARAMETERS)), "{}", rank.parameters);
            assert_eq!(printed(rank.states.total()), expected, "{ranks} {stage:?}: {:?}", rank.states);
        }
    }
}

#[test]
fn ranks_hold_the_same_and_own_the_whole_between_them() {
    for name in ["mlp", "gpt", "gpt2"] {
        let network = small(name);
        for stage in Stage::ALL {
            let settings = mixed(7, stage);
            let all: Vec<RankFigures> = (0..7)
                .map(|number| {
                    let mut rank = Rank::new(&*network, &meta(), &settings, number, SOURCE).unwrap();
                    (0..2).for_each(|step| rank.step(step).unwrap());
                    rank.finish()
                })
                .collect();
            let rows: Vec<_> = all.iter().map(|rank| &rank.rows).collect();
            assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "{name} {stage:?}");
            let owned: u64 = all.iter().map(|rank| rank.owned).sum();
            let whole = all[0].parameters;
            assert_eq!(owned, if stage == Stage::Replicated { 7 * whole } else { whole }, "{name} {stage:?}");
            assert_eq!(all[0].rows.last().map(|row| row.allocated), Some(0), "everything goes in the end");
            assert_eq!(all[0].account.peak.by_category.iter().sum::<u64>(), all[0].account.peak.allocated_bytes);
        }
    }
}

#[test]
fn each_stage_takes_less_and_the_last_sends_more() {
    let network = architecture("gpt", &ModelOptions { layers: Some(6), ..ModelOptions::default() }).unwrap();
    let ranks = Stage::ALL.map(|stage| first(&*network, &mixed(8, stage)));
    let peaks = ranks.each_ref().map(|rank| rank.account.peak.allocated_bytes);
    assert!(peaks.is_sorted_by(|a, b| a > b), "{peaks:?}");
    let [plain, states, gradients, parameters] = ranks.each_ref().map(|rank| rank.sent);
    // 2(N − 1)/N of 2 bytes per value, up to padding.
    let whole = 2 * 2 * ranks[0].parameters * 7 / 8;
    assert!((whole..whole + 1000).contains(&plain.all_reduce) && plain.total() == plain.all_reduce, "{plain:?}");
    assert_eq!(states, gradients);
    assert_eq!(
        (states.reduce_scatter, states.all_gather, states.all_reduce),
        (states.total() / 2, states.total() / 2, 0)
    );
    assert_eq!((parameters.reduce_scatter, parameters.all_gather), (states.reduce_scatter, 2 * states.all_gather));
    assert_eq!(ranks.each_ref().map(|rank| rank.gathered_bytes > 0), [false, false, false, true]);
}

#[test]
fn one_unit_is_gathered_at_a_time_with_recomputation_too() {
    for recompute in [Recompute::None, Recompute::Blocks] {
        let options = ModelOptions { layers: Some(5), recompute, ..ModelOptions::default() };
        let network = architecture("gpt", &options).unwrap();
        let rank = first(&*network, &mixed(4, Stage::Parameters));
        // A block of 128: 12·128² + 13·128 values; the tables and the output are smaller.
        assert_eq!((rank.gathered_bytes, rank.units), (2 * (12 * 128 * 128 + 13 * 128), 7));
        assert_eq!(rank.bucket_bytes, rank.gathered_bytes);
        assert_eq!(rank.account.by_category[Category::Workspace as usize], 0, "nothing stays gathered");
    }
}

#[test]
fn accumulation_reduces_once_unless_there_is_no_room_for_whole_gradients() {
    let network = small("mlp");
    let sent = |stage, accumulate| {
        let mut settings = mixed(4, stage);
        settings.run.accumulate = accumulate;
        first(&*network, &settings).sent
    };
    assert_eq!(sent(Stage::Replicated, 3), sent(Stage::Replicated, 1));
    assert_eq!(sent(Stage::OptimizerStates, 3), sent(Stage::OptimizerStates, 1));
    for stage in [Stage::Gradients, Stage::Parameters] {
        assert_eq!(sent(stage, 3).reduce_scatter, 3 * sent(stage, 1).reduce_scatter);
    }
    assert_eq!(sent(Stage::Parameters, 3).all_gather, 3 * sent(Stage::Parameters, 1).all_gather);
}

#[test]
fn buckets_hold_the_gradients_once_more_unless_they_are_views() {
    let options = ModelOptions { layers: Some(4), width: Some(2048), ..ModelOptions::default() };
    let network = architecture("mlp", &options).unwrap();
    let with = |gradient_as_bucket_view| {
        let mut settings = mixed(2, Stage::Replicated);
        (settings.master_weights, settings.run.precision) = (false, Precision::Fp32);
        settings.gradient_as_bucket_view = gradient_as_bucket_view;
        first(&*network, &settings)
    };
    let (copied, viewed) = (with(false), with(true));
    let gradients = 4 * copied.parameters;
    assert_eq!((copied.bucket_bytes, viewed.bucket_bytes), (gradients, gradients));
    assert_eq!(copied.account.by_category[Category::Workspace as usize] / 512, gradients.div_ceil(512));
    assert_eq!(viewed.account.by_category[Category::Workspace as usize], 0);
    assert!((gradients..gradients + 4096).contains(&viewed.states.gradient_bytes));
    assert_eq!(copied.sent, viewed.sent);
    assert!(copied.account.peak.allocated_bytes > viewed.account.peak.allocated_bytes + gradients / 2);
}

/// Clipping sends one number per rank and needs memory only for norms. With replicated gradients each rank clips on its own.
#[test]
fn gradients_are_clipped_where_they_lie() {
    let network = small("gpt");
    for stage in Stage::ALL {
        let with = |clip| {
            let mut settings = mixed(4, stage);
            settings.run.clip_grad_norm = clip;
            first(&*network, &settings)
        };
        let (plain, clipped) = (with(None), with(Some(1.0)));
        // One value cannot be divided by four: the ranks send it whole.
        let norm = if stage == Stage::Replicated { 0 } else { 2 * 3 * 4 };
        assert_eq!(clipped.sent.total(), plain.sent.total() + norm, "{stage:?}");
        assert_eq!(clipped.states, plain.states, "{stage:?}");
        let taken = |rank: &RankFigures| rank.rows.last().map(|row| row.n_alloc_plus_free);
        assert!(taken(&clipped) > taken(&plain), "{stage:?}");
    }
}

/// DistributedDataParallel leaves the scale to each rank: all have the same gradients.
#[test]
fn a_scaled_loss_is_each_ranks_own() {
    let mut settings = mixed(4, Stage::Replicated);
    (settings.master_weights, settings.run.precision) = (false, Precision::AutocastFp16);
    let rank = first(&*small("mlp"), &settings);
    settings.run.precision = Precision::AutocastBf16;
    let unscaled = first(&*small("mlp"), &settings);
    assert_eq!(rank.sent, unscaled.sent);
    assert_eq!(rank.states.optimizer_bytes, unscaled.states.optimizer_bytes + 3 * 512, "scale, tracker, flag");
}

#[test]
fn what_cannot_go_together_is_refused() {
    let problem = |change: fn(&mut DataParallelSettings)| {
        let mut settings = mixed(4, Stage::Gradients);
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    assert!(problem(|s| s.run.batch = 6).contains("shares must be equal"));
    assert!(problem(|s| s.ranks = 0).contains("data-parallel"));
    assert!(problem(|s| s.run.precision = Precision::AutocastFp16).contains("one decision of all ranks"));
    assert!(problem(|s| s.run.precision = Precision::Fp32).contains("their own master copy"));
    assert!(problem(|s| s.gradient_as_bucket_view = true).contains("gradient-as-bucket-view"));
    assert!(problem(|s| s.sync_each = true).contains("sync-each"));
    let computes = Device::new(backend_cpu::Cpu::with_threads(1).unwrap());
    let error = Rank::new(&*small("mlp"), &computes, &mixed(4, Stage::Gradients), 0, SOURCE).err().unwrap();
    assert!(error.to_string().contains("meta") && error.to_string().contains("cpu"), "{error}");
}
