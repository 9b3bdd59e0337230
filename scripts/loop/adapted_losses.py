#!/usr/bin/env python3
"""Records the first losses of PyTorch and PEFT, in float32 on the CPU, of small networks with adapters.

    PYTHON scripts/loop/adapted_losses.py PROGRAM lab/tests/golden/adapted_losses.json

PROGRAM is vramlab. Its values stand for the initial ones: a step without a learning rate writes them, PyTorch begins with them, and both have the same tokens
(`lab/training/src/source.rs`). PEFT begins in the same way: `A` uniform by Kaiming's rule, `B` zeros, magnitudes of DoRA the lengths of the weights' rows."""
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import safetensors.torch
import torch
import transformers

STEPS, BATCH, TOKENS, MASK = 20, 3, 12, (1 << 64) - 1

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 80, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 16,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 1}
QWEN2 = {**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True}
ALL = {"lora": 4, "lora-target": "all-linear"}
CNN = {"model": "simple-cnn", "lora": 4}
CASES = [
    ("llama, its own targets", LLAMA, {"lora": 8}), ("llama, all-linear", LLAMA, ALL), ("llama, DoRA", LLAMA, ALL | {"dora": True}),
    ("llama, rsLoRA", LLAMA, {"lora": 8, "rslora": True}), ("gpt2, all-linear, rsLoRA", GPT2, ALL | {"rslora": True}),
    ("llama, a copied head", LLAMA, {"lora": 4, "lora-target": "q_proj", "modules-to-save": "lm_head"}),
    ("llama, steps in backward", LLAMA, {"step-in-backward": True}), ("qwen2, all-linear, steps in backward", QWEN2, ALL | {"step-in-backward": True}),
    ("llama, accumulated and clipped", LLAMA, ALL | {"accumulate": 2, "clip-grad-norm": 0.05}), ("llama, checkpointing, SGD", LLAMA, ALL | {"checkpoint": "blocks", "optimizer": "momentum"}),
    ("gpt2, its own targets", GPT2, {"lora": 4}), ("gpt2, all-linear, DoRA", GPT2, ALL | {"dora": True}), ("qwen2, named", QWEN2, {"lora": 3, "lora-target": "q_proj,down_proj"}),
    ("llama, a table", LLAMA, {"lora": 4, "lora-target": "q_proj,embed_tokens"}), ("llama, a table, DoRA", LLAMA, {"lora": 4, "lora-target": "embed_tokens", "dora": True}),
    ("gpt2, tables", GPT2, {"lora": 3, "lora-target": "wte,wpe,c_attn"}), ("cnn, a convolution", None, CNN | {"lora-target": "conv1"}),
    ("cnn, both layers, rsLoRA", None, CNN | {"lora-target": "conv1,fc", "rslora": True}), ("cnn, DoRA", None, CNN | {"lora-target": "conv1,fc", "dora": True}),
    ("llama, Adafactor of transformers", LLAMA, {"optimizer": "adafactor"}),
    ("llama, Nesterov", LLAMA, {"optimizer": "momentum", "nesterov": True}), ("gpt2, AMSGrad", GPT2, {"amsgrad": True}),
    ("qwen2, chunked loss", QWEN2, ALL | {"loss": "chunked:3"}), ("llama, frozen", LLAMA, {"freeze": "model.embed_tokens,*.mlp"}),
]


class SplitMix64:
    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, bound):
        threshold = ((1 << 64) - bound) % bound
        while True:
            product = self.next() * bound
            if product & MASK >= threshold:
                return product >> 64


def tokens(number, vocabulary):
    generator = SplitMix64(number)
    return torch.tensor([[generator.below(vocabulary) for _ in range(TOKENS)] for _ in range(BATCH)])


def words(fields):
    return [word for name, value in fields.items() for word in (["--" + name] if value is True else ["--" + name, str(value)])]


def begun(program, config, fields, folder):
    """The values that vramlab begins with."""
    (folder / "config.json").write_text(json.dumps(config))
    network = {"model-file": "config.json", "sequence": TOKENS} if config else {}
    command = [program, "train", "--backend", "cpu", "--batch", str(BATCH), "--steps", "1", "--save", "begun.safetensors",
               *words({**network, "optimizer": "adamw", **fields, "lr": 0})]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return safetensors.torch.load_file(folder / "begun.safetensors")


def named(name, adapted):
    """PyTorch's name of a parameter."""
    if not adapted:
        return name
    before, _, rest = name.partition(".lora_")
    if rest:
        return f"base_model.model.{before}.lora_{rest}"
    return "base_model.model." + name


def network(config, fields, values):
    import loops

    if config:
        kind = getattr(transformers, config["architectures"][0])
        model = kind(transformers.AutoConfig.for_model(**config)).float().train()
    else:
        model = loops.SimpleCnn()
    if "lora" in fields:
        target = fields.get("lora-target")
        target = target if target in (None, "all-linear") else target.split(",")
        saved = fields["modules-to-save"].split(",") if "modules-to-save" in fields else None
        model = peft.get_peft_model(model, peft.LoraConfig(r=fields["lora"], target_modules=target, use_dora=fields.get("dora", False), use_rslora=fields.get("rslora", False), modules_to_save=saved, task_type="CAUSAL_LM" if config else None))
    own, left = dict(model.named_parameters()), dict(values)
    with torch.no_grad():
        for name, value in values.items():
            if name.startswith(("optimizer.", "scaler", "random")):
                left.pop(name)
                continue
            full = named(name, "lora" in fields)
            full = full if full in own else f"{full.rpartition('.')[0]}.base_layer.{full.rpartition('.')[2]}"
            own.pop(full).copy_(value)
            left.pop(name)
    assert not own and not left, (list(own), list(left))
    if "freeze" in fields:
        loops.freeze(model, fields["freeze"])
    return model


def optimizer_of(model, fields):
    import optimized

    parameters, name = [parameter for parameter in model.parameters() if parameter.requires_grad], fields.get("optimizer")
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=fields.get("nesterov", False))
    if name == "adafactor":
        return transformers.Adafactor(parameters, lr=1e-2, scale_parameter=False, relative_step=False)
    if fields.get("step-in-backward"):
        return optimized.InBackward(lambda parameter: torch.optim.AdamW([parameter], lr=1e-2), parameters)
    return torch.optim.AdamW(parameters, lr=1e-2, amsgrad=fields.get("amsgrad", False))


def loss_of(model, config, number):
    """The loss of a batch of this number: texts differ, and pictures are the same in each step."""
    if config:
        ids = tokens(number, config["vocab_size"])
        return model(input_ids=ids, labels=ids).loss
    generator, classes = SplitMix64(0), SplitMix64(2)
    pictures = torch.tensor([2.0 * ((generator.next() >> 40) / (1 << 24)) - 1.0 for _ in range(BATCH * 3 * 32 * 32)]).view(BATCH, 3, 32, 32)
    return torch.nn.functional.cross_entropy(model(pictures), torch.tensor([classes.below(10) for _ in range(BATCH)]))


def losses(config, fields, values):
    model = network(config, fields, values)
    if "checkpoint" in fields:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    optimizer = optimizer_of(model, fields)
    accumulate, found = fields.get("accumulate", 1), []
    for step in range(STEPS):
        optimizer.zero_grad()
        mean = 0.0
        for micro in range(accumulate):
            loss = loss_of(model, config, step * accumulate + micro) / accumulate
            loss.backward()
            mean += loss.item()
        if "clip-grad-norm" in fields:
            torch.nn.utils.clip_grad_norm_(model.parameters(), fields["clip-grad-norm"])
        optimizer.step()
        found.append(mean)
    return found


def main():
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    program, target = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    made = []
    for name, config, fields in CASES:
        with tempfile.TemporaryDirectory() as folder:
            values = begun(program, config, fields, pathlib.Path(folder))
            made.append({"name": name, "config": config, "fields": fields, "losses": losses(config, fields, values)})
            print(name, made[-1]["losses"][0], made[-1]["losses"][-1], flush=True)
    target.write_text(json.dumps({"torch": torch.__version__, "peft": peft.__version__, "transformers": transformers.__version__, "batch": BATCH, "sequence": TOKENS,
                                  "cases": made}, indent=1) + "\n")


if __name__ == "__main__":
    main()
