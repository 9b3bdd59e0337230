"""The groups of programs with a technique: networks and fields of a run.

`techniques.py` runs them."""
import functools
import random
import typing

# Small networks, by the fields of a run. A name with `hf-` is a configuration of transformers, one with `export-` a program of `scripts/export`.
NETWORKS: "dict[str, dict]" = {
    "mlp": {"model": "mlp", "layers": 4, "width": 1024, "features": 512, "batch": 48}, "gpt": {"model": "gpt", "batch": 4}, "cnn": {"model": "simple-cnn", "batch": 16},
    "resnet18": {"model": "resnet18", "batch": 4, "image": 32, "classes": 10}, "mobilenet": {"model": "mobilenet_v2", "batch": 3, "image": 32, "classes": 10},
    "hf-llama": {"batch": 2, "sequence": 48}, "hf-gpt2": {"batch": 2, "sequence": 48}, "hf-qwen2": {"batch": 3, "sequence": 40},
    "hf-qwen3": {"batch": 2, "sequence": 40}, "hf-gemma": {"batch": 2, "sequence": 40}, "hf-mistral": {"batch": 2, "sequence": 40}, "hf-phi3": {"batch": 2, "sequence": 40},
    "hf-neox": {"batch": 2, "sequence": 48}, "hf-opt": {"batch": 2, "sequence": 32}, "hf-wide": {"batch": 2, "sequence": 200}, "export-mlp": {"batch": 30}, "export-swiglu": {"batch": 30},
}
CONFIGS: "dict[str, tuple[str, dict]]" = {
    "hf-llama": ("Llama", dict(vocab_size=1024, hidden_size=256, intermediate_size=448, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                               max_position_embeddings=48)),
    "hf-gpt2": ("GPT2", dict(vocab_size=900, n_positions=48, n_embd=192, n_layer=3, n_head=4, bos_token_id=0, eos_token_id=1)),
    "hf-qwen2": ("Qwen2", dict(vocab_size=3000, hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                               max_position_embeddings=64, tie_word_embeddings=True)),
    "hf-qwen3": ("Qwen3", dict(vocab_size=1500, hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                               max_position_embeddings=64)),
    "hf-gemma": ("Gemma", dict(vocab_size=1600, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=32,
                               max_position_embeddings=64)),
    "hf-mistral": ("Mistral", dict(vocab_size=1200, hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                   max_position_embeddings=64)),
    "hf-phi3": ("Phi3", dict(vocab_size=1100, hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, pad_token_id=0,
                             max_position_embeddings=64, original_max_position_embeddings=64)),
    "hf-neox": ("GPTNeoX", dict(vocab_size=2000, hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)),
    "hf-opt": ("OPT", dict(vocab_size=2500, hidden_size=128, word_embed_proj_dim=128, ffn_dim=512, num_hidden_layers=2, num_attention_heads=4,
                           max_position_embeddings=64)),
    # Wide enough for paged states, which begin at 100000 elements.
    "hf-wide": ("Llama", dict(vocab_size=2000, hidden_size=512, intermediate_size=1792, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
                              max_position_embeddings=256)),
}
STEPS = 3

# The programs: optimizer, network, further fields.
LOOP, LISTS, NARROW = {"optimizer-impl": "loop"}, {"optimizer-impl": "foreach"}, {"precision": "bf16"}
DECAY, ASCENT = {"weight-decay": 0.1}, {"maximize": True}
OF_TORCH = [
    ("rprop", "gpt", LOOP), ("radam", "mlp", LOOP | ASCENT), ("nadam", "gpt", LOOP | DECAY), ("asgd", "mlp", LOOP | DECAY), ("adadelta", "cnn", LOOP | DECAY),
    ("adamax", "mlp", LOOP), ("nadamw", "hf-llama", LISTS | NARROW), ("radam", "export-swiglu", LISTS | DECAY), ("rmsprop-centered", "cnn", LOOP),
]
FACTORED = [
    ("torch-adafactor", "mlp", {}), ("torch-adafactor", "cnn", DECAY), ("torch-adafactor", "hf-llama", NARROW), ("adafactor", "mlp", {}),
    ("adafactor", "cnn", DECAY), ("adafactor", "hf-llama", NARROW), ("adafactor", "export-swiglu", {}),
]
OF_BITSANDBYTES = [
    ("adamw8bit", "mlp", {}), ("paged-adamw8bit", "mlp", {}), ("adamw8bit", "export-swiglu", {}), ("lion8bit", "hf-llama", NARROW), ("lion", "gpt", {}),
    ("lamb", "gpt", {}), ("paged-adamw", "gpt", {}), ("ademamix8bit", "mlp", {}),
]
OTHERS_OF_BITSANDBYTES = [
    ("adam8bit", "mlp", {}), ("paged-adam8bit", "gpt", {}), ("paged-lion", "mlp", {}), ("paged-lion8bit", "gpt", {}), ("lamb", "gpt", {}),
    ("rmsprop8bit", "cnn", {}), ("momentum8bit", "mlp", {}), ("adagrad8bit", "mlp", {}), ("ademamix", "gpt", {}), ("paged-ademamix", "mlp", {}),
    ("paged-ademamix8bit", "mlp", {}), ("paged-adamw8bit", "hf-llama", NARROW),
]
# Matrices of the layers by Muon, the rest by AdamW; and steps that are taken in backward: optimizer, network, further fields.
RANK_8, BLOCKWISE = {"lora": 8, "lora-target": "all-linear"}, {"checkpoint": "blocks"}
OF_MUON = [
    ("muon", "mlp", {}), ("muon", "gpt", {}), ("muon", "hf-llama", {}), ("muon", "hf-llama", NARROW), ("muon", "hf-qwen2", NARROW | BLOCKWISE), ("muon", "hf-gpt2", DECAY),
    ("muon", "hf-wide", NARROW | RANK_8), ("muon", "hf-neox", {"accumulate": 2}),
]
OF_BACKWARD = [
    ("adamw", "mlp", {}), ("adamw", "gpt", LOOP), ("adamw", "hf-llama", {}), ("adamw", "hf-llama", NARROW | {"optimizer-impl": "fused"}), ("sgd", "hf-gpt2", {}),
    ("adamw", "hf-qwen2", NARROW | BLOCKWISE), ("paged-adamw8bit", "hf-wide", NARROW | BLOCKWISE), ("adamw8bit", "hf-qwen2", NARROW), ("adamw", "hf-wide", NARROW | RANK_8),
    ("adafactor", "hf-llama", NARROW), ("adamw", "export-swiglu", LOOP), ("adamw", "hf-neox", {"precision": "autocast-bf16"}), ("muon", "hf-opt", {}),
    ("adamw", "cnn", {"freeze": "conv1"}),
]

RANK_16 = {"lora": 16, "lora-target": "all-linear"}
# The end of a network: the loss in place of the network's own.
AUTOCAST, TWICE, BLOCKS = {"precision": "autocast-bf16"}, {"accumulate": 2}, {"checkpoint": "blocks"}
ENDS = [
    ("checkpointed", "hf-llama", {}), ("checkpointed", "hf-llama", NARROW), ("checkpointed", "hf-gpt2", AUTOCAST), ("checkpointed", "hf-qwen2", BLOCKS | NARROW),
    ("chunked", "hf-llama", {}), ("chunked:4", "hf-llama", NARROW), ("chunked:7", "hf-llama", AUTOCAST), ("chunked:3", "hf-gpt2", TWICE),
    ("chunked:5", "hf-qwen2", NARROW), ("chunked:4", "hf-qwen2", BLOCKS | AUTOCAST), ("chunked:2", "hf-neox", NARROW | TWICE), ("chunked:1", "hf-opt", {}),
]

LIGER = [
    ("liger", "hf-llama", {}), ("liger", "hf-llama", NARROW), ("liger", "hf-gpt2", NARROW | TWICE), ("liger", "hf-qwen2", BLOCKS | NARROW), ("liger", "hf-neox", {}),
    ("liger", "hf-opt", NARROW), ("liger", "hf-wide", NARROW | RANK_16), ("liger", "hf-wide", NARROW | {"save-on-cpu": "pinned"}), ("liger", "hf-qwen2", TWICE),
]

# All of Liger's kernels, as `apply_liger_kernel_to_…` puts them in.
BOTH_TYPES = {"precision": "bf16-autocast-bf16"}
KERNELS = [
    ("hf-llama", {}), ("hf-llama", NARROW), ("hf-qwen2", NARROW | BLOCKS), ("hf-qwen2", TWICE), ("hf-wide", NARROW | RANK_16 | BLOCKS), ("hf-wide", NARROW | {"keep": "loss"}),
    ("hf-qwen3", NARROW), ("hf-qwen3", BLOCKS), ("hf-gemma", NARROW), ("hf-gemma", BLOCKS), ("hf-mistral", NARROW | TWICE), ("hf-phi3", NARROW), ("hf-phi3", BLOCKS),
    ("hf-llama", BOTH_TYPES), ("hf-wide", BOTH_TYPES | RANK_16 | BLOCKS), ("hf-qwen2", NARROW | {"optimizer": "paged-adamw8bit", "optimizer-impl": "loop"}),
]

# The same under autocast over 16-bit weights, in networks whose last norm keeps their type.
BOTH = {"precision": "bf16-autocast-bf16"}
LIGER_AUTOCAST = [
    ("liger", "hf-llama", BOTH), ("liger", "hf-llama", BOTH | TWICE), ("liger", "hf-qwen2", BOTH | BLOCKS), ("liger", "hf-wide", BOTH | RANK_16), ("liger", "hf-qwen2", BOTH | TWICE),
    ("liger", "hf-wide", BOTH | {"checkpoint": "1"}),
]

# Adapters over a base, most of 4 or 8 bits, in bfloat16: optimizer, network, further fields.
ADAPTED, RANK_64 = RANK_16, {"lora": 64, "lora-target": "all-linear"}
FOUR, EIGHT, NESTED = {"load-in-4bit": True}, {"load-in-8bit": True}, {"load-in-4bit": True, "double-quant": True}
TUNED = [
    ("paged-adamw8bit", "hf-llama", ADAPTED | FOUR | BLOCKS), ("paged-adamw8bit", "hf-llama", ADAPTED | NESTED | BLOCKS),
    ("paged-adamw8bit", "hf-wide", RANK_64 | NESTED | BLOCKS), ("paged-adamw8bit", "hf-wide", RANK_64 | FOUR | BLOCKS | {"lora-dropout": 0.05}),
    ("paged-adamw8bit", "hf-qwen2", ADAPTED | NESTED | BLOCKS | TWICE), ("paged-adamw8bit", "hf-wide", ADAPTED | EIGHT | BLOCKS),
    ("paged-adamw8bit", "hf-llama", ADAPTED | NESTED | BLOCKS | {"dora": True}), ("paged-adamw8bit", "hf-wide", {"lora": 8} | FOUR | BLOCKS | {"loss": "chunked:4"}),
    ("lion8bit", "hf-llama", ADAPTED | FOUR | BLOCKS), ("lion8bit", "hf-wide", RANK_64 | NESTED), ("paged-lion8bit", "hf-wide", RANK_64 | NESTED | BLOCKS),
    ("paged-adamw", "hf-wide", RANK_64 | FOUR | BLOCKS), ("adamw8bit", "hf-wide", RANK_64 | BLOCKS), ("adafactor", "hf-llama", ADAPTED | NESTED | BLOCKS),
]

# Adapters of tables, modules that are trained as copies, and rsLoRA: network, further fields.
TABLES = {"lora": 8, "lora-target": "q_proj,embed_tokens"}
HEADS = {"modules-to-save": "lm_head"}
ENDS_SAVED = {"modules-to-save": "lm_head,embed_tokens"}
ADAPTED_ENDS = [
    ("hf-llama", TABLES), ("hf-llama", NARROW | TABLES | BLOCKS), ("hf-qwen3", NARROW | TABLES), ("hf-llama", AUTOCAST | TABLES), ("hf-llama", BOTH_TYPES | TABLES | BLOCKS),
    ("hf-qwen2", NARROW | TABLES), ("hf-llama", RANK_16 | HEADS), ("hf-llama", NARROW | RANK_16 | ENDS_SAVED), ("hf-wide", NARROW | RANK_16 | BLOCKS | HEADS),
    ("hf-llama", BOTH_TYPES | RANK_16 | ENDS_SAVED | BLOCKS), ("hf-llama", AUTOCAST | RANK_16 | HEADS), ("hf-wide", NARROW | RANK_64 | NESTED | BLOCKS | HEADS),
    ("hf-llama", NARROW | TABLES | FOUR), ("hf-mistral", NARROW | RANK_16 | {"rslora": True}), ("hf-wide", NARROW | RANK_64 | NESTED | BLOCKS | {"rslora": True}),
    ("hf-llama", BOTH_TYPES | RANK_16 | NESTED | BLOCKS | {"dora": True}), ("hf-llama", BOTH_TYPES | RANK_16 | {"dora": True}), ("hf-llama", NARROW | RANK_16 | {"modules-to-save": "norm"}),
]


def on(names, rank=8, **more):
    """Adapters of the layers of these names."""
    return {"lora": rank, "lora-target": names, **more}


# Adapters of convolutions, and of further tables: network, further fields.
DORA, DROPPED = {"dora": True}, {"lora-dropout": 0.1}
ADAPTED_CONVOLUTIONS = [
    ("cnn", on("conv1")), ("cnn", on("conv1,fc", rank=4, rslora=True)), ("cnn", on("conv1") | DORA), ("cnn", on("conv1,fc") | DROPPED), ("cnn", on("conv1") | DORA | DROPPED),
    ("cnn", on("conv1") | AUTOCAST), ("cnn", on("conv1,fc") | DORA | AUTOCAST), ("resnet18", on("conv1,conv2,fc")), ("resnet18", on("conv1,conv2") | AUTOCAST),
    ("resnet18", on("conv2") | DORA), ("mobilenet", on("features.1.conv.0.0,features.0.0", rank=32)),
]
ADAPTED_TABLES = [
    ("gpt", on("tok,pos")), ("gpt", on("tok,qkv") | AUTOCAST), ("gpt", on("tok,pos") | DORA),
    ("gpt", on("tok") | DORA | AUTOCAST), ("hf-gpt2", NARROW | on("wte,wpe,c_attn")), ("hf-gpt2", on("wte") | BLOCKS), ("hf-gemma", NARROW | on("embed_tokens,q_proj")),
    ("hf-gemma", on("embed_tokens") | DORA | BLOCKS), ("hf-opt", NARROW | on("embed_tokens,fc1") | BLOCKS), ("hf-neox", AUTOCAST | on("embed_in,dense")),
    ("hf-llama", NARROW | on("embed_tokens,q_proj") | DORA), ("hf-llama", BOTH_TYPES | on("embed_tokens") | DORA), ("hf-wide", NARROW | on("embed_tokens,down_proj", rank=16) | NESTED | BLOCKS),
    ("hf-wide", NARROW | on("embed_tokens,q_proj") | FOUR | DORA), ("hf-phi3", NARROW | on("embed_tokens,qkv_proj", rank=16) | {"accumulate": 2}),
]

# Saved tensors on the host, between forward and backward: pageable or pinned, network, further fields.
OFFLOADED = [
    ("pageable", "mlp", {}), ("pinned", "mlp", {}), ("pageable", "gpt", {}), ("pinned", "gpt", {}), ("pageable", "cnn", {}), ("pinned", "cnn", {}),
    ("pageable", "export-swiglu", {}), ("pageable", "hf-llama", {}), ("pinned", "hf-llama", NARROW), ("pageable", "hf-gpt2", AUTOCAST),
    ("pinned", "hf-gpt2", TWICE), ("pageable", "hf-qwen2", NARROW | BLOCKS), ("pinned", "hf-qwen2", AUTOCAST | BLOCKS), ("pageable", "hf-neox", NARROW),
    ("pinned", "hf-opt", {}), ("pinned", "hf-llama", NARROW | BLOCKS | {"loss": "chunked:4"}), ("pinned", "hf-wide", NARROW | RANK_16),
]


# Some blocks are computed again: which, network, further fields.
PINNED, EIGHT_BITS = {"save-on-cpu": "pinned"}, {"optimizer": "paged-adamw8bit"}
SELECTED = [
    ("blocks:2", "hf-gpt2", {}), ("blocks:2", "hf-llama", NARROW), ("0", "hf-llama", {}), ("0,2", "hf-wide", NARROW), ("1", "hf-qwen2", AUTOCAST),
    ("blocks:2", "hf-neox", TWICE), ("0", "hf-opt", {}), ("blocks:3", "hf-wide", NARROW | RANK_16), ("0,2", "hf-gpt2", AUTOCAST | PINNED),
    ("blocks:2", "hf-qwen2", NARROW | {"loss": "chunked:4"}), ("1", "hf-wide", NARROW | RANK_16 | NESTED | EIGHT_BITS), ("2", "hf-gpt2", {"save-on-cpu": "pageable"}),
]

# Blocks that are computed again but for the results of some operators (`create_selective_checkpoint_contexts`): which operators, network, further fields.
SAVED = [
    ("mm", "hf-llama", {}), ("mm,attention", "hf-llama", NARROW), ("mm:2,attention", "hf-llama", AUTOCAST), ("mm:2,attention", "hf-wide", NARROW | RANK_16),
    ("matmuls,attention", "hf-gpt2", {}), ("addmm", "hf-gpt2", AUTOCAST | TWICE), ("attention", "hf-qwen2", NARROW), ("matmuls,attention", "hf-qwen2", AUTOCAST | {"checkpoint": "1"}),
    ("matmuls", "hf-neox", NARROW), ("matmuls,attention", "hf-opt", {"checkpoint": "blocks:2"}), ("mm,attention", "hf-llama", NARROW | {"loss": "chunked:4"}),
    ("mm:2,attention", "hf-wide", NARROW | RANK_16 | NESTED | EIGHT_BITS), ("matmuls", "gpt", {}), ("addmm", "gpt", {}), ("bmm", "gpt", {}), ("addmm", "mlp", {}),
    ("attention", "hf-gpt2", NARROW | PINNED),
]

# The scores of the last so many tokens, and their loss (`logits_to_keep`): how many, network, further fields.
LAST = [
    (16, "hf-llama", {}), (1, "hf-llama", NARROW), (20, "hf-gpt2", AUTOCAST), (7, "hf-qwen2", NARROW | BLOCKS), (40, "hf-qwen2", {}), (16, "hf-neox", NARROW | TWICE),
    (8, "hf-opt", {}), (64, "hf-wide", NARROW | RANK_16), (32, "hf-wide", NARROW | PINNED),
]

# Several texts in each example, told apart by `position_ids`: how many, network, further fields.
PACKED = [
    (4, "hf-llama", {}), (2, "hf-llama", NARROW | BLOCKS), (3, "hf-gpt2", AUTOCAST | BLOCKS), (2, "hf-qwen2", NARROW), (3, "hf-qwen2", BLOCKS), (4, "hf-neox", NARROW | TWICE),
    (2, "hf-opt", BLOCKS), (5, "hf-wide", NARROW | RANK_16 | BLOCKS), (4, "hf-llama", BLOCKS | {"batch": 1}), (4, "hf-wide", NARROW | {"batch": 1, "loss": "liger"}),
    (7, "hf-neox", BLOCKS | {"checkpoint": "1"}), (2, "hf-gpt2", {"batch": 1}), (4, "hf-wide", NARROW | BLOCKS | {"batch": 1, "loss": "chunked:4"}),
]

# One of several ranks under DistributedDataParallel, of which a part is trained: optimizer, network, further fields. `batch` is that of all ranks.
PAIR, VIEW, EACH = {"data-parallel": 2}, {"gradient-as-bucket-view": True}, {"sync-each": True}
RANKED = [
    ("adamw", "hf-llama", PAIR | RANK_16), ("adamw", "hf-wide", PAIR | RANK_16 | NARROW | BLOCKS), ("adamw", "hf-gpt2", PAIR | {"lora": 8} | AUTOCAST),
    ("adamw", "hf-wide", PAIR | RANK_64 | NARROW | TWICE | VIEW), ("adamw8bit", "hf-qwen2", PAIR | RANK_16 | BLOCKS | TWICE | EACH | {"batch": 4}),
    ("paged-adamw8bit", "hf-wide", PAIR | RANK_64 | NESTED | NARROW | BLOCKS), ("adamw", "hf-llama", PAIR | RANK_16 | FOUR | NARROW | {"lora-dropout": 0.05}),
    ("adamw", "hf-wide", PAIR | RANK_16 | EIGHT | NARROW | BLOCKS), ("adamw", "hf-llama", PAIR | RANK_16 | {"dora": True} | BLOCKS),
    ("adamw", "hf-llama", {"data-parallel": 8, "batch": 8} | RANK_16 | BLOCKS | AUTOCAST), ("adamw", "hf-neox", PAIR | {"freeze": "*,!*layers.1*"}),
    ("adamw", "hf-opt", PAIR | {"freeze": "*embed_tokens*"} | NARROW | VIEW), ("adamw", "gpt", PAIR | {"freeze": "tok,pos,blocks.0"}), ("adamw", "cnn", PAIR | {"freeze": "conv1"}),
    ("adamw", "gpt", PAIR | {"freeze": "*,!*.bias", "precision": "autocast-bf16"}), ("adamw", "export-swiglu", PAIR | {"freeze": "*.0,*.bias"}),
]


def drawn(count, seed):
    """Combinations of techniques: network and fields, drawn at random."""
    draw, found = random.Random(seed), []
    while len(found) < count:
        network = draw.choice(["hf-llama", "hf-gpt2", "hf-qwen2", "hf-neox", "hf-opt", "hf-wide", "hf-llama", "hf-qwen2"])
        adapters: dict = draw.choice([{}, RANK_16, {"lora": 8}]) if network in ("hf-llama", "hf-qwen2", "hf-wide") else {}
        precision = draw.choice([{}, NARROW, AUTOCAST])
        bits: dict = draw.choice([{}, FOUR, NESTED]) if adapters and precision == NARROW else {}
        parts: list[dict] = [{"optimizer": draw.choice(["adamw", "adamw8bit", "paged-adamw8bit", "adafactor", "lion8bit", "radam"])}, precision, adapters, bits]
        losses = [None, "checkpointed", "chunked:3"] if precision == AUTOCAST else [None, "checkpointed", "chunked:3", "liger", "liger"]
        others: dict[str, list] = {"checkpoint": [None, "blocks", "blocks:2", "0", "0,1"], "loss": losses,
                                     "save-on-cpu": [None, "pageable", "pinned"], "accumulate": [None, 2]}
        for key, values in others.items():
            value = draw.choice(values)
            parts.append({key: value} if value else {})
        found.append((network, functools.reduce(lambda left, right: left | right, parts)))
    return found


def widely(count, seed):
    """Combinations of what a whole training consists of, with batches and lengths that are odd numbers: network and fields, drawn at random."""
    draw, found = random.Random(seed), []
    fitting = {"hf-llama": 48, "hf-gpt2": 48, "hf-qwen2": 64, "hf-neox": 64, "hf-opt": 64, "hf-wide": 256}
    while len(found) < count:
        network = draw.choice(list(fitting))
        precision = draw.choice(["fp32", "bf16", "bf16", "autocast-bf16", "autocast-fp16"])
        kinds: list[dict] = [{}, RANK_16, {"lora": 8, "lora-dropout": 0.1}, RANK_16 | {"dora": True}]
        kinds += [RANK_64 | FOUR, RANK_16 | NESTED | {"dora": True}, RANK_16 | EIGHT] if precision == "bf16" else [{"freeze": "*,!*layers.1*" if network != "hf-gpt2" else "*,!*h.1*"}]
        of = draw.choice(kinds if network in ("hf-llama", "hf-qwen2", "hf-wide") or precision != "bf16" else kinds[:4])
        fields: dict = {"optimizer": draw.choice(["adamw", "adamw8bit", "paged-adamw8bit", "adafactor", "lion8bit", "rmsprop", "nadam", "adamax"]), "precision": precision, **of}
        losses = [None, None, "checkpointed", "chunked:3"] + (["liger"] if precision in ("fp32", "bf16") else [])
        others: dict[str, list] = {"checkpoint": [None, "blocks", "blocks", "blocks:2"], "loss": losses, "accumulate": [None, None, 2, 3],
                                   "clip-grad-norm": [None, 1.0], "ema": [None, None, "parameters"] if "lora" not in fields and precision != "autocast-fp16" else [None]}
        for key, values in others.items():
            value = draw.choice(values)
            fields |= {key: value} if value else {}
        found.append((network, fields | {"batch": draw.choice([1, 3, 5, 7]), "sequence": draw.randrange(9, fitting[network], 2)}))
    return found


def said(fields):
    """The fields in words."""
    return " ".join(key if value is True else str(value) for key, value in fields.items())


def ended(loss, network, fields):
    """A loss in a network."""
    said = " ".join(str(value) for value in fields.values())
    return {"name": f"{loss} {network} {said}".strip(), "network": network, "fields": {**NETWORKS[network], "steps": STEPS, "optimizer": "adamw", "optimizer-impl": "loop",
                                                                                       "loss": loss, **fields}}


def offloaded(kind, network, fields):
    """Saved tensors on the host."""
    return {"name": f"{kind} {network} {said(fields)}".strip(), "network": network,
            "fields": {**NETWORKS[network], "steps": STEPS, "optimizer": "adamw", "optimizer-impl": "loop", "save-on-cpu": kind, **fields}}


def selected(which, network, fields):
    """Some blocks that are computed again."""
    return {"name": f"{which} {network} {said(fields)}".strip(), "network": network,
            "fields": {**NETWORKS[network], "steps": STEPS, "optimizer": "adamw", "checkpoint": which, **fields}}


def saved(which, network, fields):
    """Blocks of which the results of some operators are kept."""
    return {"name": f"{which} {network} {said(fields)}".strip(), "network": network,
            "fields": {**NETWORKS[network], "steps": STEPS, "optimizer": "adamw", "checkpoint": "blocks", "checkpoint-save": which, **fields}}


def counted(field):
    """What makes a program with a number in this field."""
    def made(number, network, fields):
        return {"name": f"{number} {network} {said(fields)}".strip(), "network": network,
                "fields": {**NETWORKS[network], "steps": STEPS, "optimizer": "adamw", field: number, **fields}}

    return made


def combined(network, fields):
    """A combination of techniques."""
    return {"name": f"{network} {said(fields)}", "network": network, "fields": {**NETWORKS[network], "steps": STEPS, **fields}}


def program(name, network, fields):
    """An optimizer in a network."""
    said = " ".join(str(value) for value in fields.values())
    return {"name": f"{name} {network} {said}".strip(), "network": network, "fields": {**NETWORKS[network], "steps": STEPS, "optimizer": name, **fields}}


GROUPS: "dict[str, list]" = {"optimizers_torch": OF_TORCH, "muon": OF_MUON, "in_backward": OF_BACKWARD, "optimizers_factored": FACTORED, "optimizers_bitsandbytes": OF_BITSANDBYTES,
                             "optimizers_bitsandbytes_others": OTHERS_OF_BITSANDBYTES, "ends": ENDS, "liger": LIGER, "liger_autocast": LIGER_AUTOCAST,
                             "liger_kernels": KERNELS, "tuned": TUNED, "adapted_ends": ADAPTED_ENDS, "adapted_convolutions": ADAPTED_CONVOLUTIONS, "adapted_tables": ADAPTED_TABLES, "offloaded": OFFLOADED, "selected": SELECTED,
                             "saved": SAVED, "last": LAST, "packed": PACKED, "ranked": RANKED,
                             "combined": drawn(30, 49), "wide": widely(24, 51)}


def stepping(name, network, fields):
    """An optimizer whose steps are taken in backward."""
    return program(name, network, {**fields, "step-in-backward": True})


def adapted_ends(network, fields):
    """Adapters by AdamW."""
    return combined(network, {"optimizer": "adamw", **fields})


def by_liger(network, fields):
    """Liger's kernels in a network."""
    return combined(network, {"optimizer": "adamw", "liger": True, **fields})


def tuned(name, network, fields):
    """An optimizer of adapters."""
    return {**program(name, network, {**NARROW, **fields}), "name": f"{name} {network} {said(fields)}"}


# What makes the program of a row of each group; of the others `program`.
MAKERS: "dict[str, typing.Any]" = {
    "in_backward": stepping, "ends": ended, "liger": ended, "liger_autocast": ended, "tuned": tuned, "offloaded": offloaded, "selected": selected, "saved": saved,
    "last": counted("logits-to-keep"), "packed": counted("packing"), "combined": combined, "wide": combined, "liger_kernels": by_liger,
    "adapted_ends": adapted_ends, "adapted_convolutions": adapted_ends, "adapted_tables": adapted_ends,
}


def programs(name):
    """The programs of a group: name, network, and fields of a run."""
    return [MAKERS.get(name, program)(*words) for words in GROUPS[name]]
