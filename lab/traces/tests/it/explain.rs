//! PyTorch's out-of-memory messages, of all releases.

use std::path::Path;

use lab_traces::explain::{Explanation, Verdict, Wording, explain};
use serde::Deserialize;

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
        // 84.50 MiB are cached beside what is allocated, and 7.44 MiB free.
        (V1_0, Wording::Parentheses, Some(Verdict::Fragmented)),
        (V1_8, Wording::Parentheses, Some(Verdict::Fragmented)),
        (V1_13_FRACTION, Wording::Parentheses, Some(Verdict::Full)),
        (V2_1, Wording::Sentences, Some(Verdict::Fragmented)),
        (V2_5_POOLS, Wording::Sentences, Some(Verdict::Full)),
        (V2_15_PREEMPTIVE, Wording::Preemptive, Some(Verdict::Full)),
        (HOPELESS, Wording::Sentences, Some(Verdict::Hopeless)),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", Wording::Huge, Some(Verdict::Hopeless)),
        ("RuntimeError: CUDA error: out of memory", Wording::Driver, Some(Verdict::Outside)),
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
    // What 1.0 to 1.3 call "cached" is reserved and not allocated.
    assert_eq!(figure(&explain(V1_0).unwrap(), "unallocated"), mib(84.5));
    assert_eq!(figure(&explain(V1_0).unwrap(), "reserved"), None);
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
    assert_eq!(command(V1_0), "vramlab predict config.json --largest --gpu 10.76GiB");
}

#[test]
fn a_verdict_rests_on_no_figure_that_is_not_there() {
    // In a container NVML sees no process.
    let zero = V2_5_POOLS
        .replace("this process has 47.94 GiB", "this process has 0 bytes")
        .replace("Process 11 has 30.00 GiB memory in use. ", "");
    let zero = explain(&zero).unwrap();
    assert_eq!((zero.verdict, figure(&zero, "this process")), (Some(Verdict::Full), None));
    assert!(zero.reason.contains("0 bytes of this process, which cannot be"), "{}", zero.reason);
    // 79.15 - 1.21 - 46.00 - 0.49 GiB are somebody else's.
    assert!(zero.advice.iter().any(|advice| advice.what.contains("31.45 GiB")), "{:?}", zero.advice);
    // Cut off before what is unallocated: nothing is known. Cut off after what is allocated: it may be too much for all of the device.
    let cut = |at: &str| explain(&V2_5_POOLS[..V2_5_POOLS.find(at).unwrap()]).unwrap();
    assert_eq!(cut(" Process 11").verdict, None);
    assert_eq!(cut(", with 52.00 MiB").verdict, None);
    let much = "CUDA out of memory. Tried to allocate 20.00 GiB (GPU 0; 23.69 GiB total capacity; 8.49 GiB already allocated; 1.00 GiB free;";
    let much = explain(much).unwrap();
    assert_eq!(much.verdict, Some(Verdict::Full));
    assert!(much.reason.contains("at most 14.20 GiB cached by PyTorch"), "{}", much.reason);
}

#[test]
fn packages_with_an_allocator_of_their_own_are_told_apart() {
    for (name, origin, tool, setting) in [
        ("NPU", "torch_npu", "npu-smi", "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"),
        ("MUSA", "torch_musa", "mthreads-gmi", "PYTORCH_MUSA_ALLOC_CONF=expandable_segments:True"),
        ("MLU", "torch_mlu", "cnmon", "PYTORCH_MLU_ALLOC_CONF=expandable_segments:True"),
    ] {
        let found = explain(&V1_8.replace("CUDA", name).replace("(GPU 1;", &format!("({name} 1;"))).unwrap();
        assert_eq!((found.verdict, found.device), (Some(Verdict::Fragmented), Some(1)), "{name}");
        assert!(found.origin.contains(origin) && !all_of(&found).contains("2.1"), "{name}: {}", all_of(&found));
        assert!(found.advice[0].what.contains(setting) && all_of(&found).contains(tool), "{name}: {}", all_of(&found));
    }
}

#[test]
fn the_release_of_intels_extension_is_not_told_by_its_wording() {
    let text = "RuntimeError: XPU out of memory. Tried to allocate 1.71 GiB (GPU 0; 15.56 GiB total capacity; 0 bytes already \
        allocated; 0 bytes reserved in total by PyTorch)";
    let found = explain(text).unwrap();
    assert_eq!(found.origin, "Intel's extension for PyTorch");
    assert!(found.advice.iter().all(|advice| !advice.what.contains("Update PyTorch")), "{:?}", found.advice);
}

#[test]
fn the_setting_comes_first_where_memory_is_fragmented() {
    let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.20 GiB. GPU 1 has a total capacity of 79.32 GiB of which \
        2.30 GiB is free. Process 1001 has 77.00 GiB memory in use. Of the allocated memory 73.20 GiB is allocated by PyTorch, and 1.70 GiB is \
        reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
    let found = explain(text).unwrap();
    assert!(
        found.advice[0].what.starts_with("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        "{:?}",
        found.advice
    );
}

#[test]
fn who_has_a_script_goes_on_without_a_snapshot() {
    let text = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 93, in <module>\n    main()\n\
        torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which \
        763.48 MiB is free. Including non-PyTorch memory, this process has 22.77 GiB memory in use. Of the allocated memory 20.80 GiB is \
        allocated by PyTorch, and 1.48 GiB is reserved by PyTorch but unallocated.";
    let found = explain(text).unwrap();
    assert_eq!(found.verdict, Some(Verdict::Fragmented));
    let commands: Vec<Option<&str>> = found.advice.iter().map(|advice| advice.command.as_deref()).collect();
    assert_eq!(commands[..2], [None, Some("vramlab predict --gpu 23.03GiB -- python /home/me/train.py")]);
    assert!(found.advice[0].what.starts_with("Set "), "{:?}", found.advice[0]);
}

#[test]
fn the_users_innermost_line_is_named() {
    let frames = "Traceback (most recent call last):\n  File \"/home/me/old.py\", line 1, in <module>\nTraceback (most recent call last):\n  \
        File \"/home/me/train.py\", line 93, in <module>\n    main()\n  File \"/home/me/net work.py\", line 7, in step\n    loss.backward()\n  \
        File \"/v/lib/python3.11/site-packages/torch/_tensor.py\", line 648, in backward\n";
    let line = |text: &str| explain(text).unwrap().line;
    assert_eq!(line(&format!("{frames}{V2_5_POOLS}")).as_deref(), Some("net work.py, line 7, in step"));
    assert_eq!(line(V2_5_POOLS), None);
    let foreign =
        "Traceback (most recent call last):\n  File \"/v/site-packages/torch/_tensor.py\", line 648, in backward\n";
    assert_eq!(line(&format!("{foreign}{V2_5_POOLS}")), None);
}

#[test]
fn the_script_of_a_traceback_is_rehearsed() {
    let frames = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 93, in <module>\n    main()\n  \
        File \"/v/lib/python3.11/site-packages/torch/nn/modules/linear.py\", line 125, in forward\n";
    let commands = |text: &str| -> Vec<String> {
        explain(text).unwrap().advice.into_iter().filter_map(|advice| advice.command).collect()
    };
    let rehearse = "vramlab predict --gpu 77.70GiB -- python /home/me/train.py".to_string();
    assert!(commands(&format!("{frames}{V2_5_POOLS}")).contains(&rehearse));
    assert!(!commands(V2_5_POOLS).iter().any(|command| command.contains("rehearse")));
    // Another backend's script is not rehearsed.
    assert!(!commands(&format!("{frames}{HOPELESS}")).iter().any(|command| command.contains("rehearse")));
}

#[test]
fn a_process_that_was_killed_ran_out_of_the_hosts_memory() {
    for text in [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: exitcode : -9 (pid: 1001) Signal 9 (SIGKILL) received by PID 1001",
        "subprocess.CalledProcessError: Command died with <Signals.SIGKILL: 9>.",
        "[launch.py:315:sigkill_handler] exits with return code = -9",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch.",
        "Out of memory: Killed process 1001 (python) total-vm:1kB",
    ] {
        let found = explain(text).unwrap();
        assert_eq!((found.wording, found.verdict), (Wording::Launcher, Some(Verdict::Host)), "{text}");
    }
}

#[test]
fn a_table_of_statistics_is_read() {
    let table = "|        PyTorch CUDA memory summary, device ID 3        |\n|     CUDA OOMs: 2     |   cudaMalloc retries: 3    |\n\
        | Metric | Cur Usage | Peak Usage | Tot Alloc | Tot Freed |\n\
        | Allocated memory | 14210 MiB | 22950 MiB | 1204 GiB | 1190 GiB |\n\
        | GPU reserved memory | 23100 MiB | 23101 MiB | 46200 MiB | 23100 MiB |";
    let found = explain(table).unwrap();
    assert_eq!((found.wording, found.verdict, found.device), (Wording::Summary, None, Some(3)));
    for (name, bytes) in
        [("allocated", 14210.0), ("reserved", 23100.0), ("peak allocated", 22950.0), ("peak reserved", 23101.0)]
    {
        assert_eq!(figure(&found, name), mib(bytes), "{name}");
    }
    assert!(
        found.reason.contains("ran out of memory: 2") && found.reason.contains("given back: 3"),
        "{}",
        found.reason
    );
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
        assert!(explain(text).unwrap_err().to_string().contains("not an out-of-memory message"), "{text}");
    }
    // Invalid figures are omitted, and nothing is derived from them.
    let odd = "CUDA out of memory. Tried to allocate nan GiB. GPU 0 has a total capacity of -1.00 GiB of which inf GiB is free.";
    let odd = explain(odd).unwrap();
    assert_eq!((odd.verdict, odd.figures.len()), (None, 0));
}

/// `golden/explain/messages.toml`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted {
    message: Vec<Judged>,
    foreign: Vec<Foreign>,
}

/// A posted message, and an expert's diagnosis.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Judged {
    source: String,
    text: String,
    verdict: String,
    #[serde(default)]
    setting: String,
    #[serde(default)]
    others: bool,
    #[serde(default)]
    says: Vec<String>,
}

/// An error that is not out of memory, or not PyTorch's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    source: String,
    text: String,
    #[serde(default)]
    named: String,
}

fn posted() -> Posted {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain/messages.toml");
    toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Joins all sentences of the answer.
fn all_of(explanation: &Explanation) -> String {
    let advice = explanation.advice.iter().flat_map(|advice| [Some(&advice.what), advice.command.as_ref()]).flatten();
    [&explanation.reason].into_iter().chain(advice).fold(String::new(), |text, part| text + part + "\n")
}

/// Proposed settings, as `VARIABLE=option:value`.
fn proposed(explanation: &Explanation) -> Vec<String> {
    let text = all_of(explanation);
    let words = text.split_whitespace().filter(|word| word.contains("_ALLOC_CONF="));
    words.map(|word| word.trim_end_matches([':', ',', '.']).to_string()).collect()
}

/// True if the answer blames other processes.
fn blames_others(explanation: &Explanation) -> bool {
    let starts = ["Stop the other processes", "Find out who holds"];
    explanation.advice.iter().any(|advice| starts.iter().any(|start| advice.what.starts_with(start)))
}

#[test]
fn posted_messages_get_the_verdict_of_someone_who_knows() {
    let posted = posted();
    assert!(posted.message.len() + posted.foreign.len() >= 250);
    let mut wrong = Vec::new();
    for Judged { source, text, verdict, setting, others, says } in &posted.message {
        let explanation = explain(text).unwrap_or_else(|error| panic!("{source}: {error}\n{text}"));
        let found = explanation.verdict.map_or("unknown".to_string(), |verdict| verdict.to_string());
        let settings = if setting.is_empty() { Vec::new() } else { vec![setting.clone()] };
        let said = all_of(&explanation);
        let missing: Vec<_> = says.iter().filter(|words| !said.contains(*words)).collect();
        if found != *verdict
            || proposed(&explanation) != settings
            || blames_others(&explanation) != *others
            || !missing.is_empty()
        {
            let expected = format!("{verdict}, {settings:?}, others {others}, says {missing:?}");
            let got = format!("{found}, {:?}, others {}", proposed(&explanation), blames_others(&explanation));
            wrong.push(format!("{source}\n  expected {expected}\n  got      {got}\n  {said}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), posted.message.len(), wrong.join("\n"));
}

#[test]
fn no_answer_to_a_posted_message_makes_things_up() {
    for Judged { source, text, .. } in &posted().message {
        let explanation = explain(text).unwrap();
        // Commands contain figures of the message, and no example networks.
        for command in explanation.advice.iter().filter_map(|advice| advice.command.as_ref()) {
            assert!(!command.contains("--model "), "{source}: {command}");
            let figure = command.split_once("--gpu ").and_then(|(_, figure)| figure.split(' ').next());
            let printed = |figure: &str| text.replace(' ', "").contains(figure);
            // Or what is left of one, without the CUDA context.
            let is_left = |figure: &str| {
                let total = text.split("total capac").nth(1).and_then(|rest| rest.split("GiB").next());
                let number = |text: &str| text.trim_end_matches("GiB").trim().rsplit(' ').next()?.parse::<f64>().ok();
                total.and_then(number).zip(number(figure)).is_some_and(|(total, figure)| figure < total)
            };
            assert!(figure.is_none_or(|figure| printed(figure) || is_left(figure)), "{source}: {command}");
        }
        // No amount is negative, except through rounding.
        for sum in &explanation.sums {
            assert!(sum.remainder >= -(sum.tolerance as i64), "{source}: {sum:?}");
        }
        assert!(!explanation.advice.is_empty() && !explanation.reason.is_empty(), "{source}");
    }
}

#[test]
fn errors_of_other_kinds_are_refused() {
    for Foreign { source, text, named } in &posted().foreign {
        let refusal = explain(text).map(|found| found.reason).unwrap_err().to_string();
        assert!(refusal.contains(named), "{source}: {refusal}");
    }
}

#[test]
fn a_process_of_its_own_is_told_from_others() {
    let text = |processes: &str| {
        format!(
            "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 2.00 GiB is \
             free. {processes}Of the allocated memory 40.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by \
             PyTorch but unallocated."
        )
    };
    let figures = |processes: &str| {
        let explanation = explain(&text(processes)).unwrap();
        let (own, other) = (figure(&explanation, "this process"), figure(&explanation, "another process"));
        (own, other, blames_others(&explanation))
    };
    // In a container, the process's own segments are in the only listed process, or in one of two.
    assert_eq!(figures("Process 7 has 77.90 GiB memory in use. "), (gib(77.9), None, false));
    let two = "Process 7 has 36.20 GiB memory in use. Process 8 has 41.70 GiB memory in use. ";
    assert_eq!(figures(two), (gib(41.7), gib(36.2), true));
    // The list leaves room for segments that are in none of them.
    assert_eq!(figures("Process 7 has 36.20 GiB memory in use. "), (None, gib(36.2), true));
    let named = "Process 7 has 36.20 GiB memory in use. Including non-PyTorch memory, this process has 41.70 GiB memory in use. ";
    assert_eq!(figures(named), (gib(41.7), gib(36.2), true));
}

#[test]
fn absurd_figures_are_added_up_without_harm() {
    let many = "Process 7 has 900000000.00 GiB memory in use. ".repeat(100);
    let text = format!(
        "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 900000000.00 GiB of which \
         900000000.00 GiB is free. {many}Of the allocated memory 900000000.00 GiB is allocated by PyTorch, and 900000000.00 \
         GiB is reserved by PyTorch but unallocated."
    );
    assert!(explain(&text).unwrap().sums.iter().all(|sum| !sum.text.is_empty()));
}

#[test]
fn a_log_gives_its_last_message_with_figures() {
    let later =
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\nIt ran out of memory again, why?";
    let log = format!("{V2_5_POOLS}\n{later}");
    let explanation = explain(&log).unwrap();
    assert_eq!((explanation.wording, explanation.device), (Wording::Sentences, Some(3)));
    assert_eq!(explain(later).unwrap().verdict, Some(Verdict::Host));
}

#[test]
fn messages_of_this_program_are_known() {
    for (text, verdict, requested) in [
        (
            "error: out of memory: tried to allocate 1.03 MiB (1078272 bytes) (a segment of 20.00 MiB (20971520 bytes)) with \
             3.00 MiB (3145728 bytes) of 30.00 MiB (31457280 bytes) free on the device; the device is full. 26.86 MiB \
             (28164608 bytes) are allocated: activation 12.00 MiB (12582912 bytes), parameter 500 bytes; 512 bytes are \
             cached. At most 1.00 MiB (1048576 bytes) would have fit. Most is held by layers 3.00 MiB (3145728 bytes).",
            Verdict::Full,
            20 << 20,
        ),
        (
            "out of memory: tried to allocate 64.00 MiB (67108864 bytes) with 40.00 MiB (41943040 bytes) of 256.00 MiB \
             (268435456 bytes) free on the device; full, however it is cut. With enough memory the run reserves 1.00 GiB \
             (1073741824 bytes): 768.00 MiB (805306368 bytes) more than there is. 100.00 MiB (104857600 bytes) are \
             allocated; 116.00 MiB (121634816 bytes) are cached.",
            Verdict::Full,
            64 << 20,
        ),
        (
            "out of memory: tried to allocate 64.00 MiB (67108864 bytes) with 40.00 MiB (41943040 bytes) of 256.00 MiB \
             (268435456 bytes) free on the device; 39.1 % in use, and the free 156.00 MiB (163577856 bytes) are in \
             pieces. 100.00 MiB (104857600 bytes) are allocated; 116.00 MiB (121634816 bytes) are cached.",
            Verdict::Fragmented,
            64 << 20,
        ),
        (
            "out of memory: tried to allocate 32.00 MiB (33554432 bytes) with 20.76 GiB (22289477632 bytes) of 23.54 GiB \
             (25276510208 bytes) free on the device; refused though it is free: something else ran short, such as the host's \
             memory. 13.37 MiB (14019072 bytes) are allocated; 8.63 MiB (9049600 bytes) are cached.",
            Verdict::Refused,
            32 << 20,
        ),
        (
            "out of memory: tried to allocate 64.00 MiB (67108864 bytes) with 30.00 MiB (31457280 bytes) of 256.00 MiB \
             (268435456 bytes) free on the device, 250.00 MiB (262144000 bytes) allowed; fragmented: enough is free, but \
             not in one piece. 100.00 MiB (104857600 bytes) are allocated; 120.00 MiB (125829120 bytes) are cached.",
            Verdict::Fragmented,
            64 << 20,
        ),
        (
            "out of memory: tried to allocate 2.00 GiB (2147483648 bytes) with 1.00 MiB (1048576 bytes) of 1.00 GiB \
             (1073741824 bytes) free on the device; hopeless: the device can never give that much. 512 bytes are \
             allocated; 0 bytes are cached.",
            Verdict::Hopeless,
            2 << 30,
        ),
    ] {
        let explanation = explain(text).unwrap();
        assert_eq!((explanation.wording, explanation.verdict), (Wording::Own, Some(verdict)), "{text}");
        assert_eq!(figure(&explanation, "tried to allocate"), Some(requested));
        assert!(explanation.advice.iter().all(|advice| advice.command.is_none()), "{:?}", explanation.advice);
        assert!(figure(&explanation, "total").is_some() && figure(&explanation, "free").is_some(), "{explanation:?}");
        assert!(explanation.sums.iter().all(|sum| sum.tolerance == 0), "{:?}", explanation.sums);
    }
}
