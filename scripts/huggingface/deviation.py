"""Measures how far the reserved memory of a release of transformers lies from what `vramlab predict` says of it.

    python scripts/huggingface/deviation.py cases > CASES.json
    vramlab rehearse ... -- python scripts/huggingface/record.py CASES.json > RECORDED      with the release on PYTHONPATH, as record.py says
    python scripts/huggingface/deviation.py compare VRAMLAB RECORDED                         a line for each family

Three programs of each family, of some GiB, so that a segment of 20 MiB is a small part: in float32, in bfloat16 with checkpointing, under autocast
with written-out attention. The lines are those of lab/imports/src/huggingface/meant.rs, in per mille."""
import json
import os
import subprocess
import sys
import tempfile

MARK = "RECORDED "
BATCH, TOKENS, VOCABULARY = 16, 512, 16384
ENCODER = {"vocab_size": VOCABULARY, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048,
           "max_position_embeddings": TOKENS + 2}
DECODER = {**ENCODER, "num_key_value_heads": 2, "head_dim": 64}
T5 = {"vocab_size": VOCABULARY, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 4, "num_heads": 8, "decoder_start_token_id": 0}
FAMILIES = {
    "bert": ("BertForMaskedLM", ENCODER),
    "distilbert": ("DistilBertForMaskedLM", {"vocab_size": VOCABULARY, "dim": 512, "n_layers": 4, "n_heads": 8, "hidden_dim": 2048}),
    "gemma": ("GemmaForCausalLM", DECODER),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": VOCABULARY, "n_embd": 512, "n_layer": 4, "n_head": 8, "n_positions": TOKENS}),
    "gpt_neox": ("GPTNeoXForCausalLM", ENCODER),
    "llama": ("LlamaForCausalLM", DECODER),
    "mistral": ("MistralForCausalLM", DECODER),
    "mt5": ("MT5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "opt": ("OPTForCausalLM", {"vocab_size": VOCABULARY, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "ffn_dim": 2048,
                               "word_embed_proj_dim": 512, "max_position_embeddings": TOKENS}),
    "phi3": ("Phi3ForCausalLM", {**DECODER, "pad_token_id": 0}),
    "qwen2": ("Qwen2ForCausalLM", DECODER),
    "qwen3": ("Qwen3ForCausalLM", DECODER),
    "roberta": ("RobertaForMaskedLM", ENCODER),
    "t5": ("T5ForConditionalGeneration", T5),
    "vit": ("ViTForImageClassification", {"image_size": 224, "patch_size": 16, "hidden_size": 512, "num_hidden_layers": 4,
                                          "num_attention_heads": 8, "intermediate_size": 2048}),
}
PROGRAMS = [{"precision": "fp32"}, {"precision": "bf16", "gradient_checkpointing": True},
            {"precision": "autocast", "attn_implementation": "eager"}]


def cases():
    found = []
    for family, (kind, config) in FAMILIES.items():
        for number, options in enumerate(PROGRAMS):
            # Releases before 5 have T5 with written-out attention alone.
            own = {"attn_implementation": "eager"} if family in ("t5", "mt5") else {}
            config = {**config, "model_type": family, "architectures": [kind]}  # type: ignore[dict-item]
            batch = 64 if family == "vit" else BATCH
            found.append({"name": f"{family}_{number}", "class": kind, "batch": batch, "seq": TOKENS, "config": config, "options": {**options, **own}})  # type: ignore[dict-item]
    return found


def predicted(vramlab, run):
    """The reserved peak that the program says."""
    options, release = run["options"], ".".join(run["versions"]["transformers"].split(".")[:2])
    words = ["--batch", str(run["batch"]), "--transformers", release, "--like", "torch-2.11-sm90", "--cudnn-workspace", "0", "--optimizer", "adamw",
             "--attention", options["attn_implementation"], "--precision", {"autocast": "autocast-bf16"}.get(options["precision"], options["precision"])]
    words += [] if run["config"]["model_type"] == "vit" else ["--sequence", str(run["seq"])]
    words += ["--checkpoint", "blocks"] if options["gradient_checkpointing"] else []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(run["config"], file)
        command = [vramlab, "predict", "--model-file", path, "--steps", "3", "--json", "-", *words]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"{run['name']}: {answer.stderr.strip()}")
    return json.loads(answer.stdout)["needs"]["reserved_bytes"]


def compare(vramlab, recorded):
    with open(recorded) as lines:
        runs = [json.loads(line.split(MARK, 1)[1]) for line in lines if MARK in line]
    column = runs[0]["step_columns"].index("max_reserved")
    found = {}
    for run in runs:
        theirs = max(row[column] for row in run["steps"])
        ours = predicted(vramlab, run)
        found.setdefault(run["config"]["model_type"], []).append(round(1000 * (theirs / ours - 1)))
        print(f"    {run['name']}: {theirs} there, {ours} here", file=sys.stderr)
    print("transformers", runs[0]["versions"]["transformers"])
    for family, deviations in sorted(found.items()):
        print(f'("{family}", [{min(deviations)}, {max(deviations)}]),', f"  // {len(deviations)} programs" if len(deviations) != len(PROGRAMS) else "")


if __name__ == "__main__":
    if sys.argv[1] == "cases":
        json.dump(cases(), sys.stdout)
    else:
        compare(*sys.argv[2:])
