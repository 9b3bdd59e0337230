//! Functions of files that no one outside sees. The files are compiled here once more, instead of the whole library for its tests.

use lab_experiments::Measurement;

#[path = "../../src/fragmentation/permutations.rs"]
mod permutations;
#[path = "../../src/timing.rs"]
#[allow(dead_code, reason = "not every function has a test of its own")]
mod timing;

#[test]
fn every_order_comes_once() {
    let mut order = vec![0, 0, 1, 1, 2, 2];
    let mut seen = std::collections::BTreeSet::new();
    loop {
        assert!(seen.insert(order.clone()));
        if !permutations::next_permutation(&mut order) {
            break;
        }
    }
    assert_eq!(
        (seen.len(), permutations::orders(3, 2), permutations::orders(4, 2), permutations::orders(1, 5)),
        (90, 90, 2520, 1)
    );
}

fn times(rounds: &[f64]) -> timing::Times {
    let mut times = timing::Times::default();
    rounds.iter().for_each(|us| times.push(*us));
    times
}

#[test]
fn an_effect_smaller_than_the_noise_is_not_measurable() {
    let plain = times(&[100.0, 130.0, 90.0]);
    let clear = times(&[150.0, 190.0, 140.0]);
    assert_eq!(clear.beside(&plain), "time +50 % in the middle of 3 rounds, +46 to +56 %");
    let noisy = times(&[150.0, 120.0, 100.0]);
    assert_eq!(noisy.beside(&plain), "time not measurable here (+11 % in the middle of 3 rounds, -8 to +50 %)");
    assert_eq!(timing::Times::default().beside(&plain), "time not known without values");
}

#[test]
fn every_program_is_the_first_of_a_round() {
    let order = |round| timing::turns(round, 3).collect::<Vec<_>>();
    assert_eq!([order(0), order(1), order(2)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
    assert_eq!(timing::turns(1, 0).count(), 0);
}

#[test]
fn a_time_comes_with_its_range() {
    let mut m = Measurement::default();
    times(&[3e3, 1e3, 2e3]).measure(&mut m, "step_us");
    let known = ["step_us", "least_step_us", "most_step_us"].map(|quantity| m.measured[quantity]);
    assert_eq!(known, [2000, 1000, 3000].map(Some));
    assert_eq!(times(&[3e3, 1e3, 2e3]).words(), "2.000 ms (1.000 to 3.000)");
    let mut m = Measurement::default();
    timing::Times::default().measure(&mut m, "step_us");
    assert_eq!(m.measured["step_us"], None);
}
