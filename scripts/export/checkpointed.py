"""Records what networks of networks.py take with `torch.utils.checkpoint` around some of their modules.

    PYTHONPATH=python python scripts/export/checkpointed.py FOLDER [NAME...]      FOLDER/NAME.json for each

As eager.py, of the same modules. `pattern` is what `--checkpoint` is told, and every outermost module that it names is computed again.
"""
import re

from torch.utils.checkpoint import checkpoint

import eager
import networks
import record

PATTERNS = {
    "nanogpt": "h.*",
    "gpt2": "network.transformer.h.*",
    "llama": "network.model.layers.*",
    "resnet50": "layer1,layer3.*",
    "vit": "encoder.layers.encoder_layer_*",
}


def named(pattern, path):
    """True if a pattern names the module at a path: a `*` stands for any part of one name."""
    each = (re.escape(one).replace(r"\*", "[^.]*") for one in pattern.split(","))
    return any(re.fullmatch(one, path) for one in each)


def again(module):
    forward = module.forward
    module.forward = lambda *given, **options: checkpoint(forward, *given, use_reentrant=False, **options)


def wrapped(model, pattern):
    taken = []
    for path, module in model.named_modules():
        if named(pattern, path) and not any(path.startswith(outer + ".") for outer in taken):
            taken.append(path)
            again(module)


def rows(name, batch, pattern):
    return eager.rows(name, batch, lambda model: wrapped(model, pattern))


def recorded(name, _):
    pattern = PATTERNS[name]
    runs = {batch: record.in_a_child(rows, name, batch, pattern) for batch in (4, 7)}
    return {"loss": networks.NETWORKS[name][2], "columns": record.COLUMNS, "runs": runs, "pattern": pattern}


if __name__ == "__main__":
    record.main(recorded, PATTERNS)
