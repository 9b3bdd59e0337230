"""A network of torchvision with SGD and momentum: python torchvision_network.py NAME BATCH [float32|autocast|float16] [channels_last] [benchmark|deterministic]"""

import contextlib
import sys

import torch
import torchvision

name, batch, *words = sys.argv[1:]
torch.backends.cudnn.benchmark = "benchmark" in words
torch.backends.cudnn.deterministic = "deterministic" in words
layout = torch.channels_last if "channels_last" in words else torch.contiguous_format
kind = {"autocast": torch.bfloat16, "float16": torch.float16}.get(next(iter({"autocast", "float16"} & set(words)), None))
model = torchvision.models.get_model(name, weights=None).cuda().to(memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(4):
    images = torch.rand(int(batch), 3, 224, 224).cuda(non_blocking=True).to(memory_format=layout)
    labels = torch.randint(1000, (int(batch),)).cuda()
    with torch.autocast("cuda", dtype=kind) if kind else contextlib.nullcontext():
        outputs = model(images)
        loss = torch.nn.functional.cross_entropy(getattr(outputs, "logits", outputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
