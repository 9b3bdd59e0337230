#!/usr/bin/env python3
"""Times steps of PyTorch and of this program on the card of this machine, in turn.

    python steps.py FILE.jsonl PEER_VRAMLAB FOLDER [ROUNDS [SECONDS]]
    python steps.py --warm FOLDER

FOLDER has peer_torch.py and peer_torch_tuned.py, PyTorch's side of benches/compare.sh. Of PyTorch its options that help are run: the fused
optimizer, both layouts of images, for the language model its own attention and `scaled_dot_product_attention`, and `torch.compile` with
mode="reduce-overhead". Of this program a step as launches and as one graph. Each in float32 and in bfloat16 under autocast. FILE.jsonl has a line
for each, with its round. VRAMLAB_LIBRARIES has the folders of libnvrtc, libcublasLt and libcudnn, if this program does not find them. `--warm` compiles what the rounds will run, so that it lies in inductor's cache.
"""
import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import time

WORK = ["mlp", "simplecnn-b32", "simplecnn-b128", "smallcnn64", "gpt-mini", "resnet18-b8"]


def options(work, compiled):
    """The options of PyTorch that are tried for a network, as sets of words."""
    ways = [{"fused"}]
    if "cnn" in work or "resnet" in work:
        ways.append({"fused", "channels-last"})
    if work == "gpt-mini":
        ways.append({"fused", "sdpa"})
    return [way | kind | ({"compiled"} if compiled else set()) for way in ways for kind in (set(), {"autocast"})]


def peers(folder):
    """The module with the networks. Its last line runs what the command line names, so that names the least."""
    sys.path.insert(0, folder)
    sys.argv = ["peer_torch_tuned.py", "--seconds", "0", "--steps", "1", "gemm-256"]
    with contextlib.redirect_stdout(io.StringIO()):
        import peer_torch_tuned
    return peer_torch_tuned


def with_fused_attention(peer):
    """The language model's block by `scaled_dot_product_attention`."""
    import torch

    def forward(self, h, mask):
        b, t, d = h.shape
        q, k, v = (part.reshape(b, t, self.n_head, d // self.n_head).transpose(1, 2) for part in self.qkv(self.ln1(h)).split(d, dim=2))
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.proj(seen.transpose(1, 2).reshape(b, t, d))
        return h + self.fc2(torch.nn.functional.gelu(self.fc1(self.ln2(h))))
    return forward


def timed(peer, work, way, seconds):
    """Milliseconds of the steps of one network with these options, and its first losses."""
    import torch

    batch = {"mlp": 128, "simplecnn-b32": 32, "simplecnn-b128": 128, "smallcnn64": 4, "gpt-mini": 8, "resnet18-b8": 8}[work]
    own = peer.P.Block.forward
    if "sdpa" in way:
        peer.P.Block.forward = with_fused_attention(peer)
    network, x, y, loss_of, optimizer = peer.build(work.split("-b")[0], batch, argparse.Namespace(fused=False, foreach=False))
    network, x, y = network.cuda(), x.cuda(), y.cuda()
    optimizer = type(optimizer)(network.parameters(), fused=True, **{name: optimizer.defaults[name] for name in ("lr", "weight_decay")})
    if "channels-last" in way:
        network, x = network.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def forward(x, y):
        with torch.autocast("cuda", torch.bfloat16, enabled="autocast" in way):
            return loss_of(network(x), y)
    forward = torch.compile(forward, mode="reduce-overhead") if "compiled" in way else forward

    def step():
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()
    losses, times, begin = [step() for _ in range(8 if "compiled" in way else 3)], [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        at = time.perf_counter()
        step()
        times.append((time.perf_counter() - at) * 1e3)
    peer.P.Block.forward = own
    return {"ms_per_step_median": statistics.median(times), "min": min(times), "max": max(times), "steps": len(times), "losses_head": losses[:4]}


def torch_side(folder, compiled, seconds):
    """Runs PyTorch's options for each network in this process, a JSON line each."""
    import torch

    peer = peers(folder)
    for work in WORK:
        for way in options(work, compiled):
            said = {"workload": work, "options": " ".join(sorted(way))}
            try:
                said |= timed(peer, work, way, float(seconds))
            except Exception as error:
                said["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
            print(json.dumps(said), flush=True)
            torch._dynamo.reset()


def lines(command, libraries=None):
    """The JSON lines that a command prints; `libraries` are folders that the loader searches first."""
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {}))
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return found if ran.returncode == 0 else [*found, {"failed": ran.stderr[-300:], "command": " ".join(command[1:])}]


def main():
    if sys.argv[1] == "--torch":
        return torch_side(sys.argv[2], sys.argv[3] == "compiled", sys.argv[4])
    if sys.argv[1] == "--warm":
        return torch_side(sys.argv[2], True, "0.1")
    file, peer, folder, rounds, seconds = (*sys.argv[1:], "2", "0.7")[:5]
    with open(file, "w") as written:
        def note(side, number, rows):
            for row in rows:
                written.write(json.dumps({"side": side, "round": number, **row}) + "\n")
            written.flush()
            print(f"round {number}, {side}: {len(rows)} lines", flush=True)
        for number in range(int(rounds)):
            for kind in ("fp32", "autocast-bf16"):
                for graph in ([], ["--cuda-graph"]):
                    note("vramlab" + (" graph" if graph else ""), number,
                         [row | {"precision": kind} for row in lines([peer, "--device", "cuda", "--precision", kind, *graph, "--seconds", seconds, "--steps", "2000", *WORK], os.environ.get("VRAMLAB_LIBRARIES"))])
            for way in ("eager", "compiled"):
                note(f"torch {way}", number, lines([sys.executable, os.path.abspath(__file__), "--torch", folder, way, seconds]))


if __name__ == "__main__":
    main()
