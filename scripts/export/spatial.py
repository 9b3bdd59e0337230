"""Networks of volumes, of samples at positions, and of order: name -> (make, examples, loss), as in networks.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Video(nn.Module):
    """A classifier of short videos, as C3D and R(2+1)D are: windows over time and pictures."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.first = nn.Sequential(nn.Conv3d(3, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU(inplace=True), nn.MaxPool3d((1, 2, 2)))
        self.pictures = nn.Conv3d(width, 2 * width, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False)
        self.time = nn.Conv3d(2 * width, 2 * width, (3, 1, 1), padding=(1, 0, 0), groups=2)
        self.norm, self.pool, self.fc = nn.GroupNorm(4, 2 * width), nn.AvgPool3d(2), nn.Linear(2 * width, classes)

    def forward(self, x):
        x = F.relu(self.norm(self.time(self.pictures(self.first(x)))))
        return self.fc(F.adaptive_avg_pool3d(self.pool(x), 1).flatten(1))


class Volumes(nn.Module):
    """A U-Net of volumes, as for medical pictures: transposed convolutions, or interpolation, on the way up."""

    def __init__(self, width=8, classes=3):
        super().__init__()
        self.down = nn.Conv3d(1, width, 3, padding=1, padding_mode="replicate")
        self.middle = nn.Conv3d(width, 2 * width, 3, padding=1, padding_mode="reflect")
        self.bottom, self.up = nn.Conv3d(2 * width, 2 * width, 1), nn.ConvTranspose3d(2 * width, width, 2, stride=2)
        self.norm, self.out = nn.InstanceNorm3d(width, affine=True), nn.Conv3d(4 * width, classes, 1)

    def forward(self, x):
        x = F.relu(self.norm(self.down(x)))
        y = F.relu(self.middle(F.max_pool3d(x, 2)))
        z = F.adaptive_avg_pool3d(self.bottom(y), (2, 4, 4))
        near = F.interpolate(z, size=x.shape[2:], mode="nearest")
        smooth = F.interpolate(self.up(z), scale_factor=2, mode="trilinear")[:, :, :8]
        return self.out(torch.cat([x, near, smooth], dim=1))


class Ranked(nn.Module):
    """Chooses: the highest scores of each row, rows in the order of a score, and gates between the highest."""

    def __init__(self, features=32, experts=6, classes=4):
        super().__init__()
        self.scores, self.fc = nn.Linear(features, experts), nn.Linear(features, classes)
        self.experts = nn.Parameter(torch.randn(experts, features, features) / features**0.5)

    def forward(self, x):
        gates, chosen = torch.topk(self.scores(x).mean(1), 2, dim=-1)
        x = ((x.unsqueeze(1) @ self.experts[chosen]) * gates.softmax(-1)[:, :, None, None]).sum(1)
        ordered, _ = torch.sort(x, dim=1, descending=True)
        order = torch.argsort(x.mean(-1), dim=-1)
        x = ordered + torch.gather(x, 1, order.unsqueeze(-1).expand_as(x))
        return self.fc(x.mean(1))


class Transformer2d(nn.Module):
    """A spatial transformer: a network that says where the next one looks."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(1, width, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(width * 36, 6))
        self.conv, self.fc = nn.Conv2d(1, width, 3, padding=1), nn.Linear(width, classes)

    def forward(self, x):
        grid = F.affine_grid(self.where(x).view(-1, 2, 3), (x.size(0), 1, 16, 16), align_corners=False)
        x = F.grid_sample(x, grid, align_corners=False, padding_mode="border")
        return self.fc(F.relu(self.conv(x)).mean((2, 3)))


NETWORKS = {
    "video": (Video, lambda batch: (torch.randn(batch, 3, 4, 16, 16),), "cross-entropy"),
    "volumes": (Volumes, lambda batch: (torch.randn(batch, 1, 8, 16, 16),), "mean"),
    "ranked": (Ranked, lambda batch: (torch.randn(batch, 10, 32),), "cross-entropy"),
    "spatial-transformer": (Transformer2d, lambda batch: (torch.randn(batch, 1, 16, 16),), "cross-entropy"),
}
