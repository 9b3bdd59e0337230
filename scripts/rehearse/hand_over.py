#!/usr/bin/env python3
"""Hands plans over, loads each file with the library that reads it, and rehearses the scripts.

    scripts/rehearse/hand_over.py VRAMLAB PYTHON [NAME ...]

The peaks of allocated and reserved memory of a rehearsed script must be the plan's, but for a thousandth and a hundredth:
weights of four bits are quantized as they are loaded, and leave other blocks. Exit code 1: a file is not read, or a peak differs."""

import json
import pathlib
import subprocess
import sys
import tempfile

DECODER = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1792, "num_hidden_layers": 6, "num_attention_heads": 8,
           "num_key_value_heads": 4, "max_position_embeddings": 512, "vocab_size": 8000, "dtype": "bfloat16", "tie_word_embeddings": False}
GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 384, "n_layer": 6, "n_head": 6, "n_positions": 512, "vocab_size": 8000}
NEAR = (0.001, 0.01)
STEP = ["--global-batch", "16", "--sequence", "256"]

# Plans: the network's configuration, and flags.
PLANS: "dict[str, tuple[dict, list[str]]]" = {
    "fits": (DECODER, ["--gpu", "24GiB", "--optimizer", "adamw", "--precision", "bf16"]),
    "tight": (DECODER, ["--gpu", "900MiB", "--optimizer", "adamw"]),
    "some-blocks": (DECODER, ["--gpu", "700MiB", "--optimizer", "adamw", "--precision", "bf16"]),
    "autocast": (GPT2, ["--gpu", "600MiB", "--optimizer", "adamw", "--precision", "autocast-bf16"]),
    "lora": (DECODER, ["--gpu", "500MiB", "--optimizer", "adamw", "--precision", "bf16", "--lora", "8", "--lora-target", "all-linear"]),
    "four-bits": (DECODER, ["--gpu", "2GiB", "--optimizer", "paged-adamw8bit", "--precision", "bf16", "--lora", "8", "--load-in-4bit", "--double-quant"]),
    "trainer": (DECODER, ["--gpu", "900MiB", "--optimizer", "adamw", "--precision", "bf16-autocast-bf16", "--loop", "trainer"]),
    "several": (DECODER, ["--gpu", "24GiB", "--optimizer", "adamw", "--precision", "bf16", "--data-parallel", "2", "--zero", "3"]),
}

# What loads a file, in the Python with the libraries; `where` is the folder.
LOADS = r"""
import json, os, pathlib, sys
where = pathlib.Path(sys.argv[1])
def data(name): return json.loads((where / name).read_text())
def lines(name):
    import yaml
    return yaml.safe_load((where / name).read_text())
def known(keys, classes):
    import dataclasses
    names = {field.name for one in classes for field in dataclasses.fields(one)}
    missing = sorted(set(keys) - names)
    assert not missing, missing
for name in sorted(os.listdir(where)):
    if name == "training_args.json":
        import transformers
        given = data(name)
        made = transformers.TrainingArguments(**{**given, "bf16": False, "fp16": False})
        assert made.gradient_accumulation_steps == given["gradient_accumulation_steps"]
    elif name == "peft.json":
        import peft
        assert peft.LoraConfig(**data(name)).r == data(name)["r"]
    elif name == "bitsandbytes.json":
        import transformers
        made = transformers.BitsAndBytesConfig(**data(name))
        assert made.load_in_4bit or made.load_in_8bit
    elif name == "config.json":
        import transformers
        transformers.AutoConfig.from_pretrained(where)
    elif name == "accelerate.yaml":
        from accelerate.commands.config.config_args import load_config_from_file
        assert load_config_from_file(str(where / name)).num_processes == 2
    elif name == "trl.yaml":
        import trl
        keys = [key for key in lines(name) if key != "env"]
        known(keys, [trl.SFTConfig, trl.ModelConfig, trl.ScriptArguments])
    elif name == "deepspeed.json":
        try:
            from deepspeed.runtime.config import DeepSpeedConfig
        except ImportError:
            continue
        os.environ.update(WORLD_SIZE="2", RANK="0")
        assert data(name)["zero_optimization"]["stage"] in (1, 2)
    elif name.endswith(".yaml"):
        assert lines(name)
    elif name.endswith(".py"):
        compile((where / name).read_text(), name, "exec")
    else:
        continue
    print(name)
"""


def peaks(answer):
    """Peaks of allocated and reserved memory of the first rank."""
    peak = answer["ranks"][0] if answer["ranks"] else {"peak_allocated": 0, "peak_reserved": 0}
    return peak["peak_allocated"], peak["peak_reserved"]


def handed_over(vramlab, python, name, folder):
    """Returns what is wrong with a plan's files, and a line about them."""
    network, flags = PLANS[name]
    (folder / "network.json").write_text(json.dumps(network))
    out = folder / "out"
    command = [vramlab, "plan", folder / "network.json", *STEP, *flags, "-q", "--json", folder / "plan.json", "--hand-over", out]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        return [f"no plan: {run.stderr.strip()}"], ""
    plan = json.loads((folder / "plan.json").read_text())
    changes = plan["best"]["changes"]
    wanted = (changes["peak_bytes"], changes["reserved_bytes"])
    load = subprocess.run([python, "-c", LOADS, out], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"})
    wrong = [] if load.returncode == 0 else [f"a file is not read: {load.stderr.strip().splitlines()[-1]}"]
    line = f"{changes['change']}; read: {', '.join(load.stdout.split())}"
    if (out / "train.py").exists():
        answer = folder / "answer.json"
        rehearse = [vramlab, "rehearse", "-q", "--gpu", flags[1], "--json", answer, "--", python, "train.py"]
        run = subprocess.run(rehearse, cwd=out, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not answer.exists():
            return [*wrong, f"not rehearsed: {run.stderr.strip().splitlines()[-1]}"], line
        found = peaks(json.loads(answer.read_text()))
        line = f"{line}; plan {wanted}, rehearsed {found}"
        if any(abs(one - other) > share * other for one, other, share in zip(found, wanted, NEAR)):
            wrong.append(f"{found} rehearsed, {wanted} planned")
    return wrong, line


def main():
    vramlab, python, *names = sys.argv[1:]
    failed = 0
    for name in names or PLANS:
        with tempfile.TemporaryDirectory() as folder:
            wrong, line = handed_over(pathlib.Path(vramlab).resolve(), python, name, pathlib.Path(folder))
        print(f"{'DIFFERS' if wrong else 'ok'} {name}: {line} {'; '.join(wrong)}".rstrip(), flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
