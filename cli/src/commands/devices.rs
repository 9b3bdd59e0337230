//! `vramlab devices`

use lab::section::{Cell, Table};
use memcore::DType;
use serde_json::{Value, json};

use crate::args::DevicesArgs;
use crate::backends::{self, About, DeviceInfo};
use crate::exit::{Code, Result};
use crate::output::{self, Results};
use crate::render::{self, WIDTH, bytes, table};
use crate::ui::Ui;

/// A device, or why there is none.
struct Seen {
    backend: &'static str,
    index: Option<usize>,
    about: About,
    found: Result<DeviceInfo, String>,
}

/// Lists every device of every backend; one that fails is an entry with its reason.
///
/// # Errors
/// When a result cannot be written; never because of a driver.
pub(super) fn run(args: &DevicesArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let seen: Vec<Seen> = backends::ALL.iter().flat_map(look).collect();
    let devices: Vec<Value> = seen.iter().map(Seen::json).collect();
    let json = json!({ "schema": "vramlab-devices-1", "devices": devices });
    let columns = ["backend", "device", "name", "memory", "free", "types"].map(String::from).to_vec();
    let rows = seen.iter().map(Seen::row).collect();
    let main = Table { title: "Devices".into(), columns, rows };
    let mut text = table::text(&main);
    for device in &seen {
        let note = match &device.found {
            Ok(info) => device.particulars(info),
            Err(reason) => reason.clone(),
        };
        if !note.is_empty() {
            text += &format!("{}: {}\n", device.backend, render::wrapped(&note, WIDTH - device.backend.len() - 2, 2));
        }
    }
    output::deliver(ui, &args.output, &Results { json: &json, tables: &[main], text: &text })?;
    Ok(Code::Done)
}

fn look(entry: &backends::Entry) -> Vec<Seen> {
    let absent = |reason| vec![Seen { backend: entry.name, index: None, about: About::default(), found: Err(reason) }];
    let count = match (entry.count)() {
        Ok(0) => return absent("it sees no device".into()),
        Ok(count) => count,
        Err(error) => return absent(error.to_string()),
    };
    let device = |index| {
        let found = (entry.open)(index).map(|backend| DeviceInfo::of(&*backend, index));
        let found = found.map_err(|error| error.to_string());
        Seen { backend: entry.name, index: Some(index), about: (entry.about)(index), found }
    };
    (0..count).map(device).collect()
}

impl Seen {
    fn json(&self) -> Value {
        let mut json = match &self.found {
            Ok(info) => info.json(),
            Err(_) => json!({
                "backend": self.backend,
                "index": self.index,
                "name": null,
                "computes": null,
                "total_bytes": null,
                "free_bytes": null,
                "max_segment_bytes": null,
                "max_binding_bytes": null,
                "dtypes": [],
            }),
        };
        json["kind"] = if self.about.kind.is_empty() { Value::Null } else { self.about.kind.into() };
        json["features"] = self.about.features.clone().into();
        json["available"] = self.found.is_ok().into();
        json["reason"] = self.found.as_ref().err().cloned().into();
        json
    }

    /// What sets the device apart, in a sentence; empty where nothing does.
    fn particulars(&self, info: &DeviceInfo) -> String {
        let limit = |what: &str, limit: Option<u64>| limit.map(|limit| format!("{what} up to {}", bytes::short(limit)));
        let limits = [limit("segments", info.max_segment_bytes), limit("operands", info.max_binding_bytes)];
        let features = Some(self.about.features.join(", ")).filter(|list| !list.is_empty());
        let parts: Vec<String> = limits.into_iter().chain([features]).flatten().collect();
        if parts.is_empty() {
            return String::new();
        }
        format!("device {} is {}: {}", self.index.unwrap_or(0), self.about.kind, parts.join(", "))
    }

    fn row(&self) -> Vec<Cell> {
        let text = |text: String| Cell::Text(text);
        let index = self.index.map_or("–".into(), |index| index.to_string());
        let memory = |bytes: Option<u64>| bytes.map_or(text("–".into()), Cell::Bytes);
        let rest = match &self.found {
            Ok(info) => {
                let types: Vec<&str> = info.dtypes.iter().map(|dtype| short_name(*dtype)).collect();
                [text(info.name.clone()), memory(info.total_bytes), memory(info.free_bytes), text(types.join(" "))]
            }
            Err(_) => [text("absent".into()), memory(None), memory(None), text(String::new())],
        };
        [text(self.backend.into()), text(index)].into_iter().chain(rest).collect()
    }
}

fn short_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::Bool => "bool",
    }
}
