"""Networks of indices for some dimensions and of equations of three operands: name -> (make, examples, loss)."""
import torch
import torch.nn as nn


class Indexed(nn.Module):
    """Tokens chosen by indices for any of the dimensions."""

    def __init__(self, width=24):
        super().__init__()
        self.linear = nn.Linear(width, width)
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("rows", torch.randint(6, (9,), generator=generator))
        self.register_buffer("columns", torch.randint(4, (9,), generator=generator))

    def forward(self, x):
        h = self.linear(x).view(-1, 6, 4, 6)
        rows, columns = self.rows, self.columns
        total = h[:, rows].mean() + h[:, rows, columns].sum() + h[:, :, columns].square().mean() + h[..., rows].mean()
        total = total + h[:, rows, :, columns].sin().mean() + h[:, rows[:, None], columns[:3]].mean() + h[:, rows, columns, rows].sum()
        return total + h.transpose(1, 3)[:, rows].cos().mean() + h[:, rows.view(3, 3)].mean() + h[:, :, columns, rows].exp().mean()


class Equations(nn.Module):
    """A bilinear form, a tensor in factors, traces and whatever dimensions an ellipsis stands for."""

    def __init__(self, width=12, rank=5):
        super().__init__()
        self.form, self.factors = nn.Parameter(torch.randn(width, width)), nn.Parameter(torch.randn(3, width, rank))
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        h = self.linear(x)
        a, b, c = self.factors
        total = torch.einsum("bti,ij,btj->bt", h, self.form, h).mean() + torch.einsum("ir,jr,kr->ijk", a, b, c).square().mean()
        total = total + torch.einsum("bti,ij,jr->btr", h, self.form, a).mean() + torch.einsum("...i,ij->...j", h, self.form).sin().mean()
        scores = torch.einsum("...ti,...si->...ts", h, h)
        total = total + torch.einsum("btt->b", scores).mean() + torch.einsum("btt->bt", scores).cos().mean()
        total = total + torch.einsum("...ts->...", scores).tanh().mean() + torch.einsum("bti,ti", h, h[0]).sum()
        return total + torch.einsum("bti,bsi,ij->btsj", h, h, self.form).mean() + torch.einsum("b...,b...->...", h, h).square().mean()


NETWORKS = {
    "indexed": (Indexed, lambda batch: (torch.randn(batch, 6, 24),), "inside"),
    "equations": (Equations, lambda batch: (torch.randn(batch, 7, 12),), "inside"),
}
