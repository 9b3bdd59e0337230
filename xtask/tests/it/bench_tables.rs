//! Figures in the READMEs are those in the files of results, and criterion's files are read correctly.

use std::fs;

use serde_json::{Map, Value, json};
use xtask::bench::collect;
use xtask::bench::results::{File, Results};
use xtask::bench::tables::{READMES, updated};
use xtask::files::workspace_root;

#[test]
fn the_tables_are_made_from_the_results() {
    let root = workspace_root();
    let results = Results::read(&root.join("benches/results")).unwrap();
    assert!(!results.benches.is_empty() && !results.peers.is_empty());
    for name in READMES {
        let text = fs::read_to_string(root.join(name)).unwrap();
        assert!(text.contains("<!-- bench: "), "{name} has no table");
        let made = updated(&text, &results).unwrap();
        let line = made.lines().zip(text.lines()).find(|(made, is)| made != is);
        assert!(made == text, "{name}: `cargo xtask bench-tables` makes it right: {line:?}");
    }
}

fn results(rows: Vec<Value>) -> Results {
    let roofs = json!([{ "device": "cpu", "name": "a processor", "copy_gb_per_s": 10.0, "gemm_gflop_per_s": { "float32": 100.0 } }]);
    let head = json!({ "host": "a host", "roofs": roofs });
    Results { benches: vec![File { name: "2026-01-01-x.json".into(), head, rows }], peers: Vec::new() }
}

fn made(name: &str, rows: Vec<Value>) -> String {
    let text = format!("before\n<!-- bench: {name} -->\nold\n<!-- /bench -->\nafter\n");
    let new = updated(&text, &results(rows)).unwrap();
    let inner = new.strip_prefix(&format!("before\n<!-- bench: {name} -->\n")).unwrap();
    inner.strip_suffix("<!-- /bench -->\nafter\n").unwrap().to_string()
}

#[test]
fn kernels_stand_beside_the_roof_that_is_nearer() {
    let row = |name: &str, ns: f64, elements: u64, bytes: u64| json!({ "bench": name, "ns": ns, "elements": elements, "bytes": bytes });
    let table = made(
        "kernels",
        vec![
            row("kernels/cpu/matmul/matmul/float32/64", 20_000.0, 524_288, 49_152),
            row("kernels/cpu/matmul/matmul/float32/2048", 2e8, 10_000_000_000, 50_000_000),
            row("kernels/cpu/softmax/softmax/float32/32x32", 500.0, 4096, 8192),
            row("kernels/cpu/softmax/softmax/float32/4096x4096", 2e7, 1_000_000, 100_000_000),
        ],
    );
    assert!(table.contains("| `matmul` | 20.0 µs | 2048 | 200 ms, 50.0 GFLOP/s, 50 % |"), "{table}");
    assert!(table.contains("| `softmax` | 500 ns | 4096x4096 | 20.0 ms, 5.00 GB/s, 50 % |"), "{table}");
    assert!(table.contains("roofs of 10.0 GB/s, and of 100 in float32 GFLOP/s"), "{table}");
    assert!(table.ends_with("[`2026-01-01-x.json`](results/2026-01-01-x.json), a host.\n"), "{table}");
}

#[test]
fn every_other_table_has_its_rows() {
    let ns = |name: &str, ns: f64| json!({ "bench": name, "ns": ns, "elements": 10 });
    let accounting = made(
        "accounting",
        vec![json!({ "bench": "accounting/pairs/mlp-b64", "ns": 1.02e6, "ns_without": 1e6, "ratio": 1.018 })],
    );
    assert!(accounting.contains("| `mlp-b64` | 1.00 ms | 1.02 ms | +1.8 % |"), "{accounting}");
    let training = made("training", vec![ns("training/cpu/mlp", 2.5e7), ns("training/wgpu/linear", 9e4)]);
    assert!(
        training.contains("| a step of | cpu | wgpu |") && training.contains("| `mlp` | 25.0 ms | – |"),
        "{training}"
    );
    let allocators = made("allocators", vec![ns("allocators/default_train/caching", 500.0)]);
    assert!(allocators.contains("| `caching` | 50 |"), "{allocators}");
    let live = made("live blocks", vec![ns("allocators/live/10000", 900.0), ns("allocators/live/1000", 500.0)]);
    assert!(live.find("| 1000 | 50 |") < live.find("| 10000 | 90 |"), "{live}");
    let dry = made("dry run", vec![ns("dry_run/gpt2-b8", 4.3e6)]);
    assert!(dry.contains("| `gpt2-b8` | 4.30 ms |"), "{dry}");
    assert!(made("snapshots", vec![ns("kernels/x", 1.0)]).starts_with("Not measured yet"));
    assert!(updated("<!-- bench: nonsense -->\n<!-- /bench -->", &results(Vec::new())).is_err());
    assert!(updated("<!-- bench: kernels -->\n", &results(Vec::new())).is_err());
}

#[test]
fn memory_stands_beside_that_of_other_programs() {
    let ours = json!({ "peer": "vramlab", "device": "cpu", "workload": "mlp", "batch": 8, "peak_bytes": 4e6, "peak_allocated_bytes": 2.5e6 });
    let theirs = json!({ "peer": "candle", "workload": "mlp", "batch": 8, "peak_bytes": 12e6 });
    let peers = vec![File { name: "2026-01-01-x.jsonl".into(), head: json!({}), rows: vec![theirs, ours] }];
    let text = "<!-- bench: peers memory -->\n<!-- /bench -->";
    let table = updated(text, &Results { benches: Vec::new(), peers }).unwrap();
    assert!(table.contains("| `mlp` b8 | 12.0 MB | – | – | 2.50 MB | 4.00 MB |"), "{table}");
}

#[test]
fn what_criterion_wrote_is_collected() {
    let folder = std::env::temp_dir().join(format!("vramlab-collect-{}", std::process::id()));
    let bench = folder.join("group").join("one").join("new");
    fs::create_dir_all(&bench).unwrap();
    let benchmark =
        json!({ "full_id": "group/one", "throughput": { "ElementsAndBytes": { "elements": 7, "bytes": 9 } } });
    let median =
        json!({ "point_estimate": 12.345_678, "confidence_interval": { "lower_bound": 12.0, "upper_bound": 13.0 } });
    fs::write(bench.join("benchmark.json"), benchmark.to_string()).unwrap();
    fs::write(bench.join("estimates.json"), json!({ "median": median }).to_string()).unwrap();
    fs::write(folder.join("roofs-cpu.json"), json!({ "device": "cpu" }).to_string()).unwrap();
    fs::write(folder.join("row-a.json"), json!({ "bench": "another" }).to_string()).unwrap();
    let (rows, roofs) = (collect::rows(&folder).unwrap(), collect::roofs(&folder).unwrap());
    fs::remove_dir_all(&folder).unwrap();
    let row = json!({ "bench": "group/one", "ns": 12.346, "ns_low": 12.0, "ns_high": 13.0, "elements": 7, "bytes": 9 });
    let another = json!({ "bench": "another" });
    assert_eq!((rows.as_slice(), roofs.as_slice()), (&[another, row.clone()][..], &[json!({ "device": "cpu" })][..]));
    let head = Map::from_iter([("date".to_string(), json!("2026-01-01"))]);
    let read: Value = serde_json::from_str(&collect::text(&head, &[row.clone(), row.clone()])).unwrap();
    assert_eq!(read, json!({ "date": "2026-01-01", "rows": [row, row] }));
}
