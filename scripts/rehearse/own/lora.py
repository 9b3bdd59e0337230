"""Adapters of low rank, by hand, on frozen weights in bfloat16."""

import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=torch.float32)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=torch.float32)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x.float())).to(x.dtype)


with torch.device("cuda"):
    model = nn.Sequential(*(LoRA(nn.Linear(2048, 2048, dtype=torch.bfloat16)) for _ in range(6)))
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4)
for _ in range(5):
    x = torch.randn(16, 128, 2048, device="cuda", dtype=torch.bfloat16)
    loss = (model(x).float() - x.float()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(loss.item())
