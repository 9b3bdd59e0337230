"""Every program of kind `scripts`, by the name of its recording, with the environment that decides what it allocates."""
import functools
import json
import sys

import torch

import mlps
import operator_table
import small_networks as networks

PROGRAMS: dict = {}

# How variables of the recordings become those of a rehearsal. The streaming multiprocessors are those of the card that the recordings had.
CARDS = {"75": ("7.5", "40"), "80": ("8.0", "108"), "90": ("9.0", "132")}


def add(name, function, *arguments, env=None, **options):
    PROGRAMS[name] = (functools.partial(function, *arguments, **options), env or {})


def with_arguments(function, **options):
    """A program of the rows alone."""
    return lambda row: function(row, **options)


def simple():
    """Groups a to d."""
    for name, env in {"": {}, "_sm80": {"FAKECUDA_SM": "80"}, "_nows": {"CUBLAS_WORKSPACE_CONFIG": ":0:0"},
                      "_expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}}.items():
        add("a_cnn_b128" + name, with_arguments(networks.cnn, batch=128), env=env)
    add("a_cnn_b32", with_arguments(networks.cnn, batch=32))
    add("a_cnn_b32_empty_cache", with_arguments(networks.cnn, batch=32, empty=True))
    add("a_cnn_b128_then_b32", with_arguments(networks.cnns, first=128, second=32))
    add("a_cnn_b32_then_b128", with_arguments(networks.cnns, first=32, second=128))
    add("b_linear", networks.linear)
    add("b_linear_sm80", networks.linear, env={"FAKECUDA_SM": "80"})
    add("c_leak", with_arguments(networks.leak, clear=False))
    add("c_leak_cleared", with_arguments(networks.leak, clear=True))
    for size, channels in (("small", 16), ("larger", 64)):
        for batch in (1, 4):
            add(f"d_{size}_forward_b{batch}", with_arguments(networks.forward, channels=channels, batch=batch))
        for kind in ("sgd", "adam", "adamw"):
            add(f"d_{size}_train_{kind}_b4", with_arguments(networks.train, channels=channels, batch=4, kind=kind))
    add("d_convs", networks.convolutions)


def perceptrons():
    """Group e."""
    sizes = {"s": (2, 128, 32, 64), "m": (4, 1024, 256, 512), "w": (3, 2048, 64, 1024), "d": (8, 512, 128, 512)}

    def mlp(name, size, env=None, **options):
        layers, width, batch, inputs = sizes[size]
        function = with_arguments(mlps.trained, layers=layers, width=width, batch=batch, inputs=inputs, **options)
        add(f"e_mlp_{size}_{name}", function, env=env)

    for size in sizes:
        for kind in ("sgd", "sgdm", "adam", "adamw"):
            mlp(kind, size, kind=kind)
    for size in "mw":
        for kind in ("sgdm", "adam", "adamw") if size == "m" else ("adam",):
            mlp(f"{kind}_foreach0", size, kind=kind, foreach=False)
            mlp(f"{kind}_foreach1", size, kind=kind, foreach=True)
        for name, options in {
            "adamw_fused": {"fused": True}, "amp16_adamw": {"lower": torch.float16}, "bf16autocast_adamw": {"lower": torch.bfloat16},
            "purebf16_adamw": {"pure": torch.bfloat16}, "ckpt_adamw": {"checkpoints": True}, "accum4_adamw": {"accumulation": 4},
            "setnone0_adamw": {"set_none": False},
        }.items():
            mlp(name, size, kind="adamw", **options)
        mlp("setnone0_sgd", size, kind="sgd", set_none=False)
        mlp("amsgrad_adam", size, kind="adam", amsgrad=True)
        mlp("adam_capturable", size, kind="adam", capturable=True)
    mlp("ckpt_adamw", "d", kind="adamw", checkpoints=True)
    mlp("ckpt_bf16autocast_adamw", "d", kind="adamw", checkpoints=True, lower=torch.bfloat16)
    for name, env in {
        "sm80": {"FAKECUDA_SM": "80"}, "sm75": {"FAKECUDA_SM": "75"}, "expandable": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        "ltunified": {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "1"}, "ws_4096_2": {"CUBLAS_WORKSPACE_CONFIG": ":4096:2"},
        "maxsplit20": {"PYTORCH_ALLOC_CONF": "max_split_size_mb:20"}, "pow2_4": {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:4"},
    }.items():
        mlp(f"adam_{name}", "m", kind="adam", env=env)
    mlp("sgd_wd_nesterov", "m", kind="sgdm", weight_decay=1e-2, nesterov=True)


def decoders_and_others():
    """Groups f to h."""
    decoders: dict = {
        "untied": {}, "tied": {"tied": True}, "dropout": {"dropout": 0.1}, "sdpa": {"fused": True}, "bf16": {"lower": torch.bfloat16},
        "sgd": {"kind": "sgd"}, "amp16": {"lower": torch.float16},
        "wide": {"words": 2048, "length": 128, "width": 256, "heads": 8, "batch": 4},
        "wide_tied_bf16": {"words": 2048, "length": 128, "width": 256, "heads": 8, "batch": 4, "tied": True, "lower": torch.bfloat16},
    }
    for name, options in decoders.items():
        add(f"f_gpt_{name}", with_arguments(networks.gpt, **options))
    add("f_resnet18_b4_64", with_arguments(networks.resnet, batch=4, size=64))
    add("f_resnet18_b2_224_adam", with_arguments(networks.resnet, batch=2, size=224, kind="adam"))
    small = {"FAKECUDA_MEM": str(256 << 20)}
    add("g_mlp_oom_256m", mlps.out_of_memory, env=small)
    add("g_mlp_oom_256m_expandable", mlps.out_of_memory, env={**small, "PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    add("h_ops", operator_table.run)
    add("h_clip_grad", mlps.clipping)
    add("h_optimizers", mlps.optimizers)


simple()
perceptrons()
decoders_and_others()


def variables(environment):
    """The variables of a rehearsal for those of a recording."""
    found = dict(environment)
    if "FAKECUDA_SM" in found:
        capability, processors = CARDS[found.pop("FAKECUDA_SM")]
        found.update(VRAMLAB_REHEARSAL_CAPABILITY=capability, VRAMLAB_REHEARSAL_MULTIPROCESSORS=processors)
    if "FAKECUDA_MEM" in found:
        found["VRAMLAB_REHEARSAL_MEMORY"] = found.pop("FAKECUDA_MEM")
    return found


if __name__ == "__main__":
    if "--environments" in sys.argv:
        print(json.dumps({name: variables(environment) for name, (_, environment) in PROGRAMS.items()}))
    else:
        print(*sorted(PROGRAMS), sep="\n")
