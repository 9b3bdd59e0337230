//! What a search knows without a dry run.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// A search over a network whose parameters and gradients take most of its memory.
fn fields(optimizer: &str) -> RunSpec {
    let fields = json!({"model": "gpt", "batch": 1, "gpu": "24GiB", "optimizer": optimizer});
    RunSpec::of_fields(fields.as_object().unwrap()).unwrap()
}

#[test]
fn no_change_takes_less_than_the_least() {
    // Some changes halve it, some free gradients or states, and some do not.
    takes_no_less("sgd", &[2, 4]);
    takes_no_less("momentum", &[3, 4, 6]);
    for optimizer in ["adamw", "adam", "adamax", "nadam", "radam"] {
        takes_no_less(optimizer, &[4, 6, 8]);
    }
}

/// Compares every change of a run with its bound; the bounds are these multiples of half of the parameters.
fn takes_no_less(optimizer: &str, halves: &[u64]) {
    let (spec, runner) = (fields(optimizer), DryRunner::new(&[], &|| false));
    let session = runner.session(&spec).unwrap();
    let search = TrySearch { runner: &runner, spec: &spec, session: &session, command: "predict", instead: None };
    let before = search.runner.before_training(&spec).unwrap();
    let states = states(session.run.optimizer.kind);
    let allowed = Allowed { changes: search.changes(before.tensors), trained: search.trained(before), states };
    let (changes, trained) = (&allowed.changes, allowed.trained.unwrap());
    let mut bounds = BTreeSet::new();
    for chosen in std::iter::once(Vec::new()).chain((0..changes.len()).map(|i| vec![i])) {
        let Some(least) = allowed.least(&chosen) else {
            assert_eq!(changes[chosen[0]].axis(), Axis::Adapters);
            continue;
        };
        bounds.insert(least);
        match search.runner.within_limit(&search.tried(search.with(changes, &chosen))) {
            Ok((needs, _)) => assert!(needs.unwrap().allocated_bytes >= least, "{chosen:?} takes less than {least}"),
            Err(error) => assert!(error.is_usage(), "{error}"),
        }
    }
    let expected: BTreeSet<u64> = halves.iter().map(|count| count * trained / 2).collect();
    assert_eq!(bounds.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>(), "{optimizer}");
}

#[test]
fn a_room_that_is_a_little_short_is_tried() {
    let room = Room { bytes: 100, for_cudnn: false };
    assert!(!room.lacks(109));
    assert!(room.lacks(111));
}

#[test]
fn what_is_not_run_would_not_be_listed() {
    let fields = [
        json!({"model": "gpt", "batch": 8, "optimizer": "adamw"}),
        json!({"model": "gpt", "batch": 1, "sequence": 128, "optimizer": "adagrad"}),
        json!({"model": "mlp", "batch": 4, "optimizer": "momentum"}),
        json!({"model": "simple-cnn", "batch": 32, "optimizer": "adamw"}),
        json!({"model": "resnet18", "image": 64, "batch": 8, "precision": "autocast-bf16"}),
    ];
    for fields in fields {
        let (spec, runner) = (RunSpec::of_fields(fields.as_object().unwrap()).unwrap(), DryRunner::new(&[], &|| false));
        let session = runner.session(&spec).unwrap();
        let search = TrySearch { runner: &runner, spec: &spec, session: &session, command: "predict", instead: None };
        let figures = runner.figures(&spec).unwrap();
        assert_eq!(search.that_save(&figures).unwrap(), search.of_every_change(&figures).unwrap(), "{fields}");
    }
}
