"""Networks whose tensors are of several types, and that write over parts of others: name -> (make, examples, loss), as in networks.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Routed(nn.Module):
    """Layers in bfloat16 whose routers stay in float32, as in the mixtures of experts of DeepSeek and GLM."""

    def __init__(self, width=32, experts=4, classes=4):
        super().__init__()
        self.into = nn.Linear(width, width, dtype=torch.bfloat16)
        self.routers = nn.ModuleList(nn.Linear(width, experts, bias=False) for _ in range(2))
        self.experts = nn.ModuleList(nn.Linear(width, width * experts, dtype=torch.bfloat16) for _ in range(2))
        self.head = nn.Linear(width, classes, dtype=torch.bfloat16)

    def forward(self, x):
        x = self.into(x.to(torch.bfloat16))
        for router, expert in zip(self.routers, self.experts):
            shares = router(x.float()).softmax(-1).to(x.dtype)
            x = x + (expert(x).unflatten(-1, (shares.shape[-1], -1)) * shares.unsqueeze(-1)).sum(1)
        return self.head(F.silu(x))


class Rotated(nn.Module):
    """Attention whose positions are complex numbers of length one, as DeepSeek-V2 and Llama 4 make them."""

    def __init__(self, vocabulary=64, width=32, heads=4):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(vocabulary, width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, vocabulary)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half), persistent=False)

    def turned(self, x, turns):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        with torch.no_grad():
            angles = torch.arange(tokens.shape[1], dtype=torch.float32).unsqueeze(-1) * self.frequencies
            turns = torch.polar(torch.ones_like(angles), angles)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        x = F.scaled_dot_product_attention(self.turned(q, turns), self.turned(k, turns), v, is_causal=True)
        scores = self.head(self.out(x.transpose(1, 2).flatten(2)))
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


class Zeroed(nn.Module):
    """A projection whose bias has its middle part zeroed, as in the second Swin, and a picture whose border is filled."""

    def __init__(self, width=24, classes=4):
        super().__init__()
        self.width, self.qkv, self.conv = width, nn.Linear(width, 3 * width), nn.Conv2d(1, 2, 3, padding=1)
        self.fc = nn.Linear(3 * width + 2 * 36, classes)

    def forward(self, x, picture):
        bias = self.qkv.bias.clone()
        bias[self.width:2 * self.width].zero_()
        x = F.linear(x, self.qkv.weight, bias)
        picture = self.conv(picture) * 2.0
        picture[:, :, 0].fill_(0.5)
        return self.fc(torch.cat((F.relu(x), picture.flatten(1)), 1))


class Scaled(nn.Module):
    """Scores that are divided by the root of a constant on the host, as in DeBERTa."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        self.q, self.k, self.fc = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, x):
        q, k = self.q(x), self.k(x)
        scale = torch.sqrt(torch.tensor(q.size(-1), dtype=torch.float) * 3)
        weights = torch.bmm(q, k.transpose(-1, -2) / scale).softmax(-1)
        return self.fc((weights @ x).mean(1))


class Bucketed(nn.Module):
    """Relative positions in buckets whose borders are constants of the host, as in DeBERTa, and turns that are moved to the card, as in DeepSeek-V2."""

    def __init__(self, width=32, classes=4, span=4):
        super().__init__()
        self.span, self.q, self.bias, self.fc = span, nn.Linear(width, width), nn.Embedding(4 * span, 1), nn.Linear(width, classes)

    def buckets(self, distance):
        middle = self.span // 2
        far = torch.where((distance < middle) & (distance > -middle), torch.tensor(middle - 1).type_as(distance), distance.abs())
        logarithm = torch.ceil(torch.log(far / middle) / torch.log(torch.tensor((4 * self.span - 1) / middle)) * (middle - 1)) + middle
        return torch.where(far <= middle, distance.type_as(logarithm), logarithm * distance.sign())

    def forward(self, x):
        place = torch.arange(x.shape[1], device=x.device)
        buckets = self.buckets(place[:, None] - place[None, :]).long().clamp(-self.span, self.span) + self.span
        angles = place.float()[:, None] * torch.ones(16, device=x.device)
        turns = torch.polar(torch.ones_like(angles), angles).to(x.device)
        q = torch.view_as_complex(self.q(x).unflatten(-1, (-1, 2)))
        q = torch.view_as_real(q * turns).flatten(2)
        weights = (torch.bmm(q, x.transpose(1, 2)) + self.bias(buckets).squeeze(-1)).softmax(-1)
        return self.fc((weights @ x).mean(1))


class Pixels(nn.Module):
    """A class for each pixel, whose loss is outside."""

    def __init__(self, width=8, classes=5, logarithms=False):
        super().__init__()
        self.logarithms = logarithms
        self.layers = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.1), nn.Conv2d(width, classes, 1))

    def forward(self, x):
        x = self.layers(x)
        return x.log_softmax(1) if self.logarithms else x


class LogProbabilities(nn.Module):
    """A classifier that gives logarithms of probabilities."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes), nn.LogSoftmax(1))

    def forward(self, x):
        return self.layers(x)


def pictures(batch):
    return (torch.randn(batch, 3, 12, 12),)


NETWORKS = {
    "routed": (Routed, lambda batch: (torch.randn(batch, 32),), "cross-entropy"),
    "rotated": (Rotated, lambda batch: (torch.randint(64, (batch, 10)), torch.randint(64, (batch, 10))), "inside"),
    "bucketed": (Bucketed, lambda batch: (torch.randn(batch, 6, 32),), "cross-entropy"),
    "scaled": (Scaled, lambda batch: (torch.randn(batch, 6, 32),), "cross-entropy"),
    "zeroed": (Zeroed, lambda batch: (torch.randn(batch, 24), torch.randn(batch, 1, 6, 6)), "cross-entropy"),
    "pixels": (Pixels, pictures, "cross-entropy"),
    "pixels-nll": (lambda: Pixels(logarithms=True), pictures, "nll"),
    "log-probabilities": (LogProbabilities, lambda batch: (torch.randn(batch, 64),), "nll"),
}

# Sizes of the classes of an example, where it has more than one.
PLACES = {"pixels": (12, 12), "pixels-nll": (12, 12)}
