"""Training loops that are not one batch after another of one size: name -> a function that takes rows with `row(label)`.

The loops are written as scripts write them: nothing is deleted, and every name keeps its value until it is bound again."""
import contextlib
import fnmatch
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = torch.device("cuda")


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.relu, self.pool, self.fc = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Linear(16 * 16 * 16, 10)

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        return self.fc(x.view(x.size(0), -1))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln1, self.qkv, self.proj, self.ln2 = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.fc1, self.fc2, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x, mask):
        B, T, D = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(D, dim=2)
        q, k, v = (t.view(B, T, self.heads, D // self.heads).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (D // self.heads) ** -0.5
        att = att.masked_fill(mask, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, D)
        x = x + self.drop(self.proj(y))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.ln2(x)))))


class Gpt(nn.Module):
    """The decoder of the group f, which takes fewer tokens, too."""

    def __init__(self, vocabulary=512, length=64, width=128, heads=4, layers=2, dropout=0.0):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("mask", torch.triu(torch.ones(length, length, dtype=torch.bool), 1))

    def forward(self, tokens):
        T = tokens.shape[1]
        x = self.tok(tokens) + self.pos(torch.arange(T, device=tokens.device))
        mask = self.mask[:T, :T]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.lnf(x))


def mlp(layers=4, width=1024, features=512):
    sizes = [features] + [width] * layers
    hidden = [part for i in range(layers) for part in (nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def pictures(batch, _):
    return torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))


def features(batch, _):
    return torch.randn(batch, 512), torch.randint(0, 10, (batch,))


def tokens(batch, length):
    return torch.randint(0, 512, (batch, length)), torch.randint(0, 512, (batch, length))


def cross_entropy(out, target):
    return F.cross_entropy(out.view(-1, out.size(-1)), target.view(-1)) if out.dim() > 2 else F.cross_entropy(out, target)


def autocast(dtype):
    return torch.autocast("cuda", dtype=dtype) if dtype else contextlib.nullcontext()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def slow_adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)


def optimizer_over(optimized, model):
    """The optimizer of a network's parameters; some tell them apart by their names."""
    return optimized(model.named_parameters() if getattr(optimized, "by_name", False) else model.parameters())


def as_it_is(row, model):
    return model, "model"


def at_once(model, last):
    return contextlib.nullcontext()


def to_device(value):
    return value.to(DEVICE)


def freeze(model, patterns):
    """Takes the gradients of the parameters that the patterns name; returns the model."""
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        names = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        for pattern in patterns.split(","):
            if any(fnmatch.fnmatchcase(part, pattern.removeprefix("!")) for part in names):
                parameter.requires_grad_(pattern.startswith("!"))
    return model


def in_turn(row, model, data, batches=(8,), lengths=(64,), steps=8, accumulate=1, amp=None, ready=as_it_is, optimized=adamw, put=to_device, around=at_once,
            saved=contextlib.nullcontext):
    """Batches of these sizes and lengths, one after the other, from the first again.

    `ready` gives the model that is trained and the label of its row, `put` moves an input, a micro-batch is computed within `around`, and its forward pass
    within `saved`. All of it is one function, because names die in the order of their first assignment."""
    model = model.to(DEVICE)
    model, label = ready(row, model)
    optimizer = optimizer_over(optimized, model)
    row(label)
    for step in range(steps):
        for micro in range(accumulate):
            number = step * accumulate + micro
            at = f"s{step}." + (f"m{micro}." if accumulate > 1 else "")
            loaded = data(batches[number % len(batches)], lengths[number % len(lengths)])
            x = put(loaded[0])
            y = loaded[1].to(DEVICE)
            row(at + "input")
            if micro == 0:
                optimizer.zero_grad()
                row(f"s{step}.zero_grad")
            with around(model, micro + 1 == accumulate):
                with saved(), autocast(amp):
                    out = model(x)
                    row(at + "forward")
                    loss = cross_entropy(out, y)
                if accumulate > 1:
                    loss = loss / accumulate
                row(at + "loss")
                loss.backward()
                row(at + "backward")
        optimizer.step()
        row(f"s{step}.step")


def of_transformers(row, name, batches=(2, 1, 3), lengths=(24, 64, 7, 40), steps=6, every=0, size=4, average=False, hold=("inputs", "outputs", "loss"),
                    frozen="", dtype=torch.float32, accumulate=1, adapters=None, optimized=slow_adamw, checkpoints=False, contexts=None, last=0, texts=0, autocast=None, loss_of=None,
                    saved=contextlib.nullcontext, ready=as_it_is, around=at_once, clip=0.0, scaled=False, by_liger=False, only_loss=False, **sizes):
    """A small network of transformers, by its own loss, or by `loss_of(model, batch)`; returns its configuration. `adapters` puts some on it before it is
    moved, and its forward pass is computed within `saved`. `checkpoints`: all blocks, or those whose numbers it is true for; `contexts` makes the contexts of
    such a block. `last`: the tokens that have scores, all for 0. `texts`: the texts that each example consists of, told apart by their positions. `ready` gives the model that
    is trained and the label of its row, and a micro-batch is computed within `around`. `clip`: the largest norm of the gradients. `scaled`: the loss is scaled.
    `by_liger`: Liger's kernels are put in. `only_loss`: the result has no name."""
    import transformers

    config = getattr(transformers, name + "Config")(**sizes)
    head = {"Bert": "BertForMaskedLM", "T5": "T5ForConditionalGeneration", "GPT2": "GPT2LMHeadModel"}.get(name, name + "ForCausalLM")
    model = getattr(transformers, head)._from_config(config, dtype=dtype)
    if by_liger:
        from liger_kernel.transformers.monkey_patch import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model)
    model = (adapters(model) if adapters else model).to(DEVICE)
    model.train()
    if checkpoints:
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": contexts} if contexts else None)
        if callable(checkpoints):
            layers = [part for part in model.modules() if isinstance(part, transformers.modeling_layers.GradientCheckpointingLayer)]
            for block, layer in enumerate(layers):
                layer.gradient_checkpointing = checkpoints(block)
    if frozen:
        freeze(model, frozen)
    model, label = ready(row, model)
    optimizer = optimizer_over(optimized, model)
    scaler = torch.amp.GradScaler("cuda") if scaled else None
    row(label)
    if average:
        copies = [p.detach().clone() for p in model.parameters()]
        row("ema")

    def evaluate(at):
        model.eval()
        with torch.no_grad():
            for number in range(2):
                ids = torch.randint(5, config.vocab_size, (size, lengths[number % len(lengths)]))
                batch = {key: value.to(DEVICE) for key, value in {"input_ids": ids, "labels": ids.clone()}.items()}
                row(f"{at}eval{number}.input")
                out = model(**batch)
                loss = out.loss
                row(f"{at}eval{number}.forward")
                loss.item()
        model.train()

    for step in range(steps):
        for micro in range(accumulate):
            at = f"s{step}." + (f"m{micro}." if accumulate > 1 else "")
            ids = torch.randint(5, config.vocab_size, (batches[step % len(batches)], lengths[step % len(lengths)]))
            loaded = {"input_ids": ids, "labels": ids.clone()}
            if texts:
                loaded["position_ids"] = (torch.arange(ids.shape[1]) % -(-ids.shape[1] // texts)).expand(ids.shape).contiguous()
            batch = {key: value.to(DEVICE) for key, value in loaded.items()}
            row(at + "input")
            if micro == 0:
                optimizer.zero_grad()
                row(f"s{step}.zero_grad")
            with around(model, micro + 1 == accumulate):
                with saved(), torch.autocast("cuda", dtype=autocast, enabled=autocast is not None):
                    if loss_of:
                        loss = loss_of(model, batch)
                    elif last:
                        out = model(**{**batch, "labels": batch["labels"][:, -last:]}, logits_to_keep=last)
                        loss = out.loss
                    elif only_loss:
                        loss = model(**batch).loss
                    else:
                        out = model(**batch)
                        loss = out.loss
                if accumulate > 1:
                    loss = loss / accumulate
                row(at + "forward")
                if scaler:
                    scaler.scale(loss).backward()
                else:
                    loss.backward()
                row(at + "backward")
        if clip:
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        row(f"s{step}.step")
        if len(hold) < 3:
            if "inputs" not in hold:
                del batch
            if "outputs" not in hold:
                del out
            if "loss" not in hold:
                del loss
            row(f"s{step}.held")
        if average:
            with torch.no_grad():
                for e, p in zip(copies, model.parameters()):
                    e.lerp_(p, 0.001)
            row(f"s{step}.ema")
        if every and (step + 1) % every == 0:
            evaluate(f"s{step}.")
            row(f"s{step}.evaluated")
    return {"steps": steps, "evaluation": [every, size, 2], "average": average, "hold": ",".join(hold) or "none", "config": getattr(model, "module", model).config.to_dict(), "batches": batches, "lengths": lengths, **({"freeze": frozen} if frozen else {})}


def exported(row, name, batches, steps=6, every=0, size=9, eager=False, frozen="", optimized=torch.optim.AdamW, saved=contextlib.nullcontext,
             ready=as_it_is, around=at_once):
    """A program of scripts/export, or the network that it is of, with batches of these sizes in turn."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../export"))
    import networks
    import record

    if eager:
        module, before = networks.NETWORKS[name][0]().train().to(DEVICE), 0
        parameters = list(module.parameters())
    else:
        program, model, _ = networks.exported(name)
        module, parameters, before = record.on_card(program, model)
        del program, model
    if frozen:
        freeze(module, frozen)
    module, label = ready(row, module)
    optimizer = optimized(parameters)
    row(label)

    def evaluate(at):
        if eager:
            module.eval()
        with torch.no_grad():
            for number in range(2):
                inputs = [value.to(DEVICE) for value in networks.NETWORKS[name][1](size)]
                target = torch.zeros(size, dtype=torch.long).to(DEVICE)
                row(f"{at}eval{number}.input")
                out = module(*inputs)
                row(f"{at}eval{number}.forward")
                loss = F.cross_entropy(out, target)
                row(f"{at}eval{number}.loss")
                loss.item()
        if eager:
            module.train()

    for step in range(steps):
        batch = batches[step % len(batches)]
        inputs = [value.to(DEVICE) for value in networks.NETWORKS[name][1](batch)]
        target = torch.zeros(batch, dtype=torch.long).to(DEVICE)
        row(f"s{step}.input")
        optimizer.zero_grad()
        row(f"s{step}.zero_grad")
        with around(module, True):
            with saved():
                out = module(*inputs)
                row(f"s{step}.forward")
                loss = F.cross_entropy(out, target)
            row(f"s{step}.loss")
            loss.backward()
            row(f"s{step}.backward")
        optimizer.step()
        row(f"s{step}.step")
        if every and (step + 1) % every == 0:
            evaluate(f"s{step}.")
            row(f"s{step}.evaluated")
    return {"steps": steps, "evaluation": [every, size, 2], "before": before, "batches": batches, **({"freeze": frozen} if frozen else {})}


def evaluated(row, model, data, batch=8, steps=6, every=2, size=16, count=2, amp=None, keep=False):
    """An evaluation after every few steps, in a function of its own: the names of the training keep their values meanwhile."""
    model = model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    row("model")

    def evaluate(at):
        model.eval()
        outputs = []
        with torch.no_grad():
            for number in range(count):
                loaded = data(size, 64)
                x = loaded[0].to(DEVICE)
                y = loaded[1].to(DEVICE)
                row(f"{at}eval{number}.input")
                with autocast(amp):
                    out = model(x)
                    row(f"{at}eval{number}.forward")
                    loss = cross_entropy(out, y)
                row(f"{at}eval{number}.loss")
                loss.item()
                if keep:
                    outputs.append(out)
        model.train()

    for step in range(steps):
        loaded = data(batch, 64)
        x = loaded[0].to(DEVICE)
        y = loaded[1].to(DEVICE)
        row(f"s{step}.input")
        optimizer.zero_grad()
        row(f"s{step}.zero_grad")
        with autocast(amp):
            out = model(x)
            row(f"s{step}.forward")
            loss = cross_entropy(out, y)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        optimizer.step()
        row(f"s{step}.step")
        if (step + 1) % every == 0:
            evaluate(f"s{step}.")
            row(f"s{step}.evaluated")


def averaged(row, model, data, batch=8, steps=4, kind="model", dtype=None):
    """An exponential moving average of the weights, updated after every step."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = model.to(DEVICE)
    if dtype:
        model = model.to(dtype)
    row("model")
    if kind == "model":
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    else:
        average = [p.detach().clone() for p in model.parameters()]
    row("ema")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        loaded = data(batch, 64)
        x = loaded[0].to(DEVICE)
        y = loaded[1].to(DEVICE)
        row(f"s{step}.input")
        optimizer.zero_grad()
        row(f"s{step}.zero_grad")
        out = model(x)
        row(f"s{step}.forward")
        loss = cross_entropy(out, y)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        optimizer.step()
        row(f"s{step}.step")
        if kind == "model":
            average.update_parameters(model)  # type: ignore[union-attr]
        else:
            with torch.no_grad():
                for e, p in zip(average, model.parameters()):
                    e.lerp_(p, 0.001) if kind == "lerp" else e.mul_(0.999).add_(p, alpha=0.001)
        row(f"s{step}.ema")


def holding(row, model, data, batch, hold, steps=4, accumulate=1):
    """A step that deletes the names which are not held."""
    model = model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    row("model")
    for step in range(steps):
        for micro in range(accumulate):
            at = f"s{step}." + (f"m{micro}." if accumulate > 1 else "")
            loaded = data(batch, 64)
            x = loaded[0].to(DEVICE)
            y = loaded[1].to(DEVICE)
            row(at + "input")
            if micro == 0:
                optimizer.zero_grad()
                row(f"s{step}.zero_grad")
            out = model(x)
            row(at + "forward")
            loss = cross_entropy(out, y)
            if accumulate > 1:
                loss = loss / accumulate
            row(at + "loss")
            loss.backward()
            row(at + "backward")
        optimizer.step()
        row(f"s{step}.step")
        if "inputs" not in hold:
            del x, y
        if "outputs" not in hold:
            del out
        if "loss" not in hold:
            del loss
        row(f"s{step}.held")


def of_torchvision(name):
    import torchvision

    return getattr(torchvision.models, name)(num_classes=10)


def photographs(batch, side):
    return torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))


LOOPS = {
    "k_batches_cnn": lambda row: in_turn(row, SimpleCnn(), pictures, (32, 32, 32, 17)),
    "k_batches_mlp": lambda row: in_turn(row, mlp(), features, (100, 7, 640), steps=6),
    "k_batches_accum2": lambda row: in_turn(row, mlp(), features, (96, 96, 41), steps=5, accumulate=2),
    "k_batches_bf16": lambda row: in_turn(row, mlp(), features, (100, 7, 640), steps=6, amp=torch.bfloat16),
    "k_lengths_gpt": lambda row: in_turn(row, Gpt(), tokens, lengths=(48, 16, 64), steps=7),
    "k_lengths_batches_gpt": lambda row: in_turn(row, Gpt(), tokens, (8, 3), (48, 16, 64), steps=7),
    "k_hf_gpt2": lambda row: of_transformers(row, "GPT2", vocab_size=512, n_positions=64, n_embd=64, n_layer=2, n_head=4,
                                             bos_token_id=0, eos_token_id=1),
    "k_hf_llama": lambda row: of_transformers(row, "Llama", vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                                              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64),
    "k_hf_bert": lambda row: of_transformers(row, "Bert", vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                             intermediate_size=128, max_position_embeddings=64),
    "k_hf_t5": lambda row: of_transformers(row, "T5", vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
                                           decoder_start_token_id=0),
    "k_lengths_bf16": lambda row: in_turn(row, Gpt(), tokens, lengths=(64, 8, 40), steps=6, amp=torch.bfloat16),
    "k_export_resnet20": lambda row: exported(row, "resnet20", (8, 5, 12)),
    "k_export_mlp": lambda row: exported(row, "mlp", (300, 7)),
    "k_eval_hf_gpt2": lambda row: of_transformers(row, "GPT2", (2,), (48,), 4, 2, vocab_size=512, n_positions=64, n_embd=64, n_layer=2,
                                                  n_head=4, bos_token_id=0, eos_token_id=1),
    "k_eval_hf_llama": lambda row: of_transformers(row, "Llama", (2,), (48, 20), 4, 1, vocab_size=512, hidden_size=64, intermediate_size=160,
                                                   num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64),
    "k_eval_hf_bert": lambda row: of_transformers(row, "Bert", (2,), (48,), 4, 2, vocab_size=512, hidden_size=64, num_hidden_layers=2,
                                                  num_attention_heads=4, intermediate_size=128, max_position_embeddings=64),
    "k_hold_none_gpt": lambda row: holding(row, Gpt(), tokens, 8, ()),
    "k_hold_loss_cnn": lambda row: holding(row, SimpleCnn(), pictures, 32, ("loss",)),
    "k_hold_outputs_mlp": lambda row: holding(row, mlp(), features, 256, ("outputs",)),
    "k_hold_inputs_accum2": lambda row: holding(row, mlp(), features, 256, ("inputs",), accumulate=2),
    "k_hold_hf_gpt2": lambda row: of_transformers(row, "GPT2", (2,), (48,), 3, 2, hold=("loss",), vocab_size=512, n_positions=64, n_embd=64,
                                                  n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1),
    "k_ema_hf_gpt2": lambda row: of_transformers(row, "GPT2", (2,), (48,), 3, 2, 4, True, vocab_size=512, n_positions=64, n_embd=64, n_layer=2,
                                                 n_head=4, bos_token_id=0, eos_token_id=1),
    "k_eval_hf_t5": lambda row: of_transformers(row, "T5", (2,), (48,), 4, 2, vocab_size=512, d_model=64, d_kv=16, d_ff=128, num_layers=2,
                                                num_heads=4, decoder_start_token_id=0),
    "k_eval_hf_opt": lambda row: of_transformers(row, "OPT", (2,), (48,), 4, 2, vocab_size=512, hidden_size=64, ffn_dim=128, num_hidden_layers=2,
                                                 num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=64),
    "k_eval_hf_gpt_neox": lambda row: of_transformers(row, "GPTNeoX", (2,), (48,), 4, 2, vocab_size=512, hidden_size=64, intermediate_size=128,
                                                      num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64),
    "k_eval_export_swiglu": lambda row: exported(row, "swiglu", (300, 7), every=2),
    "k_eval_cnn": lambda row: evaluated(row, SimpleCnn(), pictures, 32, size=100),
    "k_eval_gpt": lambda row: evaluated(row, Gpt(dropout=0.1), tokens),
    "k_eval_bf16": lambda row: evaluated(row, Gpt(dropout=0.1), tokens, amp=torch.bfloat16),
    "k_eval_resnet": lambda row: evaluated(row, of_torchvision("resnet18"), pictures, steps=2, every=1, size=24, count=3),
    "k_eval_kept": lambda row: evaluated(row, mlp(), features, 32, size=128, count=3, keep=True),
    "k_ema_cnn": lambda row: averaged(row, SimpleCnn(), pictures, 32),
    "k_ema_resnet": lambda row: averaged(row, of_torchvision("resnet18"), pictures, steps=3),
    "k_ema_gpt": lambda row: averaged(row, Gpt(), tokens),
    "k_ema_lerp": lambda row: averaged(row, of_torchvision("resnet18"), pictures, steps=3, kind="lerp"),
    "k_ema_mul_add": lambda row: averaged(row, of_torchvision("resnet18"), pictures, steps=3, kind="mul_add"),
    **{f"k_eval_{name}": lambda row, name=name: evaluated(row, of_torchvision(name), photographs, 2, 2, 1, 16)
       for name in ("resnet50", "mobilenet_v2", "densenet121", "convnext_tiny")},
    "k_eval_vgg16": lambda row: evaluated(row, of_torchvision("vgg16"), lambda batch, _: photographs(batch, 224), 2, 2, 1, 6),
}
