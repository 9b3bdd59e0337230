#!/usr/bin/env python3
"""Plans for usual trainings, times the search, and rehearses each plan's script.

    scripts/rehearse/plans.py VRAMLAB PYTHON RESULTS.json [NAME ...]

A case whose row is in RESULTS.json is not made again: delete the row to make it anew. A search counts the seconds of the processor, halved: what it takes on two cores
that do nothing else, with the files that it hands over. A rehearsed script must not run out, and PyTorch must reserve what `predict` says of the plan, in its interval. A plan whose script vramlab does not
write is not rehearsed, and the row says why. Exit code 1: a script runs out, or lies outside of its interval."""

import json
import os
import pathlib
import resource
import shlex
import subprocess
import sys
import tempfile
import time

CORES = 2
LLAMA = ["--global-batch", "16", "--sequence", "2048", "--precision", "bf16", "--optimizer", "adamw", "--gpu", "rtx4090"]
MANY = ["--global-batch", "64", "--sequence", "4096", "--precision", "bf16", "--optimizer", "adamw"]
LORA = ["--lora", "16", "--lora-target", "all-linear"]
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
NOT_BUILT_IN = "not planned: it is not a built-in network. `vramlab.export` makes a .pt2 of it, which `plan` takes"

# The words after `vramlab plan`, or why there are none.
CASES: "dict[str, list[str] | str]" = {
    "llama-1b": ["llama-3.2-1b", *LLAMA],
    "llama-1b-lora": ["llama-3.2-1b", *LLAMA, *LORA],
    "llama-8b": ["llama-3.1-8b", *LLAMA],
    "llama-8b-lora": ["llama-3.1-8b", *LLAMA, *LORA],
    "gpt2": ["gpt2-small", "--global-batch", "64", "--sequence", "1024", "--optimizer", "adamw", "--gpu", "8GiB"],
    "vit-large": ["vit-large", "--global-batch", "256", "--optimizer", "adamw", "--gpu", "rtx4090"],
    "resnet50": ["resnet50", "--global-batch", "256", "--optimizer", "momentum", "--gpu", "rtx4090"],
    "t5-large": ["t5-large", "--global-batch", "64", "--sequence", "512", "--optimizer", "adamw", "--gpu", "rtx4090"],
    "mixtral-small": [
        "mixtral.json",
        "--global-batch",
        "16",
        "--sequence",
        "1024",
        "--precision",
        "bf16",
        "--optimizer",
        "adamw",
        "--gpu",
        "rtx4090",
    ],
    "unet-512": NOT_BUILT_IN,
    "whisper": NOT_BUILT_IN,
    "sdxl-lora": NOT_BUILT_IN,
    "flux": NOT_BUILT_IN,
    "llama-8b-on-8-of-24": ["llama-3.1-8b", *MANY, "--gpu", "rtx4090", "--world", "8"],
    "llama-8b-on-8-of-80": ["llama-3.1-8b", *MANY, "--gpu", "h100", "--world", "8"],
    "llama-70b-on-64": ["llama-3.1-70b", *MANY, "--gpu", "h100", "--world", "64", "--nodes", "8"],
}


def processor_seconds(pid):
    """What a process has used so far, with its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def searched(command):
    """Runs a search. Returns its exit code, what it said, and the seconds until its first answer and its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said, first = [], None
    for line in run.stderr or []:
        said.append(line.rstrip())
        if first is None and "fits: " in line:
            first = processor_seconds(run.pid) / CORES
    code = run.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / CORES
    return code, "\n".join(said), first, whole


def planned(vramlab, words, folder):
    """The row of a plan, with its files in `folder`/out."""
    (folder / "mixtral.json").write_text(json.dumps(MIXTRAL))
    answer = folder / "plan.json"
    command = [vramlab, "plan", *[str(folder / word) if word.endswith(".json") else word for word in words]]
    code, said, first, whole = searched([*command, "-v", "--json", str(answer), "--hand-over", str(folder / "out")])
    row = {"first_s": first, "plan_s": whole}
    if not answer.exists():
        return {**row, "verdict": f"no plan: {said.splitlines()[-1] if said else code}"}
    plan = json.loads(answer.read_text())
    row.update(tried=plan["tried"], left_out=plan["left_out"], too_large=plan["too_large"])
    best = plan["best"]
    if best is None:
        return {**row, "verdict": "nothing fits"}
    changes = best["changes"]
    row.update(
        plan=changes["change"],
        micro_batch=best["micro_batch"],
        accumulate=best["accumulate"],
        seconds=best["seconds"],
        peak=changes["peak_bytes"],
        reserved=changes["reserved_bytes"],
    )
    left_out = {one["name"]: one["why"] for one in plan["hand_over"]["left_out"]}
    if "train.py" in left_out:
        row["not_rehearsed"] = left_out["train.py"]
    predict = folder / "predict.json"
    again = shlex.split(changes["command"])[1:]
    subprocess.run(
        [vramlab, *[str(folder / word) if word.endswith(".json") else word for word in again], "-q", "--json", str(predict)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if predict.exists():
        needs = json.loads(predict.read_text()).get("reserved") or {}
        row["interval"] = [needs.get("lower"), needs.get("upper")]
    return row


def rehearsed(vramlab, python, words, row, folder):
    """The row with the rehearsal of the script that the plan handed over."""
    out = folder / "out"
    if row.get("verdict") or not (out / "train.py").exists():
        return {**row, "verdict": row.get("verdict") or f"not rehearsed: {row.pop('not_rehearsed', 'there is no script')}"}
    answer = folder / "answer.json"
    gpu = words[words.index("--gpu") + 1]
    command = [vramlab, "rehearse", "-q", "--gpu", gpu, "--json", str(answer), "--", python, "train.py"]
    started = time.monotonic()
    run = subprocess.run(command, cwd=out, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if not answer.exists():
        return {**row, "verdict": f"not rehearsed: {(run.stderr.strip().splitlines() or ['no answer'])[-1]}"}
    found = json.loads(answer.read_text())
    rank = found["ranks"][0] if found["ranks"] else {}
    row.update(
        rehearsed_peak=rank.get("peak_allocated"),
        rehearsed_reserved=rank.get("peak_reserved"),
        rehearsal_s=round(time.monotonic() - started),
    )
    low, high = row.get("interval") or (None, None)
    inside = low is None or low <= (row["rehearsed_reserved"] or 0) <= high
    fits = found.get("fits")
    return {**row, "verdict": "inside" if inside and fits is not False else f"OUTSIDE: fits {fits}"}


def main():
    vramlab, python, results, *names = sys.argv[1:]
    vramlab, results = str(pathlib.Path(vramlab).resolve()), pathlib.Path(results)
    written = json.loads(results.read_text())["rows"] if results.exists() else []
    rows = {row["network"]: row["result"] for row in written}
    for name in names or CASES:
        words = CASES[name]
        if name in rows:
            continue
        if isinstance(words, str):
            rows[name] = {"verdict": words}
        else:
            with tempfile.TemporaryDirectory() as place:
                folder = pathlib.Path(place)
                rows[name] = {
                    "command": shlex.join(["vramlab", "plan", *words]),
                    **rehearsed(vramlab, python, words, planned(vramlab, words, folder), folder),
                }
        results.write_text(json.dumps({"rows": [{"network": one, "result": row} for one, row in rows.items()]}, indent=1) + "\n")
        print(name, rows[name], flush=True)
    return 1 if any(row["verdict"].startswith("OUTSIDE") for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
