//! Advice for an out-of-memory message, the most promising first.

use lab_base::changes::{ALLOC_CONF, EXPANDABLE, NEED_LESS};

use super::holders::Holders;
use super::message::{Backend, Failure, Message, Wording};
use super::size::Size;
use super::verdict::Verdict;

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The advice and its reason.
    pub what: String,
    /// The command that checks it.
    pub command: Option<String>,
}

fn plain(what: impl Into<String>) -> Advice {
    Advice { what: what.into(), command: None }
}

fn checked(what: impl Into<String>, command: impl Into<String>) -> Advice {
    Advice { what: what.into(), command: Some(command.into()) }
}

/// Returns advice for a message and its verdict, the most promising first.
pub(super) fn advice(message: &Message, holders: &Holders, verdict: Option<Verdict>) -> Vec<Advice> {
    match verdict {
        _ if message.wording == Wording::Mps => mps(message),
        Some(Verdict::Hopeless) => [hopeless(message), rehearse(message)].concat(),
        Some(Verdict::Full) => {
            [limit(message), others(message, holders), rehearse(message), need_less(message), who_holds(message)]
                .concat()
        }
        Some(Verdict::Fragmented) => {
            // The setting first, then what else could have been the cause; a search of all settings takes a recording. Where this release has no
            // setting, what others hold goes before an update.
            let mut settings = settings(message).into_iter();
            let (set, update): (Vec<_>, Vec<_>) =
                settings.next().into_iter().partition(|advice| advice.what.starts_with("Set "));
            // What others hold goes first where it is more than the setting can win.
            let wins = message.all_unallocated().map_or(0, |cached| cached.bytes);
            let beside = others(message, holders);
            let (before, after) =
                if holders.others_bytes() > wins { (beside, Vec::new()) } else { (Vec::new(), beside) };
            let first = limit(message).into_iter().chain(before).chain(set).chain(after).chain(update);
            // Who has a script needs no snapshot to go on.
            let rest =
                rehearse(message).into_iter().chain(settings).chain(need_less(message)).chain(who_holds(message));
            first.chain(rest).collect()
        }
        Some(Verdict::Refused) => refused(message, holders),
        Some(Verdict::Outside) => outside(message),
        Some(Verdict::Host) => host(message),
        None => unknown(message),
    }
}

fn hopeless(message: &Message) -> Vec<Advice> {
    let what = "Find the operator that asks for so much at once (attention over a long sequence, a large product, \
                logits, an image that was not scaled down), and give it less. For a network of transformers:";
    vec![match message.limit().filter(|_| message.wording != Wording::Own) {
        Some(limit) => checked(what, format!("vramlab predict config.json --gpu {}", limit.as_flag())),
        None => plain(what.trim_end_matches(" For a network of transformers:")),
    }]
}

/// Advice for a process that reached its own limit, not the device's.
fn limit(message: &Message) -> Vec<Advice> {
    let raise = "Raise the limit of set_per_process_memory_fraction (or per_process_memory_fraction): the device itself \
                 had room.";
    if message.is_limited() { vec![plain(raise)] } else { Vec::new() }
}

/// Advice about memory outside of PyTorch: other processes, if what they hold would have been enough; memory that no process accounts for; other
/// libraries in this process.
fn others(message: &Message, holders: &Holders) -> Vec<Advice> {
    if message.is_limited() {
        return Vec::new();
    }
    let mut advice = Vec::new();
    let enough = |more: u64| match (message.requested, message.free) {
        (Some(requested), Some(free)) => free.bytes.saturating_add(more) >= requested.bytes,
        _ => false,
    };
    let others = Size::from_bytes(holders.others_bytes());
    if others.bytes > 0 && enough(others.bytes) {
        advice.push(plain(format!(
            "Stop the other processes on this device, or take another device: they hold {others}, and with that the \
             request would have been served."
        )));
    }
    if let Some(unexplained) = holders.unexplained().filter(|size| enough(size.bytes)) {
        let tool = message.backend.tool();
        advice.push(plain(format!(
            "Find out who holds {unexplained} of this device that are not this process's segments: that is more than a \
             context takes. {tool} lists the processes."
        )));
    }
    if let Some(beside) = holders.beside_pytorch(message.all_reserved()) {
        advice.push(plain(format!(
            "{beside} of this process are not PyTorch's: another library in it (or the communication between devices) \
             takes device memory of its own."
        )));
    }
    advice
}

/// Advice that always helps: need less memory.
fn need_less(message: &Message) -> Vec<Advice> {
    let what = || format!("Need less: {NEED_LESS}.");
    if message.wording == Wording::Own {
        return vec![
            plain(what()),
            plain("`vramlab predict --largest` with the flags of this run finds the largest batch that fits."),
        ];
    }
    let Some(limit) = message.for_pytorch().filter(|_| message.backend.package().is_none()) else {
        return vec![plain(what())];
    };
    let gpu = limit.as_flag();
    vec![
        plain(what()),
        checked(
            "For a network of transformers, the largest batch that fits, from its config.json:",
            format!("vramlab predict config.json --largest --gpu {gpu}"),
        ),
    ]
}

/// Advice to run the script of a traceback on a stand-in for the card.
fn rehearse(message: &Message) -> Vec<Advice> {
    let (Some(script), Backend::Cuda) = (&message.script, message.backend) else { return Vec::new() };
    let how = "Run the script on a simulated card, with its own arguments after its name (on Linux, without a GPU";
    vec![match message.for_pytorch().filter(|_| message.total.is_some()) {
        Some(size) => {
            let is_less = Some(size.bytes) < message.total.map(|total| total.bytes);
            let left = if is_less { "). The size leaves out the CUDA context" } else { ")" };
            checked(format!("{how}{left}:"), format!("vramlab predict --gpu {} -- python {script}", size.as_flag()))
        }
        None => checked(
            format!("{how}). The message does not name the card, so add --gpu NAME:"),
            format!("vramlab predict -- python {script}"),
        ),
    }]
}

/// Advice to record a memory snapshot, which shows who holds the memory. Releases from 2.1 on can record one; releases for Apple's GPUs and older
/// ones for Intel's cannot.
fn who_holds(message: &Message) -> Vec<Advice> {
    let records = matches!(message.wording, Wording::Sentences | Wording::Preemptive)
        && matches!(message.backend, Backend::Cuda | Backend::Hip);
    if message.backend.package().is_some() {
        return vec![holders_command(message, "See who else holds the device's memory.")];
    }
    if !records {
        return Vec::new();
    }
    vec![checked(
        "To see who held the memory: torch.cuda.memory._record_memory_history() at the start, \
         torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") when it fails, and",
        "vramlab open snapshot.pickle",
    )]
}

/// Smallest request for which a limit on splitting is proposed: below it, the limit keeps no block whole that would serve the request. Bytes.
const MIN_SPLIT_REQUEST: u64 = 32 << 20;

/// Largest limit on splitting that is proposed. Bytes.
const MAX_SPLIT: u64 = 512 << 20;

/// Advice for an allocator setting that this release reads and that can help.
fn settings(message: &Message) -> Vec<Advice> {
    let variable = message.variable.unwrap_or(ALLOC_CONF);
    let most = message.all_unallocated().map_or(String::new(), |cached| format!("; it can win {cached} at most"));
    let expandable = "expandable_segments is made for this";
    match (message.wording, message.backend) {
        (Wording::Own, _) => {
            vec![plain(format!("Set {EXPANDABLE} in the allocator's settings{most}."))]
        }
        (_, backend) if backend.package().is_some() => own_setting(message, &most),
        (_, Backend::Xpu | Backend::Mps) => Vec::new(),
        (Wording::Sentences, Backend::Cuda) if message.expandable => vec![checked(
            "expandable_segments is on already: record a snapshot and search the other settings.",
            "vramlab tune snapshot.pickle",
        )],
        (Wording::Sentences, Backend::Cuda) => {
            let set = format!(
                "Set {variable}={EXPANDABLE} before the program starts{most}. Windows ignores it, with a warning."
            );
            let replay = "vramlab snapshot replay snapshot.pickle --compare caching,expandable";
            let first = match message.script {
                Some(_) => plain(set),
                None => checked(format!("{set} A recorded snapshot shows beforehand what it saves:"), replay),
            };
            // Who has a script needs no snapshot.
            let search = "Search all settings of the allocator, from a snapshot of torch.cuda.memory._dump_snapshot:";
            let others = message.script.is_none().then(|| checked(search, "vramlab tune snapshot.pickle"));
            std::iter::once(first).chain(others).collect()
        }
        (Wording::Sentences, Backend::Hip) => {
            let later = format!(
                "{expandable}, and builds for ROCm have it from PyTorch 2.12 on (AMD's own from 2.11 on); older ones \
                 ignore it with a warning."
            );
            [split_limit(message, variable), vec![plain(later)]].concat()
        }
        (_, _) if message.variable.is_some() => {
            let later = format!("{expandable}, and comes with PyTorch 2.1.");
            [split_limit(message, variable), vec![plain(later)]].concat()
        }
        _ => vec![plain(format!(
            "Update PyTorch: {expandable}, and comes with 2.1. Releases before 1.10 have no settings of the allocator."
        ))],
    }
}

/// Advice for an allocator in a package of its own, which has PyTorch's settings under another name.
fn own_setting(message: &Message, most: &str) -> Vec<Advice> {
    let Some(variable) = message.backend.own_variable() else { return Vec::new() };
    let reads = match message.backend {
        Backend::Npu => String::new(),
        _ => " Whether the installed release reads it, its documentation says.".into(),
    };
    vec![plain(format!("Set {variable}={EXPANDABLE} before the program starts{most}.{reads}"))]
}

/// Advice to limit splitting to blocks smaller than the request, so that larger blocks stay whole.
fn split_limit(message: &Message, variable: &str) -> Vec<Advice> {
    let Some(requested) = message.requested.filter(|size| size.bytes > MIN_SPLIT_REQUEST) else { return Vec::new() };
    let limit = 1u64 << requested.bytes.min(MAX_SPLIT).ilog2();
    vec![plain(format!(
        "Set {variable}=max_split_size_mb:{} before the program starts: larger blocks then stay whole for requests like \
         this one. It may help, or take more elsewhere.",
        limit >> 20
    ))]
}

/// Advice for a driver that refused although it had more free than was asked for.
fn refused(message: &Message, holders: &Holders) -> Vec<Advice> {
    let mut advice = Vec::new();
    if holders.others_bytes() > 0 {
        advice.push(plain(format!(
            "Look at the other processes on this device first: they hold {}, and one that takes more for a moment makes \
             the driver refuse.",
            Size::from_bytes(holders.others_bytes())
        )));
    }
    if message.backend == Backend::Xpu {
        advice.push(plain(
            "Intel's driver (Level Zero) limits a single allocation: to 4 GiB on many devices, to less under WSL2. Ask \
             for smaller pieces, or let it take larger ones (UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1).",
        ));
    }
    advice.push(plain(
        "Run it again and watch the device meanwhile: the free memory was read after the failure. Someone may have held \
         it for a moment: another process, or a library in this one.",
    ));
    if message.allowed.is_none() {
        advice.push(plain(
            "Look for a limit below the device's size: set_per_process_memory_fraction in the program, a container, a \
             virtual or a divided GPU.",
        ));
    }
    if message.backend != Backend::Xpu {
        advice.push(plain(
            "On Windows the host backs the memory of the GPU: close what fills the RAM, and enlarge the page file.",
        ));
    }
    if message.backend == Backend::Hip {
        advice.push(plain("On ROCm, update the driver: there are reports of this with most of the device free."));
    }
    advice
}

fn outside(message: &Message) -> Vec<Advice> {
    let mut advice = vec![holders_command(message, "See who holds the device's memory.")];
    advice.extend(rehearse(message));
    advice.push(plain(
        "Leave the driver more room: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9), so that \
         PyTorch's cache gives back instead of taking the last of it.",
    ));
    match message.failure {
        Some(Failure::PageLocking) => advice.push(plain(
            "Do without page-locked memory (pin_memory=False), or lock less of it: fewer workers, a smaller prefetch_factor; free -h shows the host's.",
        )),
        Some(Failure::Driver) if message.backend == Backend::Cuda => advice.push(plain(
            "If the device has room, page-locked memory of the host may have run out (pin_memory=True, offloading): do without it. Under WSL there are only \
             one or two GiB of it.",
        )),
        Some(Failure::Uninitialized(_)) => advice.push(plain(
            "If memory is free, look at the installation: the driver, CUDA and the library must fit together.",
        )),
        Some(Failure::Library("cuBLAS")) => advice.push(plain(
            "If memory is free, an earlier kernel may have failed, most often by an index (a label, a token) out of \
             range: CUDA_LAUNCH_BLOCKING=1, or a run on the CPU, names it.",
        )),
        Some(Failure::Library("NCCL")) => advice.push(plain(
            "NCCL's buffers grow with the channels and the communicators: NCCL_DEBUG=INFO shows what it takes.",
        )),
        _ => {}
    }
    advice
}

fn host(message: &Message) -> Vec<Advice> {
    match message.failure {
        Some(Failure::Killed) if message.wording == Wording::Launcher => vec![
            plain("See whether it was for memory: dmesg has \"Out of memory: Killed process\", and a job its own log."),
            plain(
                "Every rank holds its own copy on the host: load weights once (low_cpu_mem_usage, device_map, memory-mapped files), offload less to the \
                 host, take fewer workers of the data loader.",
            ),
        ],
        Some(Failure::Ray) => vec![
            plain(
                "Start fewer workers at once: tell Ray how much each needs (num_cpus, memory of a task or an actor).",
            ),
            plain(
                "Need less in each: load weights once for all workers, offload less to the host, keep batches smaller.",
            ),
            plain(
                "ray memory shows what holds objects. RAY_memory_usage_threshold=0.98 lets workers take more of the host.",
            ),
        ],
        Some(Failure::Fork) => vec![
            plain("Take fewer workers (num_workers), or start them before the process has grown."),
            plain(
                "Add swap, or let the system promise more than it has (sysctl vm.overcommit_memory=1): a copy costs only what is written to.",
            ),
            plain("See whether the process grows from step to step: free -h shows what the host has left."),
        ],
        Some(Failure::Mapping) => vec![
            plain("See how much the host has and who holds it: free -h, or the limit of the container or the job."),
            plain(
                "Load a file in smaller parts: several shards, or safetensors read tensor by tensor. Else add swap, or set sysctl vm.overcommit_memory=1.",
            ),
            plain(
                "A small mapping is refused by the number of mappings: raise sysctl vm.max_map_count, or share fewer tensors.",
            ),
        ],
        Some(Failure::NcclShared) => vec![
            plain(
                "Give the container more shared memory (docker run --shm-size=8g, or --ipc=host); df -h /dev/shm shows it.",
            ),
            plain(
                "Remove segments that ended runs have left (rm /dev/shm/nccl-*). NCCL_SHM_DISABLE=1 does without, and is slower.",
            ),
        ],
        Some(Failure::SharedMemory) => vec![
            plain(
                "Give the container more shared memory (docker run --shm-size=8g, or --ipc=host); df -h /dev/shm shows it.",
            ),
            plain("Or take fewer workers (num_workers), a smaller prefetch_factor, smaller batches."),
        ],
        Some(Failure::Killed) => vec![
            plain("See whether it was for memory: dmesg has \"Out of memory: Killed process\", and a job its own log."),
            plain(
                "Take fewer workers (num_workers): each is a process with a copy of what the dataset touches, and holds \
                 prefetch_factor batches ahead.",
            ),
            plain(
                "Keep large lists of Python objects out of the dataset: arrays are shared among workers, objects are copied.",
            ),
        ],
        _ => vec![
            plain("See how much the host has and who holds it: free -h, or the limit of the container or the job."),
            plain("Ask for less at once: a smaller batch, or data read from disk in pieces instead of as a whole."),
        ],
    }
}

fn mps(message: &Message) -> Vec<Advice> {
    let mut advice = vec![plain(
        "Need less: a smaller batch, a shorter sequence or a smaller image, 16-bit types; close other programs, which \
         share this memory.",
    )];
    let beside = message.beside.zip(message.allocated).filter(|(beside, allocated)| beside.bytes > allocated.bytes);
    if let Some((beside, _)) = beside {
        advice.push(plain(format!(
            "{beside} are not tensors: Metal holds them for this process, for compiled graphs and kernels among others. \
             Each new shape is compiled anew: keep shapes the same from step to step."
        )));
    }
    advice.push(plain(
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit and adds no memory: the Mac swaps, and may come to a halt. \
         It must be set before the program starts.",
    ));
    advice
}

/// Advice to look who holds memory, with the program that tells it on such a device.
fn holders_command(message: &Message, what: &str) -> Advice {
    match message.backend.package() {
        Some(_) => plain(format!("{what} {} lists the processes.", message.backend.tool())),
        None => checked(what, "vramlab info devices"),
    }
}

fn unknown(message: &Message) -> Vec<Advice> {
    match message.wording {
        Wording::Request if message.backend == Backend::Hpu => {
            let look = holders_command(message, "See who holds the device's memory.");
            vec![look, plain("Need less: a smaller batch or a shorter sequence, recomputation, 16-bit types.")]
        }
        Wording::Library => vec![
            holders_command(message, "See whether the device is full."),
            plain(
                "If it is: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9), so that cuDNN has room for its workspace.",
            ),
            plain(
                "If it is not, look at the installation (the driver, CUDA and cuDNN must fit together), and try another type or size of the input.",
            ),
        ],
        Wording::Assert => vec![
            holders_command(message, "See how full the device is, and who holds its memory."),
            plain(format!("Need less: {NEED_LESS}.")),
            checked(
                "A recorded memory snapshot has the figures that this message lacks:",
                "vramlab open snapshot.pickle",
            ),
        ],
        Wording::Summary => vec![
            plain(
                "Pass the message of the request that failed: it says how much was asked for, and how much was free.",
            ),
            checked(
                "To see who held the memory: torch.cuda.memory._record_memory_history() at the start, \
                 torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") at the end, and",
                "vramlab open snapshot.pickle",
            ),
        ],
        Wording::Async => vec![
            plain(
                "Pass the lines that follow: \"Currently allocated\", \"Requested\", \"Device limit\", \"Free (according to CUDA)\".",
            ),
            plain("Need less: a smaller image, batch or model, 16-bit or smaller types; offload parts to the host."),
        ],
        Wording::Parentheses | Wording::Sentences if message.requested.is_some() => {
            vec![
                plain("Pass the whole message: its end says how much PyTorch had reserved."),
                holders_command(message, "See who holds the device's memory."),
            ]
        }
        Wording::Request => vec![plain("Pass the whole message: up to \"reserved by PyTorch but unallocated\".")],
        Wording::Thc => vec![
            checked("See who holds the device's memory before the program starts.", "vramlab info devices"),
            plain("Need less: a smaller batch, first of all."),
            plain("Update PyTorch: from 1.0 on the message has figures."),
        ],
        _ => vec![holders_command(message, "See who holds the device's memory.")],
    }
}
