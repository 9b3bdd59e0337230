"""A generator and a discriminator in turns: the loop of PyTorch's DCGAN tutorial, of two exported programs.

    python scripts/loop/adversaries.py FOLDER      FOLDER/exported/{generator,discriminator}.pt2.gz, which the recordings are of"""
import os
import sys

import torch
import torch.nn as nn

from loops import DEVICE

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../export"))

LATENT = 16


class Generator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(LATENT, 4 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, noise):
        return self.main(noise)


class Discriminator(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(4 * width, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, pictures):
        return self.main(pictures)


def noise(batch):
    return torch.randn(batch, LATENT, 1, 1)


def pictures(batch):
    return torch.randn(batch, 3, 32, 32)


NETWORKS: dict = {"generator": (Generator, noise), "discriminator": (Discriminator, pictures)}


def exported(name, width=8):
    """The exported program of one of the two, with a symbolic batch."""
    make, example = NETWORKS[name]
    torch.manual_seed(0)
    model = make(width).train()
    batch = torch.export.Dim("batch", min=1, max=65536)
    return torch.export.export(model, (example(2),), dynamic_shapes=({0: batch},), strict=False), model


def in_turns(row, batch, steps=3, width=8):
    import record

    made = {name: record.on_card(*exported(name, width)) for name in NETWORKS}
    netG, netD = made["generator"][0], made["discriminator"][0]
    criterion = nn.BCELoss()
    optimizerD = torch.optim.Adam(made["discriminator"][1], lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(made["generator"][1], lr=2e-4, betas=(0.5, 0.999))
    before = made["generator"][2]
    del made
    row("model")
    for step in range(steps):
        at = f"s{step}."
        netD.zero_grad()
        row(at + "discriminator.zero_grad")
        real = pictures(batch).to(DEVICE)
        label = torch.full((batch,), 1.0, dtype=torch.float, device=DEVICE)
        row(at + "input")
        output = netD(real).view(-1)
        row(at + "real.forward")
        errD_real = criterion(output, label)
        row(at + "real.loss")
        errD_real.backward()
        row(at + "real.backward")
        output.mean().item()
        made = torch.randn(batch, LATENT, 1, 1, device=DEVICE)
        fake = netG(made)
        row(at + "fake.generated")
        label.fill_(0.0)
        output = netD(fake.detach()).view(-1)
        row(at + "fake.forward")
        errD_fake = criterion(output, label)
        row(at + "fake.loss")
        errD_fake.backward()
        row(at + "fake.backward")
        output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()
        row(at + "discriminator.step")
        netG.zero_grad()
        row(at + "generator.zero_grad")
        label.fill_(1.0)
        output = netD(fake).view(-1)
        row(at + "generator.forward")
        errG = criterion(output, label)
        row(at + "generator.loss")
        errG.backward()
        row(at + "generator.backward")
        output.mean().item()
        optimizerG.step()
        row(at + "generator.step")
        errD.item(), errG.item()
    return {"steps": steps, "before": before, "batch": batch}


LOOPS = {f"k_gan_b{batch}": lambda row, batch=batch: in_turns(row, batch) for batch in (4, 32)}

if __name__ == "__main__":
    import record

    for name in NETWORKS:
        with open(os.path.join(sys.argv[1], "exported", name + ".pt2.gz"), "wb") as file:
            file.write(record.archived(exported(name)[0]))
