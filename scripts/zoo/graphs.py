"""Compares answers from kept graphs with rehearsals, at batches and lengths other than the recorded ones, and writes what came.

    python graphs.py PROGRAM OUT.tsv [NAME...]    needs PyTorch and transformers, neither weights nor a card; names that OUT.tsv has already are skipped

NAME: a model of `published.py` or `newest.py` that is not built in. The second question about it makes the graph, of its size; the first and a third
have other sizes. Graph and rehearsal answer all of them, the graph over as many steps as the rehearsal made.

A row: name, outcome (equal; near: allocated equal, reserved within 0.5 %; differs; not used: the program itself saw that it differs), for each size
that the graph holds for "batch x tokens: allocated, reserved" of the rehearsal with the graph's differences, processor seconds of the first, the
second and the third question, and what the program said.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import count

# Most by which the reserved bytes may differ, as a share, if the allocated ones are equal.
NEAR = 5e-3
# Most layers of a network that one rehearsal trains here: those of a large one are traced and folded alike.
MOST_LAYERS = 12
# The second is recorded: other batches at other lengths, of networks of 512 positions, and of those that set their own.
SIZES = {"long": [(3, 384), (2, 512), (1, 1024)], "short": [(3, 320), (2, 448), (1, 512)], "own": [(3, None), (2, None), (5, None)],
         "wide": [(3, 768), (2, 1024), (1, 1536)]}


def sizes_of(config):
    kind, window = config.get("model_type"), (config.get("text_config") or config).get("sliding_window")
    # A graph holds on one side of a window, and a picture stands in each text of a network that sees.
    if (isinstance(window, int) and window <= 512) or "vision_config" in config or "image_token_index" in config:
        return SIZES["wide"]
    return SIZES["own" if kind is None or kind in count.WITHOUT_LENGTH else "short" if kind in count.SHORT else "long"]


def cut(config):
    """The same with fewer layers, if only their number says how many it has."""
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int) or layers <= MOST_LAYERS:
        return config
    kinds = {key: value[:MOST_LAYERS] for key, value in config.items() if isinstance(value, list) and len(value) == layers}
    return {**config, **kinds, "num_hidden_layers": MOST_LAYERS}


def ask(program, cache, path, size, *flags):
    """The peaks of an answer with its steps, the processor seconds of the program and its children, where it comes from, and what the program said."""
    answer = os.path.join(cache, "answer.json")
    words = [program, "predict", path, "--python", sys.executable, "--batch", str(size[0]), "--json", answer, "--gpu", "8TiB", *flags]
    words += ["--sequence", str(size[1])] if size[1] else []
    before = os.times()
    environment = dict(os.environ, XDG_CACHE_HOME=cache, HF_HUB_OFFLINE="1")
    ran = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    said = [line for line in ran.stderr.splitlines() if line.startswith(("error", "no graph", "the graph"))] or ran.stderr.strip().splitlines()[-1:]
    try:
        with open(answer) as file:
            found = json.load(file)
        os.remove(answer)
    except OSError:
        return None, seconds, "", " ".join(said)
    by = "graph" if any(note.startswith("From the graph") for note in found.get("notes") or []) else "rehearsal" if found.get("chosen") else "built-in"
    steps = (found.get("settings") or {}).get("steps")
    return (found["peak"]["bytes"], found["peak"]["reserved_bytes"], steps), seconds, by, " ".join(said)


def beside(size, graph, truth):
    """The figures of a size, and how far the graph's are from the rehearsal's: 0 if they are equal."""
    at = "x".join(str(one) for one in size if one)
    away = max(abs(one - other) / other for one, other in zip(graph, truth))
    share = lambda one, other: "equal" if one == other else "%+.4f %%" % (100 * (one - other) / other)
    return "%s: %d %s, %d %s" % (at, truth[0], share(graph[0], truth[0]), truth[1], share(graph[1], truth[1])), away


def row(program, name, config):
    with tempfile.TemporaryDirectory() as cache:
        path = os.path.join(cache, name, "config.json")
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as file:
            json.dump(cut(config), file)
        sizes, seconds, compared = sizes_of(config), [], []
        truths = {}
        for size in sizes[:2]:
            truths[size], took, by, said = ask(program, cache, path, size)
            seconds.append("%.1f" % took)
            if truths[size] is None or by != "rehearsal":
                return [name, by or "error", "", " ".join(seconds), said[:300]]
        entry = {}
        for kept in glob.glob(os.path.join(cache, "vramlab/networks/*.json")):
            with open(kept) as file:
                entry = json.load(file)
        if not entry.get("compared"):
            return [name, "no graph", "", " ".join(seconds), (entry.get("failed") or said)[:300]]
        for size in sizes:
            if size not in truths:
                truths[size], _, _, _ = ask(program, cache, path, size, "--no-cache")
            if truths[size] is None:
                return [name, "error", "", " ".join(seconds), "no rehearsal at the third size"]
            # A rehearsal ends when a step repeats the one before it.
            graph, took, by, said = ask(program, cache, path, size, "--steps", str(truths[size][2]))
            if by == "graph":
                compared.append(beside(size, graph[:2], truths[size][:2]))
        if by == "graph":
            seconds.append("%.2f" % took)
        else:
            compared = [beside((one["batch"], sizes[0][1] and one["tokens"]), one["graph"], one["rehearsal"]) for one in entry["compared"]]
        same = all(": " in text and " equal, " in text for text, _ in compared)
        most = max(away for _, away in compared)
        outcome = "not used" if by != "graph" else "differs" if not same or most > NEAR else "equal" if most == 0 else "near"
        return [name, outcome, "; ".join(text for text, _ in compared), " ".join(seconds), said[:200]]


def main():
    program, out, *names = sys.argv[1:]
    models = count.configurations()
    count.resumed(out, names or models, lambda name: row(program, name, models[name]))


if __name__ == "__main__":
    main()
