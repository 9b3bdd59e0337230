"""A network of torchvision fed from a side stream, with batches of several sizes: python prefetched_network.py NAME BATCH"""

import sys

import torch
import torchvision

name, batch = sys.argv[1], int(sys.argv[2])
model = torchvision.models.get_model(name, weights=None).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
side = torch.cuda.Stream()


def fetched(count):
    with torch.cuda.stream(side):
        images = torch.rand(count, 3, 224, 224).pin_memory().cuda(non_blocking=True)
        return images * 2 - 1, torch.randint(1000, (count,)).cuda(non_blocking=True)


following = fetched(batch)
for step in range(8):
    torch.cuda.current_stream().wait_stream(side)
    images, labels = following
    for given in following:
        given.record_stream(torch.cuda.current_stream())
    following = fetched(batch - step % 3)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
