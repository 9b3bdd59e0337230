//! A run on paper takes what the run itself takes.

use lab_training::Continuation;
use serde_json::{Value, json};

use super::super::flat::{End, Ends};
use super::super::workspaces::BuiltInWorkspaces;
use super::*;

fn spec(fields: Value) -> RunSpec {
    RunSpec::of_fields(fields.as_object().unwrap()).unwrap()
}

/// What a run takes is the same from its requests and from the run itself, to the byte. Returns what it is.
fn same_both_ways(runner: &DryRunner<'_>, spec: &RunSpec, part: Part) -> Option<Needs> {
    let room = runner.session(spec).unwrap().target.budget_bytes().unwrap();
    let (known, _) = runner.request_cache.requests(spec, room).unwrap();
    assert!(!matches!(known, Known::NotReplayable), "{part:?} of {:?} {:?}", spec.training, spec.shape);
    let quick = runner.taken_by(spec, part).unwrap();
    let slow = runner.trained(spec, part).unwrap();
    let (needs, deviations) = by_operators(runner, spec, part);
    assert_eq!([quick.needs, slow.needs], [needs; 2], "{part:?} of {spec:?}");
    if needs.is_some() {
        assert_eq!([quick.deviations, slow.deviations], [deviations; 2], "{spec:?}");
    }
    if part == Part::UntilFlat && room.is_none() {
        assert_eq!(runner.session(spec).unwrap().needs(0, runner.stop).ok(), needs, "{spec:?}");
    }
    needs
}

/// What a run takes whose every step is made by its operators.
fn by_operators(runner: &DryRunner<'_>, spec: &RunSpec, part: Part) -> (Option<Needs>, Deviations) {
    let session = runner.session(spec).unwrap();
    let device = session.target.open().unwrap();
    let most = session.most_steps();
    let steps = if let Part::First(steps) = part { steps.min(most) } else { most };
    let mut ends = Ends::new(session.run.period());
    let trained = session.train_steps(&device, steps, &mut |_| match ends.step(&device) {
        End::GoOn => ControlFlow::Continue(()),
        End::Flat | End::Bound => ControlFlow::Break(()),
    });
    match trained.map_err(Error::from) {
        Ok(_) => (Some(taken(&device)), device.deviations()),
        Err(Error::Core(error)) if error.is_out_of_memory() => (None, device.deviations()),
        Err(error) => panic!("{spec:?}: {error}"),
    }
}

const PARTS: [Part; 3] = [Part::UntilFlat, Part::First(FILLED), Part::First(9)];

#[test]
fn requests_take_what_their_run_takes() {
    let mut runs = vec![
        json!({"model": "simple-cnn", "optimizer": "adamw", "precision": "autocast-bf16"}),
        json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "optimizer": "adam", "optimizer-impl": "loop", "checkpoint": "blocks"}),
        json!({"model": "resnet18", "image": 32, "batch": 8, "like": "torch-2.11-sm90", "cudnn-workspace": "1MiB"}),
        json!({"model": "mlp", "zero-grad": "zero", "ema": "model", "clip-grad-norm": 1.0}),
        json!({"model": "mlp", "schedule": "input,forward,loss,zero_grad,backward,step"}),
        json!({"model": "mlp", "batches": "3,8", "accumulate": 5}),
        json!({"model": "simple-cnn", "eval-every": 2, "eval-batch": 100}),
    ];
    for form in ["loop", "foreach", "fused"] {
        runs.push(json!({"model": "mlp", "optimizer": "sgd", "optimizer-impl": form}));
        runs.push(json!({"model": "mlp", "optimizer": "sgd", "optimizer-impl": form, "weight-decay": 0.1}));
        for precision in ["autocast-fp16", "fp16", "bf16"] {
            runs.push(json!({"model": "mlp", "optimizer": "sgd", "optimizer-impl": form, "precision": precision}));
        }
    }
    for accumulate in [2, 4, 5, 33] {
        runs.push(json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "batch": 2, "accumulate": accumulate}));
        runs.push(json!({"model": "mlp", "accumulate": accumulate, "optimizer": "momentum", "hold": "none"}));
    }
    let runner = DryRunner::new(&[], &|| false);
    for run in runs {
        for alloc in
            [None, Some("expandable_segments:True"), Some("max_split_size_mb:32"), Some("roundup_power2_divisions:4")]
        {
            let mut spec = spec(run.clone());
            spec.allocator.alloc_conf = alloc.map(String::from);
            let needs: Vec<_> = PARTS.iter().filter_map(|part| same_both_ways(&runner, &spec, *part)).collect();
            assert_eq!(needs.len(), PARTS.len(), "memory is enough");
        }
    }
}

#[test]
fn requests_run_out_of_memory_where_their_run_does() {
    let runner = DryRunner::new(&[], &|| false);
    let of = |limit: u64, alloc: &str| {
        let limit = format!("{limit}MiB");
        let spec = spec(
            json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "accumulate": 6, "memory-limit": limit, "alloc-conf": alloc}),
        );
        same_both_ways(&runner, &spec, Part::UntilFlat).is_some()
    };
    for alloc in ["expandable_segments:False", "expandable_segments:True"] {
        let fits: Vec<bool> = (1..24).map(|step| of(step * 8, alloc)).collect();
        assert!(fits.contains(&true) && fits.contains(&false), "{fits:?}");
    }
}

/// The first rank of a divided run, whose requests are noted, takes what the fullest of those that are shown takes.
#[test]
fn requests_of_a_rank_take_what_its_run_takes() {
    let runner = DryRunner::new(&[], &|| false);
    let small = json!({"model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300, "batch": 6, "data-parallel": 3});
    let mut runs = vec![
        json!({"gradient-as-bucket-view": true, "accumulate": 5}),
        json!({"sync-each": true, "accumulate": 4}),
        json!({"eval-every": 2, "eval-batch": 3, "lengths": "64,32"}),
        json!({"freeze": "tok", "zero": 3, "precision": "bf16"}),
        json!({"lora": 4, "lora-target": "all-linear", "zero": 3, "optimizer": "adamw8bit"}),
    ];
    for zero in 0..4 {
        runs.push(json!({"zero": zero, "accumulate": 4, "clip-grad-norm": 1.0}));
        runs.push(json!({"zero": zero, "precision": "bf16", "optimizer-impl": "loop"}));
    }
    for run in runs {
        for alloc in [None, Some("expandable_segments:True")] {
            let mut fields = small.as_object().unwrap().clone();
            fields.extend(run.as_object().unwrap().clone());
            let mut spec = spec(Value::Object(fields));
            spec.allocator.alloc_conf = alloc.map(String::from);
            let (known, _) = runner.request_cache.requests(&spec, None).unwrap();
            assert!(!matches!(known, Known::NotReplayable), "{run}");
            for part in PARTS {
                let (quick, slow) = (runner.taken_by(&spec, part).unwrap(), runner.trained(&spec, part).unwrap());
                assert_eq!((quick.needs, quick.deviations), (slow.needs, slow.deviations), "{part:?} of {run}");
            }
        }
    }
}

#[test]
fn a_drawn_run_has_the_figures_of_its_dry_run() {
    let small = json!({ "model": "gpt", "layers": 2, "width": 64, "heads": 2, "sequence": 64, "vocabulary": 300 });
    let runs = [
        (json!({ "gpu": "rtx4090" }), true),
        (json!({ "gpu": "rtx4090", "alloc-conf": "expandable_segments:True", "accumulate": 3 }), true),
        (json!({ "optimizer": "sgd", "optimizer-impl": "loop" }), true),
        (json!({ "memory-limit": "20MiB", "accumulate": 4 }), false),
    ];
    for (more, is_drawn) in runs {
        let mut fields = small.as_object().unwrap().clone();
        fields.extend(more.as_object().unwrap().clone());
        let spec = RunSpec::of_fields(&fields).unwrap();
        let plain = DryRunner::new(&[], &|| false);
        let session = plain.session(&spec).unwrap();
        let drawing = DryRunner::new(&[], &|| false).drawing(&spec, &session).unwrap();
        let figures = drawing.figures(&spec).unwrap();
        assert_eq!(figures, plain.figures(&spec).unwrap(), "{more}");
        assert_eq!(drawing.peak(&spec).unwrap(), plain.peak(&spec).unwrap(), "{more}");
        let drawn = drawing.drawn();
        assert_eq!(drawn.is_some(), is_drawn, "{more}");
        if let Some(drawn) = drawn {
            assert_eq!(drawn.recording.peaks().0, figures.allocated_bytes, "{more}");
            assert_eq!(drawing.needs(&spec).unwrap().allocated_bytes, figures.allocated_bytes);
        }
    }
}

#[test]
fn a_run_that_was_made_for_something_else_has_the_figures_of_its_dry_run() {
    let runs = [
        (json!({ "model": "mlp", "optimizer": "adamw" }), true),
        (json!({ "model": "simple-cnn", "gpu": "rtx4090", "eval-every": 2, "eval-batch": 100 }), true),
        (json!({ "model": "resnet18", "image": 32, "batch": 8, "gpu": "h100", "accumulate": 3 }), true),
        (json!({ "model": "mlp", "accumulate": 4 }), false),
        (json!({ "model": "mlp", "steps": 1 }), false),
    ];
    for (fields, repeats) in runs {
        let (spec, plain) = (spec(fields), DryRunner::new(&[], &|| false));
        let session = plain.session(&spec).unwrap();
        let device = session.target.clone().history(true).open().unwrap();
        let go_on = &mut |_| ControlFlow::Continue(());
        let (trained, made) = session.train_first(&device, &mut Continuation::default(), go_on);
        trained.unwrap();
        assert_eq!(made.is_some(), repeats, "{:?}", spec.training);
        let told = DryRunner::new(&[], &|| false);
        told.place_of_requests(&spec, &session).unwrap().unwrap().keep().give(made);
        assert_eq!(told.figures(&spec).unwrap(), plain.figures(&spec).unwrap(), "{:?}", spec.training);
    }
}

#[test]
fn what_cudnn_named_is_counted_as_in_a_run_of_its_own() {
    let bytes = |runner: &DryRunner<'_>, spec: &RunSpec| {
        let table = runner.known(spec).unwrap();
        let alone = DryRunner::new(&[], &|| false);
        let of = |most: bool| {
            let run = spec.clone().with_workspaces(table.workspaces(most)).endless();
            alone.taken_by(&run, Part::UntilFlat).unwrap().needs.unwrap().reserved_bytes
        };
        [of(false), of(true)]
    };
    for fields in [
        json!({ "model": "resnet18", "batch": 8, "gpu": "h100" }),
        json!({ "model": "resnet18", "batch": 16, "gpu": "rtx4090", "precision": "autocast-bf16", "accumulate": 5 }),
        json!({ "model": "vgg16", "batch": 4, "gpu": "h200", "optimizer": "adamw" }),
    ] {
        let (spec, runner) = (spec(fields), DryRunner::new(&[], &|| false).with_workspaces_of(&BuiltInWorkspaces));
        let [named, most] = bytes(&runner, &spec);
        let bound = runner.figures(&spec).unwrap().with_cudnn.unwrap();
        assert_eq!((bound.reserved.expected, named <= most), (named, true), "{:?}", spec.model);
        assert!(bound.reserved.upper >= most, "{bound:?}");
    }
}
