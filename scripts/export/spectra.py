"""Networks of Fourier transforms and complex numbers: name -> (make, examples, loss), as in networks.py. cufft.c stands in for cuFFT."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SpectralConv(nn.Module):
    """The lowest modes of a picture, multiplied by complex weights, as the Fourier neural operator does it."""

    def __init__(self, width, modes):
        super().__init__()
        self.width, self.modes = width, modes
        self.low, self.high = (nn.Parameter(torch.rand(width, width, modes, modes, dtype=torch.cfloat) / width**2) for _ in range(2))

    def forward(self, x):
        modes, (batch, _, height, breadth) = self.modes, x.shape
        x_ft = torch.fft.rfft2(x)
        out = torch.zeros(batch, self.width, height, breadth // 2 + 1, dtype=torch.cfloat, device=x.device)
        out[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", x_ft[:, :, :modes, :modes], self.low)
        out[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", x_ft[:, :, -modes:, :modes], self.high)
        return torch.fft.irfft2(out, s=(height, breadth))


class Fno(nn.Module):
    """A Fourier neural operator of two dimensions."""

    def __init__(self, width=12, modes=5, layers=2):
        super().__init__()
        self.lift, self.out = nn.Linear(3, width), nn.Linear(width, 1)
        self.spectral = nn.ModuleList(SpectralConv(width, modes) for _ in range(layers))
        self.pointwise = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))

    def forward(self, x):
        x = F.pad(self.lift(x).permute(0, 3, 1, 2), [0, 4, 0, 4])
        for spectral, pointwise in zip(self.spectral, self.pointwise):
            x = F.gelu(spectral(x) + pointwise(x))
        return self.out(x[..., :-4, :-4].permute(0, 2, 3, 1))


class Fnet(nn.Module):
    """Tokens mixed by the real part of a Fourier transform, as FNet does it."""

    def __init__(self, vocabulary=128, width=32, layers=2, classes=4):
        super().__init__()
        self.embed, self.fc = nn.Embedding(vocabulary, width), nn.Linear(width, classes)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers))

    def forward(self, words):
        x = self.embed(words)
        for layer, mlp in enumerate(self.mlps):
            mixed = torch.fft.fft2(x).real if layer == 0 else torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
            x = self.norms[2 * layer](x + mixed)
            x = self.norms[2 * layer + 1](x + mlp(x))
        return self.fc(x.mean(1))


class GlobalFilter(nn.Module):
    """All positions of a picture mixed by a filter in the domain of frequencies, as GFNet does it."""

    def __init__(self, width, size):
        super().__init__()
        self.complex_weight = nn.Parameter(torch.randn(size, size // 2 + 1, width, 2) * 0.02)

    def forward(self, x):
        batch, positions, width = x.shape
        side = math.isqrt(positions)
        x = x.view(batch, side, side, width).to(torch.float32)
        x = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
        x = x * torch.view_as_complex(self.complex_weight)
        x = torch.fft.irfft2(x, s=(side, side), dim=(1, 2), norm="ortho")
        return x.reshape(batch, positions, width)


class GfNet(nn.Module):
    """A global filter network: patches, filters and MLPs."""

    def __init__(self, width=24, patch=4, size=32, layers=2, classes=10):
        super().__init__()
        self.patches, self.fc = nn.Conv2d(3, width, patch, stride=patch), nn.Linear(width, classes)
        self.filters = nn.ModuleList(GlobalFilter(width, size // patch) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for layer, (mix, mlp) in enumerate(zip(self.filters, self.mlps)):
            x = x + mlp(self.norms[2 * layer + 1](mix(self.norms[2 * layer](x))))
        return self.fc(x.mean(1))


class Spectra(nn.Module):
    """A signal's spectrum: magnitudes and parts, turned, mixed, and back, along one dimension and along several."""

    def __init__(self, length=96, width=8, classes=4):
        super().__init__()
        self.first, self.fc = nn.Conv1d(1, width, 5, padding=2), nn.Linear(width * 4, classes)
        self.phase, self.scale = nn.Parameter(torch.randn(width, length // 2 + 1)), nn.Parameter(torch.ones(width, 1))
        self.kernel = nn.Parameter(torch.randn(4, width))
        self.mix = nn.Parameter(torch.randn(width, width, dtype=torch.cfloat) / width)

    def forward(self, x):
        x = self.first(x)
        f = torch.fft.rfft(x)
        turned = f * torch.complex(self.phase.cos(), self.phase.sin())
        turned = torch.matmul(turned.transpose(1, 2), self.mix).transpose(1, 2) + f
        y = torch.fft.irfft(turned, n=x.size(-1))
        power = f.abs() + turned.real.square() + turned.imag.square()
        parts = torch.view_as_real(torch.fft.ifft(torch.fft.fft(y, dim=1), dim=1)).mean((-1, -2))
        both = torch.stack([0.5 * turned, -f * self.scale], dim=1).sum(1)
        energy = torch.bmm(both, turned.transpose(1, 2) - torch.bmm(f, f.transpose(1, 2)).mean(1, keepdim=True))
        z = torch.fft.ifftn(torch.cat([both, energy], dim=2), dim=(1, 2)).abs()
        cut = torch.fft.irfftn(torch.fft.rfftn(x, s=(6, 100), dim=(1, 2)), s=(8, 90), dim=(1, 2))
        deep = torch.fft.fftn(torch.fft.rfftn(x.unflatten(2, (4, 24)).unflatten(1, (2, 4)), dim=(1, 2, 3, 4)), dim=(1, 2, 3, 4))
        whole = torch.fft.irfftn(deep, dim=(1, 2, 3, 4)).mean((3, 4)).flatten(1) + torch.fft.irfft2(torch.fft.rfft2(self.kernel)).mean(0)
        whole = whole + torch.fft.fft2(x).real.mean(-1) + torch.fft.rfft(y[..., 1:-1]).imag.mean(-1)
        return self.fc(torch.cat([parts + z.mean(-1), power.log1p().mean(-1), cut.mean(-1), whole], dim=1))


NETWORKS = {
    "fno": (Fno, lambda batch: (torch.randn(batch, 16, 16, 3),), "mean"),
    "fnet": (Fnet, lambda batch: (torch.randint(128, (batch, 24)),), "cross-entropy"),
    "gfnet": (GfNet, lambda batch: (torch.randn(batch, 3, 32, 32),), "cross-entropy"),
    "spectra": (Spectra, lambda batch: (torch.randn(batch, 1, 96),), "cross-entropy"),
}
