"""Networks of functions of two values and along an axis, of joins and of undone pooling: name -> (make, examples, loss), as in networks.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Functions(nn.Module):
    """The mean of each function of the hidden values, summed."""

    def __init__(self, noise=True):
        super().__init__()
        self.noise = noise
        self.linear, self.codes = nn.Linear(64, 64), nn.Parameter(torch.randn(30, 8))

    def forward(self, x):
        h = self.linear(x).view(-1, 8, 8)
        return self.of_pairs(h) + self.of_one(h) + self.along(h) + self.moved(h) + self.joined(h) + self.in_place(h)

    def of_pairs(self, h):
        a, b = h * 2, h.exp()
        total = torch.atan2(a, b).mean() + torch.atan2(a, b[:1, 0]).sum() + torch.lerp(a, b, torch.sigmoid(h)).mean()
        total = total + torch.lerp(a, b, torch.full_like(b, 0.3)).mean() + torch.addcdiv(h, a, b, value=0.5).mean()
        total = total + torch.fmod(a, b).mean() + torch.remainder(a, b[:, :1]).sum() + torch.fmod(a, 1.5).mean() + (a % 1.5).mean()
        return total + torch.logaddexp(a, h).mean() + torch.true_divide(a, b).mean()

    def of_one(self, h):
        total = torch.asinh(h).mean() + torch.acosh(h.exp() + 1).mean() + torch.atanh(torch.sigmoid(h)).mean() + torch.frac(h).mean()
        total = total + torch.nan_to_num(h).sum() + h.masked_fill(torch.isinf(h), 0.0).mean() + torch.where(h > 0, 1.0, h).mean()
        if self.noise:
            total = total + (h + torch.empty_like(h).normal_()).mean() + (h * torch.empty_like(h).uniform_(-1, 1)).mean()
        return total

    def along(self, h):
        total = h.cumprod(1).mean() + h.cummax(2)[0].mean() + h.cummin(1)[0].sum() + h.median(2)[0].mean()
        total = total + h.transpose(1, 2).median(1, keepdim=True)[0].sum() + h.kthvalue(3, 1)[0].mean()
        total = total + torch.cdist(h, h.flip(1)).mean() + torch.cdist(h, self.codes.expand(h.shape[0], -1, -1).contiguous()).sum() * 1e-3 + torch.cdist(h, h.square(), p=1.0).mean()
        return total + torch.take_along_dim(h[0], h[1].argsort(0)[:3], 0).mean()

    def moved(self, h):
        total = h.rot90(1, (1, 2)).mul(h).mean() + h.rot90(2, (1, 2)).sum() + torch.rot90(h, -1, (1, 2)).sum() + torch.fliplr(h).mul(h).mean()
        total = total + torch.flipud(h).mul(h).mean() + torch.diag_embed(h[:, 0]).square().mean() + torch.diag_embed(h[:, 0], 1, 0, 2).sum()
        total = total + torch.diag(h[0]).mean() + torch.diag(h[0, 0]).square().mean() + h.roll(3).mul(h).mean() + torch.moveaxis(h, 1, 2).mul(h).mean()
        total = total + h[:, :1].squeeze().mean() + h[:, :1, :1].squeeze((1, 2)).mean() + h.squeeze().mean() + torch.ravel(h).mean()
        return total + torch.broadcast_to(h[:, :1], (h.shape[0], 8, 8)).mul(h).mean()

    def joined(self, h):
        a, b, c = torch.tensor_split(h, [2, 5], 1)
        total = torch.hstack([a, c]).mean() + torch.vstack([h, h]).mean() + torch.dstack([h, h]).mean() + torch.column_stack([a, b]).mean()
        total = total + torch.concat([h, h], 2).mean() + torch.column_stack([h[:, 0, 0], h[:, 1, 1]]).mean()
        total = total + torch.kron(h[0], torch.sigmoid(h[0])).mean() + torch.tensordot(h, h[0], dims=([2], [0])).mean()
        return total + torch.tensordot(h, h, dims=([0, 2], [0, 1])).sum() + torch.inner(h, h[0]).mean() + h.hsplit(2)[0].mean()

    def in_place(self, h):
        total = F.elu(h * 1, inplace=True).mean() + F.selu(h * 1, inplace=True).mean() + F.celu(h * 1, inplace=True).mean()
        total = total + F.mish(h * 1, inplace=True).mean() + F.hardsigmoid(h * 1, inplace=True).mean() + F.hardtanh(h * 1, inplace=True).mean()
        return total + (h * 1).neg_().mean()


class Segmenter(nn.Module):
    """As SegNet: pooled elements go back to where they came from; classes count differently, and one does not count."""

    def __init__(self, width=8, classes=4):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.pool, self.unpool, self.out = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2), nn.Conv2d(width, classes, 1)
        self.line, self.peaks, self.fc = nn.Conv1d(width, width, 3, padding="same"), nn.AdaptiveMaxPool1d(5), nn.Linear(5 * width, classes)
        self.register_buffer("weight", torch.tensor([0.5, 1.0, 1.5, 2.0]))

    def forward(self, x, labels):
        x, places = self.pool(F.relu(self.first(x)))
        logits = self.out(self.unpool(F.relu(self.second(x)), places))
        scores = self.fc(self.peaks(F.relu(self.line(x.flatten(2)))).flatten(1))
        by_class = F.cross_entropy(logits, labels, self.weight) + F.cross_entropy(logits, labels, ignore_index=0)
        return by_class + F.cross_entropy(scores, labels[:, 0, 0], self.weight, reduction="sum") + F.nll_loss(scores, labels[:, 0, 0], ignore_index=1)


NETWORKS = {
    "functions": (Functions, lambda batch: (torch.randn(batch, 64),), "inside"),
    "segmenter": (Segmenter, lambda batch: (torch.randn(batch, 3, 16, 16), torch.randint(4, (batch, 16, 16))), "inside"),
}
