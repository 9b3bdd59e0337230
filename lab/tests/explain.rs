//! PyTorch's out-of-memory messages, of all releases.

use lab::explain::{Explanation, Wording, explain};
use memcore::memory::Verdict;

const V1_0: &str = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.60 \
    GiB already allocated; 7.44 MiB free; 84.50 MiB cached)";
const V1_8: &str = "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 1; 10.76 GiB total capacity; 7.60 GiB \
    already allocated; 7.44 MiB free; 9.64 GiB reserved in total by PyTorch)";
const V1_13_FRACTION: &str = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 23.69 GiB \
    total capacity; 4.90 GiB already allocated; 18.00 GiB free; 5.00 GiB allowed; 4.95 GiB reserved in total by PyTorch) If \
    reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for \
    Memory Management and PYTORCH_CUDA_ALLOC_CONF";
const V2_1: &str = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacty of \
    14.75 GiB of which 8.81 MiB is free. Process 2312 has 14.74 GiB memory in use. Of the allocated memory 13.80 GiB is \
    allocated by PyTorch, and 812.31 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large \
    try setting max_split_size_mb to avoid fragmentation.";
const V2_5_POOLS: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of \
    79.15 GiB of which 1.21 GiB is free. Process 11 has 30.00 GiB memory in use. Including non-PyTorch memory, this process has \
    47.94 GiB memory in use. Of the allocated memory 46.00 GiB is allocated by PyTorch, with 52.00 MiB allocated in private \
    pools (e.g., CUDA Graphs), and 500.00 MiB is reserved by PyTorch but unallocated.";
const V2_15_PREEMPTIVE: &str = "CUDA out of memory. Allocation was preemptively rejected because it would exceed \
    per_process_memory_fraction limit. Requested size: 20.00 MiB";
const HOPELESS: &str = "OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 GiB. GPU 0 has a total capacity of 15.98 \
    GiB of which 14.00 GiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 10.00 MiB is reserved by \
    PyTorch but unallocated.";

fn figure(explanation: &Explanation, name: &str) -> Option<u64> {
    explanation.figures.iter().find(|figure| figure.name == name).map(|figure| figure.size.bytes)
}

fn gib(gib: f64) -> Option<u64> {
    Some((gib * f64::from(1 << 30)).round() as u64)
}

fn mib(mib: f64) -> Option<u64> {
    Some((mib * f64::from(1 << 20)).round() as u64)
}

#[test]
fn verdicts_follow_from_the_figures() {
    for (text, wording, verdict) in [
        (V1_0, Wording::Parentheses, Some(Verdict::Full)),
        (V1_8, Wording::Parentheses, Some(Verdict::Fragmented)),
        (V1_13_FRACTION, Wording::Parentheses, Some(Verdict::Full)),
        (V2_1, Wording::Sentences, Some(Verdict::Fragmented)),
        (V2_5_POOLS, Wording::Sentences, Some(Verdict::Full)),
        (V2_15_PREEMPTIVE, Wording::Preemptive, Some(Verdict::Full)),
        (HOPELESS, Wording::Sentences, Some(Verdict::Hopeless)),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", Wording::Huge, Some(Verdict::Hopeless)),
        ("RuntimeError: CUDA error: out of memory", Wording::Driver, None),
    ] {
        let explanation = explain(text).unwrap();
        assert_eq!((explanation.wording, explanation.verdict), (wording, verdict), "{text}: {}", explanation.reason);
        assert!(!explanation.advice.is_empty() && !explanation.reason.is_empty());
    }
}

#[test]
fn every_figure_is_read() {
    let old = explain(V1_8).unwrap();
    assert_eq!(old.device, Some(1));
    for (name, bytes) in [
        ("tried to allocate", gib(1.5)),
        ("total", gib(10.76)),
        ("free", mib(7.44)),
        ("allocated", gib(7.6)),
        ("reserved", gib(9.64)),
    ] {
        assert_eq!(figure(&old, name), bytes, "{name}");
    }
    assert_eq!(figure(&explain(V1_0).unwrap(), "reserved"), mib(84.5));
    assert_eq!(figure(&explain(V1_13_FRACTION).unwrap(), "allowed"), gib(5.0));
    let new = explain(V2_5_POOLS).unwrap();
    for (name, bytes) in [
        ("tried to allocate", gib(2.0)),
        ("total", gib(79.15)),
        ("free", gib(1.21)),
        ("another process", gib(30.0)),
        ("this process", gib(47.94)),
        ("allocated", gib(46.0)),
        ("private pools", mib(52.0)),
        ("unallocated", mib(500.0)),
    ] {
        assert_eq!(figure(&new, name), bytes, "{name}");
    }
    // 2.1 wrote "capacty".
    assert_eq!(figure(&explain(V2_1).unwrap(), "total"), gib(14.75));
}

#[test]
fn sums_add_up_to_the_printed_decimals() {
    let sums = explain(V2_5_POOLS).unwrap().sums;
    // 46 GiB + 500 MiB are reserved; 47.94 GiB - that = 1.4517 GiB are not PyTorch's; 79.15 - 1.21 - 47.94 - 30 = 0.
    assert_eq!(sums[0].remainder, 0);
    assert!(sums[1].remainder.abs_diff(gib(1.4517).unwrap() as i64) < 1 << 20, "{sums:?}");
    assert!(sums[2].remainder.unsigned_abs() <= sums[2].tolerance, "{sums:?}");
    assert_eq!(sums[2].tolerance, 4 * 5_368_710, "half a hundredth of a GiB each");
}

#[test]
fn advice_looks_at_others_and_at_limits() {
    let says = |text: &str, what: &str| explain(text).unwrap().advice.iter().any(|advice| advice.what.contains(what));
    assert!(says(V2_5_POOLS, "other processes") && !says(V1_8, "other processes"));
    assert!(says(V1_13_FRACTION, "set_per_process_memory_fraction") && !says(V1_8, "set_per_process_memory_fraction"));
    let expandable = V2_1.replace("If reserved but", "expandable_segments is enabled. If");
    assert!(says(V2_1, "expandable_segments:True") && !says(&expandable, "expandable_segments:True"));
    let command = |text: &str| explain(text).unwrap().advice.into_iter().find_map(|advice| advice.command).unwrap();
    assert_eq!(command(V1_0), "vramlab fit --model gpt2 --gpu 10.76GiB");
}

#[test]
fn lines_may_be_broken_and_noise_stand_around() {
    let broken =
        format!("Traceback (most recent call last):\n  File \"x.py\", line 1\n{}\n$ ", V2_1.replace(' ', "\n  "));
    assert_eq!(explain(&broken).unwrap(), explain(V2_1).unwrap());
    let log = format!("{V1_0}\nlater:\n{V2_5_POOLS}");
    assert_eq!(explain(&log).unwrap().device, Some(3), "the last message of a log");
}

#[test]
fn what_is_no_message_is_refused() {
    for text in ["", "hello", "out of memory", "Tried to allocate 5 GiB", "out of memory. Tried to allocate 1e9 GiB"] {
        assert!(explain(text).unwrap_err().to_string().contains("no out-of-memory message"), "{text}");
    }
    // Figures that are none are left out, and nothing is made of them.
    let odd = "CUDA out of memory. Tried to allocate nan GiB. GPU 0 has a total capacity of -1.00 GiB of which inf GiB is free.";
    let odd = explain(odd).unwrap();
    assert_eq!((odd.verdict, odd.figures.len()), (None, 0));
}
