"""A network of small functions, and a critic: axes by other names, noise, bounds, arithmetic in place; spectral norm."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Arithmetic(nn.Module):
    """The mean of each function of the hidden values, summed."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        h = self.linear(x).view(-1, 8, 8)
        return self.shaped(h) + self.drawn(h) + self.computed(h) + self.in_place(h) + self.reduced(h)

    def shaped(self, h):
        total = h.movedim(1, 2).mul(h).mean() + h.swapaxes(1, 2).mul(h).mean() + (h @ h.mT).mean()
        total = total + h.tile(1, 2, 1).mean() + sum(part.mean() for part in h.tensor_split(3, 1))
        total = total + torch.diagonal(h, 1, 1, 2).mean() + h.unfold(1, 4, 2).mean() + h.unfold(2, 2, 2).mean()
        rows, columns = torch.tril_indices(8, 8, -1, device=h.device)
        return total + h[0, rows].mean() + h.index_select(1, columns).mean() + torch.gather(h, 2, h.argmin(-1, keepdim=True)).mean()

    def drawn(self, h):
        total = (h * torch.eye(8, device=h.device)).mean() + (h * torch.linspace(0, 1, 8, device=h.device)).mean()
        total = total + (h * torch.rand(8, device=h.device)).mean() + (h + torch.rand_like(h)).mean()
        total = total + (h * torch.randn(8, device=h.device)).mean() + (h * torch.randint(0, 2, (8,), device=h.device)).mean()
        total = total + (h * torch.bernoulli(torch.sigmoid(h).detach())).mean() + F.gumbel_softmax(h, dim=-1).mean()
        return total + F.gumbel_softmax(h, hard=True, dim=-1).mean()

    def computed(self, h):
        bounded = torch.tanh(h) * 0.5
        total = torch.asin(bounded).mean() + torch.acos(bounded).mean() + torch.logit(torch.sigmoid(h)).mean()
        total = total + torch.log10(h.abs() + 1).mean() + (2.0**h).mean() + torch.clamp_max(h, 1.0).mean()
        total = total + torch.where(torch.isnan(h), torch.zeros_like(h), h).mean()
        total = total + (h * torch.logical_xor(h > 0, h < 1)).mean()
        return total + (h * torch.div(torch.arange(8, device=h.device), 3, rounding_mode="floor")).mean()

    def in_place(self, h):
        total = (h * 1).sigmoid_().mean() + (h * 1).tanh_().mean() + (h * 1).exp_().mean() + (h * 1).sub_(h).mean()
        return total + (h * 1).clamp_(0, 1).mean() + (h * 1).clamp_min_(0).mean() + (h * 1).clamp_max_(0).mean()

    def reduced(self, h):
        total = (h - h.max()).mean() + (h - h.min()).mean() + (h - h.amin(-1, keepdim=True)).mean()
        return total + (h / torch.linalg.norm(h, dim=-1, keepdim=True)).mean()


class SpectralCritic(nn.Module):
    """A discriminator with spectral norm."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.spectral_norm
        self.layers = nn.Sequential(norm(nn.Conv2d(3, 16, 4, 2, 1)), nn.LeakyReLU(0.2), norm(nn.Conv2d(16, 32, 4, 2, 1)),
                                    nn.LeakyReLU(0.2), nn.Flatten(), norm(nn.Linear(32 * 64, 1)))

    def forward(self, x):
        return F.softplus(-self.layers(x)).mean()


NETWORKS = {
    "arithmetic": (Arithmetic, lambda batch: (torch.randn(batch, 64),), "inside"),
    "spectral-critic": (SpectralCritic, lambda batch: (torch.randn(batch, 3, 32, 32),), "inside"),
}
