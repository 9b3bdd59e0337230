#!/usr/bin/env python3
"""Programs with a technique that people train with, beside the flags that say the same: the rows of the real libraries.

    python scripts/loop/techniques.py           the groups
    python scripts/loop/techniques.py GROUP     its programs, as JSON: name, network, and fields of a run

`scripts/record/record.py techniques GROUP …` records a group."""
import contextlib
import functools
import json
import sys

import groups


def adapted(fields):
    """What makes a network of transformers one with the adapters, and the base, that the fields of a run name."""
    import peft

    import few_bits

    nested = {"bnb_4bit_use_double_quant": True} if fields.get("double-quant") else {}
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16", **nested}
    arguments = four if fields.get("load-in-4bit") else {"load_in_8bit": True} if fields.get("load-in-8bit") else None
    targets = fields.get("lora-target")
    targets = targets if targets in (None, "all-linear") else targets.split(",")
    lora = peft.LoraConfig(r=fields["lora"], target_modules=targets, lora_dropout=fields.get("lora-dropout", 0.0),
                           use_dora=fields.get("dora", False), use_rslora=fields.get("rslora", False),
                           modules_to_save=fields["modules-to-save"].split(",") if "modules-to-save" in fields else None)

    def made(model):
        if arguments:
            model = few_bits.quantized(model, arguments).to("cuda")
            model = peft.prepare_model_for_kbit_training(model, "checkpoint" in fields, {"use_reentrant": False})
        elif "checkpoint" in fields:
            model.enable_input_require_grads()
        return peft.get_peft_model(model, lora)

    return made


def loss_of(name):
    """What computes the loss of that name from a network of transformers and a batch: `checkpointed`, `chunked:N`, or `liger` (liger-kernel 0.8.5)."""
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    def hidden_states(model, batch):
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        return inner.base_model(**{name: value for name, value in batch.items() if name != "labels"}).last_hidden_state

    def checkpointed(model, batch):
        hidden = hidden_states(model, batch)

        def head_and_loss(hidden, labels):
            return model.loss_function(model.get_output_embeddings()(hidden), labels, vocab_size=model.config.vocab_size)

        return checkpoint(head_and_loss, hidden, batch["labels"], use_reentrant=False)

    def chunked(model, batch):
        hidden = hidden_states(model, batch)
        labels = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:].reshape(-1)

        def head_and_loss(hidden, labels):
            return F.cross_entropy(model.get_output_embeddings()(hidden).float(), labels, reduction="sum")

        hidden, total = hidden.view(-1, hidden.shape[-1]), None
        for part, targets in zip(hidden.chunk(chunks), labels.chunk(chunks)):
            loss = checkpoint(head_and_loss, part, targets, use_reentrant=False)
            total = loss if total is None else total + loss
        # Every label counts but the one behind the last token of an example.
        return total / (len(batch["labels"]) * (batch["labels"].shape[1] - 1))

    def liger(model, batch):
        from liger_kernel.transformers.model.loss_utils import LigerForCausalLMLoss

        hidden = hidden_states(model, batch)
        return LigerForCausalLMLoss(hidden_states=hidden, lm_head_weight=model.get_output_embeddings().weight, labels=batch["labels"],
                                    hidden_size=model.config.hidden_size)

    if name == "liger":
        return liger
    chunks = int(name.partition(":")[2] or 8)
    return chunked if name.startswith("chunked") else checkpointed


def checkpoints_of(text):
    """The blocks that are computed again: all, none, every so many-th, or those with these numbers."""
    if text in (None, "blocks"):
        return text is not None
    if text.startswith("blocks:"):
        return lambda block: (block + 1) % int(text.partition(":")[2]) == 0
    return lambda block: str(block) in text.split(",")


# The operators of each word of `checkpoint-save`.
MATMULS = ["mm", "addmm", "bmm"]
ATTENTION = ["_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"]


def contexts_of(text):
    """What makes the contexts of a block that is computed again but for the results of these operators; of `mm:2` every second one is computed again."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    words = text.split(",")
    names = [name for word in words for name in {"matmuls": MATMULS, "attention": ATTENTION}.get(word, [word.partition(":")[0]])]
    kept = [getattr(torch.ops.aten, name).default for name in names]
    if "mm:2" not in words:
        return functools.partial(create_selective_checkpoint_contexts, kept)

    def contexts():
        counts = {False: 0, True: 0}

        def policy(ctx, op, *_, **__):
            if op == torch.ops.aten.mm.default:
                counts[ctx.is_recompute] += 1
            saves = op in kept and not (op == torch.ops.aten.mm.default and counts[ctx.is_recompute] % 2 == 0)
            return CheckpointPolicy.MUST_SAVE if saves else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return contexts


def computed_again(blocks, contexts):
    """Computes these modules again in backward, but for what the contexts keep."""
    from torch.utils.checkpoint import checkpoint

    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)


def of_ranks(fields):
    """What makes a rank of the network, under PyTorch's stand-in for a process group; nothing for a run on one device."""
    if "data-parallel" not in fields:
        return {}
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import parallel

    def ready(_, model):
        dist.init_process_group(backend="fake", rank=0, world_size=fields["data-parallel"], store=FakeStore())
        model = DistributedDataParallel(model, gradient_as_bucket_view=fields.get("gradient-as-bucket-view", False))
        model.register_comm_hook(None, parallel.reduced)
        return model, "model"

    def around(model, last):
        return contextlib.nullcontext() if last or fields.get("sync-each") else model.no_sync()

    return {"ready": ready, "around": around}


def run(row, case, host):
    """The training; returns the configuration of a network of transformers."""
    import torch

    import loops
    import optimized as optimizers

    fields, network = case["fields"], case["network"]
    offload = {"saved": host.saved(fields["save-on-cpu"])} if "save-on-cpu" in fields else {}
    optimized, batch = optimizers.optimizer_of(fields), fields["batch"] // fields.get("data-parallel", 1)
    frozen, ranks = fields.get("freeze", ""), of_ranks(fields)
    dtype = torch.bfloat16 if str(fields.get("precision")).startswith("bf16") else torch.float32
    precision = str(fields.get("precision"))
    autocast = torch.float16 if precision == "autocast-fp16" else torch.bfloat16 if precision.endswith("autocast-bf16") else None
    if network in groups.CONFIGS:
        family, sizes = groups.CONFIGS[network]
        return loops.of_transformers(row, family, (batch,), (fields["sequence"],), groups.STEPS, dtype=dtype, optimized=optimized,
                                     adapters=adapted(fields) if "lora" in fields else None,
                                     accumulate=fields.get("accumulate", 1), checkpoints=checkpoints_of(fields.get("checkpoint")), autocast=autocast,
                                     contexts=contexts_of(fields["checkpoint-save"]) if "checkpoint-save" in fields else None,
                                     last=fields.get("logits-to-keep", 0), texts=fields.get("packing", 0),
                                     loss_of=loss_of(fields["loss"]) if "loss" in fields else None, by_liger=fields.get("liger", False), only_loss=fields.get("keep") == "loss", frozen=frozen, clip=fields.get("clip-grad-norm", 0.0), scaled=precision == "autocast-fp16",
                                     average="ema" in fields, **ranks, **offload, **sizes)["config"]
    if network.startswith("export-"):
        loops.exported(row, network[len("export-"):], (batch,), groups.STEPS, optimized=optimized, frozen=frozen, **ranks, **offload)
        return None
    networks: dict[str, tuple] = {"mlp": (loops.mlp, loops.features), "gpt": (loops.Gpt, loops.tokens), "cnn": (loops.SimpleCnn, loops.pictures),
                                  "resnet18": (lambda: loops.of_torchvision("resnet18"), loops.pictures),
                                  "mobilenet": (lambda: loops.of_torchvision("mobilenet_v2"), loops.pictures)}
    make, data = networks[network]
    model = loops.freeze(make(), frozen) if frozen else make()
    model = adapted(fields)(model) if "lora" in fields else model
    if "checkpoint-save" in fields:
        blocks = model.blocks if network == "gpt" else [torch.nn.Sequential(*model[number:number + 2]) for number in range(0, len(model) - 1, 2)]
        computed_again(blocks, contexts_of(fields["checkpoint-save"]))
        if network == "mlp":
            model = torch.nn.Sequential(*blocks, model[-1])
    loops.in_turn(row, model, data, (batch,), steps=groups.STEPS, optimized=optimized, amp=autocast, **ranks, **offload)
    return None


def recorded(case):
    """The rows of a program, which runs in a process of its own."""
    import torch

    import host_bytes
    import script_format

    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    rows = script_format.Rows()
    torch.cuda.init()
    torch.manual_seed(0)
    host = host_bytes.Host()
    config = run(rows, case, host)
    if config:
        # The file of the network before its weights were quantized.
        config.pop("quantization_config", None)
    return {**case, "torch": torch.__version__, **({"config": config} if config else {}), "rows": rows.taken,
            **({"host": host.figures()} if "save-on-cpu" in case["fields"] else {})}


def main():
    if sys.argv[1:]:
        print(json.dumps(groups.programs(sys.argv[1])))
    else:
        print(*groups.GROUPS, sep="\n")


if __name__ == "__main__":
    main()
