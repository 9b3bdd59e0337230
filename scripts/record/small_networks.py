"""Programs of the groups a to d and f: convolutional networks, a linear layer, a leak, decoders. Each is a function of the rows."""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

CUDA = torch.device("cuda")


def optimizer(kind, parameters, **options):
    """One of the optimizers that names stand for."""
    kinds = {"sgd": (torch.optim.SGD, {"lr": 0.01}), "sgdm": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
             "adam": (torch.optim.Adam, {"lr": 1e-3}), "adamw": (torch.optim.AdamW, {"lr": 1e-3})}
    made, settings = kinds[kind]
    return made(parameters, **settings, **options)


class SimpleCNN(nn.Module):
    """The network of the first article."""

    def __init__(self):
        super().__init__()
        self.conv1, self.relu, self.pool = nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        self.fc = nn.Linear(16 * 16 * 16, 10)

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        return self.fc(x.view(x.size(0), -1))


def cnn(row, batch, tag="", empty=False):
    """Three epochs of one batch."""
    model, criterion = SimpleCNN().to(CUDA), nn.CrossEntropyLoss()
    made = optimizer("adam", model.parameters())
    row(tag + "model")
    images, classes = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    for epoch in range(3):
        inputs = images.to(CUDA)
        labels = classes.to(CUDA)
        row(f"{tag}e{epoch}.input")
        made.zero_grad()
        row(f"{tag}e{epoch}.zero_grad")
        outputs = model(inputs)
        row(f"{tag}e{epoch}.forward")
        loss = criterion(outputs, labels)
        row(f"{tag}e{epoch}.loss")
        loss.backward()
        row(f"{tag}e{epoch}.backward")
        made.step()
        row(f"{tag}e{epoch}.step")
        loss.item()
        if empty:
            del outputs
            torch.cuda.empty_cache()
            row(f"{tag}e{epoch}.empty_cache")


def cnns(row, first, second):
    """Two trainings, one after the other."""
    cnn(row, first, tag=f"b{first}.")
    row("between")
    cnn(row, second, tag=f"b{second}.")


def linear(row):
    """A layer of ten inputs and one output."""
    model = nn.Linear(10, 1).to(CUDA)
    made, criterion = torch.optim.SGD(model.parameters(), lr=0.01), nn.MSELoss()
    row("model")
    for step in range(5):
        x = torch.randn(32, 10, device=CUDA)
        y = torch.randn(32, 1, device=CUDA)
        row(f"s{step}.input")
        made.zero_grad()
        row(f"s{step}.zero_grad")
        out = model(x)
        row(f"s{step}.forward")
        loss = criterion(out, y)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        made.step()
        row(f"s{step}.step")


def leak(row, clear):
    """Hidden activations that a list keeps, or that are let go after each step."""
    one, other = nn.Linear(10, 20).to(CUDA), nn.Linear(20, 1).to(CUDA)
    made, criterion, kept = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.01), nn.MSELoss(), []
    row("model")
    for step in range(5):
        x = torch.randn(32, 10, device=CUDA)
        y = torch.randn(32, 1, device=CUDA)
        row(f"s{step}.input")
        made.zero_grad()
        row(f"s{step}.zero_grad")
        hidden = torch.relu(one(x))
        kept.append(hidden)
        out = other(hidden)
        row(f"s{step}.forward")
        loss = criterion(out, y)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        made.step()
        row(f"s{step}.step")
        if clear:
            kept.clear()
            row(f"s{step}.clear")


class ConvNet(nn.Module):
    """The network of the fourth article."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, channels, 3), nn.Linear(channels * 30 * 30, 128)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return self.fc(x.view(x.size(0), -1))


def forward(row, channels, batch):
    """A forward pass with a graph and one without."""
    model = ConvNet(channels).to(CUDA)
    row("model")
    x = torch.randn(batch, 3, 32, 32, device=CUDA)
    row("input")
    out = model(x)
    row("forward")
    del out
    row("del")
    with torch.no_grad():
        _out = model(x)
    row("forward_no_grad")


def train(row, channels, batch, kind):
    """Two steps."""
    model = ConvNet(channels).to(CUDA)
    row("model")
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    made = kinds[kind](model.parameters(), lr=1e-3)
    for step in range(2):
        x = torch.randn(batch, 3, 32, 32, device=CUDA)
        y = torch.randn(batch, 128, device=CUDA)
        row(f"s{step}.input")
        made.zero_grad()
        row(f"s{step}.zero_grad")
        out = model(x)
        row(f"s{step}.forward")
        loss = F.mse_loss(out, y)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        made.step()
        row(f"s{step}.step")


def convolutions(row, batch=8):
    """Three convolutions and a linear layer."""
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 32 * 32, 10)).to(CUDA)
    classified(row, model, optimizer("sgd", model.parameters()), (batch, 3, 32, 32))


def classified(row, model, made, shape):
    """Two steps of a network of ten classes."""
    row("model")
    for step in range(2):
        x = torch.randn(*shape, device=CUDA)
        y = torch.randint(0, 10, shape[:1], device=CUDA)
        row(f"s{step}.input")
        made.zero_grad()
        out = model(x)
        row(f"s{step}.forward")
        loss = F.cross_entropy(out, y)
        row(f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        made.step()
        row(f"s{step}.step")


def resnet(row, batch, size, kind="sgdm"):
    """torchvision's ResNet-18 with ten classes."""
    import torchvision

    model = torchvision.models.resnet18(num_classes=10).to(CUDA)
    classified(row, model, optimizer(kind, model.parameters()), (batch, 3, size, size))


class Block(nn.Module):
    """A block of a decoder, whose attention is written out unless it is PyTorch's."""

    def __init__(self, width, heads, dropout, fused):
        super().__init__()
        self.ln1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.fused, self.drop = heads, fused, nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x, mask):
        B, T, D = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(D, dim=2)
        q, k, v = (t.view(B, T, self.heads, D // self.heads).transpose(1, 2) for t in (q, k, v))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (D // self.heads) ** -0.5
            att = att.masked_fill(mask, float("-inf"))
            att = self.drop(F.softmax(att, dim=-1))
            y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, D)
        x = x + self.drop(self.proj(y))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.ln2(x)))))


class Gpt(nn.Module):
    """A decoder."""

    def __init__(self, words, length, width, heads, blocks, tied, dropout, fused):
        super().__init__()
        self.tok, self.pos = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, fused) for _ in range(blocks))
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.tok.weight
        self.register_buffer("mask", torch.triu(torch.ones(length, length, dtype=torch.bool), 1))

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.lnf(x))


def gpt(row, words=512, length=64, width=128, heads=4, batch=8, tied=False, dropout=0.0, fused=False, lower=None, kind="adamw"):
    """Three steps of a decoder of two blocks."""
    model = Gpt(words, length, width, heads, 2, tied, dropout, fused).to(CUDA)
    made = optimizer(kind, model.parameters())
    row("model")
    scaler = torch.amp.GradScaler("cuda") if lower == torch.float16 else None
    for step in range(3):
        idx = torch.randint(0, words, (batch, length)).to(CUDA)
        tgt = torch.randint(0, words, (batch, length)).to(CUDA)
        row(f"s{step}.input")
        with torch.autocast("cuda", dtype=lower) if lower else contextlib.nullcontext():
            logits = model(idx)
            row(f"s{step}.forward")
            loss = F.cross_entropy(logits.view(-1, words), tgt.view(-1))
            row(f"s{step}.loss")
        made.zero_grad()
        row(f"s{step}.zero_grad")
        (scaler.scale(loss) if scaler else loss).backward()
        row(f"s{step}.backward")
        if scaler:
            scaler.step(made)
            scaler.update()
        else:
            made.step()
        row(f"s{step}.step")
