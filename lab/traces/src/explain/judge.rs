//! The verdict, and the arithmetic that leads to it.

use super::holders::Holders;
use super::message::{Backend, Failure, Message, Wording};
use super::size::Size;
use super::verdict::Verdict;

/// Smallest surplus that counts as obtainable, in percent of the device: page tables and contexts grow with what is allocated.
const DRIVER_PERCENT: u64 = 1;

/// Returns the verdict and its reason; no verdict if the message has too few figures.
pub(super) fn judge(message: &Message, holders: &Holders) -> (Option<Verdict>, String) {
    match message.wording {
        Wording::Huge => {
            (Some(Verdict::Hopeless), "more than 2^60 bytes: a size was computed wrongly, or overflowed".into())
        }
        Wording::Mps => mps(message),
        Wording::Thc if message.failure.is_none() => (
            None,
            "A tensor found no room on the device. Releases up to 0.4 print no figures: whether the device was full or \
             fragmented, and by how much, is not known."
                .into(),
        ),
        Wording::Assert => (None, ASSERT.into()),
        Wording::Summary => (None, summary(message)),
        Wording::Library if message.failure == Some(Failure::NoPlan) => (None, NO_PLAN.into()),
        Wording::Driver | Wording::Library | Wording::Thc => (Some(Verdict::Outside), outside(message)),
        Wording::HostAllocator
        | Wording::HostArray
        | Wording::System
        | Wording::Python
        | Wording::Loader
        | Wording::Nccl
        | Wording::Launcher => (Some(Verdict::Host), host(message)),
        _ => device(message, holders),
    }
}

const ASSERT: &str = "This is PyTorch's out-of-memory message, whose text could not be written: for the figures PyTorch asks NVML, which failed (on \
    a part of a divided GPU, on Jetson, in some containers). The device's memory ran out, and by how much is not said.";

const NO_PLAN: &str = "cuDNN found no way to compute a convolution. Often the device is full, so that there is no room for any workspace; a type or a \
    size that the installed cuDNN does not support, or libraries that do not fit together, show the same. The message has no figures.";

/// Says what a table of statistics tells.
fn summary(message: &Message) -> String {
    let said = |size: Option<Size>| size.map_or("not said".to_string(), |size| size.to_string());
    let count =
        |count: Option<u64>, what: &str| count.map_or(format!("{what}: not said"), |count| format!("{what}: {count}"));
    format!(
        "A table of statistics, not a message. PyTorch's segments take {}, and tensors hold {} of that; at most {} and {}. {}; {}. How much was asked \
         for, and how much the device has, is not said.",
        said(message.reserved),
        said(message.allocated),
        said(message.peaks.1),
        said(message.peaks.0),
        count(message.failed, "Requests that ran out of memory"),
        count(message.retries, "refusals of the driver after which the cache was given back")
    )
}

fn outside(message: &Message) -> String {
    match message.failure {
        Some(Failure::Library("NCCL")) => {
            "NCCL found no room on the device for its buffers. They come from the driver, beside \
             PyTorch's allocator, which could not give its cache back for them. The message has no figures."
                .into()
        }
        Some(Failure::Library(library)) => format!(
            "{library} found no room on the device for its handle or its workspace. That memory comes from the driver, \
             beside PyTorch's allocator, which could not give its cache back for it. The message has no figures."
        ),
        Some(Failure::Uninitialized(library)) => format!(
            "{library} could not create its handle. Most often the device's memory is full, as the handle's memory comes \
             from the driver, beside PyTorch's allocator; a driver or a library that do not fit together show the same."
        ),
        Some(Failure::PageLocking) => {
            "The thread of the DataLoader that copies batches to page-locked memory was refused. It needs a context on the device and memory of the host \
             that cannot be swapped out, and either ran out. The message has no figures, and does not say which."
                .into()
        }
        Some(Failure::Generator) => {
            "The state of the random generator found no room. It is made when a program first uses \
             the device: the device was full before."
                .into()
        }
        _ if message.backend == Backend::Xpu => {
            "The driver ran out of memory or of another resource, outside of PyTorch's \
             allocator. The message has no figures."
                .into()
        }
        _ => {
            "The driver refused by itself, outside of PyTorch's allocator (a context, a library's handle or a kernel's \
              memory): the message has no figures, and the allocator could not give its cache back."
                .into()
        }
    }
}

fn host(message: &Message) -> String {
    match (message.failure, message.requested) {
        (Some(Failure::SharedMemory), _) => {
            "A worker of the DataLoader found no room in shared memory (/dev/shm), through \
             which workers hand over batches. The device is not concerned."
                .into()
        }
        (Some(Failure::NcclShared), _) => {
            "NCCL found no room in shared memory (/dev/shm), through which the ranks of one machine exchange data. The device is not concerned.".into()
        }
        (Some(Failure::Ray), _) => {
            "Ray ended a worker because the host's memory (RAM) was nearly full: at 95 % of it, unless RAY_memory_usage_threshold says another share. \
             The device is not concerned."
                .into()
        }
        (Some(Failure::Fork), _) => {
            "The operating system had no memory for another process: a worker of the DataLoader begins as a copy of the whole process. The device is not \
             concerned."
                .into()
        }
        (Some(Failure::Mapping), requested) => {
            let size = requested.map_or("A file".to_string(), |size| format!("{size} of a file"));
            format!(
                "{size} were to be mapped into the host's memory, and the operating system refused: RAM and swap do not cover it, or the process has as \
                 many mappings as it may (vm.max_map_count). The device is not concerned."
            )
        }
        (Some(Failure::Killed), _) if message.wording == Wording::Launcher => {
            "A process was killed from outside (signal 9): on Linux nearly always by the kernel, or by the limit of a container or a job, because the \
             host's memory (RAM) ran out. The device is not concerned."
                .into()
        }
        (Some(Failure::Killed), _) => {
            "A worker of the DataLoader was killed from outside: on Linux nearly always by the \
             kernel, or by the limit of a container or a job, because the host's memory ran out. The device is not \
             concerned."
                .into()
        }
        (_, Some(requested)) => {
            format!("{requested} in one piece were asked of the host's memory (RAM). The device is not concerned.")
        }
        _ => "The host's memory (RAM) ran out. The device is not concerned.".into(),
    }
}

fn mps(message: &Message) -> (Option<Verdict>, String) {
    let (Some(requested), Some(allowed)) = (message.requested, message.allowed) else {
        return (None, "The message does not say how much was asked for, and how much is allowed.".into());
    };
    if requested.bytes > allowed.bytes {
        return (Some(Verdict::Hopeless), format!("{requested} are more than the {allowed} that are allowed in all."));
    }
    let (allocated, beside) =
        (message.allocated.unwrap_or(Size::from_bytes(0)), message.beside.unwrap_or(Size::from_bytes(0)));
    let sum = allocated.plus(beside).plus(requested);
    let arithmetic = format!("{allocated} PyTorch's + {beside} Metal's own + {requested} asked for = {sum}");
    if allowed.surely_exceeds(sum) {
        return (Some(Verdict::Refused), format!("{arithmetic}, less than the {allowed} that are allowed."));
    }
    let why = "more than PyTorch lets itself take of the memory that the Mac shares with its GPU";
    (Some(Verdict::Full), format!("{arithmetic}, and {allowed} are allowed: {why}."))
}

/// Judges by the figures of a device allocator.
fn device(message: &Message, holders: &Holders) -> (Option<Verdict>, String) {
    let Some(requested) = message.requested else {
        return (None, "The message does not say how much was asked for.".into());
    };
    if message.wording == Wording::Preemptive {
        let reason =
            format!("{requested} more would have exceeded the limit of the process; the driver was not asked.");
        return (Some(Verdict::Full), reason);
    }
    if message.wording == Wording::Request {
        let rest = match message.backend {
            Backend::Hpu => "Its message has no other figures.",
            _ => "The rest of the message, which has the figures, is missing.",
        };
        return (None, format!("{requested} were asked for. {rest}"));
    }
    let Some(limit) = message.limit() else {
        return (None, "The message does not say how large the device is.".into());
    };
    let borrowed = match (holders.borrowed, message.total) {
        (true, Some(total)) => format!(" PyTorch holds more than the {total} of the device: {BORROWED}."),
        _ => String::new(),
    };
    if let Some(("free", free)) = message.impossible
        && free.bytes >= requested.bytes
    {
        return (
            None,
            format!("The message says {limit} of memory in all, and contradicts itself: {requested} were asked for."),
        );
    }
    if requested.bytes > limit.bytes {
        let reason = format!("{requested} in one piece is more than {limit}, which is all there is.{borrowed}");
        return (Some(Verdict::Hopeless), reason);
    }
    let Some(obtainable) = message.obtainable() else {
        return (None, "The message does not say how much the driver had left.".into());
    };
    if !is_complete(message, requested, limit, obtainable) {
        let reason = format!(
            "The card had {obtainable} left, and the request needed {requested}. The message is cut off before it says how much PyTorch had \
             cached."
        );
        return (None, reason);
    }
    let (verdict, reason) = from_figures(message, requested, limit, obtainable);
    match message.stated {
        Some(stated) if stated != verdict => (
            Some(stated),
            format!("{reason} The message itself says {stated}: it knows more of the run than these figures."),
        ),
        _ => (Some(verdict), reason + &borrowed),
    }
}

/// False if a verdict would rest on a figure that the message does not print: the free part of PyTorch's segments. Without it the request is known to be
/// too large only where the driver had enough, or where even all that is not allocated would be too little.
fn is_complete(message: &Message, requested: Size, limit: Size, obtainable: Size) -> bool {
    let most = message.allocated.map(|allocated| limit.minus(allocated));
    message.wording == Wording::Async
        || message.all_unallocated().is_some()
        || obtainable.bytes >= requested.bytes
        || most.is_some_and(|most| requested.surely_exceeds(most))
}

const BORROWED: &str = "Windows lends the host's memory where the card's is full, which is many times slower, and now \
    that is used up as well";

fn from_figures(message: &Message, requested: Size, limit: Size, obtainable: Size) -> (Verdict, String) {
    let cached = message.all_unallocated().or_else(|| Some(limit.minus(message.allocated?).minus(obtainable)));
    let cached = cached.unwrap_or(Size::from_bytes(0));
    let percent = |size: Size| format!("{:.1} %", size.bytes as f64 / limit.bytes.max(1) as f64 * 100.0);
    let little = |size: Size| size.bytes.saturating_mul(100) < limit.bytes.saturating_mul(DRIVER_PERCENT);
    let left = if message.is_limited() { "left of the limit" } else { "free" };
    if obtainable.bytes >= requested.bytes {
        let surplus = obtainable.minus(requested);
        if message.is_limited() && !obtainable.surely_exceeds(requested) {
            let reason = format!(
                "{obtainable} were {left} and {requested} asked for: no more than that, as far as the rounded figures tell."
            );
            return (Verdict::Full, reason);
        }
        if little(surplus) {
            let reason = format!(
                "{obtainable} were {left} and {requested} asked for: the {surplus} between them ({} of what there is) are \
                 what a driver keeps for itself, so the card was full.",
                percent(surplus)
            );
            return (Verdict::Full, reason);
        }
        if message.free.is_none() {
            let reason = format!(
                "The message does not say how much was free. {obtainable} of the device are not this process's, which is more than the {requested} that were \
                 asked for."
            );
            return (Verdict::Refused, reason);
        }
        let reason = format!(
            "{obtainable} were {left}, more than the {requested} that were asked for. The driver gives memory page by \
             page: what lies unused in PyTorch's segments is not the cause, and no setting of the allocator helps."
        );
        return (Verdict::Refused, reason);
    }
    if message.wording == Wording::Async {
        return (Verdict::Full, format!("{obtainable} were {left}, and {requested} were needed."));
    }
    let sum = cached.plus(obtainable);
    let most = if message.all_unallocated().is_none() { "at most " } else { "" };
    let arithmetic = format!(
        "{most}{cached} cached by PyTorch + {obtainable} left on the card = {sum}, and the request needed {requested}"
    );
    if sum.bytes < requested.bytes {
        let little = match requested.surely_exceeds(sum) {
            true => "too little in any arrangement",
            false => "not more than that, as far as the rounded figures tell",
        };
        return (Verdict::Full, format!("{arithmetic}: {little}. No setting of the allocator helps."));
    }
    let share = if little(cached) {
        format!(" But the cache is only {} of the device, so it was full.", percent(cached))
    } else {
        String::new()
    };
    (Verdict::Fragmented, format!("{arithmetic}: enough, but not in one piece.{share}"))
}
