"""Networks that are exported: name -> how it is made, what it is given, and how it is exported.

Each entry gives (module, examples, names of the loss): `examples(batch)` are the arguments of one call, and the loss is `inside` where the
network gives it, or one of vramlab's --loss. The networks are small; what differs from full size is width and depth, not their operators.
"""
import torch

import arithmetic
import forms
import functions
import kinds
import libraries
import masks
import patches_and_pairs
import sequences
import spatial
import spectra
from architectures import Cells, EinsumSeq2Seq, GraphNetwork, GruClassifier, GruLm, InstanceUNet, KlVae, Pointwise, Rnn
from handwritten import Cnn, Dcgan, Encoder, Gated, LstmClassifier, LstmLm, Mlp, NanoGpt, ResNet, SqueezeExcite, SwiGlu, TextCnn, UNet, Vae
from libraries import pictures, tokens
from vramlab._ctc import traced_ctc, with_ctc

NETWORKS = {
    "mlp": (Mlp, lambda batch: (torch.randn(batch, 64),), "cross-entropy"),
    "cnn": (Cnn, pictures(1, 8), "cross-entropy"),
    "resnet": (ResNet, pictures(3, 32), "cross-entropy"),
    "resnet20": (lambda: ResNet(blocks=3), pictures(3, 32), "cross-entropy"),
    "unet": (UNet, pictures(3, 64), "mean"),
    "unet-nearest": (lambda: UNet(nearest=True), pictures(3, 64), "mean"),
    "vae": (Vae, lambda batch: (torch.rand(batch, 784),), "inside"),
    "nanogpt": (NanoGpt, tokens(32, 128), "inside"),
    "nanogpt-fused": (lambda: NanoGpt(fused=True, dropout=0.0), tokens(32, 128), "inside"),
    "dcgan": (Dcgan, lambda batch: (torch.randn(batch, 16, 1, 1),), "inside"),
    "textcnn": (TextCnn, tokens(32, 128, 1), "cross-entropy"),
    "lstm": (LstmClassifier, tokens(16, 128, 1), "cross-entropy"),
    "lstm-lm": (LstmLm, tokens(16, 128), "inside"),
    "swiglu": (SwiGlu, lambda batch: (torch.randn(batch, 64),), "cross-entropy"),
    "squeeze-excite": (SqueezeExcite, pictures(3, 32), "cross-entropy"),
    "gated": (Gated, lambda batch: (torch.randn(batch, 1, 4096),), "mean"),
    "encoder": (Encoder, tokens(32, 128, 1), "cross-entropy"),
    "gru": (GruClassifier, tokens(16, 128, 1), "cross-entropy"),
    "gru-lm": (GruLm, tokens(16, 128), "inside"),
    "rnn": (Rnn, lambda batch: (torch.randn(batch, 12, 16),), "cross-entropy"),
    "cells": (Cells, lambda batch: (torch.randn(batch, 6, 16),), "cross-entropy"),
    "instance-unet": (InstanceUNet, pictures(3, 32), "mean"),
    "vae-kl": (KlVae, lambda batch: (torch.randn(batch, 64),), "inside"),
    "gnn": (GraphNetwork, lambda batch: (torch.randn(batch, 12, 16),), "cross-entropy"),
    "einsum": (EinsumSeq2Seq, lambda batch: (torch.randint(64, (batch, 10)), torch.randint(64, (batch, 12))), "inside"),
    "pointwise": (Pointwise, lambda batch: (torch.randn(batch, 32),), "cross-entropy"),
    **arithmetic.NETWORKS,
    **forms.NETWORKS,
    **functions.NETWORKS,
    **kinds.NETWORKS,
    **spatial.NETWORKS,
    **spectra.NETWORKS,
    **patches_and_pairs.NETWORKS,
    **sequences.NETWORKS,
    **libraries.NETWORKS,
    **masks.NETWORKS,
}


# nn.MultiheadAttention asks how the result of attention lies in memory, which is otherwise on a GPU than on the CPU: an export on the CPU does
# not run there. On the device meta it has the copy that a GPU needs.
ON_META = {"vit", "encoder"}


# Networks whose code asks how large the batch is.
RANGES = {"unet2d": (2, 63)}


def exported(name, example=2):
    """The exported program of a network, with a symbolic batch."""
    make, examples, loss = NETWORKS[name]
    torch.manual_seed(0)
    with torch.device("meta" if name in ON_META else "cpu"):
        model, example = make().train(), examples(example)
    low, high = RANGES.get(name, (1, 65536))
    batch = torch.export.Dim("batch", min=low, max=high)
    shapes = tuple({0: batch} for _ in example)
    with traced_ctc():
        program = torch.export.export(model, example, dynamic_shapes=shapes, strict=False)
    with_ctc([program.graph])
    return program, model, loss
