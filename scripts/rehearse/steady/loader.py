"""A loader with workers, gradients of four batches added up, a norm that is clipped, and an evaluation after every second step."""

import torch

net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 8)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
rows = torch.utils.data.TensorDataset(torch.randn(4096, 512), torch.randint(8, (4096,)))
loader = torch.utils.data.DataLoader(rows, batch_size=32, num_workers=2, shuffle=True, drop_last=True)
steps = 0
for epoch in range(2):
    for number, (inputs, labels) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(net(inputs.cuda()), labels.cuda()) / 4
        loss.backward()
        if (number + 1) % 4 == 0:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps % 2 == 0:
                with torch.no_grad():
                    net(torch.randn(512, 512, device="cuda")).argmax(-1)
