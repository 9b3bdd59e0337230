#!/usr/bin/env python3
"""Records snapshots of PyTorch's allocator on the card of this machine: small programs, each for one thing that an allocator does.

    python snapshots.py FOLDER [NAME ...]

FOLDER gets NAME.pickle.gz for each program, and snapshots.json with their peaks, settings and the card. Each runs in a process of its own. Of the
files of a stack their names are kept, not the folders of this machine. The addresses are the driver's.
"""
import concurrent.futures
import gzip
import json
import os
import pathlib
import pickle
import subprocess
import sys


def cnn(torch):
    """A small convolutional network and a step of it."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(32, 64, 3, padding=1),
              torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 10)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch=64, side=64):
        images, labels = torch.rand(batch, 3, side, side, device="cuda"), torch.randint(10, (batch,), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def encoder(torch):
    """A small transformer and a step of it under autocast, at any length."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(length=256, batch=8):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.rand(batch, length, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss
    return step


def record(torch, context=None, entries=100000):
    torch.cuda.memory._record_memory_history(enabled="all", context=context, stacks="python", max_entries=entries)


def training(torch):
    record(torch, context="all")
    step = cnn(torch)
    for _ in range(3):
        step()


def lengths(torch):
    record(torch)
    step = encoder(torch)
    for length in (256, 300, 128, 511, 256, 77, 400, 256):
        step(length)


def middle(torch):
    step = encoder(torch)
    for length in (256, 511, 128):
        step(length)
    record(torch)
    for length in (300, 256, 400, 256):
        step(length)


def ring(torch):
    record(torch, entries=150)
    step = cnn(torch)
    for batch in (64, 48, 64, 96, 64):
        step(batch)


def streams(torch):
    record(torch)
    step, side = cnn(torch), torch.cuda.Stream()
    for batch in (64, 32, 64, 48):
        with torch.cuda.stream(side):
            held = [torch.rand(batch, 3, 224, 224, device="cuda") for _ in range(4)]
        torch.cuda.current_stream().wait_stream(side)
        for one in held:
            one.record_stream(torch.cuda.current_stream())
            (one * 2).sum()
        del held, one
        step(batch)


def graph(torch):
    record(torch)
    step = cnn(torch)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    x, weight = torch.rand(256, 1024, device="cuda"), torch.rand(1024, 1024, device="cuda")
    recorded = torch.cuda.CUDAGraph()
    (x @ weight).relu()
    torch.cuda.synchronize()
    with torch.cuda.graph(recorded):
        made = ((x @ weight).relu() @ weight).softmax(1)
    for _ in range(3):
        recorded.replay()
        step(32)
    del made


def pools(torch):
    record(torch)
    step, pool = cnn(torch), torch.cuda.MemPool()
    for batch in (64, 32):
        with torch.cuda.use_mem_pool(pool):
            held = [torch.rand(batch, 1 << 14, device="cuda") for _ in range(5)]
        step(batch)
        del held[1], held[2]
        step(64)
    torch.cuda.empty_cache()
    step(64)


def emptied(torch):
    record(torch)
    step = encoder(torch)
    for length in (256, 511, 64):
        step(length)
        torch.cuda.empty_cache()


def failing(torch):
    record(torch, context="alloc")
    torch.cuda.set_per_process_memory_fraction(700 * (1 << 20) / torch.cuda.mem_get_info()[1])
    step = encoder(torch)
    for length in (256, 512, 300, 2048):
        try:
            step(length)
        except torch.cuda.OutOfMemoryError as error:
            print(str(error).splitlines()[0], file=sys.stderr)
            return


def growing(torch):
    record(torch)
    step, held = cnn(torch), []
    for batch in range(8):
        held.append(step(64 - batch))
        held.append(torch.rand(1000 * (batch + 1), device="cuda"))


def compiled(torch):
    record(torch)
    layers = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    run = torch.compile(layers, mode="reduce-overhead")
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        run(torch.rand(512, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


EXPANDABLE = "expandable_segments:True"
# What runs, and the allocator's settings.
PROGRAMS = {
    "training": (training, ""), "lengths": (lengths, ""), "middle": (middle, ""), "ring": (ring, ""), "streams": (streams, ""), "graph": (graph, ""), "pools": (pools, ""),
    "emptied": (emptied, ""), "failing": (failing, ""), "growing": (growing, ""), "compiled": (compiled, ""),
    "expandable": (lengths, EXPANDABLE), "expandable_middle": (middle, EXPANDABLE), "expandable_streams": (streams, EXPANDABLE), "expandable_graph": (graph, EXPANDABLE),
    "expandable_failing": (failing, EXPANDABLE), "rounded": (lengths, "roundup_power2_divisions:4"), "not_split": (lengths, "max_split_size_mb:21"),
    "collected": (lengths, "garbage_collection_threshold:0.6"),
}


def without_folders(found):
    """The same snapshot, its files by their names alone."""
    if isinstance(found, dict):
        return {key: pathlib.PurePath(value).name if key == "filename" else without_folders(value) for key, value in found.items()}
    return [without_folders(one) for one in found] if isinstance(found, (list, tuple)) else found


def run(name, file):
    """Runs one program in this process, and writes its snapshot."""
    import torch

    PROGRAMS[name][0](torch)
    torch.cuda.synchronize()
    found = without_folders(torch.cuda.memory._snapshot())
    with gzip.open(file, "wb") as written:
        pickle.dump(found, written, protocol=4)
    figures = torch.cuda.memory_stats()
    said = {key: figures[f"{key}_bytes.all.peak"] for key in ("allocated", "reserved")} | {"events": len(found["device_traces"][0]), "card": torch.cuda.get_device_name(),
                                                                                         "memory": torch.cuda.mem_get_info()[1], "torch": torch.__version__}
    print(json.dumps(said))


def main():
    if sys.argv[1] == "--run":
        run(*sys.argv[2:])
        return
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    def one(name):
        own = {**os.environ, "PYTORCH_ALLOC_CONF": PROGRAMS[name][1], "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        ran = subprocess.run([sys.executable, __file__, "--run", name, str(folder / f"{name}.pickle.gz")], env=own, capture_output=True, text=True)
        lines = ran.stdout.splitlines()
        return name, {"settings": PROGRAMS[name][1], **(json.loads(lines[-1]) if ran.returncode == 0 and lines else {"failed": ran.stderr[-400:]})}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = dict(pool.map(one, sys.argv[2:] or PROGRAMS))
    (folder / "snapshots.json").write_text(json.dumps(found, indent=1) + "\n")
    for name, said in found.items():
        print(name, said)


if __name__ == "__main__":
    main()
