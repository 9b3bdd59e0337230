#!/usr/bin/env python3
"""Compares `vramlab predict MODEL` of ten small networks that are not built in with scripts written from the classes' documentation.

    scripts/rehearse/models.py VRAMLAB PYTHON [NAME...]

PYTHON has PyTorch for CUDA and transformers; no GPU is needed. The scripts make the network on the host and move it, with weights; both are
rehearsed on the same card, and must allocate and reserve the same at most. Exit code 77: there is no such Python, and why."""

import json
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 3000}
SIGHT = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64, "patch_size": 16}

SCRIPT = """import torch
import transformers
from transformers import AutoConfig

config = AutoConfig.from_pretrained(".")
model = {make}.to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    batch = {{name: value if value is True else value.to("cuda") for name, value in {batch}.items()}}
    optimizer.zero_grad()
    {forward}
    loss.backward()
    optimizer.step()
"""
OWN_LOSS = "out = model(**batch); loss = out.loss"
TEXT = "dict(input_ids=torch.randint(0, 3000, (2, 128)), labels=torch.randint(0, 3000, (2, 128)))"
CONTRAST = """embed = lambda ids: torch.nn.functional.normalize(model(input_ids=ids).last_hidden_state.mean(dim=1), dim=-1)
    query, passage = embed(batch["a"]), embed(batch["b"])
    out = query @ passage.T * 20.0
    loss = torch.nn.functional.cross_entropy(out, torch.arange(2, device="cuda"))"""


def auto(name, dtype="float32"):
    return f"transformers.{name}.from_config(config, dtype=torch.{dtype})"


def lm(kind, architecture, **more):
    """A language model in bfloat16: its configuration and its script."""
    config = dict(SIZES, model_type=kind, architectures=[architecture], torch_dtype="bfloat16", **more)
    return config, SCRIPT.format(make=auto("AutoModelForCausalLM", "bfloat16"), batch=TEXT, forward=OWN_LOSS)


def other(kind, architecture, config, make, batch, forward=OWN_LOSS):
    return dict(config, model_type=kind, architectures=[architecture]), SCRIPT.format(make=auto(make), batch=batch, forward=forward)


PICTURE = "pixel_values=torch.rand(2, 3, 64, 64)"
WHISPER = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256, "vocab_size": 3000, "num_mel_bins": 80, "max_target_positions": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}
BART = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256, "vocab_size": 3000,
}
MODELS = {
    "olmo2": lm("olmo2", "Olmo2ForCausalLM", num_key_value_heads=4),
    "gemma3": lm("gemma3_text", "Gemma3ForCausalLM", num_key_value_heads=1, head_dim=64, sliding_window=64),
    "qwen3-moe": lm("qwen3_moe", "Qwen3MoeForCausalLM", num_key_value_heads=2, head_dim=64, moe_intermediate_size=128, num_experts=8,
                    num_experts_per_tok=2),
    "modernbert": other("modernbert", "ModernBertForMaskedLM", dict(SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
                     "AutoModelForMaskedLM", TEXT),
    "mpnet": other("mpnet", "MPNetModel", SIZES, "AutoModel", "dict(a=torch.randint(0, 3000, (2, 128)), b=torch.randint(0, 3000, (2, 128)))", CONTRAST),
    "bart": other("bart", "BartForConditionalGeneration", BART, "AutoModelForSeq2SeqLM", TEXT),
    "whisper": other("whisper", "WhisperForConditionalGeneration", WHISPER, "AutoModelForSpeechSeq2Seq",
                  "dict(input_features=torch.rand(2, 80, 3000), labels=torch.randint(0, 3000, (2, 128)))"),
    "dinov2": other("dinov2", "Dinov2ForImageClassification", dict(SIGHT, id2label={str(i): str(i) for i in range(10)}), "AutoModelForImageClassification",
                 f"dict({PICTURE}, labels=torch.randint(0, 10, (2,)))"),
    "clip": other("clip", "CLIPModel", {"text_config": dict(SIZES, max_position_embeddings=77, eos_token_id=2), "vision_config": SIGHT}, "AutoModel",
               f"dict(input_ids=torch.randint(0, 3000, (2, 77)), {PICTURE}, return_loss=True)"),
    "swin": other("swin", "SwinForImageClassification", {"image_size": 64, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6], "window_size": 4},
               "AutoModelForImageClassification", f"dict({PICTURE}, labels=torch.randint(0, 2, (2,)))"),
}


def asked(words, folder):
    """The answer of a command as data; ends the program with what it said if there is none."""
    run = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    try:
        return json.loads(run.stdout)
    except ValueError:
        sys.exit(f"{' '.join(words)}: {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-3000:]}")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    vramlab, python, names = sys.argv[1], sys.argv[2], sys.argv[3:] or list(MODELS)
    probe = subprocess.run([python, "-c", "import torch, transformers; assert torch.version.cuda"], capture_output=True, text=True)
    if probe.returncode:
        print(f"skipped: {probe.stderr.strip().splitlines()[-1]}")
        sys.exit(SKIPPED)
    wrong = []
    for name in names:
        config, script = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            pathlib.Path(folder, "train.py").write_text(script)
            text = ["--sequence", "128"] if "vocab_size" in config and name not in ("whisper",) else []
            flags = ["--gpu", "h200", "--json", "-"]
            found = asked([vramlab, "predict", ".", "--python", python, "--batch", "2", *text, *flags], folder)
            truth = asked([vramlab, "rehearse", *flags, "--", python, "train.py"], folder)["ranks"][0]
        here = [found["needs"]["allocated_bytes"], found["needs"]["reserved_bytes"]]
        there = [truth["peak_allocated"], truth["peak_reserved"]]
        print(f"{name}: {found['chosen']['class']}, {here}" + ("" if here == there else f", but the script takes {there}"), flush=True)
        if here != there:
            wrong.append(name)
    if wrong:
        sys.exit(f"other figures than the script's: {', '.join(wrong)}")
    print(f"{len(names)} networks take what the scripts take")


if __name__ == "__main__":
    main()
