//! Errors about memory that other programs word: they are refused, with the program's name and what they say.

use super::size::Size;

/// Returns what a text is instead of PyTorch's message; `None` if no known program words its errors so.
pub(super) fn named(text: &str, lower: &str) -> Option<String> {
    vllm(text)
        .or_else(|| sglang(text))
        .or_else(|| llama_cpp(text, lower))
        .or_else(|| bitsandbytes(text))
        .or_else(|| tpu(text))
        .or_else(|| jax(text, lower))
        .or_else(|| tensorflow(text, lower))
        .or_else(|| accelerate(lower))
        .or_else(|| triton(text))
        .or_else(|| tensorrt_llm(text, lower))
        .or_else(|| by_its_words(text))
}

/// Programs whose messages have words of their own; what follows is the program, and what helps.
const OTHERS: [(&str, &str); 15] = [
    ("cupy.cuda.memory.OutOfMemoryError", CUPY),
    // As newer releases word it.
    ("(allocated so far: ", CUPY),
    ("rmm/mr/device", "RAPIDS' memory manager (RMM)"),
    ("Out of memory error on GPU", PADDLE),
    ("enforce allocating <= available failed", PADDLE),
    (
        "BFCArena::AllocateRawInternal",
        "ONNX Runtime, whose arena is another than PyTorch's: gpu_mem_limit and arena_extend_strategy say how it grows",
    ),
    (
        "Failed to allocate memory for requested buffer of size",
        "ONNX Runtime, whose arena is another than PyTorch's: gpu_mem_limit and arena_extend_strategy say how it grows",
    ),
    ("Requested amount of GPU memory", TENSORRT),
    ("defaultAllocator.cpp", TENSORRT),
    ("rtSafe/safeRuntime.cpp", TENSORRT),
    ("StandardGpuResources: alloc fail", "Faiss: setTempMemory takes less beforehand"),
    ("cudaMalloc retry failed", "MXNet"),
    ("pooled_storage_manager.h", "MXNet: MXNET_GPU_MEM_POOL_RESERVE says how much its pool leaves alone"),
    ("[metal::malloc]", MLX),
    ("[METAL] Command buffer execution failed: Insufficient Memory", MLX),
];

const CUPY: &str =
    "CuPy, whose pool is another than PyTorch's: cupy.get_default_memory_pool().free_all_blocks() gives its cache back";
const PADDLE: &str =
    "PaddlePaddle: FLAGS_fraction_of_gpu_memory_to_use and another process on the device decide how much it has";
const TENSORRT: &str = "TensorRT: a smaller workspace (memory pool limit) asks for less";
const MLX: &str = "MLX: its memory is the Mac's; a smaller batch or a shorter context asks for less";

fn by_its_words(text: &str) -> Option<String> {
    let (_, program) = OTHERS.iter().find(|(words, _)| text.contains(words))?;
    Some(format!("not a message of PyTorch, but of {program}"))
}

/// A kernel that wants more of a multiprocessor's own memory than there is: the device's memory is not concerned.
fn triton(text: &str) -> Option<String> {
    let at = text.rfind("out of resource: shared memory, Required: ")?;
    let rest = &text[at + "out of resource: shared memory, Required: ".len()..];
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let (required, limit) = (number(rest), number(rest.split_once("Hardware limit: ")?.1));
    Some(format!(
        "a message of Triton about a kernel, not about the device's memory: it wants {required} bytes of a multiprocessor's shared memory, and there are \
         {limit}. Smaller blocks, fewer stages (num_stages) or another card help"
    ))
}

fn tensorrt_llm(text: &str, lower: &str) -> Option<String> {
    let is_its = text.contains("[TensorRT-LLM]") || text.contains("tensorrt_llm");
    (is_its && lower.contains("out of memory")).then(|| {
        "a message of TensorRT-LLM, not of PyTorch: its engine found no room on the device beside its cache of keys and values. A smaller \
         free_gpu_memory_fraction, max_num_tokens or max_batch_size asks for less"
            .into()
    })
}

fn vllm(text: &str) -> Option<String> {
    if text.contains("less than desired GPU memory utilization") {
        return Some(vllm_start(text).unwrap_or_else(|| {
            "vLLM's check at its start, not a message of PyTorch: less of the device is free than --gpu-memory-utilization asks for".into()
        }));
    }
    let cache = text.contains("No available memory for the cache blocks")
        || text.contains("can be stored in KV cache")
        || text.contains("larger than the available KV cache memory");
    cache.then(|| {
        "vLLM's check of its cache, not a message of PyTorch: beside weights and activations too little is left for the cache of keys and values. Raise \
         --gpu-memory-utilization, or lower --max-model-len"
            .into()
    })
}

/// Reads `Free memory on device cuda:0 (18.90/23.52 GiB) on startup is less than desired GPU memory utilization (0.9, 21.17 GiB).`
fn vllm_start(text: &str) -> Option<String> {
    let at = text.rfind("Free memory on device")?;
    let (free, rest) = text[at..].split_once('(')?.1.split_once('/')?;
    let (total, rest) = rest.split_once(')')?;
    let wanted = rest.split_once("utilization (")?.1.split_once(", ")?.1.split_once(')')?.0;
    let (total, wanted) = (Size::at_start(total)?, Size::at_start(wanted)?);
    let free = Size::at_start(&format!("{free} GiB"))?;
    Some(format!(
        "vLLM's check at its start, not a message of PyTorch: {} of the device's {total} are taken already, and vLLM wants {wanted} of the {free} that are \
         free. `vramlab info devices` shows who holds them; a smaller --gpu-memory-utilization asks for less",
        total.minus(free)
    ))
}

fn sglang(text: &str) -> Option<String> {
    text.contains("try to increase --mem-fraction-static").then(|| {
        "SGLang's check at its start, not a message of PyTorch: beside the weights too little is left for the cache of keys and values. Raise \
         --mem-fraction-static; lower it where PyTorch runs out of memory later, while requests are served"
            .into()
    })
}

/// Reads XLA's message about a TPU: `Ran out of memory in memory space hbm. Used 9.08G of 7.48G hbm.`, and that of its allocator.
fn tpu(text: &str) -> Option<String> {
    let named = |figures: &str| format!("a message of XLA about a TPU's memory, not of PyTorch on a card{figures}");
    if let Some(at) = text.rfind("in memory space hbm. Used ") {
        let (used, rest) = text[at..].split_once("Used ")?.1.split_once(" of ")?;
        let there = rest.split_once(" hbm")?.0;
        return Some(named(&format!(
            ": the program needs {used} of {there}. A smaller batch or recomputation needs less"
        )));
    }
    (text.contains("HBM capacity") || text.contains("Total hbm usage")).then(|| named(""))
}

fn llama_cpp(text: &str, lower: &str) -> Option<String> {
    let is_its = text.contains("ggml_") || text.contains("llama_model_load") || lower.contains("llama runner");
    let memory =
        ["out of memory", "outofdevicememory", "failed to allocate", "unable to allocate", "insufficient memory"]
            .iter()
            .any(|words| lower.contains(words));
    if !is_its || !memory {
        return None;
    }
    let size = |marker: &str| text.rfind(marker).and_then(|at| Size::at_start(&text[at + marker.len()..]));
    let bytes = |marker: &str| {
        let digits = text[text.rfind(marker)? + marker.len()..].split(|c: char| !c.is_ascii_digit()).next()?;
        Some(Size::from_bytes(digits.parse().ok()?))
    };
    let asked = size("allocating ")
        .or_else(|| bytes("memory allocation of size "))
        .map_or(String::new(), |size| format!(" {size} were asked for in one piece."));
    Some(format!(
        "a message of llama.cpp (ggml), not of PyTorch.{asked} Offload fewer layers (-ngl), take a shorter context (-c) or a smaller -ub"
    ))
}

fn bitsandbytes(text: &str) -> Option<String> {
    let its_files = ["bitsandbytes", "csrc/ops.cu", "csrc\\ops.cu", "pythonInterface"];
    let is_its = text.contains("Error out of memory at line") && its_files.iter().any(|file| text.contains(file));
    is_its.then(|| {
        "a message of bitsandbytes, not of PyTorch: its optimizer or its 8-bit product found no room on the device, or on the host for a paged optimizer's \
         managed memory. It prints no figures; `vramlab info devices` shows who holds the device's memory"
            .into()
    })
}

fn tensorflow(text: &str, lower: &str) -> Option<String> {
    let marks = ["stream_executor", "failed to create cublas handle", "Could not create cudnn handle", "tensorflow/"];
    let driver = lower.contains("failed to allocate ") && lower.contains(" from device: ");
    let is_its = marks.iter().any(|mark| text.contains(mark)) || lower.contains("oom when allocating tensor") || driver;
    let memory = ["alloc", "out_of_memory", "out of memory", "oom"].iter().any(|words| lower.contains(words));
    (is_its && memory).then(|| "a message of TensorFlow, not of PyTorch".into())
}

fn jax(text: &str, lower: &str) -> Option<String> {
    let exhausted = lower.contains("resource_exhausted") || lower.contains("resource exhausted");
    let request = "failed to allocate request for ";
    let rest = match lower.rfind(request) {
        Some(at) => &text[at + request.len()..],
        None => {
            let at = lower.rfind("out of memory").filter(|_| exhausted)?;
            text[at..].split_once("allocat")?.1.split_once(' ')?.1
        }
    };
    let asked = Size::at_start(rest).map_or(String::new(), |size| format!(" {size} were asked for."));
    Some(format!(
        "a message of JAX (XLA), not of PyTorch.{asked} JAX takes most of the device at its start: XLA_PYTHON_CLIENT_PREALLOCATE=false shows what it needs"
    ))
}

fn accelerate(lower: &str) -> Option<String> {
    lower.contains("modules are dispatched on the cpu or the disk").then(|| {
        "a message of transformers and accelerate, not of PyTorch: the weights do not fit on the devices, so device_map put some on the host, which the \
         quantization does not allow"
            .into()
    })
}
