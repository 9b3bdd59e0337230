"""A detector, a segmentation or a video network of torchvision with SGD: python vision_task.py NAME BATCH [autocast] [benchmark]"""

import contextlib
import sys

import torch
import torchvision

name, words = sys.argv[1], sys.argv[3:]
batch = int(sys.argv[2])
torch.backends.cudnn.benchmark = "benchmark" in words
torch.manual_seed(0)
is_detector, is_segmentation = "rcnn" in name or "retinanet" in name or "ssd" in name or "fcos" in name, "lab" in name or "fcn" in name or "raspp" in name
model = torchvision.models.get_model(name, weights=None, **({"weights_backbone": None} if is_detector or is_segmentation else {})).cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def loss_of_detector():
    images = [torch.rand(3, 480, 640, device="cuda") for _ in range(batch)]
    corners = torch.tensor([[10.0, 10.0, 200.0, 220.0], [50.0, 60.0, 400.0, 300.0]], device="cuda")
    target = {"boxes": corners, "labels": torch.tensor([1, 2], device="cuda"), "masks": torch.ones(2, 480, 640, dtype=torch.uint8, device="cuda")}
    return sum(model(images, [target] * batch).values())


def loss_of_classes():
    shape = (batch, 3, 320, 320) if is_segmentation else (batch, 3, 8, 112, 112)
    outputs = model(torch.rand(shape, device="cuda"))
    outputs = outputs["out"] if is_segmentation else outputs
    labels = torch.randint(outputs.shape[1], (batch, *outputs.shape[2:]), device="cuda")
    return torch.nn.functional.cross_entropy(outputs, labels)


for _ in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in words else contextlib.nullcontext():
        loss = loss_of_detector() if is_detector else loss_of_classes()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
