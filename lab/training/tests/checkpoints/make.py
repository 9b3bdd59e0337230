"""Writes mlp.safetensors: the weights of nn.Sequential(Linear(4, 3), ReLU(), Linear(3, 2)), counted up in quarters."""
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def quarters(*shape, start):
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + start) / 4

save_file(
    {
        "0.weight": quarters(3, 4, start=-5),
        "0.bias": quarters(3, start=1),
        "2.weight": quarters(2, 3, start=-2),
        "2.bias": quarters(2, start=7),
    },
    Path(__file__).with_name("mlp.safetensors"),
    metadata={"format": "pt"},
)
