"""Trains a small U-Net with mixed precision."""

import argparse

import torch
from torch import nn


class Block(nn.Sequential):
    def __init__(self, inside, outside):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
        )


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(Block(a, b) for a, b in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(Block(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(widths[0], 21, 1)

    def forward(self, x):
        kept = []
        for block in self.down[:-1]:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join, skip in zip(reversed(self.up), reversed(self.join), reversed(kept)):
            x = join(torch.cat([up(x), skip], dim=1))
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    batch = parser.parse_args().batch_size
    model = UNet().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler()
    for step in range(1000):
        pictures = torch.rand(batch, 3, 512, 512).cuda()
        labels = torch.randint(0, 21, (batch, 512, 512)).cuda()
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(model(pictures), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(step, loss.item())


main()
