#!/usr/bin/env python3
"""Chooses blocks to compute again for several budgets, beside segments of √n blocks, every second and third block, and all.

    scripts/rehearse/checkpoints.py VRAMLAB RESULTS.json [NAME ...]

For each network the budgets are what the other ways reserve, and points between all blocks and none. At each budget the choice must take no longer than any other way
that fits it. A network whose row is in RESULTS.json is not run again. Exit code 1: another way that fits is faster by more than a thousandth."""

import json
import pathlib
import subprocess
import sys

POINTS = (0.2, 0.5, 0.8)
NEAR = 1.001
ADAMW = ["--optimizer", "adamw"]
GPT = ["gpt", "--width", "256", "--heads", "4", "--sequence", "256", "--batch", "16", *ADAMW]
TEXT = ["--sequence", "256", "--batch", "4", *ADAMW]
PICTURES = ["--image", "64", "--batch", "64", *ADAMW]

NETWORKS: "dict[str, list[str]]" = {
    **{f"gpt-{layers}": [*GPT, "--layers", str(layers)] for layers in (2, 4, 6, 9, 12, 16)},
    **{f"gpt-{layers}-sdpa": [*GPT, "--layers", str(layers), "--attention", "sdpa"] for layers in (5, 10)},
    **{f"mlp-{layers}": ["mlp", "--layers", str(layers), "--width", "1024", "--batch", "4096", *ADAMW] for layers in (4, 9, 16)},
    **{name: [name, *PICTURES] for name in ("resnet18", "resnet34", "resnet50", "mobilenet_v2", "convnext-tiny")},
    "vgg16": ["vgg16", "--image", "224", "--batch", "8", *ADAMW],
    **{name: [name, *TEXT] for name in ("distilgpt2", "smollm2-135m", "opt-125m")},
}
WAYS = ("none", "sqrt", "blocks", "blocks:2", "blocks:3")


def answer(vramlab, words):
    """The answer of a prediction, or None if it has none."""
    run = subprocess.run([vramlab, "predict", *words, "-q", "--json", "-"], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode in (0, 1) and run.stdout.startswith("{") else None


def of_network(vramlab, words):
    """For each budget the choice, and the others that fit."""
    found = {way: answer(vramlab, [*words, "--checkpoint", way]) for way in WAYS}
    reserved = {way: one["needs"]["reserved_bytes"] for way, one in found.items() if one}
    if "blocks" not in reserved or "none" not in reserved:
        return {"all": {"why": "vramlab did not simulate it with all blocks computed again, or with none"}}
    least, most = reserved["blocks"], reserved["none"]
    budgets = {way: bytes for way, bytes in reserved.items() if way != "none"}
    budgets.update({f"{share:.0%} between": int(least + share * (most - least)) for share in POINTS})
    rows = {}
    for name, budget in budgets.items():
        chosen = answer(vramlab, [*words, "--checkpoint-budget", str(budget)])
        if not chosen:
            rows[name] = {"budget": budget, "why": "no choice of blocks was found"}
            continue
        table = {row["name"]: row for row in chosen["checkpoints"]["rows"]}
        seconds = table["chosen"]["seconds"]
        fits = {way: row["seconds"] for way, row in table.items() if row["reserved_bytes"] <= budget and way != "chosen"}
        faster = {way: other for way, other in fits.items() if other * NEAR < seconds}
        row = {
            "budget": budget,
            "reserved": table["chosen"]["reserved_bytes"],
            "blocks": chosen["checkpoints"]["blocks"],
            "seconds": seconds,
            "none_s": table["none"]["seconds"],
            "others": fits,
        }
        if faster:
            row["why"] = f"faster within the budget: {', '.join(faster)}"
        rows[name] = row
    return rows


def main():
    vramlab, results, *names = sys.argv[1:]
    results = pathlib.Path(results)
    written = json.loads(results.read_text())["rows"] if results.exists() else []
    rows = {row["network"]: row["budgets"] for row in written}
    for name in names or NETWORKS:
        if name not in rows:
            rows[name] = of_network(vramlab, NETWORKS[name])
            results.write_text(json.dumps({"rows": [{"network": one, "budgets": row} for one, row in rows.items()]}, indent=1) + "\n")
        each = rows[name].values()
        print(
            f"{name}: {sum('why' not in row for row in each)} of {len(each)} budgets",
            *[f"{budget}: {row['why']}" for budget, row in rows[name].items() if "why" in row],
            sep="; ",
            flush=True,
        )
    return 1 if any("why" in row for network in rows.values() for row in network.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
