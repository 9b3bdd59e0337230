//! Recordings as other programs read them.

use super::*;

fn small() -> Recording {
    let mut recording = Recording::new("small");
    let (forward, mm, fc) = (recording.intern("forward"), recording.intern("m;m"), recording.intern("net.fc"));
    let (parameter, activation) = (recording.category("parameter"), recording.category("activation"));
    let alloc =
        |bytes, category, scope, op| Event::Alloc { address: 0, requested_bytes: 1, bytes, category, op, scope };
    recording.push(Event::SegmentAlloc { address: 0, bytes: 4096 });
    recording.push(alloc(512, parameter, fc, NameId(0)));
    recording.push(Event::Phase { name: forward });
    recording.push(alloc(1024, parameter, fc, mm));
    recording.push(Event::Retag { allocation: 1, category: activation });
    recording.push(Event::Free { allocation: 1, op: mm });
    recording.push(Event::Oom { requested_bytes: 7, op: mm });
    recording
}

#[test]
fn folded_stacks_are_those_of_the_peak() {
    assert_eq!(export::folded_stacks(&small()), "parameter;net;fc 512\nparameter;net;fc;m_m 1024\n");
}

#[test]
fn lives_are_half_open_intervals() {
    assert_eq!(export::minimalloc(&small()), "id,lower,upper,size\n0,1,7,512\n1,3,5,1024\n");
}

#[test]
fn a_trace_has_counters_and_slices() {
    let trace: Value = serde_json::from_str(&export::chrome_trace(&small())).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |kind: &str| -> Vec<&Value> { events.iter().filter(|event| event["ph"] == kind).collect() };
    let counters: Vec<(u64, &str, u64)> = of("C")
        .into_iter()
        .map(|event| {
            (event["ts"].as_u64().unwrap(), event["name"].as_str().unwrap(), event["args"]["bytes"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(
        counters,
        [
            (0, "reserved", 4096),
            (1, "parameter", 512),
            (3, "parameter", 1536),
            (4, "parameter", 512),
            (4, "activation", 1024),
            (5, "activation", 0)
        ]
    );
    let slices: Vec<(&str, u64, u64)> = of("X")
        .into_iter()
        .map(|event| (event["name"].as_str().unwrap(), event["ts"].as_u64().unwrap(), event["dur"].as_u64().unwrap()))
        .collect();
    assert_eq!(slices, [("m;m", 3, 4), ("forward", 2, 5)]);
    assert_eq!(of("i")[0]["args"]["requested_bytes"], 7);
}

#[test]
fn the_folded_bytes_add_up_to_the_peak() {
    let recording = synthetic(5_000, 100);
    let total: u64 = export::folded_stacks(&recording)
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(total, highest(&recording).0);
}
