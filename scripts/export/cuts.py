"""Exports small networks that are not cut everywhere, since a value or a buffer on two devices would be written on one.

    python cuts.py FOLDER      FOLDER/NAME.pt2.gz for each
"""
import os
import sys

import torch
from torch import nn

from record import archived


class SharedNorm(nn.Module):
    """Both of its first layers have one batch norm."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.norm(self.second(self.norm(self.first(x)))))


class Clamped(nn.Module):
    def forward(self, x):
        return x.mul(2.0).add(x.relu_())


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x, y):
        return self.linear(x + y)


class InPlace(nn.Module):
    """The second layer writes the result of the first in place, and the last one reads it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), Clamped(), Joined()

    def forward(self, x):
        x = self.first(x)
        return self.last(self.second(x), x)


class Early(nn.Module):
    """The second result is computed after the first one, of which the loss is."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.beside = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x)
        return self.second(x), self.beside(x)


def main():
    networks: dict = {"shared-norm": SharedNorm, "in-place": InPlace, "early": Early}
    for name, make in networks.items():
        torch.manual_seed(0)
        batch = torch.export.Dim("batch", min=1, max=65536)
        program = torch.export.export(make().train(), (torch.randn(2, 8),), dynamic_shapes=({0: batch},), strict=False)
        with open(os.path.join(sys.argv[1], name + ".pt2.gz"), "wb") as file:
            file.write(archived(program))


if __name__ == "__main__":
    main()
