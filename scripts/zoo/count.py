"""Asks `vramlab predict` once about each model of `published.py` and `newest.py`, without weights and without a network, and writes what came.

    python count.py PROGRAM OUT.tsv [NAME...]    needs PyTorch, transformers and diffusers; names that OUT.tsv has already are skipped

A row: name, who built it (built-in, graph, or the class that the driver chose), verdict on an H200 or error, bytes needed allocated and reserved,
and processor seconds of the program with its children.
"""
import json
import os
import subprocess
import sys
import tempfile

import newest
import published

HERE = os.path.dirname(os.path.abspath(__file__))
KNOWN = os.path.join(HERE, "../../lab/imports/known/models.json")
# Networks of text whose classes hold 512 positions, or that are asked at that length.
SHORT = ("bert", "xlm-roberta", "modernbert", "mpnet", "electra", "esm", "deberta-v2", "roberta", "bart", "m2m_100", "mt5", "t5", "distilbert")
# Networks that read no text, or that set their own length.
WITHOUT_LENGTH = ("vit", "convnext", "swin", "dinov2", "dinov3_vit", "segformer", "depth_anything", "detr", "rt_detr", "sam", "hubert", "wav2vec2",
                  "clip", "siglip", "whisper", "timesfm")


# Networks that an H200 does not hold, which are built twice, and one of a step for each token.
LARGE = ("qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3", "glm-4.5-air", "phi-3.5-moe", "qwen3-next-80b-a3b", "llama-4-scout",
         "jamba-1.5-mini", "mistral-small-3.1-24b", "mistral-large4", "deepseek-v2-lite", "nemotron-h", "rwkv-4-169m")


def configurations():
    """Each name with its configuration as data."""
    with open(KNOWN) as file:
        known = {one["name"]: one["config"] for one in json.load(file)}
    models = {name: known[config] if isinstance(config, str) else config for name, config in published.MODELS.items()}
    return {**models, **newest.MODELS}


def asked(program, path, config, cache, card="h200"):
    """Returns the cells of a row."""
    answer = os.path.join(cache, "answer.json")
    kind = config.get("model_type")
    words = [program, "predict", path, "--python", sys.executable, "--batch", "2", "--gpu", card, "--steps", "3", "--json", answer]
    if kind is not None and kind not in WITHOUT_LENGTH:
        words += ["--sequence", "512" if kind in SHORT else "1024"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment.update(HF_HUB_OFFLINE="1", XDG_CACHE_HOME=cache)
    before = os.times()
    ran = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    after = os.times()
    seconds = "%.1f" % (after.children_user + after.children_system - before.children_user - before.children_system)
    try:
        with open(answer) as file:
            found = json.load(file)
        os.remove(answer)
    except OSError:
        said = [line for line in ran.stderr.splitlines() if line.startswith("error")] or ran.stderr.strip().splitlines()[-1:] or ["exit %d" % ran.returncode]
        return ["-", "error", "-", "-", seconds, " ".join(said[0].split())[:300]]
    verdict = {True: "yes", False: "no", None: "perhaps"}[found.get("fits")]
    chosen = found.get("chosen")
    graph = any(note.startswith("From the graph") for note in found.get("notes") or [])
    by = "graph" if graph else chosen["class"] if chosen else "built-in"
    notes = "; ".join((chosen or {}).get("notes") or [])
    needs = found["needs"]
    return [by, verdict, str(needs["allocated_bytes"]), str(needs["reserved_bytes"]), seconds, " ".join(notes.split())[:200]]


def resumed(out, names, row, again=""):
    """Adds a line to the table `out` for each name that has none, as `row` gives its cells. Lines with the text `again` are made anew."""
    done = set()
    if os.path.exists(out):
        with open(out) as file:
            done = {line.split("\t")[0] for line in file if not again or again not in line}
    for name in names:
        if name in done:
            continue
        cells = row(name)
        with open(out, "a") as file:
            file.write("\t".join(cells) + "\n")
        print("\t".join(cells), flush=True)


def main():
    program, out, *names = sys.argv[1:]
    models = configurations()

    def row(name):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name, "config.json")
            os.mkdir(os.path.dirname(path))
            with open(path, "w") as file:
                json.dump(models[name], file)
            return [name, *asked(program, path, models[name], folder)]

    # What an H200 holds first.
    wanted = sorted((name for name in models if not names or name in names), key=lambda name: name in LARGE)
    resumed(out, wanted, row, again="\tdriver")


if __name__ == "__main__":
    main()
