"""Exports small decoders with the package for Python, batch and length open, and trains them as a script does, at other sizes.

    python lengths.py export FOLDER            FOLDER/NAME.pt2.gz for each network
    python lengths.py train NAME BATCH TOKENS  three steps; a rehearsal of this says the peaks: vramlab rehearse -- python lengths.py train ...

Attention of some layers has a window. Whether an example is longer decides what the cache keeps, so each graph has bounds.
"""
import gzip
import os
import sys
import tempfile

import torch

SIZES = dict(vocab_size=1000, num_key_value_heads=2, max_position_embeddings=4096, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
             num_attention_heads=4, head_dim=16)
WINDOWS = dict(sliding_window=128, layer_types=["sliding_attention", "full_attention"])
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)

# The class, its configuration, and the length of the example.
NETWORKS: "dict[str, tuple[str, str, dict, int]]" = {
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", WINDOWS, 200),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", EXPERTS, 64),
}


def model(name):
    import transformers
    kind, config, own, _ = NETWORKS[name]
    return getattr(transformers, kind)(getattr(transformers, config)(**own, **SIZES)).to(torch.bfloat16).train()


def tokens(batch, length):
    return torch.randint(SIZES["vocab_size"], (batch, length))


def export(folder):
    import record
    import vramlab
    for name in NETWORKS:
        ids = tokens(2, NETWORKS[name][3])
        with tempfile.TemporaryDirectory() as scratch:
            path = vramlab.export(model(name), input_ids=ids, labels=ids, path=os.path.join(scratch, "net.pt2"))
            archive = record.shortened_archive(path.read_bytes(), guards=True)
        with open(os.path.join(folder, name + ".pt2.gz"), "wb") as file:
            file.write(gzip.compress(archive, mtime=0))


def train(name, batch, length):
    network = model(name).to("cuda")
    optimizer = torch.optim.AdamW(network.parameters())
    for _ in range(3):
        ids, labels = tokens(batch, length).to("cuda"), tokens(batch, length).to("cuda")
        optimizer.zero_grad()
        out = network(input_ids=ids, labels=labels)
        out.loss.backward()
        optimizer.step()


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(sys.argv[2])
    else:
        train(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
