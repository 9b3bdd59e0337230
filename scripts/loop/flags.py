#!/usr/bin/env python3
"""Draws combinations of flags at random and records what the real PyTorch takes for each: small networks of transformers, on one card or as one rank
of two under DistributedDataParallel.

    PYTHON scripts/loop/flags.py LIBRARY FILE.json.gz [SEED COUNT [frozen]]

LIBRARY is the one of `vramlab rehearse`, PYTHON has the releases of torch and transformers that the file names afterwards. Each program runs in a
process of its own. FILE has, for each, the flags as fields of a run, the configuration, and a row per phase (columns of lab/tests/golden/README.md).
The same seed gives the same file. With `frozen` each program is of one card and excludes parameters from training."""
import contextlib
import ctypes
import fnmatch
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

SEED, COUNT, STEPS, VOCABULARY, LENGTH = 46, 60, 4, 1000, 32

CARD = {"memory": 85_017_493_504, "capability": "9.0", "multiprocessors": 132, "name": "NVIDIA H100 80GB HBM3"}

SIZES = {
    "Llama": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64),
    "Qwen3": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                  max_position_embeddings=64, tie_word_embeddings=True),
    "GPT2": dict(n_embd=256, n_layer=3, n_head=4, n_positions=64),
    "OPT": dict(hidden_size=256, ffn_dim=512, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=256),
    "GPTNeoX": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64),
    "Bert": dict(hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64),
    "T5": dict(d_model=256, d_kv=64, d_ff=512, num_layers=2, num_heads=4),
}
HEADS = {"Bert": "BertForMaskedLM", "T5": "T5ForConditionalGeneration", "GPT2": "GPT2LMHeadModel"}


# Parameters that are excluded from training, by family: `*` stands for any characters, `!` takes a name back, and the last match decides.
FROZEN = {"GPT2": ["*,!*h.1*", "*wte*", "*bias", "*,!*ln_*"], "OPT": ["*,!*layers.1*", "*embed_tokens*", "*bias", "*,!*norm*"],
          "Bert": ["*,!*layer.1*", "*word_embed*", "*bias", "*,!*Norm*"], "T5": ["*shared*", "*,!*block.1*", "*encoder*"]}
FROZEN_DECODER = ["*,!*layers.1*", "*embed*", "*,!*norm*"]
OF_RANKS = ("data-parallel", "gradient-as-bucket-view", "sync-each")


def drawn_frozen(chance):
    """Fields of a run on one card that excludes parameters from training, in two of three with checkpointing."""
    fields = drawn(chance)
    ranks = fields.get("data-parallel", 1)
    fields = {name: value for name, value in fields.items() if name not in OF_RANKS}
    for name in ("batch", "eval-batch"):
        if name in fields:
            fields[name] //= ranks
    fields["checkpoint"] = chance.choice(["blocks", "blocks", "none"])
    return fields | {"freeze": chance.choice(FROZEN.get(fields["model-type"], FROZEN_DECODER))}


def freeze(model, names):
    """Excludes parameters from training."""
    for name, parameter in model.named_parameters():
        for pattern in names.split(","):
            if fnmatch.fnmatchcase(name, pattern.lstrip("!")):
                parameter.requires_grad_(pattern.startswith("!"))


def drawn(chance):
    """Fields of a run, drawn with this generator."""
    accumulate, ranks, every = chance.choice([1, 1, 2, 3]), chance.choice([1, 2, 2]), chance.choice([0, 0, 1, 2])
    fields = {
        "model-type": chance.choice(list(SIZES)),
        "steps": STEPS,
        "sequence": LENGTH,
        "batch": 4 * ranks,
        "accumulate": accumulate,
        "precision": chance.choice(["fp32", "fp32", "bf16", "autocast-bf16"]),
        "optimizer": chance.choice(["adamw", "adamw", "sgd", "momentum"]),
        "optimizer-impl": chance.choice(["foreach", "fused", "loop"]),
        "keep": chance.choice(["output", "output", "loss"]),
        "checkpoint": chance.choice(["none", "none", "blocks"]),
        "attention": chance.choice(["sdpa", "sdpa", "eager"]),
        "attention-mask": chance.choice(["none", "none", "full"]),
        "zero-grad": chance.choice(["none", "none", "zero"]),
        "hold": chance.choice(["inputs,outputs,loss"] * 3 + ["none", "loss", "inputs"]),
    }
    if chance.random() < 0.3:
        fields["clip-grad-norm"] = 1.0
    if ranks > 1:
        fields["data-parallel"] = ranks
        if chance.random() < 0.4:
            fields["gradient-as-bucket-view"] = True
        if accumulate > 1 and chance.random() < 0.4:
            fields["sync-each"] = True
    if every:
        fields |= {"eval-every": every, "eval-batch": chance.choice([2, 6]) * ranks, "eval-steps": chance.choice([1, 2, 3])}
        if fields["keep"] == "output" and chance.random() < 0.5:
            fields["eval-keep"] = "logits"
    if chance.random() < 0.3:
        fields["lengths"] = ",".join(str(chance.choice([7, 16, 24, LENGTH])) for _ in range(chance.choice([2, 3])))
    return fields


def optimizer_of(fields, parameters):
    import torch

    form = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}[fields["optimizer-impl"]]
    if fields["optimizer"] == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4, **form)
    return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9 if fields["optimizer"] == "momentum" else 0.0, **form)


def configured(fields):
    """The configuration of a drawn network."""
    import transformers

    name = fields["model-type"]
    padding = {"pad_token_id": 0} if name != "T5" else {"pad_token_id": 0, "decoder_start_token_id": 0}
    return getattr(transformers, name + "Config")(vocab_size=VOCABULARY, **SIZES[name], **padding)


def program(row, fields):
    """The loop, as a script writes it: a function, because its names die in the order of their first assignment."""
    import torch
    import torch.distributed as dist
    import transformers
    from torch.nn.parallel import DistributedDataParallel

    import parallel

    ranks, accumulate, name = fields.get("data-parallel", 1), fields["accumulate"], fields["model-type"]
    size, lengths = fields["batch"] // ranks, [int(length) for length in fields.get("lengths", str(LENGTH)).split(",")]
    every, hold, device = fields.get("eval-every", 0), fields["hold"].split(","), torch.device("cuda")
    config = configured(fields)
    if ranks > 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group(backend="fake", rank=0, world_size=ranks, store=FakeStore())
    config._attn_implementation = fields["attention"]
    dtype = torch.bfloat16 if fields["precision"] == "bf16" else torch.float32
    word = "torch_dtype" if transformers.__version__.startswith("4.") else "dtype"
    amp = torch.bfloat16 if fields["precision"] == "autocast-bf16" else None
    # As from_pretrained does, which leaves the frequencies of positions in float32.
    model = getattr(transformers, HEADS.get(name, name + "ForCausalLM"))._from_config(config, **{word: dtype}).to(device)
    model.train()
    if "freeze" in fields:
        freeze(model, fields["freeze"])
    if fields["checkpoint"] == "blocks":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if ranks > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=fields.get("gradient-as-bucket-view", False))
        model.register_comm_hook(None, parallel.reduced)
    optimizer = optimizer_of(fields, [parameter for parameter in model.parameters() if parameter.requires_grad])
    row("model")

    def autocast():
        return torch.autocast("cuda", dtype=amp) if amp else contextlib.nullcontext()

    def example(examples, length):
        ids = torch.randint(5, VOCABULARY, (examples, length))
        made = {"input_ids": ids}
        if fields["attention-mask"] == "full":
            made["attention_mask"] = torch.ones_like(ids)
        made["labels"] = ids.clone()
        return {key: value.to(device) for key, value in made.items()}

    def evaluate(at):
        model.eval()
        kept = []
        with torch.no_grad():
            for number in range(fields["eval-steps"]):
                batch = example(fields["eval-batch"] // ranks, lengths[number % len(lengths)])
                row(f"{at}eval{number}.input")
                with autocast():
                    if fields["keep"] == "loss":
                        loss = model(**batch).loss
                    else:
                        out = model(**batch)
                        loss = out.loss
                row(f"{at}eval{number}.forward")
                loss.item()
                if fields.get("eval-keep"):
                    kept.append(out.logits)
        model.train()

    def around(last):
        together = ranks == 1 or last or fields.get("sync-each")
        return contextlib.nullcontext() if together else model.no_sync()

    for step in range(fields["steps"]):
        for micro in range(accumulate):
            number = step * accumulate + micro
            at = f"s{step}." + (f"m{micro}." if accumulate > 1 else "")
            batch = example(size, lengths[number % len(lengths)])
            row(at + "input")
            if micro == 0:
                optimizer.zero_grad(set_to_none=fields["zero-grad"] == "none")
                row(f"s{step}.zero_grad")
            with around(micro + 1 == accumulate):
                with autocast():
                    if fields["keep"] == "loss":
                        loss = model(**batch).loss
                    else:
                        out = model(**batch)
                        loss = out.loss
                if accumulate > 1:
                    loss = loss / accumulate
                row(at + "forward")
                loss.backward()
                row(at + "backward")
        if "clip-grad-norm" in fields:
            torch.nn.utils.clip_grad_norm_(model.parameters(), fields["clip-grad-norm"])
        optimizer.step()
        row(f"s{step}.step")
        if hold != ["inputs", "outputs", "loss"]:
            if "inputs" not in hold:
                del batch
            if "outputs" not in hold and fields["keep"] == "output":
                del out
            if "loss" not in hold:
                del loss
            row(f"s{step}.held")
        if every and (step + 1) % every == 0:
            evaluate(f"s{step}.")
            row(f"s{step}.evaluated")


def recorded(fields):
    """The rows of a program."""
    import torch

    import loop_record

    # Neither cuDNN's convolutions nor its attention, as an answer counts by default.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    rows = loop_record.Rows()
    torch.cuda.init()
    torch.manual_seed(0)
    program(rows, fields)
    return {"fields": fields, "config": configured(fields).to_dict(), "rows": rows.taken}


def inside(target, seed, count, draw):
    """In the process with the library: every program in a child of its own."""
    import torch
    import transformers

    import loop_record

    torch.set_num_threads(1)
    # Masks depend on values: the layer that computes small ones beside kernels that do nothing.
    library = ctypes.CDLL(None)
    library.vramlab_rehearsal_python.restype = ctypes.c_char_p
    layer: dict = {"__name__": "vramlab_values"}
    exec(compile(library.vramlab_rehearsal_python(), "<vramlab>", "exec"), layer)
    layer["values"] = layer["install"](torch)
    chance, made = random.Random(seed), []
    for number in range(count):
        fields = draw(chance)
        try:
            made.append(loop_record.in_a_child(recorded, fields))
            last = made[-1]["rows"][-1]
            print(number, fields, "peak", last[2], "reserved", last[4], flush=True)
        except RuntimeError as error:
            print(number, fields, error, flush=True)
    found = {"format": "vramlab-flags-1", "torch": torch.__version__, "transformers": transformers.__version__, "seed": seed, "card": CARD,
             "columns": loop_record.COLUMNS, "programs": made}
    with open(target, "wb") as file:
        file.write(gzip.compress(json.dumps(found, separators=(",", ":"), default=str).encode(), mtime=0))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.join(here, "../rehearse")]
    if sys.argv[1] == "--inside":
        return inside(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), drawn_frozen if "frozen" in sys.argv[5:] else drawn)
    import recording

    library, target, *numbers = sys.argv[1:]
    seed, count, *kind = numbers or (SEED, COUNT)
    with tempfile.TemporaryDirectory() as folder:
        own = {name: value for name, value in os.environ.items() if name not in recording.DECIDING}
        words = [sys.executable, os.path.abspath(__file__), "--inside", os.path.abspath(target), str(seed), str(count), *kind]
        return subprocess.run(words, env=own | recording.environment(library, folder, CARD)).returncode


if __name__ == "__main__":
    sys.exit(main())
