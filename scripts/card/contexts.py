#!/usr/bin/env python3
"""Measures what a process takes on the card of this machine besides PyTorch's segments, before and after the first use of each library.

    python contexts.py FILE.json [PART ...]

Each part runs in a process of its own. Its figures are taken after each stage: the bytes that the driver has given to all processes
(`cudaMemGetInfo`), those of this process by NVML (as nvidia-smi shows them), and PyTorch's reserved bytes. The difference of two stages,
less what was reserved in between, is what the library loaded. A part with the same stages under CUDA_MODULE_LOADING=EAGER shows what lazy
loading leaves out.
"""
import json
import os
import pathlib
import subprocess
import sys

MIB = 1 << 20


def figures():
    """Bytes in use on the card, bytes of this process by NVML (None where it does not say), bytes that PyTorch has reserved."""
    import pynvml
    import torch

    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    own = [process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if process.pid == os.getpid()]
    by_nvml = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {"used": total - free, "process": own[0] if own else None, "nvml_used": by_nvml.used, "total": total, "nvml_total": by_nvml.total,
            "reserved": torch.cuda.memory_reserved()}


def kernels(torch):
    x = torch.randn(1 << 20, device="cuda")
    (x * x + 1).sum().item()


def norm(torch):
    x = torch.randn(8, 64, 56, 56, device="cuda", requires_grad=True)
    torch.nn.BatchNorm2d(64, device="cuda")(x).sum().backward()


def product(dtype):
    def run(torch):
        x = torch.randn(512, 512, device="cuda", dtype=getattr(torch, dtype))
        (x @ x).sum().item()
    return run


def linear(dtype):
    def run(torch):
        layer = torch.nn.Linear(512, 512, device="cuda", dtype=getattr(torch, dtype))
        layer(torch.randn(64, 512, device="cuda", dtype=getattr(torch, dtype))).sum().backward()
    return run


def convolution(dtype, channels_last=False, size=(64, 64, 3)):
    def run(torch):
        outputs, inputs, window = size
        layer = torch.nn.Conv2d(inputs, outputs, window, padding=window // 2, device="cuda", dtype=getattr(torch, dtype))
        x = torch.randn(8, inputs, 56, 56, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
        if channels_last:
            layer, x = layer.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        layer(x).sum().backward()
    return run


def attention(backend):
    def run(torch):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    return run


def lstm(torch):
    layer = torch.nn.LSTM(64, 64, 2, device="cuda")
    layer(torch.randn(16, 8, 64, device="cuda"))[0].sum().backward()


def transform(torch):
    torch.fft.rfft(torch.randn(64, 1024, device="cuda")).abs().sum().item()


def solve(torch):
    x = torch.randn(64, 64, device="cuda")
    torch.linalg.eigvalsh(x @ x.T).sum().item()


def sparse(torch):
    x = torch.eye(256, device="cuda").to_sparse_csr()
    (x @ torch.randn(256, 256, device="cuda")).sum().item()


def adam(torch):
    x = torch.nn.Parameter(torch.randn(1 << 20, device="cuda"))
    optimizer = torch.optim.AdamW([x])
    (x * x).sum().backward()
    optimizer.step()


def compiled(torch):
    torch.compile(lambda x: (x * 2 + 1).relu())(torch.randn(4096, device="cuda")).sum().item()


def graph(torch):
    x = torch.zeros(1024, device="cuda")
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        x += 1
    recorded.replay()


def collectives(torch):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    torch.distributed.init_process_group("nccl", rank=0, world_size=1)
    torch.distributed.all_reduce(torch.ones(1 << 20, device="cuda"))
    torch.cuda.synchronize()


def second_communicator(torch):
    group = torch.distributed.new_group([0])
    torch.distributed.all_reduce(torch.ones(1 << 20, device="cuda"), group=group)
    torch.cuda.synchronize()


def second_process(torch):
    # It lives until this process ends, so that the figures have both.
    made = "import sys, torch; torch.empty(1, device='cuda'); torch.cuda.synchronize(); print('made', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", made], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout and other.stdout.readline() == "made\n"


# The stages of each part, in their order; the first, an empty tensor, makes the context.
CONTEXT = ("context", lambda torch: torch.empty(1, device="cuda"))
PARTS = {
    "kernels": [CONTEXT, ("kernels", kernels), ("adam", adam)],
    "cublas": [CONTEXT, ("kernels", kernels), ("float32 product", product("float32")), ("bfloat16 product", product("bfloat16")), ("float16 product", product("float16"))],
    "cublaslt": [CONTEXT, ("kernels", kernels), ("float32 linear", linear("float32")), ("bfloat16 linear", linear("bfloat16"))],
    "cudnn": [CONTEXT, ("kernels", kernels), ("float32 convolution", convolution("float32")), ("bfloat16 convolution", convolution("bfloat16")),
              ("bfloat16 channels-last", convolution("bfloat16", True)), ("first layer", convolution("float32", size=(64, 3, 7))),
              ("1 x 1", convolution("float32", size=(256, 64, 1))), ("batch norm", norm)],
    "cudnn channels-last": [CONTEXT, ("kernels", kernels), ("float32 channels-last", convolution("float32", True)), ("float16 channels-last", convolution("float16", True))],
    "cudnn recurrent": [CONTEXT, ("kernels", kernels), ("LSTM", lstm)],
    "batch norm": [CONTEXT, ("kernels", kernels), ("batch norm", norm)],
    "flash attention": [CONTEXT, ("kernels", kernels), ("flash", attention("FLASH_ATTENTION")), ("cuDNN", attention("CUDNN_ATTENTION"))],
    "efficient attention": [CONTEXT, ("kernels", kernels), ("efficient", attention("EFFICIENT_ATTENTION"))],
    "cudnn attention": [CONTEXT, ("kernels", kernels), ("cuDNN", attention("CUDNN_ATTENTION"))],
    "cufft": [CONTEXT, ("kernels", kernels), ("cuFFT", transform)],
    "cusolver": [CONTEXT, ("kernels", kernels), ("cuSOLVER", solve)],
    "cusparse": [CONTEXT, ("kernels", kernels), ("cuSPARSE", sparse)],
    "inductor": [CONTEXT, ("kernels", kernels), ("compiled", compiled)],
    "graph": [CONTEXT, ("kernels", kernels), ("graph", graph)],
    "nccl": [CONTEXT, ("kernels", kernels), ("one rank", collectives), ("second communicator", second_communicator)],
    "processes": [CONTEXT, ("second process", second_process)],
    "training": [CONTEXT, ("kernels", kernels), ("linear", linear("float32")), ("convolution", convolution("float32")), ("adam", adam), ("batch norm", norm),
                 ("flash", attention("FLASH_ATTENTION"))],
}


def stages(part):
    """The figures after each stage of a part; a stage that failed says why and ends it."""
    import torch

    found = []
    for name, run in PARTS[part]:
        try:
            run(torch)
            found.append({"stage": name, **figures()})
        except Exception as error:
            found.append({"stage": name, "failed": f"{type(error).__name__}: {str(error)[:200]}"})
            break
    return found


def main():
    if sys.argv[1] == "--part":
        print(json.dumps(stages(sys.argv[2])))
        return
    import torch

    version = pathlib.Path("/proc/driver/nvidia/version")
    said: dict = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "driver": version.read_text().splitlines()[0].strip() if version.exists() else None,
            "what": "bytes after each stage: used on the card, of the process by NVML, reserved by PyTorch (scripts/card/contexts.py)", "parts": []}
    for name in sys.argv[2:] or PARTS:
        for loading in ("LAZY", "EAGER") if name in ("kernels", "cudnn", "training") else ("LAZY",):
            ran = subprocess.run([sys.executable, __file__, "--part", name], env={**os.environ, "CUDA_MODULE_LOADING": loading}, capture_output=True, text=True)
            found: list = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 and ran.stdout.strip() else [{"failed": ran.stderr[-300:]}]
            said["parts"].append({"part": name, "loading": loading, "stages": found})
            # After each part: what was measured until the time ran out is kept.
            with open(sys.argv[1], "w") as file:
                json.dump(said, file, separators=(",", ":"))
            shown = [f"{stage.get('stage')} {(stage['used'] - stage['reserved']) / MIB:.0f}" if "used" in stage else str(stage) for stage in found]
            print(f"{name} ({loading}): {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
