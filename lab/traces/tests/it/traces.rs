//! Traces: what may be in one, and what lives together.

use lab_base::error::Result;
use lab_traces::replay::{LowerBound, Operation, Settings, Trace};

fn take(bytes: u64) -> Operation {
    Operation::Allocate { bytes, stream: 0, pool: 0, served: true }
}

fn free(allocation: u32) -> Operation {
    Operation::Free { allocation }
}

fn trace(operations: &[Operation]) -> Result<Trace> {
    Trace::new("t", Settings::default(), operations.to_vec())
}

#[test]
fn an_operation_takes_sixteen_bytes() {
    assert_eq!(size_of::<Operation>(), 16);
}

#[test]
fn what_does_not_live_cannot_be_used() {
    let record = Operation::RecordStream { allocation: 0, stream: 1 };
    for (operations, message) in [
        (vec![free(0)], "t: operation 0: frees allocation 0, but only 0 were made until then"),
        (vec![take(1), free(0), free(0)], "t: operation 2: frees allocation 0, which was freed before"),
        (vec![take(1), free(0), record], "t: operation 2: records a stream on allocation 0, which was freed before"),
        (
            vec![take(1), take(u64::MAX)],
            "t: operation 1: requests 18446744073709551615 bytes: all together more than 2^62",
        ),
    ] {
        assert_eq!(trace(&operations).unwrap_err().to_string(), message);
    }
    assert_eq!(trace(&[take(1), record, free(0)]).unwrap().allocations(), 1);
}

#[test]
fn the_bound_is_what_lives_together() {
    let lost = Operation::Allocate { bytes: 1 << 30, stream: 0, pool: 0, served: false };
    let trace = trace(&[take(1000), take(0), lost, take(600), free(0), take(1), free(3)]).unwrap();
    assert_eq!(trace.lower_bound(), LowerBound { bytes: 2048, operation: 3, allocations: 2 });
    let lives: Vec<_> = trace.lifetimes().iter().map(|life| (life.bytes, life.from, life.to)).collect();
    assert_eq!(lives, [(1000, 0, 4), (0, 1, 2), (0, 2, 3), (600, 3, 6), (1, 5, u64::MAX)]);
}
