//! Errors caused by a lack of memory outside of PyTorch's device allocator: in libraries, the driver, the host. They print no figures.

use super::message::{Backend, Failure, Message, Wording};
use super::size::Size;

/// Statuses that mean a failed allocation, and statuses that often do.
const STATUSES: [(&str, Failure); 19] = [
    ("CUBLAS_STATUS_ALLOC_FAILED", Failure::Library("cuBLAS")),
    // Of DeepSpeed, whose newer releases add the status.
    ("Fail to create cublas handle", Failure::Library("cuBLAS")),
    ("Failed to create cublas handle: CUBLAS_STATUS", Failure::Uninitialized("cuBLAS")),
    ("CUDNN_STATUS_ALLOC_FAILED", Failure::Library("cuDNN")),
    // Of cuDNN 9.
    ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", Failure::Library("cuDNN")),
    ("HIPBLAS_STATUS_ALLOC_FAILED", Failure::Library("hipBLAS")),
    ("miopenStatusAllocFailed", Failure::Library("MIOpen")),
    ("CUSOLVER_STATUS_ALLOC_FAILED", Failure::Library("cuSOLVER")),
    ("CUSPARSE_STATUS_ALLOC_FAILED", Failure::Library("cuSPARSE")),
    ("CUFFT_ALLOC_FAILED", Failure::Library("cuFFT")),
    ("CUBLAS_STATUS_NOT_INITIALIZED", Failure::Uninitialized("cuBLAS")),
    ("CUDNN_STATUS_NOT_INITIALIZED", Failure::Uninitialized("cuDNN")),
    ("CUSOLVER_STATUS_NOT_INITIALIZED", Failure::Uninitialized("cuSOLVER")),
    ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", Failure::Driver),
    ("UR_RESULT_ERROR_OUT_OF_RESOURCES", Failure::Driver),
    // As releases before 2024.2 of Intel's compiler word them.
    ("PI_ERROR_OUT_OF_RESOURCES", Failure::Driver),
    ("PI_ERROR_OUT_OF_HOST_MEMORY", Failure::Driver),
    ("PI_ERROR_MEM_OBJECT_ALLOCATION_FAILURE", Failure::Driver),
    ("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", Failure::Driver),
];

/// Finds such an error in a text with single blanks.
pub(super) fn read(text: &str, lower: &str) -> Option<Message> {
    host(text)
        .or_else(|| killed(lower))
        .or_else(|| library(text, lower))
        .or_else(|| driver(lower))
        .or_else(|| system(text))
}

fn failed(wording: Wording, backend: Backend, failure: Failure) -> Message {
    Message { failure: Some(failure), ..Message::new(wording, backend) }
}

/// Finds an error about the host's memory, in this process or in a worker.
fn host(text: &str) -> Option<Message> {
    if text.contains("insufficient shared memory (shm)") {
        return Some(failed(Wording::Loader, Backend::default(), Failure::SharedMemory));
    }
    let segment =
        text.contains("shared memory segment /dev/shm/nccl") || text.contains("failed to extend /dev/shm/nccl");
    if segment && text.contains("NCCL") {
        return Some(failed(Wording::Nccl, Backend::default(), Failure::NcclShared));
    }
    if let Some(at) = text.rfind("is killed by signal: ").filter(|_| text.contains("DataLoader worker")) {
        let signal = &text[at + "is killed by signal: ".len()..];
        let failure = match signal {
            _ if signal.starts_with("Killed") => Failure::Killed,
            _ if signal.starts_with("Bus error") => Failure::SharedMemory,
            _ => return None,
        };
        return Some(failed(Wording::Loader, Backend::default(), failure));
    }
    if let Some(at) = text.rfind("Unable to allocate ").filter(|_| text.contains("for an array with shape")) {
        let requested = Size::at_start(&text[at + "Unable to allocate ".len()..]);
        return Some(Message { requested, ..Message::new(Wording::HostArray, Backend::default()) });
    }
    let tried = text
        .rfind("you tried to allocate ")
        .filter(|_| text.contains("DefaultCPUAllocator") || text.contains("Torch: not enough memory"))?;
    let amount = &text[tried + "you tried to allocate ".len()..];
    let whole: String = amount.chars().take_while(char::is_ascii_digit).collect();
    let gibibytes = amount[whole.len()..].starts_with("GB");
    let bytes = whole.parse::<u64>().ok()?.checked_mul(if gibibytes { 1 << 30 } else { 1 })?;
    Some(Message {
        requested: Some(Size::from_bytes(bytes)),
        ..Message::new(Wording::HostAllocator, Backend::default())
    })
}

/// Finds the operating system's error 12: it had no memory for another process, or for a file that was to be mapped.
fn system(text: &str) -> Option<Message> {
    if let Some(at) = text.rfind("unable to mmap ").filter(|_| text.contains("Cannot allocate memory (12)")) {
        let digits = text[at + "unable to mmap ".len()..].split(|c: char| !c.is_ascii_digit()).next()?;
        let requested = digits.parse().ok().map(Size::from_bytes);
        return Some(Message { requested, ..failed(Wording::System, Backend::default(), Failure::Mapping) });
    }
    if !text.contains("[Errno 12] Cannot allocate memory") {
        return None;
    }
    let message = Message::new(Wording::System, Backend::default());
    let forks = ["os.fork()", "fork_exec", "popen_fork"].iter().any(|call| text.contains(call));
    Some(Message { failure: forks.then_some(Failure::Fork), ..message })
}

/// Finds Python's own error in lines as they stand: `MemoryError` alone, or with a library's words.
pub(super) fn pythons(text: &str) -> Option<Message> {
    let is_said = |line: &str| {
        let error = line.trim().rsplit("]: ").next().unwrap_or_default();
        error == "MemoryError" || error.starts_with("MemoryError: ")
    };
    text.lines().any(is_said).then(|| Message::new(Wording::Python, Backend::default()))
}

/// Finds a process that a shell says was killed, in lines as they stand: `Killed` alone, or `script.sh: line 28: 8156 Killed python3 train.py`.
pub(super) fn killed_in_a_shell(text: &str) -> Option<Message> {
    let is_said = |line: &str| {
        let numbered = line.split_once(" Killed ").is_some_and(|(head, _)| {
            head.split_whitespace().next_back().is_some_and(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
        });
        line == "Killed" || numbered
    };
    text.lines()
        .any(|line| is_said(line.trim()))
        .then(|| failed(Wording::Launcher, Backend::default(), Failure::Killed))
}

/// Finds what a launcher, a scheduler or the kernel says of a process that it killed for memory, or that was killed by signal 9.
fn killed(lower: &str) -> Option<Message> {
    let rays = ["killed due to the node running low on memory", "killed due to memory pressure (oom)"];
    if rays.iter().any(|words| lower.contains(words)) {
        return Some(failed(Wording::Launcher, Backend::default(), Failure::Ray));
    }
    let said = [
        "signal 9 (sigkill) received by pid",
        "died with <signals.sigkill: 9>",
        "exits with return code = -9",
        "exitcode : -9 ",
        "out of memory: killed process",
        "oom-kill event",
        "oom_kill event",
    ];
    let found = said.iter().any(|words| lower.contains(words));
    found.then(|| failed(Wording::Launcher, Backend::default(), Failure::Killed))
}

fn library(text: &str, lower: &str) -> Option<Message> {
    let refused = |words: &str| lower.contains(words) && lower.contains("out of memory");
    let nccl = refused("cuda failure") || refused("hip failure") || lower.contains("failed to cuda calloc");
    if (text.contains("NCCL") || lower.contains("nccl")) && nccl {
        let backend = if lower.contains("hip failure") { Backend::Hip } else { Backend::Cuda };
        return Some(failed(Wording::Library, backend, Failure::Library("NCCL")));
    }
    if text.contains("unable to find an engine to execute this computation")
        || text.contains("Unable to find a valid cuDNN algorithm to run convolution")
        || text.contains("no valid convolution algorithms available in CuDNN")
    {
        return Some(failed(Wording::Library, Backend::Cuda, Failure::NoPlan));
    }
    let (at, failure) = STATUSES
        .into_iter()
        .filter_map(|(status, failure)| Some((text.rfind(status)?, failure)))
        .max_by_key(|(at, _)| *at)?;
    let backend = match &text[at..] {
        status if ["UR_", "PI_", "ZE_"].iter().any(|start| status.starts_with(start)) => Backend::Xpu,
        status if status.starts_with("HIP") || status.starts_with("miopen") => Backend::Hip,
        _ => Backend::Cuda,
    };
    let wording = if failure == Failure::Driver { Wording::Driver } else { Wording::Library };
    Some(failed(wording, backend, failure))
}

/// Finds the driver's own errors, and those of PyTorch up to 0.4.
fn driver(lower: &str) -> Option<Message> {
    let thc =
        ["cuda runtime error (2) : out of memory", "cuda runtime err(2): out of memory", "error=2 : out of memory"];
    let thc = thc.iter().filter_map(|words| lower.rfind(words)).max();
    if let Some(at) = thc.filter(|_| lower.contains("thc")) {
        let generator = lower[at..].contains("random");
        let failure = generator.then_some(Failure::Generator);
        return Some(Message { failure, ..Message::new(Wording::Thc, Backend::Cuda) });
    }
    if lower.contains("el0004") && lower.contains("failed to allocate memory") {
        return Some(failed(Wording::Driver, Backend::Npu, Failure::Driver));
    }
    let errors = [
        ("cuda error: out of memory", Backend::Cuda),
        ("cuda error:out of memory", Backend::Cuda),
        ("cuda driver error: out of memory", Backend::Cuda),
        ("cuda failed with error 2 out of memory", Backend::Cuda),
        ("triton error [cuda]: out of memory", Backend::Cuda),
        ("triton error [hip]: out of memory", Backend::Hip),
        ("hip error: out of memory", Backend::Hip),
        ("hiperroroutofmemory", Backend::Hip),
        ("cudaerrormemoryallocation", Backend::Cuda),
        // Of Thrust, in libraries such as MinkowskiEngine.
        ("get_temporary_buffer failed", Backend::Cuda),
        ("parallel_for failed: out of memory", Backend::Cuda),
    ];
    let (_, backend) = errors.into_iter().find(|(error, _)| lower.contains(error))?;
    let failure = if lower.contains("in pin memory thread") { Failure::PageLocking } else { Failure::Driver };
    Some(failed(Wording::Driver, backend, failure))
}
