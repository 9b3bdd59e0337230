"""Networks written by hand, as people write them: small, with the operators of full size."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.norm(self.conv2(F.interpolate(x, scale_factor=2, mode="nearest"))))
        return self.fc(x.flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = None
        if stride != 1 or inside != out:
            self.down = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x if self.down is None else self.down(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """As written by hand for 32 x 32 pictures."""

    def __init__(self, widths=(16, 32, 64), blocks=2):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        layers, inside = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(BasicBlock(inside, width, 2 if stage and not block else 1))
                inside = width
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(inside, 10)

    def forward(self, x):
        x = self.layers(F.relu(self.bn(self.stem(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class DoubleConv(nn.Sequential):
    def __init__(self, inside, out):
        super().__init__(nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                         nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64), nearest=False):
        super().__init__()
        self.down, self.up, self.after = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        inside = 3
        for width in widths:
            self.down.append(DoubleConv(inside, width))
            inside = width
        self.middle = DoubleConv(inside, 2 * inside)
        for width in reversed(widths):
            if nearest:
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 1)))
            else:
                self.up.append(nn.ConvTranspose2d(2 * width, width, 2, 2))
            self.after.append(DoubleConv(2 * width, width))
        self.out = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, after in zip(self.up, self.after):
            x = after(torch.cat([kept.pop(), up(x)], dim=1))
        return self.out(x)


class Vae(nn.Module):
    def __init__(self, width=400, latent=20):
        super().__init__()
        self.encode = nn.Linear(784, width)
        self.mean, self.log_var = nn.Linear(width, latent), nn.Linear(width, latent)
        self.decode, self.out = nn.Linear(latent, width), nn.Linear(width, 784)

    def forward(self, x):
        h = F.relu(self.encode(x))
        mean, log_var = self.mean(h), self.log_var(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        picture = self.out(F.relu(self.decode(z)))
        rebuilt = F.mse_loss(picture, x, reduction="sum")
        return rebuilt - 0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())


class Block(nn.Module):
    def __init__(self, width, heads, context, dropout, fused):
        super().__init__()
        self.ln_1, self.attn, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ln_2, self.fc, self.out = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)
        self.heads, self.fused = heads, fused
        if not fused:
            self.register_buffer("bias", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def attend(self, x):
        b, t, c = x.size()
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.attn(x).split(c, dim=2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.drop(self.proj(y.transpose(1, 2).contiguous().view(b, t, c)))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.drop(self.out(F.gelu(self.fc(self.ln_2(x)))))


class NanoGpt(nn.Module):
    """The model of nanoGPT: tied embeddings, the loss inside."""

    def __init__(self, width=64, heads=4, blocks=2, context=32, vocabulary=128, dropout=0.1, fused=False):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(Block(width, heads, context, dropout, fused) for _ in range(blocks))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        positions = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class Dcgan(nn.Module):
    """Generator and discriminator in one step, as a graph: the discriminator's loss of pictures that were made."""

    def __init__(self, latent=16, width=8):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(latent, 4 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(4 * width, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, noise):
        score = self.discriminator(self.generator(noise)).view(-1)
        return F.binary_cross_entropy(score, torch.ones_like(score))


class TextCnn(nn.Module):
    """Kim's: convolutions of several widths over the words, the largest of each."""

    def __init__(self, vocabulary=128, width=32, channels=16, sizes=(3, 4, 5), classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(width, channels, size) for size in sizes)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(channels * len(sizes), classes)

    def forward(self, words):
        x = self.embed(words).transpose(1, 2)
        x = [F.relu(conv(x)) for conv in self.convs]
        x = [F.max_pool1d(part, part.size(2)).squeeze(2) for part in x]
        return self.fc(self.drop(torch.cat(x, dim=1)))


class LstmClassifier(nn.Module):
    """The last output of a bidirectional LSTM."""

    def __init__(self, vocabulary=128, width=32, hidden=48, classes=4):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, words):
        out, _ = self.lstm(self.embed(words))
        return self.fc(out[:, -1])


class LstmLm(nn.Module):
    """The word language model of PyTorch's examples: two layers, dropout, tied weights."""

    def __init__(self, vocabulary=128, width=48, layers=2):
        super().__init__()
        self.drop, self.embed = nn.Dropout(0.2), nn.Embedding(vocabulary, width)
        self.lstm, self.decoder = nn.LSTM(width, width, layers, dropout=0.2, batch_first=True), nn.Linear(width, vocabulary)
        self.decoder.weight = self.embed.weight

    def forward(self, words, targets):
        out, _ = self.lstm(self.drop(self.embed(words)))
        logits = self.decoder(self.drop(out))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class SwiGlu(nn.Module):
    def __init__(self, width=64, hidden=160, blocks=2):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(blocks))
        self.gates = nn.ModuleList(nn.Linear(width, 2 * hidden, bias=False) for _ in range(blocks))
        self.outs = nn.ModuleList(nn.Linear(hidden, width, bias=False) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for norm, gate, out in zip(self.norms, self.gates, self.outs):
            a, b = gate(norm(x)).chunk(2, dim=-1)
            x = x + out(F.silu(a) * b)
        return self.head(x)


class SqueezeExcite(nn.Module):
    def __init__(self, width=32, reduced=8, blocks=2):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(width, reduced) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(reduced, width) for _ in range(blocks))
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x)
        for conv, norm, down, up in zip(self.convs, self.norms, self.down, self.up):
            y = F.relu(norm(conv(x)))
            scale = torch.sigmoid(up(F.relu(down(y.mean((2, 3))))))
            x = x + y * scale[:, :, None, None]
        return self.fc(x.amax((2, 3)))


class Encoder(nn.Module):
    """nn.TransformerEncoder over embedded words."""

    def __init__(self, vocabulary=128, width=64, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True)
        self.encoder, self.fc = nn.TransformerEncoder(layer, 2), nn.Linear(width, classes)

    def forward(self, words):
        return self.fc(self.encoder(self.embed(words)).mean(1))


class Gated(nn.Module):
    """A stack of dilated convolutions with gates: the names of its loop hold the values of one turn while the next one is computed."""

    def __init__(self, width=32, layers=6):
        super().__init__()
        self.inside, self.out = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        self.filters = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2 ** i, dilation=2 ** i) for i in range(layers))
        self.gates = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2 ** i, dilation=2 ** i) for i in range(layers))

    def forward(self, x):
        x, total = self.inside(x), 0
        for filters, gates in zip(self.filters, self.gates):
            filtered, gate = filters(x), gates(x)
            value = torch.tanh(filtered) * torch.sigmoid(gate)
            x = x + value
            total = total + value
        return self.out(F.relu(total))
