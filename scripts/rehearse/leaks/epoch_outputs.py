"""A loop like Lightning's collects what training steps return until an epoch ends, which is far away."""
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 2000))

    def training_step(self, batch, batch_idx):
        logits = self.net(batch)
        return {"loss": logits.square().mean(), "logits": logits.detach()}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


module = Classifier().cuda()
optimizer = module.configure_optimizers()
for epoch in range(2):
    outputs = []
    for batch_idx in range(5000):
        output = module.training_step(torch.randn(32, 128, device="cuda"), batch_idx)
        optimizer.zero_grad()
        output["loss"].backward()
        optimizer.step()
        outputs.append(output)
