//! Reads PyTorch's out-of-memory messages and explains them.
//!
//! The wordings of all releases are known, those for AMD's, Intel's and Apple's devices among them, and so are the errors of libraries and of the
//! host that mean the same. Messages print figures with two decimals: each is known to half a unit of its last decimal, and sums are checked to that
//! tolerance.

mod advice;
mod foreign;
mod holders;
mod judge;
mod line;
mod message;
mod outside;
mod read;
mod script;
mod size;
mod verdict;

pub use self::advice::Advice;
use self::holders::Holders;
use self::message::Message;
pub use self::message::Wording;
pub use self::size::Size;
pub use self::verdict::Verdict;
use lab_base::error::Result;

/// One figure of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the figure in this program.
    pub name: &'static str,
    /// Its value.
    pub size: Size,
    /// Its meaning.
    pub meaning: String,
}

/// A relation between figures, computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// The equation: `9.6 GiB allocated + 40 MiB cached = 9.64 GiB reserved`.
    pub text: String,
    /// Difference between the two sides in bytes; 0 if the figures agree.
    pub remainder: i64,
    /// Uncertainty of the figures by rounding, in bytes.
    pub tolerance: u64,
}

/// An out-of-memory message, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Kind of message.
    pub wording: Wording,
    /// Where the message is from: the releases that word it so, or the package.
    pub origin: &'static str,
    /// Index of the device, if the message names it.
    pub device: Option<u32>,
    /// Figures, in the order in which to read them.
    pub figures: Vec<Figure>,
    /// Relations between the figures.
    pub sums: Vec<Sum>,
    /// Cause of the failure in one word; `None` if the message has too few figures.
    pub verdict: Option<Verdict>,
    /// Arithmetic behind the verdict.
    pub reason: String,
    /// The innermost line of the user's own files in the traceback before the message: `train.py, line 9, in step`. `None` without a traceback.
    pub line: Option<String>,
    /// Advice, the most promising first.
    pub advice: Vec<Advice>,
}

/// Explains the message in a text, wherever it stands in it.
///
/// # Errors
/// [`Error::Usage`](lab_base::Error::Usage) for a text without a message.
pub fn explain(text: &str) -> Result<Explanation> {
    let message = read::read(text)?.without_impossible();
    let holders = Holders::from_message(&message);
    let (verdict, mut reason) = judge::judge(&message, &holders);
    if let Some((name, size)) = message.impossible {
        reason += &format!(" The message also says {size} of {name}, which cannot be: not counted.");
    }
    Ok(Explanation {
        wording: message.wording,
        origin: message.origin(),
        device: message.device,
        figures: figures(&message, &holders),
        sums: sums(&message, &holders),
        verdict,
        reason,
        line: message.line.clone(),
        advice: advice::advice(&message, &holders, verdict),
    })
}

fn figures(message: &Message, holders: &Holders) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut push = |name, size: Option<Size>, meaning: &str| {
        figures.extend(size.map(|size| Figure { name, size, meaning: meaning.to_string() }));
    };
    let asked = match message.wording {
        Wording::Mps => "the buffer that Metal was asked for",
        Wording::HostAllocator | Wording::HostArray | Wording::System => "what the host was asked for, in one piece",
        _ => {
            "what the driver was asked for: the tensor, rounded up to a segment (2 MiB for up to 1 MiB, 20 MiB for up to \
             10 MiB, otherwise the next multiple of 2 MiB)"
        }
    };
    push("tried to allocate", message.requested, asked);
    push("total", message.total, "the device's memory");
    push("free", message.free, "what the driver had left, after PyTorch gave back every segment that was not in use");
    let allowed = match message.wording {
        Wording::Mps => {
            "what PyTorch lets itself take: 1.7 times what Metal recommends, or PYTORCH_MPS_HIGH_WATERMARK_RATIO"
        }
        _ => "the limit that set_per_process_memory_fraction sets on PyTorch's segments",
    };
    push("allowed", message.allowed, allowed);
    push("allocated", message.allocated, "blocks that tensors held (and that the library held for itself)");
    push("beside PyTorch", message.beside, "what Metal holds for this process outside of PyTorch's allocator");
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
    push("peak allocated", message.peaks.0, "the most that tensors held at one time since the statistics were reset");
    push("peak reserved", message.peaks.1, "the most that PyTorch's segments took at one time since then");
    let not_recognized = holders.own_pid.map_or(String::new(), |pid| {
        format!("; the message calls it process {pid}, as in a container PyTorch does not know its own number outside")
    });
    push(
        "this process",
        holders.own,
        &format!("PyTorch's segments, and what is not PyTorch's: the context, kernels, libraries{not_recognized}"),
    );
    for (pid, size) in &holders.others {
        let meaning = format!("held by process {pid} on the same device");
        figures.push(Figure { name: "another process", size: *size, meaning });
    }
    figures
}

/// Computes the relations between the figures.
fn sums(message: &Message, holders: &Holders) -> Vec<Sum> {
    let mut sums = Vec::new();
    let Some(reserved) = message.all_reserved() else { return sums };
    if let (Some(allocated), Some(unallocated)) = (message.allocated, message.all_unallocated()) {
        sums.push(sum(
            format!("{allocated} allocated + {unallocated} unallocated = {reserved} reserved"),
            &[reserved],
            &[allocated, unallocated],
        ));
    }
    if let Some(process) = holders.own {
        sums.push(sum(
            format!("{process} in this process - {reserved} reserved: not PyTorch's (context, kernels, libraries)"),
            &[process],
            &[reserved],
        ));
    }
    match (message.total, message.free) {
        (Some(total), _) if holders.borrowed => {
            sums.push(sum(format!("{reserved} reserved - {total} total: lent by the host"), &[reserved], &[total]));
        }
        (Some(total), Some(free)) => {
            let mut parts = vec![free, holders.own.unwrap_or(reserved)];
            parts.extend(holders.others.iter().map(|(_, size)| *size));
            let listed: Vec<String> = parts[1..].iter().map(Size::to_string).collect();
            sums.push(sum(
                format!("{total} total - {free} free - {}: held by what the message does not name", listed.join(" - ")),
                &[total],
                &parts,
            ));
        }
        _ => {}
    }
    sums
}

fn sum(text: String, of: &[Size], parts: &[Size]) -> Sum {
    let bytes = |sizes: &[Size]| sizes.iter().fold(0i64, |sum, size| sum.saturating_add_unsigned(size.bytes));
    let tolerance = of.iter().chain(parts).map(|size| size.tolerance).sum();
    Sum { text, remainder: bytes(of).saturating_sub(bytes(parts)), tolerance }
}
