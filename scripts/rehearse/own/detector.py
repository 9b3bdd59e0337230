"""What detectors do with boxes: matched to anchors, sampled, and taken where they are found."""

import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Conv2d(3, 64, 3, stride=4, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=4, padding=1), nn.ReLU()).cuda()
score, shift = nn.Conv2d(64, 3, 1).cuda(), nn.Conv2d(64, 12, 1).cuda()
optimizer = torch.optim.SGD([*trunk.parameters(), *score.parameters(), *shift.parameters()], lr=0.01)
places = torch.cartesian_prod(torch.arange(32), torch.arange(32)) * 16
anchors = torch.cat([torch.cat([places - size, places + size], 1) for size in (8, 16, 32)]).float().cuda()


def overlap(boxes, others):
    area = lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    size = (torch.min(boxes[:, None, 2:], others[:, 2:]) - torch.max(boxes[:, None, :2], others[:, :2])).clamp(min=0).prod(2)
    return size / (area(boxes)[:, None] + area(others) - size)


for _ in range(5):
    corners = torch.randint(0, 400, (6, 2))
    boxes = torch.cat([corners, corners + torch.randint(20, 100, (6, 2))], 1).float().cuda()
    features = trunk(torch.rand(1, 3, 512, 512).cuda())
    scores, shifts = score(features).permute(1, 2, 3, 0).flatten(), shift(features).view(4, -1).t()
    best, which = overlap(anchors, boxes).max(1)
    found, empty = torch.nonzero(best > 0.3)[:, 0], torch.nonzero(best < 0.1)[:, 0]
    taken = torch.cat([found, empty[: 3 * max(1, found.numel())]])
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    loss = nn.functional.binary_cross_entropy_with_logits(scores[taken], (best[taken] > 0.3).float())
    loss = loss + nn.functional.smooth_l1_loss(shifts[found], boxes[which[found]] - anchors[found])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(len(found), loss.item())
