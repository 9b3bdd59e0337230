//! Exports in steps that are divided among ranks: several inputs, and a loss inside of the network.

use crate::archives;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use lab_imports::exported::{self, Exported};
use lab_training::data_parallel::{DataParallelSettings, RankFigures, Stage};
use lab_training::{Continuation, OptimizerKind, OptimizerSettings, RunSettings, Source};
use memcore::Device;
use memcore::backend::{Backend, Meta};
use memcore::memory::Direct;

use crate::archives::compared::golden;

const SOURCE: Source = Source::Synthetic { seed: 0 };

/// Blocks are as large as what is asked for, rounded up to 512 bytes.
fn meta() -> Device {
    let backend: Arc<dyn Backend> = Arc::new(Meta::default());
    Device::builder(backend.clone()).allocator(Box::new(Direct::new(backend))).build()
}

fn model(name: &str) -> Exported {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = archives::unpacked(&golden(&format!("{name}.pt2.gz")), folder.path(), name);
    exported::load(&path, None).unwrap()
}

fn divided(ranks: usize, stage: Stage) -> DataParallelSettings {
    let run = RunSettings::new(4 * ranks, 3, OptimizerSettings::new(OptimizerKind::AdamW, 1e-3));
    DataParallelSettings { run, ranks, stage, master_weights: false, gradient_as_bucket_view: false, sync_each: false }
}

fn ranks(name: &str, settings: &DataParallelSettings) -> Result<Vec<RankFigures>, String> {
    let devices: Vec<Device> = settings.shown().iter().map(|_| meta()).collect();
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = exported::train_ranks(&model(name), &devices, settings, &SOURCE, go_on);
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

#[test]
fn what_is_not_divided_is_refused_by_name() {
    let error = ranks("gpt2", &divided(2, Stage::Parameters)).unwrap_err();
    assert!(error.starts_with("zero: 3: the graph of a model.pt2 is not cut into parts"), "{error}");
    let error = ranks("wav2vec2", &divided(2, Stage::Replicated)).unwrap_err();
    assert!(error.contains("does not use the parameter network.wav2vec2.masked_spec_embed"), "{error}");
    ranks("wav2vec2", &divided(1, Stage::Replicated)).unwrap();
}
