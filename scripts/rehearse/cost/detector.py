"""torchvision's Faster R-CNN for this many steps, on two images (the second argument sets their number). With a third argument each step has the
same boxes."""

import sys

import torch
import torchvision

torch.manual_seed(0)
model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
for _ in range(int(sys.argv[1])):
    if len(sys.argv) > 3:
        torch.manual_seed(0)
    images, targets = [], []
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        corners = torch.rand(8, 2) * 300
        boxes = torch.cat([corners, corners + 20 + torch.rand(8, 2) * 80], 1)
        images.append(torch.rand(3, 480, 640).cuda())
        targets.append({"boxes": boxes.cuda(), "labels": torch.randint(1, 21, (8,)).cuda()})
    sum(model(images, targets).values()).backward()
    optimizer.step()
    optimizer.zero_grad()
