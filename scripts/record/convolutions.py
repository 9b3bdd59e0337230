#!/usr/bin/env python3
"""Lists the convolutions of one example in networks of torchvision and timm and in encoders of pictures and speech, each shape once.

    scripts/record/convolutions.py > convolutions.json

`lab/examples/workspace_tables.rs` asks cuDNN for the workspaces of each, at the batches of its tables. The networks are made on `meta`: no weights, no card.
A line on stderr names a network that the installed release lacks."""

import functools
import json
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

IMAGE = (3, 224, 224)
LARGER = (3, 299, 299)
SEGMENTED = (3, 520, 520)
TORCHVISION = {
    "alexnet": IMAGE, "vgg11_bn": IMAGE, "vgg19": IMAGE, "googlenet": IMAGE, "inception_v3": LARGER, "squeezenet1_1": IMAGE,
    "mobilenet_v3_large": IMAGE, "mobilenet_v3_small": IMAGE, "efficientnet_b0": IMAGE, "efficientnet_v2_s": IMAGE,
    "shufflenet_v2_x1_0": IMAGE, "resnext50_32x4d": IMAGE, "wide_resnet50_2": IMAGE, "densenet169": IMAGE,
    "vit_b_16": IMAGE, "vit_b_32": IMAGE, "vit_l_16": IMAGE, "swin_t": IMAGE, "deeplabv3_resnet50": SEGMENTED,
}
TIMM = {
    "resnet50d": IMAGE, "seresnet50": IMAGE, "vit_base_patch14_dinov2": (3, 518, 518), "convnextv2_tiny": IMAGE, "mobilenetv4_conv_small": IMAGE,
    "repvgg_a0": IMAGE, "regnety_016": IMAGE, "hrnet_w18": IMAGE, "cspdarknet53": IMAGE,
}


# Widths of Whisper's encoders, whose two convolutions read 80 values (128 in large-v3) of 3,000 moments.
WHISPER = (384, 512, 768, 1024, 1280)
# Width, patch and sizes of CLIP's and SigLIP's encoders.
PATCHES = {
    "CLIP B/32": (768, 32, IMAGE), "CLIP B/16": (768, 16, IMAGE), "CLIP L/14": (1024, 14, IMAGE), "CLIP L/14 336": (1024, 14, (3, 336, 336)),
    "SigLIP B/16 384": (768, 16, (3, 384, 384)), "SigLIP so400m/14": (1152, 14, IMAGE), "SigLIP so400m/14 384": (1152, 14, (3, 384, 384)),
}


class Convolutions(TorchDispatchMode):
    """Collects the shapes of `aten.convolution`, with one dimension as PyTorch gives it to cuDNN: of height 1."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.convolution.default:
            self.add(*args)
        return function(*args, **(kwargs or {}))

    def add(self, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
        if transposed or x.dim() not in (3, 4):
            return
        sizes = [list(x.shape), list(weight.shape)]
        pairs = [list(stride), list(padding), list(dilation)]
        if x.dim() == 3:
            sizes = [[*size[:2], 1, size[2]] for size in sizes]
            pairs = [[one, *values] for values, one in zip(pairs, (1, 0, 1))]
        pairs = [values * 2 if len(values) == 1 else values for values in pairs]
        self.found.add(json.dumps([*sizes, *pairs, groups]))


def models():
    """Each network's name, how it is made, and the sizes of an example."""
    import timm
    import torchvision

    for name, size in TORCHVISION.items():
        library = torchvision.models.segmentation if "deeplab" in name else torchvision.models
        backbone = {"weights_backbone": None} if "deeplab" in name else {}
        yield name, functools.partial(getattr(library, name), weights=None, **backbone), size
    for name, size in TIMM.items():
        yield f"timm {name}", functools.partial(timm.create_model, name, pretrained=False), size
    for name, (width, patch, size) in PATCHES.items():
        yield name, functools.partial(torch.nn.Conv2d, 3, width, patch, patch), size
    for width in WHISPER:
        for values in (80, 128) if width == WHISPER[-1] else (80,):
            layers = torch.nn.Conv1d(values, width, 3, padding=1), torch.nn.Conv1d(width, width, 3, stride=2, padding=1)
            yield f"Whisper {width}", torch.nn.Sequential(*layers).to("meta").eval, (values, 3000)


def main():
    convolutions = Convolutions()
    for name, make, size in models():
        before = len(convolutions.found)
        try:
            with torch.device("meta"):
                # In evaluation a batch of one is enough for norms of batches; the convolutions are the same.
                model, x = make().eval(), torch.empty(1, *size)
            with convolutions, torch.no_grad():
                model(x)
        except (RuntimeError, AttributeError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        print(f"{name}: {len(convolutions.found) - before} new", file=sys.stderr)
    rows = sorted(json.loads(text) for text in convolutions.found)
    print("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]")


if __name__ == "__main__":
    main()
