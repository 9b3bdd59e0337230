//! The page as a whole: sums, peaks, sizes, and that it has no markup from the data.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use lab_base::section::{self, Cell, Section, Table, Tries};
use lab_results::report::{
    CategoryId, Detail, Event, MAX_CATEGORIES, NameId, Part, Recording, Timeline, export, html, picture,
};

/// An endless sequence of numbers, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A run of about this many events with phases, modules, changes of category, one segment per 64 MiB.
fn synthetic(events: usize, phase_every: usize) -> Recording {
    let mut recording = Recording::new("synthetic");
    let ops: Vec<NameId> = (0..40).map(|i| recording.intern(&format!("operator_{i}"))).collect();
    let scopes: Vec<NameId> = (0..100).map(|i| recording.intern(&format!("layers.{}.part_{}", i / 4, i % 4))).collect();
    let phases = ["forward", "backward", "step"].map(|name| recording.intern(name));
    let mut dice = Dice(7);
    let mut live: Vec<u32> = Vec::new();
    let (mut address, mut end) = (0, 0);
    for at in 0..events {
        if at % phase_every == 0 {
            recording.push(Event::Phase { name: phases[at / phase_every % 3] });
        }
        let (op, scope) = (ops[dice.below(40) as usize], scopes[dice.below(100) as usize]);
        // Grows for a while, falls for a while.
        let grows = (at / (events / 20).max(1)).is_multiple_of(2);
        if live.is_empty() || dice.below(100) < if grows { 55 } else { 45 } {
            let most = if dice.below(50) == 0 { 100_000 } else { 100 };
            let bytes = 512 * (1 + dice.below(most));
            if address + bytes > end {
                address = end;
                let segment = bytes.max(64 << 20);
                recording.push(Event::SegmentAlloc { address, bytes: segment });
                end = address + segment;
            }
            let category = CategoryId(dice.below(8) as u8);
            let event = Event::Alloc { address, requested_bytes: bytes - dice.below(512), bytes, category, op, scope };
            live.extend(recording.push(event));
            address += bytes;
        } else {
            let allocation = live.swap_remove(dice.below(live.len() as u64) as usize);
            if dice.below(4) == 0 {
                recording.push(Event::Retag { allocation, category: CategoryId(3) });
            }
            recording.push(Event::Free { allocation, op });
        }
    }
    recording
}

/// Memory after an event, counted anew.
fn recount(recording: &Recording, at: u32) -> (u64, [u64; MAX_CATEGORIES]) {
    let mut lives: Vec<Option<(u64, u8)>> = Vec::new();
    for event in &recording.events()[..=at as usize] {
        match *event {
            Event::Alloc { bytes, category, .. } => lives.push(Some((bytes, category.0))),
            Event::Free { allocation, .. } => lives[allocation as usize] = None,
            Event::Retag { allocation, category } => {
                lives[allocation as usize].iter_mut().for_each(|(_, now)| *now = category.0);
            }
            _ => {}
        }
    }
    let mut by_category = [0; MAX_CATEGORIES];
    lives.into_iter().flatten().for_each(|(bytes, category)| by_category[usize::from(category)] += bytes);
    (by_category.iter().sum(), by_category)
}

/// The highest total of all events, the first of its height, counted in one pass.
fn highest(recording: &Recording) -> (u64, u32) {
    let (mut sizes, mut now, mut best) = (Vec::new(), 0u64, (0, 0));
    for (at, event) in recording.events().iter().enumerate() {
        match *event {
            Event::Alloc { bytes, .. } => {
                sizes.push(bytes);
                now += bytes;
            }
            Event::Free { allocation, .. } => now -= sizes[allocation as usize],
            _ => {}
        }
        if now > best.0 {
            best = (now, at as u32);
        }
    }
    best
}

#[test]
fn every_kept_moment_is_exact_and_no_peak_is_lost() {
    let recording = synthetic(60_000, 700);
    let timeline = Timeline::from_recording(&recording);
    assert!(timeline.moments.len() < 14_000, "{}", timeline.moments.len());
    // The opening steps keep every moment.
    let opened = timeline.opening.unwrap().end.min(6000) as usize;
    assert!(timeline.moments[..opened].iter().enumerate().all(|(i, moment)| moment.at == i as u32));
    let (bytes, at) = highest(&recording);
    assert_eq!((timeline.peak.allocated_bytes, timeline.peak.at), (bytes, at));
    assert_eq!(timeline.moment(at), &timeline.peak);
    for moment in timeline.moments.iter().step_by(97) {
        assert_eq!((moment.allocated_bytes, moment.by_category), recount(&recording, moment.at));
    }
    for moment in &timeline.moments {
        assert_eq!(moment.by_category.iter().sum::<u64>(), moment.allocated_bytes);
        assert!(moment.allocated_bytes + moment.split_bytes <= moment.reserved_bytes, "{moment:?}");
        assert!(moment.requested_bytes <= moment.allocated_bytes);
    }
    // Each phase's own peak is a kept moment, and none within it is higher.
    assert_eq!(timeline.stretches.len(), 86);
    for (i, stretch) in timeline.stretches.iter().enumerate() {
        let end = timeline.stretches.get(i + 1).map_or(u32::MAX, |next| next.from);
        let moment = timeline.moment(stretch.peak_at);
        assert_eq!((moment.at, moment.allocated_bytes), (stretch.peak_at, stretch.peak_bytes));
        let inside = timeline.moments.iter().filter(|moment| stretch.from <= moment.at && moment.at < end);
        assert_eq!(inside.map(|moment| moment.allocated_bytes).max(), Some(stretch.peak_bytes));
    }
    for peak in &timeline.phase_peaks {
        let same = timeline.stretches.iter().filter(|stretch| stretch.name == peak.name);
        assert_eq!(same.map(|stretch| stretch.peak_bytes).max(), Some(peak.bytes));
        assert_eq!(timeline.moment(peak.at).allocated_bytes, peak.bytes);
    }
}

#[test]
fn with_very_many_phases_the_peak_of_each_kind_is_still_kept() {
    let recording = synthetic(60_000, 3);
    let timeline = Timeline::from_recording(&recording);
    assert!(timeline.stretches.len() <= 8_000 && timeline.stretches[0].phases > 1);
    assert_eq!(timeline.stretches.iter().map(|stretch| stretch.phases).sum::<u32>(), 20_000);
    for peak in &timeline.phase_peaks {
        let moment = timeline.moment(peak.at);
        assert_eq!((moment.at, moment.allocated_bytes), (peak.at, peak.bytes));
    }
    assert_eq!(timeline.phase_peaks.iter().map(|peak| peak.bytes).max(), Some(highest(&recording).0));
}

#[test]
fn the_listed_blocks_add_up_to_the_peak() {
    let recording = synthetic(60_000, 700);
    let data = data(&html(&[Part::Recording(&recording)]).unwrap());
    let blocks = &data["blocks"];
    assert!(blocks["peaks_complete"] == true && blocks["from_bytes"].as_u64().unwrap() > 0);
    let at = i64::from(Timeline::from_recording(&recording).peak.at);
    let column = |name: &str| blocks[name].as_array().unwrap().iter().map(|number| number.as_i64().unwrap());
    // How many events a block lived for; -1 is to the end.
    let lives = sums(&blocks["from"]).into_iter().zip(column("events"));
    let living = lives.map(|(from, events)| from <= at && (events < 0 || at < from + events));
    let bytes: i64 = column("bytes").zip(living).map(|(bytes, lives)| if lives { bytes } else { 0 }).sum();
    assert_eq!(bytes as u64, Timeline::from_recording(&recording).peak.allocated_bytes);
}

/// A column of the data, which has the difference of each number to the one before.
fn sums(column: &Value) -> Vec<i64> {
    let deltas = column.as_array().unwrap().iter().map(|delta| delta.as_i64().unwrap());
    deltas
        .scan(0, |sum, delta| {
            *sum += delta;
            Some(*sum)
        })
        .collect()
}

/// The JSON between the tags of the page's data.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"run-0\">").unwrap();
    let (text, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(text).unwrap()
}

const HOSTILE: &str = "</script><img src=x onerror=alert(1)>'\"&\u{2028}<!--";

fn hostile_recording() -> Recording {
    let mut recording = Recording::new(HOSTILE);
    let name = recording.intern(HOSTILE);
    let category = recording.category(HOSTILE);
    recording.push(Event::Phase { name });
    recording.push(Event::SegmentAlloc { address: 0, bytes: 4096 });
    recording.push(Event::Alloc { address: 0, requested_bytes: 1, bytes: 512, category, op: name, scope: name });
    recording.push(Event::Oom { requested_bytes: 9, op: name });
    recording
}

fn hostile_results() -> Vec<Value> {
    let table = json!({ "title": HOSTILE, "columns": [HOSTILE, "b"], "kinds": ["text", "bytes"], "rows": [[HOSTILE, 5], [1, HOSTILE]] });
    let settings = json!({ "model": HOSTILE, HOSTILE: HOSTILE, "batch": 3 });
    let by_category = json!({ HOSTILE: 512 });
    let peak = json!({ "bytes": 512, "op": HOSTILE, "scope": HOSTILE, "phase": HOSTILE, "label": HOSTILE,
        "by_category": by_category, "by_scope": [{ "scope": HOSTILE, "by_category": by_category }] });
    let row = json!([HOSTILE, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let device = json!({ "backend": HOSTILE, "index": 0, "name": HOSTILE, "computes": true, "total_bytes": 1, "dtypes": [HOSTILE] });
    let train = json!({ "schema": "vramlab-train-1", "settings": settings, "description": HOSTILE, "device": device, "steps": [row, row],
        "peak": peak, "by_category": by_category, "rings": { "requested": 1, "allocated": 2, "active": 2, "reserved": 3, "driver": 4 },
        "overheads": { "parts": [{ "name": HOSTILE, "bytes": 1 }], "unexplained_bytes": 0 },
        "card": null, "budget_bytes": 100, "fits": false, "notes": [HOSTILE],
        "needs": { "allocated_bytes": 1, "reserved_bytes": 200, "missing_bytes": 100, "fits_with_least_context": false },
        "summits": [{ "phase": HOSTILE, "op": HOSTILE, "scope": HOSTILE, "allocated_bytes": 2, "mostly": HOSTILE, "mostly_bytes": 1 },
            { "phase": HOSTILE, "op": HOSTILE, "scope": HOSTILE, "allocated_bytes": 1, "mostly": HOSTILE, "mostly_bytes": 1 }],
        "techniques": [{ "name": HOSTILE, "peak_bytes": 1, "reserved_bytes": 1, "warnings": [HOSTILE] },
            { "name": HOSTILE, "reason": HOSTILE, "warnings": [] }], "losses": [1.0, 0.5, 0.25],
        "out_of_memory": { "message": HOSTILE }, "warnings": [HOSTILE] });
    let measurement = |n: u64| {
        json!({ "setting": { "batch": n, HOSTILE: HOSTILE }, "predicted": { "x_bytes": n, HOSTILE: 1 },
            "measured": { "x_bytes": n, HOSTILE: 2 }, "residual": { "x_bytes": 0, HOSTILE: 1 } })
    };
    let experiment = json!({ "schema": "vramlab-experiment-1", "experiment": HOSTILE, "question": HOSTILE, "device": device,
        "claims": [{ "text": HOSTILE, "source": HOSTILE, "verdict": "depends", "condition": HOSTILE }], "settings": settings, "interrupted": false,
        "rows": [measurement(1), measurement(2), measurement(3)], "tables": [table], "notes": [HOSTILE],
        "curves": [{ "title": HOSTILE, "series": [[HOSTILE, [1, 2, 3]]], "labels": [HOSTILE, "b", "c"] }] });
    let piece = json!({ "from": 1, "to": 9, "constant": 5, "slope": 2, "square": 0, "phase": HOSTILE, "op": HOSTILE, "scope": HOSTILE });
    let card = json!({ "name": HOSTILE, "title": HOSTILE, "total_bytes": 9, "total_source": HOSTILE, "least_context_bytes": 1,
        "context_bytes": 2, "context_source": HOSTILE, "compute_capability": 90, "multiprocessors": 1, "profile": HOSTILE });
    let run = json!({ "size": 1, "fits": true, "peak_allocated_bytes": 5, "peak_reserved_bytes": 6, "retries": 0 });
    let fit = json!({ "schema": "vramlab-fit-1", "of": HOSTILE, "model": HOSTILE, "card": card, "budget_bytes": 100, "at_maximum": false,
        "gaps": [1], "warnings": [HOSTILE], "largest": 4, "law": { "complete": true, "runs": 3, "pieces": [piece] }, "runs": [run],
        "settings": settings });
    let point = |n: u64| json!({ "parameters": { HOSTILE: n, "other": HOSTILE }, "run": train });
    let scan = json!({ "schema": "vramlab-scan-1", "parameters": [HOSTILE, "other"], "results": [point(1), point(2)] });
    let measured = json!({ "name": HOSTILE, "size": HOSTILE, "dtype": HOSTILE, "us": 1.5, "us_min": 1.0, "us_max": 2.0, "samples": 1,
        "runs_per_sample": 1, "bytes": 1, "flops": 1, "launches": 1, "gb_per_s": 2.0, "gflop_per_s": 3.0, "of_roof": 0.5, "bound": HOSTILE });
    let benched = json!({ "backend": HOSTILE, "index": 0, "name": HOSTILE, "kind": HOSTILE, "software": true, "available": true,
        "roofs": { "copy_gb_per_s": 20.0 }, "kernels": [measured, measured], "training": [measured],
        "skipped": [{ "name": HOSTILE, "reason": HOSTILE }] });
    let absent =
        json!({ "backend": HOSTILE, "name": "", "kind": "", "software": false, "available": false, "reason": HOSTILE });
    let bench = json!({ "schema": "vramlab-bench-1", "version": HOSTILE, "settings": settings, "devices": [benched, absent],
        "interrupted": true, "allocators": [{ "policy": HOSTILE, "ns_per_operation": 50.0, "operations": 9 }] });
    vec![train, experiment, fit, scan, bench]
}

#[test]
fn warnings_are_shown() {
    for mut result in hostile_results() {
        let schema = result["schema"].as_str().unwrap_or_default().to_string();
        if !["vramlab-train-1", "vramlab-fit-1"].contains(&schema.as_str()) {
            continue;
        }
        result["warnings"] = json!(["warning: counted without <that>"]);
        result["notes"] = json!(["eager"]);
        let page = html(&[Part::Result { result: &result, recording: None }]).unwrap();
        assert!(page.contains("<p class=\"note\">warning: counted without &lt;that&gt;</p>"), "{schema}");
        assert!(page.contains("<p class=\"note\">eager</p>"), "{schema}");
    }
}

#[test]
fn nothing_from_a_file_is_markup() {
    let (recording, results) = (hostile_recording(), hostile_results());
    let mut parts = vec![Part::Result { result: &results[0], recording: Some(&recording) }];
    parts.extend(results.iter().map(|result| Part::Result { result, recording: None }));
    let page = html(&parts).unwrap();
    assert!(!page.contains("<img") && !page.contains("onerror=alert(1)>"), "markup from a name");
    assert!(page.matches("&lt;/script&gt;&lt;img").count() > 40);
    // Apart from style and data, every tag is one of this program's.
    let ours = ["script", "style"];
    assert_eq!(ours.map(|tag| page.matches(&format!("<{tag}")).count()), [2, 1]);
    assert_eq!(ours.map(|tag| page.matches(&format!("</{tag}")).count()), [2, 1]);
    let data = data(&page);
    assert_eq!(data["name"], HOSTILE);
    assert!(data["names"].as_array().unwrap().contains(&json!(HOSTILE)));
}

/// Checks that open tags are closed, in order.
fn balanced(page: &str) {
    let empty = ["meta", "br", "!DOCTYPE"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').unwrap();
        let tag = &rest[..end];
        let name: String =
            tag.trim_start_matches('/').chars().take_while(|c| !c.is_whitespace() && *c != '/').collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "before {}", &rest[..end.min(80)]);
        } else if !tag.ends_with('/') && !empty.contains(&name.as_str()) {
            open.push(name.clone());
        }
        rest = &rest[end + 1..];
        if matches!(name.as_str(), "script" | "style") && !tag.starts_with('/') {
            rest = &rest[rest.find(&format!("</{name}")).unwrap()..];
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn the_page_is_whole_and_asks_for_nothing() {
    let (recording, results) = (hostile_recording(), hostile_results());
    let mut parts = vec![Part::Recording(&recording)];
    parts.extend(results.iter().map(|result| Part::Result { result, recording: None }));
    let page = html(&parts).unwrap();
    balanced(&page);
    // SVG's namespace is only a name; apart from it, style and scripts contain no address.
    let addresses = page.replace("http://www.w3.org/2000/svg", "");
    for asked in ["http://", "https://", "src=\"", "url(", "@import", "fetch(", "XMLHttpRequest", "innerHTML", "eval("]
    {
        assert!(!addresses.contains(asked), "{asked}");
    }
    assert!(page.contains("Content-Security-Policy") && page.contains("default-src 'none'"));
    assert!(page.contains("prefers-color-scheme: dark"));
    let error =
        html(&[Part::Result { result: &json!({ "schema": "vramlab-devices-1" }), recording: None }]).unwrap_err();
    assert!(error.to_string().contains("vramlab-devices-1"));
}

#[test]
fn the_data_say_what_the_timeline_says() {
    let mut recording = synthetic(3_000, 100);
    recording.limit = Some(("a card".into(), 9));
    let timeline = Timeline::from_recording(&recording);
    let script = data(&html(&[Part::Recording(&recording)]).unwrap());
    let at = sums(&script["moments"]["at"]);
    assert_eq!(at.len(), timeline.moments.len());
    let peak = script["peak"].as_u64().unwrap() as usize;
    assert_eq!(at[peak], i64::from(timeline.peak.at));
    let categories: Vec<Vec<i64>> = script["moments"]["categories"].as_array().unwrap().iter().map(sums).collect();
    let total: i64 = categories.iter().map(|column| column[peak]).sum();
    assert_eq!(total as u64, timeline.peak.allocated_bytes);
    assert_eq!(script["moments"]["kind"].as_str().unwrap().len(), at.len());
    assert_eq!((&script["limit"], &script["opening"]), (&json!(["a card", 9]), &json!([1023, 3, 10])));
    assert_eq!(sums(&script["blocks"]["address"]).len(), recording.allocations());
}

#[test]
fn a_million_events_make_a_page_under_five_megabytes() {
    let recording = synthetic(1_000_000, 1_000);
    let page = html(&[Part::Recording(&recording)]).unwrap();
    assert!(recording.events().len() > 1_000_000);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let (bytes, at) = highest(&recording);
    let data = data(&page);
    let found = data["phase_peaks"].as_array().unwrap().iter().map(|peak| peak[3].as_u64().unwrap()).max();
    assert_eq!(found, Some(bytes), "at {at}");
}

#[test]
#[ignore = "takes long: ten million events"]
fn ten_million_events_are_a_page_too() {
    let recording = synthetic(10_000_000, 1_000);
    let page = html(&[Part::Recording(&recording)]).unwrap();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert_eq!(Timeline::from_recording(&recording).peak.allocated_bytes, highest(&recording).0);
}

#[test]
fn an_empty_recording_is_a_page_too() {
    let recording = Recording::new("nothing");
    let page = html(&[Part::Recording(&recording)]).unwrap();
    assert_eq!(data(&page)["events"], 0);
    balanced(&page);
}

mod exports;

/// Places of these texts in a page, each after the one before.
fn in_order(page: &str, texts: &[&str]) {
    let mut from = 0;
    for text in texts {
        let at = page[from..].find(text).unwrap_or_else(|| panic!("{text} is not there, or earlier"));
        from += at;
    }
}

#[test]
fn a_page_says_the_answer_then_what_to_try_then_shows_it() {
    let entry =
        section::Try { change: "half the batch".into(), script: "batch_size=4".into(), ..section::Try::default() };
    let tries = Tries { order: "Try, the smallest change first".into(), entries: vec![entry], ..Tries::default() };
    let sections = [
        Section::Failure("PyTorch's long message".into()),
        Section::Answer("The card is full.".into()),
        Section::Table(Table::new("Who holds it", &["line"], vec![vec![Cell::Text("train.py:7".into())]])),
        Section::Try(tries),
        Section::Note("Say `--batch N`.".into()),
    ];
    let recording = synthetic(500, 100);
    let part = Part::Sections { title: "No: too large", sections: &sections, recording: Some(&recording) };
    let page = html(&[part]).unwrap();
    in_order(
        &page,
        &[
            "<h1>No: too large",
            "The card is full.",
            "Try, the smallest change first",
            "<code>batch_size=4</code>",
            "data-run=\"run-0\"",
            "Who holds it",
            "<p class=\"note\">Say <code>--batch N</code>.",
            "<summary>The highest moment of each phase</summary>",
            "<summary>When memory ran out</summary>",
            "PyTorch&#39;s long message",
        ],
    );
}

#[test]
fn phases_of_numbered_steps_are_one_kind_and_steps_have_their_beginnings() {
    let mut recording = Recording::new("r");
    for (at, name) in ["s0.forward", "s0.step", "s1.forward", "s1.step"].into_iter().enumerate() {
        let name = recording.intern(name);
        recording.push(Event::Phase { name });
        let [op, scope] = [NameId(0); 2];
        let bytes = 512 * (at as u64 + 1);
        recording.push(Event::Alloc {
            address: 4096 * at as u64,
            requested_bytes: bytes,
            bytes,
            category: CategoryId(0),
            op,
            scope,
        });
    }
    let timeline = Timeline::from_recording(&recording);
    let peaks: Vec<(u32, u64)> = timeline.phase_peaks.iter().map(|peak| (peak.times, peak.bytes)).collect();
    assert_eq!((peaks, timeline.steps.as_slice()), (vec![(2, 512 * 6), (2, 512 * 10)], &[0, 4][..]));
    let page = html(&[Part::Recording(&recording)]).unwrap();
    assert!(
        page.contains("<th scope=\"row\">forward</th>") && !page.contains("<th scope=\"row\">s0."),
        "numbers of steps"
    );
    assert_eq!(data(&page)["steps"], json!([0, 4]));
}

#[test]
fn a_curve_has_the_peaks_and_fewer_moments() {
    let recording = synthetic(30_000, 700);
    let [whole, curve] = [Detail::Whole, Detail::Curve].map(|detail| Timeline::in_detail(&recording, detail));
    assert_eq!((curve.peak, &curve.phase_peaks), (whole.peak, &whole.phase_peaks));
    assert!(curve.moments.len() * 3 < whole.moments.len(), "{} of {}", curve.moments.len(), whole.moments.len());
    assert!(curve.moments.iter().all(|moment| moment.by_category.iter().sum::<u64>() == moment.allocated_bytes));
    let bytes = picture(&recording, None, Detail::Curve).unwrap().to_string().len();
    assert!(bytes * 5 < picture(&recording, None, Detail::Whole).unwrap().to_string().len(), "{bytes} bytes");
}

#[test]
fn a_notebook_has_the_colours_of_a_page() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let (style, figures) = (read("lab/results/src/report/report.css"), read("lab/results/src/report/figures.js"));
    let notebook = read("python/vramlab/_picture.py");
    let (_, order) = figures.split_once("const ORDER = [").unwrap();
    let order = order.split(']').next().unwrap().split(", ").map(|name| name.trim_matches('"'));
    for (number, category) in order.enumerate() {
        let (_, color) = style.split_once(&format!("--c{number}: ")).unwrap();
        let line = format!("\"{category}\": \"{}\",", &color[..7]);
        assert!(notebook.contains(&line), "{line}");
    }
}
