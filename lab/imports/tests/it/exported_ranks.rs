//! Exports in steps that are divided among ranks: several inputs, and a loss inside of the network.

use crate::archives;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use lab_imports::exported::{self, Exported};
use lab_imports::huggingface::{self, Keep, Options, parse};
use lab_training::data_parallel::{DataParallelSettings, RankFigures, Stage};
use lab_training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::backend::{Backend, Meta};
use memcore::memory::{Category, Direct};
use memcore::profile::Convolution;
use memcore::{Device, Profile};
use serde_json::json;

use crate::archives::compared::golden;

const SOURCE: Source = Source::Synthetic { seed: 0 };

/// Blocks are as large as what is asked for, rounded up to 512 bytes.
fn meta() -> Device {
    let backend: Arc<dyn Backend> = Arc::new(Meta::default());
    Device::builder(backend.clone()).allocator(Box::new(Direct::new(backend))).build()
}

fn model(name: &str) -> Exported {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), &name.replace('/', "-"));
    exported::load(&path, None).unwrap()
}

fn divided(ranks: usize, stage: Stage) -> DataParallelSettings {
    let run = RunSettings::new(4 * ranks, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    DataParallelSettings { run, ranks, stage, master_weights: false, gradient_as_bucket_view: false, sync_each: false }
}

fn ranks(name: &str, settings: &DataParallelSettings) -> Result<Vec<RankFigures>, String> {
    let devices: Vec<Device> = settings.shown().iter().map(|_| meta()).collect();
    of_model(&model(name), settings, devices)
}

fn of_model(
    model: &Exported,
    settings: &DataParallelSettings,
    devices: Vec<Device>,
) -> Result<Vec<RankFigures>, String> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = exported::train_ranks(model, &devices, settings, &SOURCE, go_on);
    result.map(|result| result.ranks).map_err(|failed| failed.error.to_string())
}

/// Networks with two inputs, with a loss inside, and with neither.
const NETWORKS: [&str; 4] = ["bart", "clip", "gpt2", "resnet"];

#[test]
fn one_rank_alone_is_the_plain_run() {
    for name in NETWORKS {
        let settings = divided(1, Stage::Replicated);
        let go_on = &mut |_| ControlFlow::Continue(());
        let plain =
            exported::train_from(&model(name), &meta(), &settings.run, SOURCE, &mut Continuation::default(), go_on);
        let rank = ranks(name, &settings).unwrap().remove(0);
        assert_eq!(rank.rows, plain.unwrap().rows, "{name}");
    }
}

#[test]
fn replicas_hold_buckets_of_all_gradients_and_send_them_twice_but_for_a_share() {
    for name in NETWORKS {
        let one = ranks(name, &divided(1, Stage::Replicated)).unwrap().remove(0);
        for rank in ranks(name, &divided(4, Stage::Replicated)).unwrap() {
            let bytes = 4 * rank.parameters;
            assert_eq!((rank.parameters, rank.owned, rank.bucket_bytes), (one.parameters, one.parameters, bytes));
            let sent = rank.sent.total();
            assert!(sent.abs_diff(bytes * 2 * 3 / 4) < 64, "{name}: {sent} of {bytes}");
            let more = rank.account.peak.allocated_bytes - one.account.peak.allocated_bytes;
            assert!((bytes..bytes + 4096).contains(&more), "{name}: {more} more than {bytes}");
        }
    }
}

#[test]
fn shards_of_states_are_a_share_of_the_whole() {
    for name in NETWORKS {
        for stage in [Stage::OptimizerStates, Stage::Gradients] {
            let settings = divided(4, stage);
            let all = ranks(name, &settings).unwrap();
            let whole = all[0].parameters;
            let share = (whole + all[0].padding) / 4;
            assert!(
                all.iter().all(|rank| rank.owned <= share && rank.states.optimizer_bytes.abs_diff(8 * share) < 4096)
            );
            assert!(all[0].units > 0 && all[0].states.parameter_bytes >= 4 * whole, "{name} {stage:?}");
        }
    }
}

/// The pieces of a graph are those of the family: embedding, blocks and output; the ends of GPT-2 are one, since they share the token table.
#[test]
fn parameters_are_gathered_and_sent_as_those_of_the_same_config_json() {
    let gpt2 =
        json!({ "model_type": "gpt2", "vocab_size": 128, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4 });
    let options = Options { sequence: Some(16), ..Options::default() };
    let family = parse("config.json", &gpt2.to_string(), &options).unwrap();
    let mut settings = divided(4, Stage::Parameters);
    for accumulate in [1, 2] {
        settings.run.accumulate = accumulate;
        let devices = || settings.shown().iter().map(|_| meta()).collect::<Vec<Device>>();
        let go_on = &mut |_| ControlFlow::Continue(());
        let theirs = huggingface::train_ranks(&family, &devices(), &settings, &SOURCE, Keep::Loss, go_on).unwrap();
        for (ours, theirs) in ranks("gpt2", &settings).unwrap().iter().zip(&theirs.ranks) {
            let shares = |rank: &RankFigures| (rank.parameters, rank.owned, rank.padding, rank.units);
            assert_eq!(shares(ours), shares(theirs));
            assert_eq!((ours.states, ours.sent), (theirs.states, theirs.sent));
            assert_eq!((ours.gathered_bytes, ours.bucket_bytes), (theirs.gathered_bytes, theirs.bucket_bytes));
        }
    }
}

/// Chains and graphs with connections over many pieces, with batch norm, with several results, and what is computed again.
#[test]
fn nothing_stays_gathered_and_shares_add_up() {
    for (name, checkpoint) in [
        ("bart", "none"),
        ("clip", "none"),
        ("gpt2", "blocks"),
        ("llama", "none"),
        ("mlp", "none"),
        ("resnet", "none"),
        ("resnet20", "sqrt"),
        ("swin", "none"),
        ("unet", "none"),
        ("timm-vit", "sqrt"),
        ("video", "none"),
    ] {
        let model = model(name).recomputing(&checkpoint.parse().unwrap()).unwrap();
        let of = |stage: Stage| {
            let settings = divided(4, stage);
            of_model(&model, &settings, settings.shown().iter().map(|_| meta()).collect()).unwrap()
        };
        let (whole, divided) = (of(Stage::Replicated), of(Stage::Parameters));
        for rank in &divided {
            let share = (rank.parameters + rank.padding) / 4;
            assert_eq!(rank.parameters, whole[0].parameters, "{name}");
            assert!(rank.owned <= share && rank.states.parameter_bytes.abs_diff(4 * share) < 4096, "{name}");
            assert_eq!(rank.account.by_category[Category::Workspace as usize], 0, "{name}: nothing stays gathered");
            assert_eq!(rank.rows.last().unwrap().allocated, 0, "{name}");
            assert!(
                rank.units > 1
                    && 0 < rank.gathered_bytes
                    && rank.gathered_bytes <= 4 * (rank.parameters + rank.padding),
                "{name}"
            );
            // Once before the forward and once before the backward pass, but what stays between; the gradients once.
            let flat = 4 * (rank.parameters + rank.padding);
            let (gathers, scatters) = (rank.sent.all_gather, rank.sent.reduce_scatter);
            assert!(
                gathers > scatters && gathers <= 2 * scatters && scatters.abs_diff(flat * 3 / 4) < 4096,
                "{name}: {:?}",
                rank.sent
            );
        }
    }
}

#[test]
fn what_is_not_divided_is_refused_by_name() {
    let error = ranks("whisper", &divided(2, Stage::Parameters)).unwrap_err();
    assert!(error.starts_with("zero: 3: frozen parameters are not divided among ranks here; --zero 2"), "{error}");
    let error = ranks("wav2vec2", &divided(1, Stage::Parameters)).unwrap_err();
    assert!(error.contains("does not use the parameter network.wav2vec2.masked_spec_embed"), "{error}");
    let with_cudnn = Profile { convolution: Convolution::Cudnn { workspace_bytes: 0 }, ..Profile::torch_2_11(90) };
    let recurrent = Device::builder(Arc::new(Meta::default())).profile(with_cudnn).build();
    let error = of_model(&model("cudnn/tagger"), &divided(1, Stage::Parameters), vec![recurrent]).unwrap_err();
    assert!(error.starts_with("zero: 3: the weights of recurrent layers are in one buffer with cuDNN"), "{error}");
    let error = ranks("wav2vec2", &divided(2, Stage::Replicated)).unwrap_err();
    assert!(error.contains("does not use the parameter network.wav2vec2.masked_spec_embed"), "{error}");
    ranks("wav2vec2", &divided(1, Stage::Replicated)).unwrap();
}
