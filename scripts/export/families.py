"""Exports the networks of a family's recordings (lab/imports/tests/golden/models) as `vramlab.export` gives them, with the cache among the results.

    PYTHONPATH=python python scripts/export/families.py FAMILY FOLDER [RECORDING...]

FOLDER/INDEX.json: for each recorded run the file and name of its recording, the graph, and the modules that are computed again; or `left_out`, why it has no
graph. `cargo test -p vramlab-imports --test it family_graphs -- --ignored` compares the graphs' rows with the recordings, with FOLDER as
VRAMLAB_FAMILY_GRAPHS. Needs PyTorch, the library and PEFT; neither weights nor a card."""
import gzip
import json
import os
import sys

import torch

import vramlab

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../../lab/imports/tests/golden/models")
sys.path.insert(0, os.path.join(HERE, "../record"))

import models  # noqa: E402

# A graph is that of the library that is installed.
RELEASES = ("5.23", "5.24")
# What a training says of a call, not of a network.
PRECISIONS = {"autocast": torch.float32, "amp16": torch.float32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
              "bf16_autocast": torch.bfloat16}


def runs(family):
    """The recordings of a family, each with the name of its file."""
    for file in sorted(os.listdir(MODELS)):
        if file.endswith(".json.gz"):
            with gzip.open(os.path.join(MODELS, file)) as opened:
                for run in json.load(opened)["runs"]:
                    if run["config"].get("model_type") == family:
                        yield file.removesuffix(".json.gz"), run


def left_out(run):
    """Why a recorded run has no graph to be compared with; None if it has one."""
    options = run["options"]
    if not run["versions"]["transformers"].startswith(RELEASES):
        return "another release of the library"
    if options.get("loop") == "trainer":
        return "the library's loop"
    if options.get("quantization"):
        return "weights of bitsandbytes, which torch.export does not follow"
    if options["precision"] not in PRECISIONS:
        return "the type of a file"
    return None


def network(run):
    """The network of a run, without values."""
    import transformers
    options = run["options"]
    head = (run.get("class") or options.get("head") or models.CLASSES[run["config"]["model_type"]]).replace("Auto", "Llama").replace("LlamaModelFor", "LlamaFor")
    settings = {key: value for key, value in run["config"].items() if key not in ("architectures", "transformers_version", "dtype", "torch_dtype")}
    config = transformers.AutoConfig.for_model(**settings)
    config._attn_implementation = options["attn_implementation"]
    config.use_cache = options["use_cache"]
    # PEFT makes adapters on the host, whatever the device.
    with torch.device("cpu" if options.get("lora") else "meta"):
        model = getattr(transformers, head)._from_config(config, dtype=PRECISIONS[options["precision"]])
        if options.get("lora"):
            import peft
            model = peft.get_peft_model(model, peft.LoraConfig(**options["lora"]))
    return model.train(), head


def graph(run, path):
    """Writes a run's graph. Returns the modules that it computes again."""
    model, head = network(run)
    options, size, length = run["options"], max(2, run["batch"]), run["seq"]
    if options["gradient_checkpointing"]:
        model.config.use_cache = False
    given = models.batch_of({"class": head, "batch": size, "seq": length}, options, model)
    given = {name: tensor.to(next(model.parameters()).device) for name, tensor in given.items()}
    vramlab.export(model, path=path, **given)
    layers = next(name for name, module in model.named_modules() if name.endswith("layers"))
    return layers + ".*" if options["gradient_checkpointing"] else "none"


def main():
    family, folder, *wanted = sys.argv[1:]
    # The batch of a recording is made on a card: here it is on the host.
    on_host = torch.Tensor.to
    torch.Tensor.to = lambda tensor, *to, **named: on_host(tensor, *["cpu" if one == "cuda" else one for one in to], **named)
    for name in ("randint", "zeros", "ones"):
        made = getattr(torch, name)
        setattr(torch, name, lambda *given, made=made, **named: made(*given, **{key: "cpu" if one == "cuda" else one for key, one in named.items()}))
    found = []
    for file, run in runs(family):
        if wanted and file not in wanted:
            continue
        entry = {"recording": file, "name": run["name"]}
        why = left_out(run)
        if why is None:
            graph_file = "%s-%d.pt2" % (file, len(found))
            try:
                entry.update(graph=graph_file, again=graph(run, os.path.join(folder, graph_file)))
            except Exception as error:
                why = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
        found.append(entry if why is None else {**entry, "left_out": why})
        print(file, run["name"], why or "exported", flush=True)
        with open(os.path.join(folder, "INDEX.json"), "w") as index:
            json.dump(found, index, indent=1)


if __name__ == "__main__":
    main()
