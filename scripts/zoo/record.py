"""Records the networks of networks.py as folded graphs, and what real PyTorch takes of their first layers.

    python record.py graphs [NAME...]           lab/imports/zoo/NAME.json.gz; one that exists is left as it is
    python record.py truths PROGRAM [NAME...]   lab/imports/zoo/truths.json: peaks of a rehearsal at two batches and two lengths
    python record.py tuned PROGRAM [NAME...]    lab/imports/zoo/tuned.json: the same with checkpointing, adapters of PEFT and frozen parameters

Needs PyTorch, transformers and the package for Python; neither weights nor a card. Both go on where they were stopped.
ZOO_TRACES names a folder that keeps what PyTorch traced, for another folding.
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ZOO = os.path.join(ROOT, "lab", "imports", "zoo")
TRUTHS = os.path.join(ZOO, "truths.json")
TUNED = os.path.join(ZOO, "tuned.json")
sys.path[:0] = [HERE, os.path.join(ROOT, "python"), os.path.join(ROOT, "lab", "src", "any_model", "driver")]

import networks  # noqa: E402

# Batches and lengths of the truths, longer than every window but those of 4096 tokens.
SIZES = [(1, 1024), (3, 704)]


def cut(config, layers):
    """The configuration of a network's first layers."""
    kept = dict(config, num_hidden_layers=layers)
    return dict(kept, layer_types=config["layer_types"][:layers]) if "layer_types" in config else kept


def kinds(config):
    """The kind of each layer of the whole network, as transformers reads the configuration."""
    import transformers

    own = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    found = transformers.AutoConfig.for_model(config["model_type"], **own)
    types = getattr(found, "layer_types", None) or ["layer"] * config["num_hidden_layers"]
    rotates = getattr(found, "no_rope_layers", None) or [1] * len(types)
    return ["%s %s" % pair for pair in zip(types, rotates)]


def graph(name):
    import torch

    import vramlab
    from vramlab_driver import fold, run

    config, layers, length = networks.NETWORKS[name]
    kept = os.environ.get("ZOO_TRACES")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(cut(config, layers), file)
        options = dict.fromkeys(run.FIELDS) | {"batch": 2, "sequence": length, "steps": 3}
        plan, model = run.planned(path, None, options)
        space = {"torch": torch, "BATCH": 2, "SEQUENCE": length}
        inputs = {one.name: eval(one.expression, space) for one in plan.inputs}
        exported = os.path.join(kept or folder, name + ".pt2")
        if not os.path.exists(exported):
            vramlab.export(model.train(), path=exported, **inputs)
        with zipfile.ZipFile(exported) as archive:
            entry = lambda ending: json.loads(archive.read(next(one for one in archive.namelist() if one.endswith(ending))))
            program, beside = entry("models/model.json"), entry("extra/vramlab.json")
    if beside.get("recorded"):
        raise fold.Cannot("one recorded call")
    folded = fold.fold(program, beside, kinds(config))
    # Learned positions of RoBERTa begin after the number of padding.
    positions = config["max_position_embeddings"] - (config["pad_token_id"] + 1 if "roberta" in config["model_type"] else 0)
    folded.update(positions=positions, library=plan.library, **{"class": plan.class_name})
    with open(os.path.join(ZOO, name + ".json.gz"), "wb") as file:
        file.write(gzip.compress(json.dumps(folded, separators=(",", ":")).encode(), 9, mtime=0))


def listed():
    """Writes the list of what is recorded, for the program."""
    names = sorted(name.removesuffix(".json.gz") for name in os.listdir(ZOO) if name.endswith(".json.gz"))
    lines = ["    (%s, include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/zoo/%s.json.gz\")))," % (json.dumps(name), name) for name in names]
    text = "/// The recorded networks: `scripts/zoo/record.py graphs` writes this list.\nconst RECORDED: &[(&str, &[u8])] = &[\n%s\n];\n" % "\n".join(lines)
    with open(os.path.join(ZOO, "list.rs"), "w") as file:
        file.write(text)


def rehearsed(program, config, layers, batch, tokens, fields):
    """The peaks of a rehearsal of the first layers."""
    tokens = min(tokens, config["max_position_embeddings"] - 2)
    with tempfile.TemporaryDirectory() as folder:
        path, script, answer = (os.path.join(folder, name) for name in ("config.json", "train.py", "answer.json"))
        with open(path, "w") as file:
            json.dump(cut(config, layers), file)
        words = [program, "predict", path, "--python", sys.executable, "--batch", str(batch), "--sequence", str(tokens), "--no-cache"]
        words += [word for name, value in fields.items() for word in ("--" + name, *([] if value is True else [str(value)]))]
        subprocess.run([*words, "--gpu", "1TiB", "--json", answer], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(answer) as file:
            found = json.load(file)
        if found.get("chosen"):
            peak = found["peak"]["bytes"], found["peak"]["reserved_bytes"]
        else:
            # A family that is built in answers without PyTorch, and its program does not.
            with open(script, "w") as file:
                subprocess.run([*words, "--script"], stdout=file, stderr=subprocess.DEVNULL, check=True)
            words = [program, "rehearse", "--gpu", "1TiB", "--json", answer, sys.executable, script]
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(answer) as file:
                rank = json.load(file)["ranks"][0]
            peak = rank["peak_allocated"], rank["peak_reserved"]
    return {"layers": layers, "batch": batch, "tokens": tokens, "allocated": peak[0], "reserved": peak[1]}


def truth(name, program):
    config, layers, _ = networks.NETWORKS[name]
    sizes = [(layers, *size) for size in SIZES] + [(end, *SIZES[0]) for end in networks.ENDS.get(name, [])]
    return [rehearsed(program, config, *size, {}) for size in sizes]


def tuned(name, program):
    config, layers, _ = networks.NETWORKS[name]
    is_encoder = "roberta" in config["model_type"]
    # PEFT's own choice where it has one.
    layer = "query,value" if is_encoder else "Wqkv" if config["model_type"] == "modernbert" else "q_proj,v_proj"
    experts = any(key.startswith("num_") and key.endswith("experts") for key in config)
    cases = [
        {"checkpoint": "blocks"},
        {"lora": 16, "lora-target": layer},
        {"lora": 16, "lora-target": layer, "checkpoint": "blocks"},
        {"lora": 8, "lora-target": layer, "lora-dropout": 0.05, "dora": True, "optimizer": "adamw8bit"},
        {"freeze": "*embed*", "checkpoint": "blocks"},
    ]
    if not experts:
        cases.append({"lora": 8, "lora-target": "all-linear", "rslora": True, "checkpoint": "blocks"})
    return [rehearsed(program, config, layers, *SIZES[1], fields) | {"fields": fields} for fields in cases]


def known_in(path):
    """What was recorded until now."""
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def main():
    import traceback

    what, words = sys.argv[1], sys.argv[2:]
    program = words.pop(0) if what != "graphs" else None
    for name in words or networks.NETWORKS:
        try:
            if what == "graphs" and not os.path.exists(os.path.join(ZOO, name + ".json.gz")):
                graph(name)
            elif what in ("truths", "tuned"):
                path, ask = (TRUTHS, truth) if what == "truths" else (TUNED, tuned)
                known = known_in(path)
                if name not in known:
                    known[name] = ask(name, program)
                    with open(path, "w") as file:
                        file.write(json.dumps(known, indent=1, sort_keys=True) + "\n")
            listed()
            print(name, flush=True)
        except Exception as error:
            traceback.print_exc(limit=3)
            print(name, "FAILED", str(error)[:300], flush=True)


if __name__ == "__main__":
    main()
