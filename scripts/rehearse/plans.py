#!/usr/bin/env python3
"""Plans for usual trainings, times the search, and rehearses each plan.

    scripts/rehearse/plans.py VRAMLAB PYTHON RESULTS.json [NAME ...]
    scripts/rehearse/plans.py --table RESULTS.json

PYTHON has PyTorch for CUDA, torchvision, transformers, PEFT, diffusers and liger-kernel. A case whose row is in RESULTS.json is not made again: delete the row to make it anew. Seconds are
of the clock, and of the processor with all threads, beside those of ten million additions of Python just before. A rehearsed program is the plan's own train.py, else that of `vramlab predict --script` with the plan's
settings. It must not run out, and PyTorch must reserve what `predict` says of the plan, in its interval. A row says why a plan is not rehearsed. Exit code 1: a program
runs out, or lies outside of its interval."""

import json
import os
import pathlib
import resource
import shlex
import subprocess
import sys
import tempfile
import time

import plan_programs

LLAMA = ["--global-batch", "16", "--sequence", "2048", "--precision", "bf16", "--optimizer", "adamw", "--gpu", "rtx4090"]
MANY = ["--global-batch", "64", "--sequence", "4096", "--precision", "bf16", "--optimizer", "adamw"]
LORA = ["--lora", "16", "--lora-target", "all-linear"]
CARD = ["--optimizer", "adamw", "--gpu", "rtx4090"]
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 2048,
    "vocab_size": 32000,
    "dtype": "bfloat16",
}
# Of 31 million parameters, for pictures of 512 x 512.
UNET = {
    "_class_name": "UNet2DModel",
    "_diffusers_version": "0.35.0",
    "sample_size": 512,
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": [64, 128, 256, 512],
    "down_block_types": ["DownBlock2D"] * 4,
    "up_block_types": ["UpBlock2D"] * 4,
    "norm_num_groups": 32,
}
# Of Stable Diffusion XL, and of FLUX.
SDXL = {
    "_class_name": "UNet2DConditionModel",
    "_diffusers_version": "0.30.0",
    "sample_size": 128,
    "in_channels": 4,
    "out_channels": 4,
    "layers_per_block": 2,
    "cross_attention_dim": 2048,
    "attention_head_dim": [5, 10, 20],
    "block_out_channels": [320, 640, 1280],
    "transformer_layers_per_block": [1, 2, 10],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
}
FLUX = {
    "_class_name": "FluxTransformer2DModel",
    "_diffusers_version": "0.30.0",
    "patch_size": 1,
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
}
RESNET = """import torch
import torchvision


class Classifier(torchvision.models.ResNet):
    def forward(self, pixel_values, labels):
        return torch.nn.functional.cross_entropy(super().forward(pixel_values), labels)


def make():
    network = Classifier(torchvision.models.resnet.Bottleneck, [3, 4, 6, 3])
    return network, {"pixel_values": torch.rand(2, 3, 224, 224), "labels": torch.randint(0, 1000, (2,))}
"""
FILES = {
    "mixtral.json": json.dumps(MIXTRAL),
    "unet.json": json.dumps(UNET),
    "sdxl.json": json.dumps(SDXL),
    "flux.json": json.dumps(FLUX),
    "resnet50.py": RESNET,
}
# Networks that are built in, and not of transformers: what the program is printed of.
PROGRAMS = {"resnet50": "resnet50.py:make"}

# The network, and the words after it.
CASES: "dict[str, tuple[str, list[str]]]" = {
    "llama-1b": ("llama-3.2-1b", LLAMA),
    "llama-1b-lora": ("llama-3.2-1b", [*LLAMA, *LORA]),
    "llama-8b": ("llama-3.1-8b", LLAMA),
    "llama-8b-lora": ("llama-3.1-8b", [*LLAMA, *LORA]),
    "gpt2": ("gpt2-small", ["--global-batch", "64", "--sequence", "1024", "--optimizer", "adamw", "--gpu", "8GiB"]),
    "vit-large": ("vit-large", ["--global-batch", "256", *CARD]),
    "resnet50": ("resnet50", ["--global-batch", "256", "--optimizer", "momentum", "--gpu", "rtx4090"]),
    "t5-large": ("t5-large", ["--global-batch", "64", "--sequence", "512", *CARD]),
    "mixtral-small": ("mixtral.json", ["--global-batch", "16", "--sequence", "1024", "--precision", "bf16", *CARD]),
    "unet-512": ("unet.json", ["--global-batch", "16", *CARD]),
    "whisper": ("whisper-small", ["--global-batch", "32", *CARD]),
    "sdxl-lora": ("sdxl.json", ["--global-batch", "16", *CARD]),
    "flux-lora": ("flux.json", ["--global-batch", "8", "--optimizer", "adamw", "--gpu", "h100"]),
    "llama-8b-on-8-of-24": ("llama-3.1-8b", [*MANY, "--gpu", "rtx4090", "--world", "8"]),
    "llama-8b-on-8-of-80": ("llama-3.1-8b", [*MANY, "--gpu", "h100", "--world", "8"]),
    "llama-70b-on-64": ("llama-3.1-70b", [*MANY, "--gpu", "h100", "--world", "64", "--nodes", "8"]),
}
# Networks that are not built in: the flags of the program that is exported and planned.
EXPORTED: "dict[str, list[str]]" = {
    "mixtral-small": ["--precision", "bf16"],
    "unet-512": [],
    "whisper": [],
    "sdxl-lora": ["--precision", "bf16", *LORA],
    "flux-lora": ["--precision", "bf16", *LORA],
}


def after(text):
    """What a failed command said last."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error")), lines[-1] if lines else "no answer")


def additions_s():
    """Seconds of the processor for ten million additions of Python: how fast the machine is now."""
    before, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return round(time.process_time() - before, 2)


def searched(command, folder):
    """Runs a search. Returns what it said, and the seconds until its first answer, until its end, and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said, first = [], None
    for line in run.stderr or []:
        said.append(line.rstrip())
        if first is None and "fits: " in line:
            first = time.monotonic() - started
    run.wait()
    whole, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return "\n".join(said), {"first_s": first and round(first, 2), "plan_s": round(whole, 2), "processor_s": round(processor, 2)}


def reserved_interval(predicted):
    """The least and the most that PyTorch reserves: of the whole process, without what CUDA and cuDNN take beside it."""
    beside = [part for part in predicted["parts"] if "context" in part["name"]]
    return [predicted[end] - sum(part[end] for part in beside) for end in ("lower_bytes", "upper_bytes")]


def planned(vramlab, word, words, folder):
    """The row of a plan, with its files in `folder`/out, and its fields with what `predict` warns of."""
    answer = folder / "plan.json"
    calibration = additions_s()
    said, seconds = searched([vramlab, "plan", word, *words, "-v", "--json", str(answer), "--hand-over", "out"], folder)
    seconds["additions_s"] = calibration
    if not answer.exists():
        return {**seconds, "verdict": f"no plan: {after(said)}"}, {}
    plan = json.loads(answer.read_text())
    row = {**seconds, "tried": plan["tried"], "left_out": plan["left_out"], "too_large": plan["too_large"]}
    best = plan["best"]
    if best is None:
        return {**row, "verdict": "nothing fits"}, {}
    changes = best["changes"]
    row.update(
        plan=changes["change"] or "no changes",
        micro_batch=best["micro_batch"],
        accumulate=best["accumulate"],
        seconds=best["seconds"],
        peak=changes["peak_bytes"],
        reserved=changes["reserved_bytes"],
    )
    again = shlex.split(changes["command"])[1:]
    run = subprocess.run([vramlab, *again, "-q", "--json", "-"], cwd=folder, capture_output=True, text=True)
    if not run.stdout.startswith("{"):
        return {**row, "verdict": f"OUTSIDE: its own command fails: {after(run.stderr)}"}, {}
    predicted = json.loads(run.stdout)
    row["interval"] = reserved_interval(predicted)
    return row, {"fields": plan_programs.fields_of(again), "warnings": predicted.get("warnings") or []}


def program(vramlab, python, name, plan, folder):
    """Writes the plan's program into `folder`/out unless it is there."""
    out = folder / "out"
    if (out / "train.py").exists():
        return
    if "--world" in CASES[name][1]:
        raise ValueError("vramlab writes no script for several cards")
    fields = plan["fields"]
    again = plan_programs.recomputed(plan["warnings"]) if name in EXPORTED else None
    word = PROGRAMS.get(name, CASES[name][0] if name in EXPORTED else str(out / "config.json"))
    text = plan_programs.with_plan(vramlab, python, word, EXPORTED.get(name, []), fields, again, folder)
    settings = fields.get("alloc-conf")
    # Before PyTorch is imported, as the plan's own train.py has it.
    first = f'import os\n\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = {settings!r}\n' if settings else ""
    (out / "train.py").write_text(first + text)


def rehearsed(vramlab, python, words, row, folder):
    """The row with the rehearsal of the plan's program."""
    answer = folder / "answer.json"
    gpu = words[words.index("--gpu") + 1]
    command = [vramlab, "rehearse", "-q", "--gpu", gpu, "--json", str(answer), "--", python, "train.py"]
    started = time.monotonic()
    run = subprocess.run(command, cwd=folder / "out", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if not answer.exists():
        return {**row, "verdict": f"OUTSIDE: no rehearsal: {after(run.stderr)}"}
    found = json.loads(answer.read_text())
    rank = found["ranks"][0] if found["ranks"] else {}
    row.update(
        rehearsed_peak=rank.get("peak_allocated"),
        rehearsed_reserved=rank.get("peak_reserved"),
        rehearsal_s=round(time.monotonic() - started),
    )
    if found.get("exception") or row["rehearsed_reserved"] is None:
        return {**row, "verdict": f"OUTSIDE: {found.get('exception') or after(run.stderr)}"}
    low, high = row["interval"]
    inside = low <= (row["rehearsed_reserved"] or 0) <= high
    return {**row, "verdict": "inside" if inside and found.get("fits") is not False else f"OUTSIDE: fits {found.get('fits')}"}


def of_case(vramlab, python, name, folder):
    """The row of a case."""
    word, words = CASES[name]
    for file, text in FILES.items():
        (folder / file).write_text(text)
    row = {"command": shlex.join(["vramlab", "plan", word, *words])}
    if name in EXPORTED:
        try:
            plan_programs.exported(vramlab, python, word, EXPORTED[name], folder)
        except ValueError as error:
            return {**row, "verdict": f"not planned: {error}"}
        made = shlex.join(["vramlab", "predict", word, *EXPORTED[name], "--script"])
        row = {"command": shlex.join(["vramlab", "plan", "network.pt2", *words]), "network": f"{made}, exported"}
        word = "network.pt2"
    found, plan = planned(vramlab, word, words, folder)
    row.update(found)
    if row.get("verdict"):
        return row
    try:
        program(vramlab, python, name, plan, folder)
    except ValueError as error:
        return {**row, "verdict": f"not rehearsed: {error}"}
    return rehearsed(vramlab, python, words, row, folder)


def gib(bytes):
    """Bytes in GiB; a dash for none."""
    return f"{bytes / 2**30:.2f}" if bytes else "-"


def table(rows):
    """The rows as a table of a document: bytes in GiB, seconds of the clock until the first answer and the plan."""
    print("| case | plan | reserved | interval | rehearsed | seconds | |\n|---|---|---|---|---|---|---|")
    for row in rows:
        result = row["result"]
        interval = " to ".join(gib(one) for one in result.get("interval") or []) or "-"
        seconds = ", ".join(f"{result[name]:.1f}" if result.get(name) else "-" for name in ("first_s", "plan_s"))
        plan = f"{result['micro_batch']} x {result['accumulate']}, {result['plan']}" if "plan" in result else "-"
        bytes = f"{gib(result.get('reserved'))} | {interval} | {gib(result.get('rehearsed_reserved'))}"
        print(f"| {row['network']} | {plan} | {bytes} | {seconds} | {result['verdict']} |")


def main():
    if sys.argv[1:2] == ["--table"]:
        return table(json.loads(pathlib.Path(sys.argv[2]).read_text())["rows"])
    vramlab, python, results, *names = sys.argv[1:]
    vramlab, python, results = str(pathlib.Path(vramlab).resolve()), os.path.abspath(python), pathlib.Path(results)
    written = json.loads(results.read_text()) if results.exists() else {"rows": []}
    rows = {row["network"]: row["result"] for row in written["rows"]}
    for name in names or CASES:
        if name in rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = of_case(vramlab, python, name, pathlib.Path(folder))
        ordered = [one for one in CASES if one in rows]
        written["rows"] = [{"network": one, "result": rows[one]} for one in ordered]
        results.write_text(json.dumps(written, indent=1) + "\n")
        print(name, rows[name], flush=True)
    return 1 if any(row["verdict"].startswith("OUTSIDE") for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
