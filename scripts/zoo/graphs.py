"""Compares answers from kept graphs with rehearsals, at two batches and lengths other than the recorded ones.

    python graphs.py PROGRAM [AT] CONFIG.json...    a row for each network; needs PyTorch and transformers, neither weights nor a card

AT are sizes, batch x tokens: each network is asked for twice at the first, and the second question makes the graph. Then graph and rehearsal answer
the others. Without it 2x512,1x1024,3x384.
"""
import json
import os
import subprocess
import sys
import tempfile

AT = "2x512,1x1024,3x384"


def ask(program, cache, path, size, *flags):
    """The peaks of an answer, the processor seconds of the program and its children, and what it says of where it comes from."""
    answer = os.path.join(cache, "answer.json")
    words = [program, "predict", path, "--python", sys.executable, "--batch", str(size[0]), "--sequence", str(size[1]), "--json", answer, *flags]
    before = os.times()
    ran = subprocess.run(words + ["--gpu", "1TiB"], env=dict(os.environ, XDG_CACHE_HOME=cache), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    try:
        with open(answer) as file:
            found = json.load(file)
        os.remove(answer)
    except OSError:
        return None, seconds, ran.stderr.strip().splitlines()[-1:]
    notes = found.get("notes") or []
    origin = [note for note in notes if note.startswith("From the graph")]
    return (found["peak"]["bytes"], found["peak"]["reserved_bytes"]), seconds, origin or ran.stderr.strip().splitlines()[-1:]


def row(program, recorded, others, path):
    name = os.path.basename(os.path.dirname(path) if path.endswith("/config.json") else path).removesuffix(".json")
    with tempfile.TemporaryDirectory() as cache:
        first, seconds, said = ask(program, cache, path, recorded)
        if first is None:
            return "| %s | no answer: %s |" % (name, " ".join(said))
        _, again, said = ask(program, cache, path, recorded)
        cells = ["%.1f" % seconds, "%.1f" % again]
        for size in others:
            graph, quick, origin = ask(program, cache, path, size)
            if not (origin and origin[0].startswith("From the graph")):
                return "| %s | %s | no graph: %s |" % (name, " | ".join(cells), " ".join(said))
            truth, _, _ = ask(program, cache, path, size, "--no-cache")
            if truth is None or graph is None:
                cells.append("no answer")
                continue
            parts = ["%+.4f %%" % (100 * (one - other) / other) if one != other else "equal" for one, other in zip(graph, truth)]
            cells.append("%s, %s (%.2f s)" % (*parts, quick))
    return "| %s | %s |" % (name, " | ".join(cells))


def main():
    program, *paths = sys.argv[1:]
    at = paths.pop(0) if paths and not paths[0].endswith(".json") else AT
    recorded, *others = [tuple(map(int, size.split("x"))) for size in at.split(",")]
    print("| network | first, s | second, s | %s |" % " | ".join("batch %d x %d: allocated, reserved" % size for size in others), flush=True)
    print("|---|---|---|%s" % ("---|" * len(others)), flush=True)
    for path in paths:
        print(row(program, recorded, others, path), flush=True)


if __name__ == "__main__":
    main()
