"""Training loops in channels-last: name -> a function that takes rows with `row(label)`.

The model is moved to the card and then converted, as PyTorch's tutorial has it; a batch is moved and converted in one line. With `cudnn` in a name
cuDNN convolves, which reads channels-last; without it PyTorch's own kernels copy their operands into row-major order first."""
import os
import sys

import torch
import torch.nn.functional as F

import loops
from loops import DEVICE

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../export"))


def converted(value):
    return value.to(DEVICE).to(memory_format=torch.channels_last)


def in_channels_last(row, model):
    row("model")
    return model.to(memory_format=torch.channels_last), "channels_last"


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def built_in(row, name, accumulate=1, amp=None, optimized=loops.adamw):
    # Without `**`: its tuple of arguments would hold the model until the end.
    return loops.in_turn(row, loops.of_torchvision(name), loops.photographs, (4,), steps=3, accumulate=accumulate, amp=amp,
                         ready=in_channels_last, optimized=optimized, put=converted)


def exported(row, name, batch, steps=3, amp=None):
    """A program of scripts/export."""
    import networks
    import record

    program, model, loss_name = networks.exported(name)
    module, parameters, before = record.on_card(program, model)
    order = list(record.transfer_order(model))
    del program, model
    row("model")
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for entry in order:
        if entry in tensors and tensors[entry].dim() == 4:
            tensors[entry].data = tensors[entry].data.to(memory_format=torch.channels_last)
    del tensors
    row("channels_last")
    optimizer = torch.optim.AdamW(parameters)
    for step in range(steps):
        inputs = [converted(value) if value.dim() == 4 else value.to(DEVICE) for value in networks.NETWORKS[name][1](batch)]
        if loss_name == "cross-entropy":
            target = torch.zeros(batch, dtype=torch.long).to(DEVICE)
        row(f"s{step}.input")
        optimizer.zero_grad()
        row(f"s{step}.zero_grad")
        with loops.autocast(amp):
            out = module(*inputs)
            row(f"s{step}.forward")
            loss = out.mean() if loss_name == "mean" else F.cross_entropy(out, target)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        optimizer.step()
        row(f"s{step}.step")
    return {"network": name, "steps": steps, "before": before, "batch": batch, "loss": loss_name, "amp": bool(amp)}


BF16 = torch.bfloat16
LOOPS = {
    **{f"l_{name}{cudnn}": lambda row, name=name: built_in(row, name)
       for name in ("resnet18", "resnet50", "mobilenet_v2", "densenet121", "convnext_tiny") for cudnn in ("", "_cudnn")},
    **{f"l_resnet18_accum2{cudnn}": lambda row: built_in(row, "resnet18", accumulate=2, optimized=momentum)
       for cudnn in ("", "_cudnn")},
    **{f"l_{name}_bf16{cudnn}": lambda row, name=name: built_in(row, name, amp=BF16)
       for name in ("resnet18", "resnet50", "mobilenet_v2", "convnext_tiny") for cudnn in ("", "_cudnn")},
    **{f"l_export_{name}_b{batch}{cudnn}": lambda row, name=name, batch=batch: exported(row, name, batch)
       for name in ("resnet50", "unet", "mobilenet-v3", "convnext") for batch in (4, 7) for cudnn in ("", "_cudnn") if name + cudnn != "unet_cudnn"},
    **{f"l_export_{name}_bf16{cudnn}": lambda row, name=name: exported(row, name, 4, amp=BF16)
       for name, cudnn in (("resnet50", ""), ("resnet50", "_cudnn"), ("unet", ""), ("mobilenet-v3", ""), ("mobilenet-v3", "_cudnn"),
                            ("convnext", ""), ("convnext", "_cudnn"))},
}
