"""Records what networks of networks.py take with `torch.utils.checkpoint` around some of their modules.

    PYTHONPATH=python python scripts/export/checkpointed.py FOLDER [NAME...]      FOLDER/NAME.json for each

As eager.py, of the same modules. `pattern` is what `--checkpoint` is told, and every outermost module that it names is computed again. Of `sqrt` the blocks
of each segment of round(sqrt(n)) are one function; NAME-sqrt of a network are its blocks in segments.
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


def in_segments(model, path):
    """As `wrapped`, of the blocks in a module of the class Sequential: the first of a segment runs all of it, the others nothing."""
    blocks = [(block, block.forward) for block in model.get_submodule(path)]
    length = max(1, round(len(blocks) ** 0.5))

    def run(segment):
        def forward(x):
            for one in segment:
                x = one(x)
            return x
        return lambda x: checkpoint(forward, x, use_reentrant=False)

    for start in range(0, len(blocks), length):
        segment = blocks[start:start + length]
        for block, _ in segment:
            block.forward = lambda x: x
        segment[0][0].forward = run([forward for _, forward in segment])


# The Sequential with the blocks of each network.
SEGMENTS = {"resnet20": "layers", "timm-vit": "blocks", "timm-deit": "blocks"}
SQRT = "-sqrt"


def rows(name, batch, pattern):
    if pattern == "sqrt":
        return eager.rows(name, batch, lambda model: in_segments(model, SEGMENTS[name]))
    return eager.rows(name, batch, lambda model: wrapped(model, pattern))


def recorded(name, _):
    name, pattern = (name[:-len(SQRT)], "sqrt") if name.endswith(SQRT) else (name, PATTERNS[name])
    runs = {batch: record.in_a_child(rows, name, batch, pattern) for batch in (4, 7)}
    return {"loss": networks.NETWORKS[name][2], "columns": record.COLUMNS, "runs": runs, "pattern": pattern}


if __name__ == "__main__":
    record.main(recorded, [*PATTERNS, *(name + SQRT for name in SEGMENTS)])
