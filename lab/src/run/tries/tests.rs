//! What a search knows without a dry run.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

/// A search over a network whose parameters and gradients take most of its memory.
fn fields() -> RunSpec {
    let fields = json!({"model": "gpt", "batch": 1, "gpu": "24GiB", "optimizer": "sgd"});
    RunSpec::of_fields(fields.as_object().unwrap()).unwrap()
}

#[test]
fn no_change_takes_less_than_the_least() {
    let (spec, runner) = (fields(), DryRunner::new(&[], &|| false));
    let session = runner.session(&spec).unwrap();
    let search = TrySearch { runner: &runner, spec: &spec, session: &session, command: "predict", instead: None };
    let before = search.runner.before_training(&spec).unwrap();
    let allowed = Allowed { changes: search.changes(before.tensors), trained: search.trained(before) };
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
    assert_eq!(bounds, BTreeSet::from([trained, 2 * trained]), "some changes halve it, and some do not");
}

#[test]
fn a_room_that_is_a_little_short_is_tried() {
    let room = Room { bytes: 100, for_cudnn: false };
    assert!(!room.lacks(109));
    assert!(room.lacks(111));
}
