"""Trains a network that the user named, without weights: `python FOLDER REQUEST.json`.

The request has the word, the options and the mode: `plan` prints what was chosen and the program; `train` writes the same into the rehearsal's
answers and runs the program. The last line of standard output, or the file `model.plan`, is one JSON object; `refused` in it is a sentence."""

import importlib
import inspect
import json
import logging
import os
import re
import sys
import warnings

from . import life, losses, names, program, tuning
from .plan import Refused

FIELDS = ("batch", "steps", "optimizer", "optimizer_impl", "precision", "accumulate", "clip", "zero_grad", "keep", "sequence", "head", "attention",
          "choices", "checkpoint", "bits", "double_quant", "lora", "lora_target", "lora_dropout", "modules_to_save", "lora_switches", "freeze", "loss",
          "phases")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    options = {field: request.get(field) for field in FIELDS}
    warnings.simplefilter("ignore")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    train = request["mode"] == "train"
    try:
        if request["mode"] == "export":
            return tell(exported(request, options), train)
        plan, model = planned(request["model"], request.get("config"), options)
        text = program.write(plan, options)
    except Refused as refusal:
        tell({"refused": str(refusal), "instead": refusal.instead}, train)
        sys.exit(3)
    except MemoryError:
        raise
    except Exception as error:
        if os.environ.get("VRAMLAB_DRIVER_TRACE"):
            raise
        told = "%s: %s%s" % (type(error).__name__, " ".join(str(error).split()) or "no message", left_empty(error))
        tell({"refused": "%s cannot be built: %s" % (request["model"], told[:400]), "instead": ""}, train)
        sys.exit(3)
    tell(plan.told(program=text, parameters=plan.parameters, layers=plan.layers), train)
    if train:
        run(text, model, request, plan)


def left_empty(error):
    """Names the fields that a class reads where it fails, and that the configuration leaves empty."""
    traces = []
    trace = error.__traceback__
    while trace is not None:
        traces.append(trace)
        trace = trace.tb_next
    for trace in reversed(traces):
        config = trace.tb_frame.f_locals.get("config")
        if config is None:
            continue
        try:
            lines, start = inspect.getsourcelines(trace.tb_frame.f_code)
        except (OSError, TypeError):
            return ""
        fields = re.findall(r"\bconfig\.(\w+)", "".join(lines[:trace.tb_lineno - start + 1]))
        empty = [field for field in dict.fromkeys(fields) if getattr(config, field, "") is None]
        return "; its configuration leaves empty: " + ", ".join(empty) if empty else ""
    return ""


def exported(request, options):
    """Exports the network into the folder `into` of the request, and returns what was written."""
    from . import graph

    word, config = request["model"], request.get("config")

    def first(layers):
        return planned(word, config, dict(options), layers)

    plan, model = planned(word, config, dict(options))
    return graph.write(plan, model, options, request["into"], first)


def planned(word, config, options, layers=None):
    """Returns the plan of what a word names, and the network without weights. `layers`: how many of its first layers it has."""
    source = names.find(word, config)
    if layers is not None:
        names.cut(source, layers)
    module = {"transformers": "library", "diffusers": "diffusion", "timm": "vision", "torchvision": "vision", "function": "own"}[source.kind]
    plan, model = importlib.import_module("." + module, __package__).plan_of(source, options)
    model = tuning.change(plan, model, options)
    if options["loss"]:
        losses.change(plan, model, options)
    if options["phases"]:
        life.change(plan, model, options)
    wanted = options["checkpoint"]
    options["checkpoint"] = checkpointed(model, wanted, plan, options["lora"]) if wanted else []
    return plan, model


def checkpointed(model, wanted, plan, adapts):
    """Returns the lines that recompute blocks."""
    if wanted != "blocks":
        raise Refused("--checkpoint %s: here only blocks" % wanted)
    for call, arguments in (("gradient_checkpointing_enable", ""), ("enable_gradient_checkpointing", ""), ("set_grad_checkpointing", "True")):
        if hasattr(model, call):
            supports = getattr(model, "supports_gradient_checkpointing", getattr(model, "_supports_gradient_checkpointing", True))
            if supports:
                lines = ["model.%s(%s)" % (call, arguments)]
                # Without this the first adapters of a frozen network have no gradient where blocks are recomputed.
                return lines + (["model.enable_input_require_grads()"] if adapts and hasattr(model, "enable_input_require_grads") else [])
    raise Refused("--checkpoint blocks: %s does not offer it" % plan.class_name)


def tell(answer, train):
    """Hands the answer to the program that asked."""
    text = json.dumps(answer)
    if not train:
        sys.stdout.write("\n" + text + "\n")
        return
    path = os.path.join(answers(), "model.plan")
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def answers():
    return os.path.join(os.path.dirname(os.environ["VRAMLAB_REHEARSAL_LOG"]), "answers")


def run(text, model, request, plan):
    """Runs the program with the network that was built already, allocated on the card."""
    import linecache

    import torch

    from . import checkpoint, weightless

    name = request["file"]
    space: dict[str, object] = {"__name__": "vramlab_model"}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), space)
    waiting = [model]
    del model
    space["build"] = lambda: weightless.to_card(waiting.pop())
    checkpoints = checkpoint.Checkpoints()
    torch.save, torch.load = checkpoints.save, checkpoints.load
    for function in life.FUNCTIONS:
        if function in space:
            space[function] = life.told(space[function], lambda note: tell_more(plan, text, note))
    space["main"]()  # type: ignore[operator]


def tell_more(plan, text, note):
    """Adds a note to what was told."""
    plan.notes.append(note)
    tell(plan.told(program=text, parameters=plan.parameters, layers=plan.layers), True)
