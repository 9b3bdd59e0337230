//! Finds an out-of-memory message in a text and reads its figures.

use lab_base::error::{Error, Result};

use super::message::{Backend, Message, Wording};
use super::size::Size;
use super::verdict::Verdict;
use super::{foreign, line, outside, script};

/// Longest text that is read. Bytes.
const MAX_TEXT: usize = 1 << 20;

/// Words that every message about device memory contains.
const MARKER: &str = "out of memory";

/// Finds the last message in a text. A traceback may surround it, and a terminal may have broken its lines. Messages with figures take precedence
/// over those without, which often are their consequences.
pub(super) fn read(text: &str) -> Result<Message> {
    if text.len() > MAX_TEXT {
        return Err(Error::usage("message", format!("is longer than {MAX_TEXT} bytes")));
    }
    let found = read_lines(text);
    let Some(Ok(unbroken)) = unbroken(text).map(|whole| read_lines(&whole)) else { return found };
    match found {
        Ok(found) if found.figures() > unbroken.figures() => Ok(found),
        _ => Ok(unbroken),
    }
}

/// Joins lines that a terminal broke within a word: those of its full width, if letters or digits stand on both sides. `None` if there are none.
fn unbroken(text: &str) -> Option<String> {
    let width = text.lines().map(str::len).max().filter(|width| *width >= MIN_WIDTH)?;
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '.');
    let (mut joined, mut broken, mut lines) = (String::with_capacity(text.len()), false, text.lines().peekable());
    while let Some(line) = lines.next() {
        joined.push_str(line);
        let goes_on = lines.peek().is_some_and(|next| in_word(next.chars().next()));
        if line.len() == width && in_word(line.chars().next_back()) && goes_on {
            broken = true;
        } else {
            joined.push('\n');
        }
    }
    broken.then_some(joined)
}

/// Narrowest terminal whose broken lines are joined.
const MIN_WIDTH: usize = 40;

/// Finds the last message in lines that are broken between words, if at all.
fn read_lines(lines: &str) -> Result<Message> {
    let text = lines.split_whitespace().collect::<Vec<_>>().join(" ");
    // `lower` has the length of `text`: positions found in one are valid in the other.
    let lower = text.to_ascii_lowercase();
    let mut end = text.len();
    for (at, _) in lower.rmatch_indices(MARKER) {
        if let Some(message) = allocator_message(&lower[..at], &text[..at], &text[at..end]) {
            let before = of_this_message(&text[..at], &lower[..at]);
            return Ok(Message { script: script::find(before), line: line::innermost(before), ..message });
        }
        end = at;
    }
    let found = oversized_block(&text)
        .or_else(|| gaudi(&text))
        .or_else(|| without_figures(&text))
        .or_else(|| summary(&text))
        .or_else(|| without_its_beginning(&text));
    if let Some(message) = found {
        return Ok(Message { script: script::find(&text), line: line::innermost(&text), ..message });
    }
    match foreign::named(&text, &lower) {
        Some(named) => Err(Error::usage("message", named)),
        None => outside::read(&text, &lower)
            .or_else(|| first_words(&lower))
            .or_else(|| outside::killed_in_a_shell(lines))
            .or_else(|| outside::pythons(lines))
            .map(|message| Message { script: script::find(&text), line: line::innermost(&text), ..message })
            .ok_or_else(unknown),
    }
}

/// Returns what stands before a message and is about it: what follows an earlier message, as that of another rank, unless a traceback begins later.
fn of_this_message<'t>(before: &'t str, lower: &str) -> &'t str {
    let earlier = lower.rfind("out of memory. tried to allocate").unwrap_or(0);
    let traceback = before.rfind("Traceback (most recent call last)").unwrap_or(0);
    if traceback < earlier { &before[earlier..] } else { before }
}

fn unknown() -> Error {
    Error::usage(
        "message",
        "not an out-of-memory message of PyTorch; one begins with \"CUDA out of memory. Tried to allocate …\"",
    )
}

/// Reads the message of Gaudi's backend: `PT_DEVMEM Allocation failed for size::268435456 (256)MB`.
fn gaudi(text: &str) -> Option<Message> {
    let marker = "PT_DEVMEM Allocation failed for size::";
    let at = text.rfind(marker)? + marker.len();
    let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
    let requested = digits.parse().ok().filter(|bytes| *bytes < 1 << 60).map(Size::from_bytes);
    Some(Message { requested, ..Message::new(Wording::Request, Backend::Hpu) })
}

/// Reads messages of PyTorch whose figures are missing: NVML could not be asked, or only the first line of cudaMallocAsync's message is there.
fn without_figures(text: &str) -> Option<Message> {
    if text.contains("NVML_SUCCESS ==") && text.contains("CUDACachingAllocator") {
        return Some(Message::new(Wording::Assert, Backend::Cuda));
    }
    let first_line = text.contains("OutOfMemoryError") && text.contains("Allocation on device");
    first_line.then(|| Message::new(Wording::Async, Backend::Cuda))
}

/// Reads figures that were copied without the words before them: `Tried to allocate 156.00 MiB (GPU 0; 10.91 GiB total capacity; …`.
fn without_its_beginning(text: &str) -> Option<Message> {
    let wording = if text.contains("total capacity;") && text.contains("already allocated;") {
        Wording::Parentheses
    } else if text.contains(" is allocated by PyTorch") || says_what_there_is(text) {
        Wording::Sentences
    } else {
        return None;
    };
    Some(figures(wording, Backend::Cuda, text))
}

/// True for `Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 22.36 GiB of which`, wherever it is cut.
fn says_what_there_is(text: &str) -> bool {
    text.split_once("Tried to allocate ").is_some_and(|(_, rest)| rest.contains(" has a total capac"))
}

/// Reads a message of which only the first words are there: `CUDA out of memory.`
fn first_words(lower: &str) -> Option<Message> {
    let backends = lower.match_indices(MARKER).filter_map(|(at, _)| backend(&lower[..at]));
    Some(Message::new(Wording::Request, backends.last()?))
}

/// Reads the last table of `torch.cuda.memory_summary()`.
fn summary(text: &str) -> Option<Message> {
    let table = &text[text.rfind("PyTorch CUDA memory summary")?..];
    let number = |marker: &str| {
        let digits: String =
            table.split_once(marker)?.1.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    // Columns: now, peak, and two sums.
    let row = |name: &str| {
        let mut cells = table.split_once(name).map_or("", |(_, row)| row).split('|').skip(1).map(Size::at_start);
        (cells.next().flatten(), cells.next().flatten())
    };
    let (allocated, reserved) = (row("| Allocated memory "), row("| GPU reserved memory "));
    Some(Message {
        device: number("device ID ").and_then(|id: u64| u32::try_from(id).ok()),
        allocated: allocated.0,
        reserved: reserved.0,
        peaks: (allocated.1, reserved.1),
        failed: number("CUDA OOMs:"),
        retries: number("cudaMalloc retries:"),
        ..Message::new(Wording::Summary, Backend::Cuda)
    })
}

/// Returns the backend whose name stands right before the marker.
fn backend(lower_head: &str) -> Option<Backend> {
    let names = [
        ("cuda ", Backend::Cuda),
        ("hip ", Backend::Hip),
        ("xpu ", Backend::Xpu),
        ("mps backend ", Backend::Mps),
        ("npu ", Backend::Npu),
        ("musa ", Backend::Musa),
        ("mlu ", Backend::Mlu),
    ];
    names.into_iter().find(|(name, _)| lower_head.ends_with(name)).map(|(_, backend)| backend)
}

/// Reads an allocator's message from its marker on; `None` if the text is not one or has no figures.
fn allocator_message(lower_head: &str, head: &str, text: &str) -> Option<Message> {
    if text[MARKER.len()..].starts_with(": tried to allocate") {
        return Some(own(text));
    }
    if lower_head.ends_with("exceed allowed memory. (") {
        return Some(cuda_malloc_async(head, text));
    }
    let backend = backend(lower_head);
    let wording = if backend == Some(Backend::Mps) {
        return Some(mps(text));
    } else if text.contains("Tried to allocate more than 1EB") {
        Wording::Huge
    } else if text.contains("preemptively rejected") {
        Wording::Preemptive
    } else if text.contains("total capacity;") {
        Wording::Parentheses
    } else if text.contains("has a total capac") {
        Wording::Sentences
    } else if backend.is_some() && after(text, "Tried to allocate ").is_some() {
        Wording::Request
    } else {
        return None;
    };
    Some(figures(wording, backend.unwrap_or_default(), text))
}

/// Reads the message of Intel's extension for requests above the limit of one allocation.
fn oversized_block(text: &str) -> Option<Message> {
    let at = text.rfind("can NOT allocate memory block with size larger than")?;
    Some(figures(Wording::Parentheses, Backend::Xpu, &text[at..]))
}

/// Returns the size that follows a marker.
fn after(text: &str, marker: &str) -> Option<Size> {
    text.find(marker).and_then(|at| Size::at_start(&text[at + marker.len()..]))
}

/// Returns the size that precedes a marker.
fn before(text: &str, marker: &str) -> Option<Size> {
    let head = &text[..text.find(marker)?];
    let number = head.rmatch_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
    Size::at_start(head[number..].trim_start_matches('('))
}

fn figures(wording: Wording, backend: Backend, text: &str) -> Message {
    let device = ["GPU ", "(NPU ", "(MLU ", "(MUSA ", "(XPU "].into_iter().find_map(|name| {
        let digits: String = text[text.find(name)? + name.len()..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Message {
        device,
        requested: ["Tried to allocate ", "tried to allocate ", "Requested size: "]
            .into_iter()
            .find_map(|marker| after(text, marker)),
        // 2.1 prints a misspelt form.
        total: before(text, " total capacity;")
            .or_else(|| after(text, "total capacity of "))
            .or_else(|| after(text, "total capacty of ")),
        free: before(text, " is free").or_else(|| before(text, " free;")),
        allowed: before(text, " allowed;"),
        allocated: before(text, " already allocated;").or_else(|| before(text, " is allocated by PyTorch")),
        private: before(text, " allocated in private pools"),
        // Releases 1.0 to 1.3 print the memory that is reserved and not allocated as "cached".
        unallocated: before(text, " is reserved by PyTorch but unallocated").or_else(|| before(text, " cached)")),
        reserved: before(text, " reserved in total by PyTorch"),
        process: after(text, "this process has "),
        processes: processes(text),
        variable: ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF"]
            .into_iter()
            .find(|name| text.contains(name)),
        expandable: text.contains("expandable_segments is enabled"),
        ..Message::new(wording, backend)
    }
}

/// Reads every `Process 123 has 1.50 GiB memory in use.` in the text.
fn processes(text: &str) -> Vec<(u64, Size)> {
    let mut processes = Vec::new();
    for (at, marker) in text.match_indices("Process ") {
        let rest = &text[at + marker.len()..];
        let Some((pid, rest)) = rest.split_once(" has ") else { continue };
        if let (Ok(pid), Some(size)) = (pid.parse(), Size::at_start(rest)) {
            processes.push((pid, size));
        }
    }
    processes
}

fn mps(text: &str) -> Message {
    Message {
        requested: after(text, "Tried to allocate "),
        allowed: after(text, "max allowed: "),
        allocated: after(text, "MPS allocated: "),
        beside: after(text, "other allocations: "),
        ..Message::new(Wording::Mps, Backend::Mps)
    }
}

fn cuda_malloc_async(head: &str, text: &str) -> Message {
    let device = head.rsplit("device ").next().and_then(|rest| rest.split(' ').next()?.parse().ok());
    Message {
        device,
        requested: after(text, "Requested : "),
        total: after(text, "Device limit : "),
        free: after(text, "Free (according to CUDA): "),
        // Without a limit it prints 2^64 bytes, which is not a size here.
        allowed: after(text, "memory fraction) : "),
        allocated: after(text, "Currently allocated : "),
        ..Message::new(Wording::Async, Backend::Cuda)
    }
}

/// Reads the message that this program prints; its figures are exact.
fn own(text: &str) -> Message {
    let exact_after = |marker: &str| text.find(marker).and_then(|at| Size::exact_at_start(&text[at + marker.len()..]));
    let exact_before = |marker: &str| {
        let head = &text[..text.find(marker)?];
        let words = head.rmatch_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
        let start = if head.ends_with(')') { head.rfind('(')? + 1 } else { words };
        Size::at_start(&head[start..])
    };
    let stated = [("hopeless", Verdict::Hopeless), ("fragmented", Verdict::Fragmented), ("full", Verdict::Full)];
    Message {
        requested: exact_after("(a segment of ").or_else(|| exact_after("tried to allocate ")),
        total: text.find(" free on the device").and_then(|at| {
            let head = &text[..at];
            Size::exact_at_start(&head[head.rfind(" of ")? + 4..])
        }),
        free: exact_after(" with "),
        allowed: exact_before(" allowed"),
        allocated: exact_before(" are allocated"),
        unallocated: exact_before(" are cached"),
        stated: stated.into_iter().find(|(word, _)| text.contains(word)).map(|(_, verdict)| verdict),
        ..Message::new(Wording::Own, Backend::Cuda)
    }
}
