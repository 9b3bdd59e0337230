"""A small network of each architecture: GRUs, Elman's and cells, a U-Net, an autoencoder, a graph, attention with einsum; and pointwise functions."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GruLm(nn.Module):
    """A language model of GRUs: two layers, dropout between them."""

    def __init__(self, vocabulary=128, width=48, layers=2):
        super().__init__()
        self.embed, self.decoder = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.gru = nn.GRU(width, width, layers, dropout=0.2, batch_first=True)

    def forward(self, words, targets):
        out, _ = self.gru(self.embed(words))
        logits = self.decoder(out)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class GruClassifier(nn.Module):
    """The last states of a bidirectional GRU without biases."""

    def __init__(self, vocabulary=128, width=32, hidden=48, classes=4):
        super().__init__()
        self.embed, self.gru = nn.Embedding(vocabulary, width), nn.GRU(width, hidden, bias=False, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, words):
        _, last = self.gru(self.embed(words.t()))
        return self.fc(torch.cat([last[0], last[1]], dim=1))


class Rnn(nn.Module):
    """Elman's network with both nonlinearities: one reads the features forth and back, one its outputs."""

    def __init__(self, features=16, hidden=32, classes=4):
        super().__init__()
        self.first = nn.RNN(features, hidden, batch_first=True, bidirectional=True)
        self.second = nn.RNN(2 * hidden, hidden, 2, nonlinearity="relu", bias=False, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        out, _ = self.first(x)
        out, _ = self.second(out)
        return self.fc(out.mean(1))


class Cells(nn.Module):
    """A loop over cells of each kind, as decoders are written."""

    def __init__(self, features=16, hidden=32, classes=4):
        super().__init__()
        self.tanh, self.relu = nn.RNNCell(features, hidden), nn.RNNCell(hidden, hidden, nonlinearity="relu", bias=False)
        self.gru, self.lstm, self.fc = nn.GRUCell(hidden, hidden), nn.LSTMCell(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        size = (x.size(0), self.gru.hidden_size)
        first, second, third, state = x.new_zeros(size), x.new_zeros(size), x.new_zeros(size), None
        for step in range(x.size(1)):
            first = self.tanh(x[:, step], first)
            second = self.relu(first, second)
            third = self.gru(second, third)
            state = self.lstm(third, state)
        return self.fc(state[0])


class InstanceUNet(nn.Module):
    """A U-Net as for style transfer and medical pictures: instance normalisation, pixels shuffled instead of pooled."""

    def __init__(self, width=16):
        super().__init__()
        self.inside = nn.Conv2d(3, width, 3, padding=1, padding_mode="reflect")
        self.middle, self.drop = nn.Conv2d(4 * width, 4 * width, 3, padding=1, padding_mode="replicate"), nn.Dropout2d(0.2)
        self.out = nn.Conv2d(2 * width, 2, 3, padding=1)
        self.first, self.second = nn.InstanceNorm2d(width), nn.InstanceNorm2d(4 * width, affine=True)

    def forward(self, x):
        kept = F.leaky_relu(self.first(self.inside(x)))
        x = F.leaky_relu(self.second(self.middle(F.pixel_unshuffle(kept, 2))))
        return F.glu(self.out(torch.cat([kept, self.drop(F.pixel_shuffle(x, 2))], dim=1)), dim=1)


class KlVae(nn.Module):
    """An autoencoder of distributions: Kullback-Leibler divergence of what is rebuilt, and of the latent variable from its statistics."""

    def __init__(self, features=64, hidden=32, latent=8):
        super().__init__()
        self.encode, self.mean, self.scale = nn.Linear(features, hidden), nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decode = nn.Linear(latent, features)

    def forward(self, x):
        target = F.softmax(x, dim=1)
        hidden = torch.erf(self.encode(torch.log1p(target)))
        mean, scale = self.mean(hidden), F.softplus(self.scale(hidden))
        z = torch.addcmul(mean, scale, torch.randn_like(mean))
        rebuilt = F.kl_div(F.log_softmax(self.decode(z), dim=1), target, reduction="batchmean")
        spread, center = torch.var_mean(z, dim=0)
        prior = (spread + center.square() - spread.log() - 1).sum() / 2
        return rebuilt + prior + z.std(dim=1).mean() + 1e-3 * torch.norm(self.decode.weight, p=1)


class GraphNetwork(nn.Module):
    """Messages along the edges of one graph, gathered at their ends: by rows and by single elements."""

    def __init__(self, nodes=12, edges=40, features=16, hidden=24, classes=4):
        super().__init__()
        self.register_buffer("source", torch.randint(nodes, (edges,), generator=torch.Generator().manual_seed(0)))
        self.register_buffer("end", torch.randint(nodes, (edges,), generator=torch.Generator().manual_seed(1)))
        self.first, self.second, self.fc = nn.Linear(features, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.first(x))
        messages = x.index_select(1, self.source)
        x = torch.zeros_like(x).index_add_(1, self.end, messages) + x
        messages = F.relu(self.second(x)).index_select(1, self.source)
        places = self.end[None, :, None].expand_as(messages)
        x = x.scatter_add(1, places, messages)
        x = torch.index_add(x, 1, self.end, messages, alpha=0.5)
        x = x.scatter(1, places, messages)
        table = x.mean(0)
        table = table.index_put((self.end[:5],), table[:5] * 2)
        x = x * table.index_copy(0, self.source[:3], table[:3] + 1)
        return self.fc(F.threshold(x, 0.1, 0.0).mean(1))


class EinsumSeq2Seq(nn.Module):
    """Attention between two sequences, written with einsum, and scores of directions."""

    def __init__(self, vocabulary=64, width=32, heads=4):
        super().__init__()
        self.embed, self.heads = nn.Embedding(vocabulary, width), heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.bias, self.out = nn.Parameter(torch.zeros(1, 1, 10)), nn.Linear(width, vocabulary)

    def forward(self, words, targets):
        x, y = self.embed(words), self.embed(targets)
        split = (x.size(0), -1, self.heads, x.size(2) // self.heads)
        q, k, v = self.q(y).view(split), self.k(x).view(split), self.v(x).view(split)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / q.size(-1) ** 0.5
        mixed = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v).reshape(y.shape)
        local = torch.baddbmm(self.bias, mixed, x.transpose(1, 2), beta=0.5)
        mixed = torch.lerp(mixed, torch.bmm(local.softmax(-1), x), 0.3)
        near = F.cosine_similarity(mixed, y, dim=-1)
        rows = torch.einsum("btd,dv->btv", mixed, self.out.weight.t()) + self.out.bias
        return F.cross_entropy(rows.flatten(0, 1), targets.flatten()) - near.mean()


class Pointwise(nn.Module):
    """One layer after another with pointwise functions between them."""

    def __init__(self, features=32, classes=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(8))
        self.fc, self.scores = nn.Linear(2 * features, classes), nn.Parameter(torch.zeros(2 * features))
        self.register_buffer("low", torch.full((features,), -1.0))
        self.register_buffer("high", torch.full((features,), 1.0))

    def forward(self, x):
        a, b, c, d, e, f, g, h = self.layers
        x = torch.atan(a(x)) + torch.tan(torch.tanh(b(x)))
        x = torch.sinh(torch.tanh(c(x))) - torch.cosh(torch.tanh(d(x)))
        x = F.hardshrink(e(x)) + F.softshrink(f(x)) + F.tanhshrink(x) + F.softsign(x)
        x = torch.clamp(g(x), self.low, self.high) + torch.floor(x) - torch.round(x) * torch.sign(x)
        x = torch.log2(1 + torch.expm1(h(x).clamp(0, 1))) + F.softmin(x, dim=1)
        x = x.repeat_interleave(2, dim=1)
        gate = torch.sigmoid(torch.mv(x, self.scores)) + torch.pow(x.exp(), torch.sin(x)).mean(1)
        return self.fc(x * gate[:, None])
