//! The wordings of out-of-memory messages, by release.

use std::fmt;

use memcore::memory::TorchSize;

use crate::error::{Error, Result};

/// A size as printed: two decimals of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The printed figure, in bytes.
    pub bytes: u64,
    /// Half a unit of its last decimal, in bytes.
    pub tolerance: u64,
}

/// Which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wording {
    /// 1.0 to 2.0: `(GPU 0; 10.76 GiB total capacity; …)`.
    Parentheses,
    /// From 2.1 on: `GPU 0 has a total capacity of …`.
    Sentences,
    /// From 2.15 on: refused because of the limit of the process, without asking the driver.
    Preemptive,
    /// More than an exbibyte.
    Huge,
    /// `CUDA error: out of memory`: the driver's own.
    Driver,
}

impl Wording {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Wording::Parentheses => "PyTorch 1.0 to 2.0",
            Wording::Sentences => "PyTorch 2.1 and later",
            Wording::Preemptive => "PyTorch 2.15 and later, refused ahead of the driver",
            Wording::Huge => "a request of more than 1 EiB",
            Wording::Driver => "the driver's own error",
        }
    }
}

/// What a message says.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) wording: Wording,
    pub(super) device: Option<u32>,
    pub(super) requested: Option<Size>,
    pub(super) total: Option<Size>,
    pub(super) free: Option<Size>,
    pub(super) allowed: Option<Size>,
    pub(super) allocated: Option<Size>,
    pub(super) private: Option<Size>,
    pub(super) unallocated: Option<Size>,
    pub(super) reserved: Option<Size>,
    pub(super) process: Option<Size>,
    /// Other processes and what they hold.
    pub(super) others: Vec<(u64, Size)>,
    /// The hint says that expandable segments are on.
    pub(super) expandable: bool,
}

impl Message {
    /// All segments: printed, or the sum of their parts.
    pub(super) fn all_reserved(&self) -> Option<Size> {
        let sum = |a: Size, b: Size| Size { bytes: a.bytes + b.bytes, tolerance: a.tolerance + b.tolerance };
        self.reserved.or_else(|| Some(sum(self.allocated?, self.unallocated?)))
    }

    /// Free blocks: printed, or what is reserved and not allocated.
    pub(super) fn all_unallocated(&self) -> Option<Size> {
        let difference =
            |a: Size, b: Size| Size { bytes: a.bytes.saturating_sub(b.bytes), tolerance: a.tolerance + b.tolerance };
        self.unallocated.or_else(|| Some(difference(self.reserved?, self.allocated?)))
    }
}

impl Size {
    /// An exact one.
    pub(super) fn of(bytes: u64) -> Self {
        Self { bytes, tolerance: 0 }
    }

    /// As `--gpu` and `--memory-limit` read it.
    pub(super) fn as_flag(self) -> String {
        self.to_string().replace(' ', "").replace("bytes", "B")
    }

    /// Reads `20.00 MiB` at the beginning of a text.
    fn at_start(text: &str) -> Option<Self> {
        let mut words = text.trim_start().splitn(3, ' ');
        let (number, unit) = (words.next()?, words.next()?);
        let unit = unit.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        let unit: u64 = match unit {
            "bytes" | "byte" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return None,
        };
        let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let value: f64 = number.parse().ok().filter(|_| plain && number.len() < 24)?;
        let bytes = value * unit as f64;
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len().min(9) as i32);
        let tolerance = if unit == 1 { 0.0 } else { unit as f64 * 0.5 / 10f64.powi(decimals) };
        (bytes < (1u64 << 60) as f64)
            .then_some(Self { bytes: bytes.round() as u64, tolerance: tolerance.ceil() as u64 })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TorchSize(self.bytes).fmt(f)
    }
}

/// The longest text that is looked at.
const LONGEST: usize = 1 << 20;

/// Finds the message in a text: a traceback may stand around it, and a terminal may have broken its lines.
pub(super) fn read(text: &str) -> Result<Message> {
    if text.len() > LONGEST {
        return Err(Error::usage("message", format!("is longer than {LONGEST} bytes")));
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = text.to_ascii_lowercase();
    // The last one, if a log has several.
    let start = lower.rfind("out of memory").unwrap_or(usize::MAX);
    let Some(rest) = text.get(start..) else { return Err(unknown()) };
    let driver = lower.get(..start).is_some_and(|head| head.ends_with("error: "));
    let wording = if rest.contains("Tried to allocate more than 1EB") {
        Wording::Huge
    } else if rest.contains("preemptively rejected") {
        Wording::Preemptive
    } else if rest.contains("total capacity;") {
        Wording::Parentheses
    } else if rest.contains("has a total capac") {
        Wording::Sentences
    } else if driver {
        Wording::Driver
    } else {
        return Err(unknown());
    };
    Ok(figures(wording, rest))
}

fn unknown() -> Error {
    Error::usage(
        "message",
        "no out-of-memory message of PyTorch; one begins with \"CUDA out of memory. Tried to allocate …\"",
    )
}

fn figures(wording: Wording, text: &str) -> Message {
    let after = |marker: &str| text.find(marker).and_then(|at| Size::at_start(&text[at + marker.len()..]));
    let before = |marker: &str| {
        let head = &text[..text.find(marker)?];
        let number = head.rmatch_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
        Size::at_start(head[number..].trim_start_matches('('))
    };
    let device = text.find("GPU ").and_then(|at| {
        let digits: String = text[at + 4..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Message {
        wording,
        device,
        requested: after("Tried to allocate ").or_else(|| after("Requested size: ")),
        // 2.1 misspelt it.
        total: before(" total capacity;")
            .or_else(|| after("total capacity of "))
            .or_else(|| after("total capacty of ")),
        free: before(" is free").or_else(|| before(" free;")),
        allowed: before(" allowed;"),
        allocated: before(" already allocated;").or_else(|| before(" is allocated by PyTorch")),
        private: before(" allocated in private pools"),
        unallocated: before(" is reserved by PyTorch but unallocated"),
        reserved: before(" reserved in total by PyTorch").or_else(|| before(" cached)")),
        process: after("this process has "),
        others: others(text),
        expandable: text.contains("expandable_segments is enabled"),
    }
}

/// `Process 123 has 1.50 GiB memory in use.`, as often as it stands there.
fn others(text: &str) -> Vec<(u64, Size)> {
    let mut others = Vec::new();
    for (at, marker) in text.match_indices("Process ") {
        let rest = &text[at + marker.len()..];
        let Some((pid, rest)) = rest.split_once(" has ") else { continue };
        if let (Ok(pid), Some(size)) = (pid.parse(), Size::at_start(rest)) {
            others.push((pid, size));
        }
    }
    others
}
