"""An LSTM on sequences that are packed by their lengths."""

import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(5000, 256).cuda()
model = nn.LSTM(256, 512, num_layers=2, batch_first=True, dropout=0.2).cuda()
head = nn.Linear(512, 5000).cuda()
optimizer = torch.optim.Adam([*words.parameters(), *model.parameters(), *head.parameters()])
for _ in range(5):
    lengths = torch.randint(10, 65, (32,))
    ids = torch.randint(5000, (32, 64)).cuda()
    packed = nn.utils.rnn.pack_padded_sequence(words(ids), lengths, batch_first=True, enforce_sorted=False)
    out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True, total_length=64)
    loss = nn.functional.cross_entropy(head(out).flatten(0, 1), ids.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
