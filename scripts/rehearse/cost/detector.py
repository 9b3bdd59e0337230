"""torchvision's Faster R-CNN on two pictures (the second argument says how many): prints how long each step took."""

import sys
import time

import torch
import torchvision

torch.manual_seed(0)
model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
last = time.perf_counter()
for _ in range(int(sys.argv[1])):
    images, targets = [], []
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        corners = torch.rand(8, 2) * 300
        boxes = torch.cat([corners, corners + 20 + torch.rand(8, 2) * 80], 1)
        images.append(torch.rand(3, 480, 640).cuda())
        targets.append({"boxes": boxes.cuda(), "labels": torch.randint(1, 21, (8,)).cuda()})
    sum(model(images, targets).values()).backward()
    optimizer.step()
    optimizer.zero_grad()
    now = time.perf_counter()
    print(f"time {1000 * (now - last):.2f}ms", flush=True)
    last = now
