//! Networks of the transformers library split over devices and among ranks: equal losses and files, and the memory of each device.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::transformers::{read, recompute, small, typed};
use backend_cpu::Cpu;
use lab_imports::huggingface::{self, Attention, AttentionMask, Keep, MODEL_TYPES, Options, Pretrained};
use lab_models::{Architecture, Recompute};
use lab_training::data_parallel::{self, DataParallelSettings, Rank, RankFigures, Stage};
use lab_training::pipeline::{self, Cut, PipelineSettings, Schedule};
use lab_training::{
    Begin, Continuation, OptimizerKind, OptimizerSettings, Precision, RunResult, RunSettings, Source, StateFile,
    TrainingState,
};
use memcore::Device;
use memcore::backend::Meta;
use memcore::memory::Category;

fn cpu() -> Device {
    Device::builder(Arc::new(Cpu::new().unwrap())).build()
}

fn meta() -> Device {
    Device::builder(Arc::new(Meta::default())).build()
}

fn settings(batch: usize, steps: usize) -> RunSettings {
    RunSettings { seed: 7, ..RunSettings::new(batch, steps, OptimizerSettings::new(OptimizerKind::AdamW, 3e-3)) }
}

const SOURCE: Source = Source::Renewed { seed: 7 };

/// Encoders with a decoder.
const WITH_DECODER: [&str; 2] = ["mt5", "t5"];

/// The kinds that are chains of pieces: all but encoders with a decoder.
fn chains() -> impl Iterator<Item = &'static str> {
    MODEL_TYPES.into_iter().filter(|model_type| !WITH_DECODER.contains(model_type))
}

/// One that is split after all belongs among the others, which are compared.
#[test]
fn an_encoder_with_a_decoder_is_not_split() {
    for model_type in WITH_DECODER {
        assert!(MODEL_TYPES.contains(&model_type), "{model_type}");
        let model = network(model_type, &Options::default());
        let go_on = &mut |_| ControlFlow::Continue(());
        let two = pipeline::train(&model, &[meta(), meta()], &pipelined(settings(2, 1), 1), SOURCE, go_on);
        let refused = two.expect_err(model_type).to_string();
        assert!(refused.contains("devices") && refused.contains("its decoder reads the labels"), "{refused}");
    }
}

/// A small network without dropout: each device would draw its own masks.
fn network(model_type: &str, options: &Options) -> Pretrained {
    let mut config = typed(model_type, small(model_type));
    for key in [
        "attn_pdrop",
        "embd_pdrop",
        "resid_pdrop",
        "dropout",
        "attention_dropout",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
    ] {
        config[key] = 0.0.into();
    }
    read(&config, options)
}

fn whole(
    model: &Pretrained,
    device: &Device,
    run: &RunSettings,
    begin: Begin<'_>,
) -> (RunResult, Option<TrainingState>) {
    let mut continuation = Continuation { begin, save: device.computes(), saved: None };
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = huggingface::train_from(model, device, run, SOURCE, Keep::Loss, &mut continuation, go_on).unwrap();
    (result, continuation.saved)
}

fn split(
    model: &Pretrained,
    devices: &[Device],
    settings: &PipelineSettings,
    begin: Begin<'_>,
) -> (pipeline::PipelineResult, Option<TrainingState>) {
    let mut continuation = Continuation { begin, save: devices[0].computes(), saved: None };
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = pipeline::train_from(model, devices, settings, SOURCE, &mut continuation, go_on);
    (result.unwrap_or_else(|failed| panic!("{}: {failed}", model.name())), continuation.saved)
}

fn pipelined(run: RunSettings, micro_batches: usize) -> PipelineSettings {
    PipelineSettings { run, micro_batches, schedule: Schedule::OneForwardOneBackward, cut: Cut::Balanced }
}

/// Every kind, with tied and untied embeddings, split at every piece: losses and the saved file are equal bit for bit.
#[test]
fn a_split_network_learns_what_the_whole_one_does() {
    for model_type in chains() {
        for (attention, checkpoint) in [(Attention::Sdpa, false), (Attention::Eager, true)] {
            let options = Options { attention, checkpoint: recompute(checkpoint), ..Options::default() };
            let model = network(model_type, &options);
            let run = settings(2, 2);
            let (expected, state) = whole(&model, &cpu(), &run, Begin::Fresh);
            for cut in [vec![1], vec![2], vec![3], vec![1, 2, 3]] {
                let devices: Vec<Device> = (0..=cut.len()).map(|_| cpu()).collect();
                let settings = PipelineSettings { cut: Cut::Before(cut.clone()), ..pipelined(run.clone(), 1) };
                let (result, split_state) = split(&model, &devices, &settings, Begin::Fresh);
                assert_eq!(result.losses, expected.losses, "{model_type} {attention:?} cut at {cut:?}");
                assert_eq!(result.parameters, expected.parameters);
                let (ours, theirs) = (state.as_ref().unwrap(), split_state.unwrap());
                assert_eq!(theirs.tensors, ours.tensors, "{model_type} cut at {cut:?}");
                let left: u64 = result.stages.iter().map(|s| s.rows.last().unwrap().allocated).sum();
                assert_eq!(left, 0, "{model_type} cut at {cut:?}");
            }
        }
    }
}

#[test]
fn a_split_run_is_resumed_on_one_device_and_the_reverse() {
    for model_type in ["gpt2", "bert", "vit", "opt"] {
        let model = network(model_type, &Options::default());
        let run = settings(2, 2);
        let (first, half) = whole(&model, &cpu(), &run, Begin::Fresh);
        let bytes = |state: &TrainingState| {
            let mut bytes = Vec::new();
            state.write(&mut bytes).unwrap();
            bytes
        };
        let half = bytes(&half.unwrap());
        let half = StateFile::read("half", &half).unwrap();
        let (second, end) = whole(&model, &cpu(), &run, Begin::Resume(&half));
        let two = || [cpu(), cpu()];
        let (from_whole, same) = split(&model, &two(), &pipelined(run.clone(), 1), Begin::Resume(&half));
        assert_eq!((from_whole.losses, same.unwrap().tensors), (second.losses.clone(), end.clone().unwrap().tensors));
        let (from_split, half) = split(&model, &two(), &pipelined(run.clone(), 1), Begin::Fresh);
        assert_eq!(from_split.losses, first.losses);
        let half = bytes(&half.unwrap());
        let (to_whole, same) = whole(&model, &cpu(), &run, Begin::Resume(&StateFile::read("split", &half).unwrap()));
        assert_eq!((to_whole.losses, same.unwrap().tensors), (second.losses, end.unwrap().tensors), "{model_type}");
    }
}

/// The chain of pieces on one device needs the memory of the whole network; a split network needs less on each device.
#[test]
fn pieces_take_what_the_whole_takes() {
    for model_type in chains() {
        for (attention, checkpoint) in [(Attention::Sdpa, false), (Attention::Sdpa, true), (Attention::Eager, false)] {
            let options = Options { attention, checkpoint: recompute(checkpoint), ..Options::default() };
            // What is cached goes with the forward pass of a piece, and with the loss of a whole network.
            let mut config = typed(model_type, small(model_type));
            config["use_cache"] = false.into();
            let model = read(&config, &options);
            let (expected, _) = whole(&model, &meta(), &settings(4, 2), Begin::Fresh);
            let one = split(&model, &[meta()], &pipelined(settings(4, 2), 1), Begin::Fresh).0;
            let peak = |stage: &pipeline::StageFigures| stage.account.peak.allocated_bytes;
            // A split run has freed the last step's loss.
            let difference = expected.peak.allocated_bytes - peak(&one.stages[0]);
            assert!([0, 512].contains(&difference), "{model_type} {attention:?} {checkpoint}: {difference}");
            let two = split(&model, &[meta(), meta()], &pipelined(settings(4, 2), 1), Begin::Fresh).0;
            assert!(two.stages.iter().all(|stage| peak(stage) < peak(&one.stages[0])), "{model_type}");
        }
    }
}

#[test]
fn techniques_go_together() {
    for (model_type, precision) in [("gpt2", Precision::AutocastFp16), ("llama", Precision::AutocastBf16)] {
        let options = Options { checkpoint: Recompute::Blocks, ..Options::default() };
        let model = network(model_type, &options);
        let mut run = settings(4, 2);
        (run.precision, run.accumulate, run.clip_grad_norm) = (precision, 2, Some(0.5));
        let losses = |n: usize| {
            let devices: Vec<Device> = (0..n).map(|_| cpu()).collect();
            split(&model, &devices, &pipelined(run.clone(), 2), Begin::Fresh).0.losses
        };
        let (one, three) = (losses(1), losses(3));
        assert!(one.iter().zip(&three).all(|(a, b)| (a - b).abs() < 1e-4), "{model_type}: {one:?} and {three:?}");
    }
}

fn divided(ranks: usize, stage: Stage, change: impl Fn(&mut RunSettings)) -> DataParallelSettings {
    let mut run = settings(2 * ranks, 2);
    run.schedule = lab_training::Schedule::keeping_the_loss();
    change(&mut run);
    let master_weights = run.precision == Precision::Bf16;
    DataParallelSettings { run, ranks, stage, master_weights, gradient_as_bucket_view: false, sync_each: false }
}

fn ranks(model: &Pretrained, ranks: usize, stage: Stage, change: impl Fn(&mut RunSettings)) -> Vec<RankFigures> {
    let settings = divided(ranks, stage, change);
    let devices: Vec<Device> = settings.shown().iter().map(|_| meta()).collect();
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = data_parallel::train(model, &devices, &settings, &SOURCE, go_on);
    result.unwrap_or_else(|failed| panic!("{} {stage:?}: {failed}", model.name())).ranks
}

/// The ranks of a script that calls the library's model and holds its result.
fn script_ranks(model: &Pretrained, settings: &DataParallelSettings) -> Vec<RankFigures> {
    let devices: Vec<Device> = settings.shown().iter().map(|_| meta()).collect();
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = huggingface::train_ranks(model, &devices, settings, &SOURCE, Keep::Output, go_on);
    result.unwrap_or_else(|failed| panic!("{} {:?}: {failed}", model.name(), settings.stage)).ranks
}

/// The library's own call divides what a chain of pieces does: each piece that has parameters, in the order of their creation.
#[test]
fn a_script_divides_what_a_chain_of_pieces_does() {
    for model_type in chains() {
        for (tied, precision) in [(true, Precision::Fp32), (false, Precision::Bf16), (true, Precision::AutocastBf16)] {
            let mut config = typed(model_type, small(model_type));
            if ["llama", "qwen2"].contains(&model_type) {
                config["tie_word_embeddings"] = tied.into();
            }
            let model = read(&config, &Options::default());
            for stage in [Stage::OptimizerStates, Stage::Gradients, Stage::Parameters] {
                let change = |run: &mut RunSettings| (run.precision, run.accumulate) = (precision, 2);
                let chain = ranks(&model, 4, stage, change);
                let script = script_ranks(&model, &divided(4, stage, change));
                for (ours, theirs) in script.iter().zip(&chain) {
                    let about = format!("{model_type} {tied} {precision:?} {stage:?} rank {}", ours.rank);
                    let shares = |rank: &RankFigures| (rank.parameters, rank.owned, rank.padding, rank.units);
                    assert_eq!(shares(ours), shares(theirs), "{about}");
                    assert_eq!((ours.states, ours.sent), (theirs.states, theirs.sent), "{about}");
                    assert_eq!((ours.gathered_bytes, ours.bucket_bytes), (theirs.gathered_bytes, theirs.bucket_bytes));
                    assert_eq!(ours.rows.last().unwrap().allocated, 0, "{about}");
                }
            }
        }
    }
}

#[test]
fn one_rank_alone_is_the_plain_run() {
    for model_type in chains() {
        let model = read(&typed(model_type, small(model_type)), &Options::default());
        let (expected, _) = whole(&model, &meta(), &settings(2, 2), Begin::Fresh);
        let rank = ranks(&model, 1, Stage::Replicated, |_| {}).remove(0);
        assert_eq!(rank.account.peak.by_category, expected.peak.by_category, "{model_type}");
        for row in expected.rows.iter().filter(|row| !row.label.ends_with("forward")) {
            let same = rank.rows.iter().find(|other| other.label == row.label).unwrap();
            assert_eq!((same.allocated, same.reserved), (row.allocated, row.reserved), "{model_type} {}", row.label);
        }
    }
}

/// Each stage divides one more kind of state than the one before. All ranks hold equal shares, which add up to the whole.
#[test]
fn states_are_divided_among_ranks() {
    for model_type in chains() {
        for checkpoint in [false, true] {
            let options = Options { checkpoint: recompute(checkpoint), ..Options::default() };
            let model = read(&typed(model_type, small(model_type)), &options);
            let change = |run: &mut RunSettings| (run.precision, run.accumulate) = (Precision::Bf16, 2);
            let stages = Stage::ALL.map(|stage| ranks(&model, 4, stage, change));
            let states = stages.each_ref().map(|ranks| ranks[0].states.total());
            assert!(states.is_sorted_by(|a, b| a > b), "{model_type}: {states:?}");
            for ranks in &stages {
                assert_eq!(ranks[0].rows, ranks[1].rows, "{model_type}");
                assert_eq!(ranks[0].rows.last().unwrap().allocated, 0, "{model_type}");
            }
            let gathered = sharded_workspace(&stages[3][0]);
            assert_eq!(gathered, 0, "{model_type}: nothing stays gathered");
            let whole = stages[0][0].parameters;
            let [.., sharded] = &stages;
            assert_eq!(sharded[0].parameters, whole);
            // Embeddings, two blocks and the output; where the two ends share a table, they are one.
            assert_eq!(sharded[0].units, if model.shares_ends() { 3 } else { 4 }, "{model_type}");
            let owned: u64 = (0..4).map(|rank| owned(&model, rank)).sum();
            assert_eq!(owned, whole, "{model_type}");
        }
    }
}

/// Gathered parameters and buckets that remain after the last step.
fn sharded_workspace(rank: &RankFigures) -> u64 {
    rank.account.by_category[Category::Workspace as usize]
}

/// Number of values that one of four ranks updates in the third stage.
fn owned(model: &Pretrained, rank: usize) -> u64 {
    let run = settings(8, 1);
    let settings = DataParallelSettings {
        run,
        ranks: 4,
        stage: Stage::Parameters,
        master_weights: false,
        gradient_as_bucket_view: false,
        sync_each: false,
    };
    Rank::new(model, &meta(), &settings, rank, SOURCE).unwrap().finish().owned
}

#[test]
fn what_comes_with_the_batch_cannot_be_split() {
    let model = network("gpt2", &Options { attention_mask: AttentionMask::Full, ..Options::default() });
    assert!(model.indivisible().unwrap().contains("mask"));
    let go_on = &mut |_| ControlFlow::Continue(());
    let error = pipeline::train(&model, &[meta(), meta()], &pipelined(settings(2, 1), 1), SOURCE, go_on).unwrap_err();
    assert!(error.to_string().contains("gpt2 cannot be split"), "{error}");
}
