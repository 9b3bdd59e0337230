//! What PyTorch says when memory runs out, read.
//!
//! The wordings of all releases since 1.0 are known, those for AMD and Intel devices among them. Figures are printed
//! with two decimals: each is known to half a unit of its last one, and sums are checked to that.

mod message;

use memcore::memory::Verdict;

use self::message::{Message, read};
pub use self::message::{Size, Wording};
use crate::error::Result;

/// One figure of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is called here.
    pub name: &'static str,
    /// How much.
    pub size: Size,
    /// What it means.
    pub meaning: String,
}

/// A relation between figures, worked out.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// What is added up: `9.6 GiB allocated + 40 MiB cached = 9.64 GiB reserved`.
    pub text: String,
    /// What is left over, in bytes: nothing, where the figures should agree.
    pub remainder: i64,
    /// How exactly the figures are known, in bytes.
    pub tolerance: u64,
}

/// Something to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What, and why.
    pub what: String,
    /// The command that checks it.
    pub command: Option<String>,
}

/// A message, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Which wording it is.
    pub wording: Wording,
    /// The device, where the message says so.
    pub device: Option<u32>,
    /// Its figures, in the order of reading.
    pub figures: Vec<Figure>,
    /// How they hang together.
    pub sums: Vec<Sum>,
    /// Whether anything could have helped; `None`: the message has too few figures to say.
    pub verdict: Option<Verdict>,
    /// Why, in arithmetic.
    pub reason: String,
    /// What to try, first things first.
    pub advice: Vec<Advice>,
}

/// Reads a message, wherever it stands in the text.
///
/// # Errors
/// [`Error::Usage`](crate::Error::Usage) for a text without one.
pub fn explain(text: &str) -> Result<Explanation> {
    let message = read(text)?;
    let (verdict, reason) = verdict(&message);
    Ok(Explanation {
        wording: message.wording,
        device: message.device,
        figures: figures(&message),
        sums: sums(&message),
        verdict,
        reason,
        advice: advice(&message, verdict),
    })
}

fn figures(message: &Message) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut push = |name, size: Option<Size>, meaning: &str| {
        figures.extend(size.map(|size| Figure { name, size, meaning: meaning.to_string() }));
    };
    push(
        "tried to allocate",
        message.requested,
        "what the driver was asked for: the tensor, rounded up to a segment (2 MiB for up to 1 MiB, 20 MiB for up to 10 \
         MiB, otherwise the next multiple of 2 MiB)",
    );
    push("total", message.total, "the device's memory");
    push("free", message.free, "what the driver had left, after PyTorch gave back every segment that was not in use");
    push("allowed", message.allowed, "the limit that set_per_process_memory_fraction sets on PyTorch's segments");
    push("allocated", message.allocated, "blocks that tensors held (and that the library held for itself)");
    push(
        "private pools",
        message.private,
        "of these, what belongs to CUDA graphs and other pools, in use or not: it serves nobody else",
    );
    push(
        "unallocated",
        message.unallocated,
        "free blocks in segments that are partly in use, which cannot be given back",
    );
    push("reserved", message.reserved, "PyTorch's segments: the blocks in use and the free ones");
    push(
        "this process",
        message.process,
        "PyTorch's segments, and what is not PyTorch's: the context, kernels, libraries",
    );
    for (pid, size) in &message.others {
        figures.push(Figure {
            name: "another process",
            size: *size,
            meaning: format!("held by process {pid} on the same device"),
        });
    }
    figures
}

/// The figures as sums.
fn sums(message: &Message) -> Vec<Sum> {
    let mut sums = Vec::new();
    let Some(reserved) = message.all_reserved() else { return sums };
    if let (Some(allocated), Some(unallocated)) = (message.allocated, message.all_unallocated()) {
        sums.push(sum(
            format!("{allocated} allocated + {unallocated} unallocated = {reserved} reserved"),
            &[reserved],
            &[allocated, unallocated],
        ));
    }
    if let Some(process) = message.process {
        sums.push(sum(
            format!("{process} in this process - {reserved} reserved: not PyTorch's (context, kernels, libraries)"),
            &[process],
            &[reserved],
        ));
    }
    if let (Some(total), Some(free)) = (message.total, message.free) {
        let mut parts = vec![free, message.process.unwrap_or(reserved)];
        parts.extend(message.others.iter().map(|(_, size)| *size));
        let listed: Vec<String> = parts[1..].iter().map(Size::to_string).collect();
        sums.push(sum(
            format!("{total} total - {free} free - {}: held by what the message does not name", listed.join(" - ")),
            &[total],
            &parts,
        ));
    }
    sums
}

fn sum(text: String, of: &[Size], parts: &[Size]) -> Sum {
    let bytes = |sizes: &[Size]| sizes.iter().map(|size| size.bytes as i64).sum::<i64>();
    let tolerance = of.iter().chain(parts).map(|size| size.tolerance).sum();
    Sum { text, remainder: bytes(of) - bytes(parts), tolerance }
}

/// Whether it was hopeless, fragmented or full, and the arithmetic.
fn verdict(message: &Message) -> (Option<Verdict>, String) {
    match message.wording {
        Wording::Huge => {
            return (Some(Verdict::Hopeless), "more than 2^60 bytes: a size was computed wrongly".into());
        }
        Wording::Driver => {
            let reason = "The driver refused by itself, outside of PyTorch's allocator (a context, a library's handle or \
                          a kernel's memory): the message has no figures, and the allocator could not give its cache back.";
            return (None, reason.into());
        }
        _ => {}
    }
    let Some(requested) = message.requested else {
        return (None, "The message does not say how much was asked for.".into());
    };
    if message.wording == Wording::Preemptive {
        let reason =
            format!("{requested} more would have exceeded the limit of the process; the driver was not asked.");
        return (Some(Verdict::Full), reason);
    }
    let limit = [message.total, message.allowed].into_iter().flatten().min_by_key(|size| size.bytes);
    let Some(limit) = limit else { return (None, "The message does not say how large the device is.".into()) };
    if requested.bytes > limit.bytes {
        return (
            Some(Verdict::Hopeless),
            format!("{requested} in one piece is more than {limit}, which is all there is."),
        );
    }
    let cached = message.all_unallocated().map_or(0, |size| size.bytes);
    let allowed = message
        .allowed
        .map_or(u64::MAX, |allowed| allowed.bytes.saturating_sub(message.all_reserved().map_or(0, |size| size.bytes)));
    let obtainable = message.free.map_or(0, |size| size.bytes).min(allowed);
    let enough = cached.saturating_add(obtainable) >= requested.bytes;
    let arithmetic = format!(
        "{} unallocated in PyTorch's segments + {} to be had from the driver = {}, and {requested} were needed",
        Size::of(cached),
        Size::of(obtainable),
        Size::of(cached.saturating_add(obtainable)),
    );
    if enough {
        (Some(Verdict::Fragmented), format!("{arithmetic}: enough, but not in one piece."))
    } else {
        (Some(Verdict::Full), format!("{arithmetic}: too little, however it is cut."))
    }
}

/// What to try, first things first.
fn advice(message: &Message, verdict: Option<Verdict>) -> Vec<Advice> {
    let plain = |what: &str| Advice { what: what.into(), command: None };
    let checked = |what: &str, command: String| Advice { what: what.into(), command: Some(command) };
    let mut advice = Vec::new();
    let gpu = message.allowed.or(message.total).map_or("24GiB".to_string(), |size| size.as_flag());
    if let (Some(requested), Some(free)) = (message.requested, message.free) {
        let others: u64 = message.others.iter().map(|(_, size)| size.bytes).sum();
        if others > 0 && free.bytes.saturating_add(others) >= requested.bytes && verdict != Some(Verdict::Hopeless) {
            advice.push(plain(
                "Stop the other processes on this device: with their memory the request would have been served.",
            ));
        }
    }
    let limited = message.allowed.zip(message.free).zip(message.requested);
    if limited.is_some_and(|((_, free), requested)| free.bytes >= requested.bytes)
        || message.wording == Wording::Preemptive
    {
        advice.push(plain("Raise the limit of set_per_process_memory_fraction: the device itself had room."));
    }
    match verdict {
        Some(Verdict::Fragmented) if message.expandable => advice.push(checked(
            "expandable_segments is on already: record a snapshot and search the other settings.",
            "vramlab tune snapshot.pickle".into(),
        )),
        Some(Verdict::Fragmented) => {
            advice.push(checked(
                "Set PYTORCH_ALLOC_CONF=expandable_segments:True, and see by a recorded snapshot what that saves.",
                "vramlab snapshot replay snapshot.pickle --compare caching,expandable".into(),
            ));
            advice.push(checked("Search all settings of the allocator.", "vramlab tune snapshot.pickle".into()));
        }
        Some(Verdict::Full) => {
            advice.push(checked(
                "Take the largest batch that fits: settings of the allocator cannot help.",
                format!("vramlab fit --model gpt2 --gpu {gpu}"),
            ));
            advice.push(checked(
                "Or need less: recomputation, 16-bit, accumulation; what each saves:",
                format!("vramlab predict --model gpt2 --checkpoint blocks --gpu {gpu}"),
            ));
        }
        Some(Verdict::Hopeless) => advice.push(checked(
            "Find the operator that asks for so much at once (attention over a long sequence, a large product, logits).",
            format!("vramlab predict --model gpt2 --gpu {gpu}"),
        )),
        None => advice.push(checked(
            "See who holds the device's memory.",
            "vramlab devices".into(),
        )),
    }
    if verdict != Some(Verdict::Hopeless) {
        advice.push(checked(
            "To see who held the memory: torch.cuda.memory._record_memory_history() at the start, \
             torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") when it fails, and",
            "vramlab snapshot show snapshot.pickle".into(),
        ));
    }
    advice
}
