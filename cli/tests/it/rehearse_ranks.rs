//! `vramlab rehearse` of some of the ranks of a run.
#![cfg(target_os = "linux")]

use crate::common;
use crate::common::rehearsal::rehearse;
use serde_json::Value;

#[test]
fn some_ranks_of_many_are_started_alone() {
    let ran = rehearse(&["--world", "8", "--ranks", "0,3,7"], &["allocate=1000000", "steps=9"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let found = ran.json();
    assert_eq!(found["world"], serde_json::json!({"size": 8, "started": [0, 3, 7]}));
    assert_eq!(found["gpu"]["count"], 8);
    let ranks: Vec<u64> =
        found["ranks"].as_array().unwrap().iter().map(|rank| rank["rank"].as_u64().unwrap()).collect();
    assert_eq!((ranks, &found["stopped"]), (vec![0, 3, 7], &"steps".into()));
    assert!(ran.stdout.contains("vramlab started 3 of 8 ranks, without 1, 2, 4 to 6."), "{}", ran.stdout);
    common::fits(&ran.stdout);
}

#[test]
fn a_page_draws_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let ran = rehearse(&["--world", "2", "--html", page.to_str().unwrap()], &["allocate=1000000", "steps=3"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!((page.matches("<article ").count(), page.matches("data-run=").count()), (2, 2));
    assert!(page.contains("<h2>Rank 1</h2>"), "the rank beside the largest");
}

#[test]
fn a_rank_that_fails_ends_the_others_and_no_verdict_is_given() {
    // Rank 1 fails while rank 0 has made its steps and waits.
    let ran = rehearse(&["--world", "2"], &["steps=9", "fail-of-rank=1"]);
    assert_eq!(ran.code, Some(0), "it ends with its steps: {}{}", ran.stdout, ran.stderr);
    let ran = rehearse(&["--world", "2"], &["fail-of-rank=1", "steps=9"]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.json()["fits"], Value::Null);
}

#[test]
fn ranks_that_there_are_not_are_refused() {
    for (flags, problem) in [
        (["--world", "8", "--ranks", "8"], "no rank 8 among 8"),
        (["--world", "8", "--ranks", "1,1"], "names a rank twice"),
        (["--world", "64", "--gpus", "8"], "64 are to be started"),
        (["--world", "70000", "--ranks", "1"], "from 1 to 65536"),
    ] {
        let ran = rehearse(&flags, &[]);
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(problem), "{flags:?}: {}", ran.stderr);
    }
    assert_eq!(rehearse(&["--ranks", "1"], &[]).code, Some(2), "--ranks is of --world");
}
