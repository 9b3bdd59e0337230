"""Networks that are exported: name -> how it is made, what it is given, and how it is exported.

Each entry gives (module, examples, names of the loss): `examples(batch)` are the arguments of one call, and the loss is `inside` where the
network gives it, or one of vramlab's --loss. The networks are small; what differs from full size is width and depth, not their operators.
"""
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


def pictures(channels, side):
    return lambda batch: (torch.randn(batch, channels, side, side),)


def tokens(length, vocabulary, count=2):
    return lambda batch: tuple(torch.randint(vocabulary, (batch, length)) for _ in range(count))


class Labelled(nn.Module):
    """A network of transformers with its labels: the loss first, then the logits."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, input_ids, labels):
        out = self.network(input_ids=input_ids, labels=labels, use_cache=False)
        return out.loss, out.logits


def transformers(kind, config, **settings):
    def make():
        import transformers as library
        return Labelled(getattr(library, kind)(getattr(library, config)(**settings)))
    return make


def bert():
    import transformers as library

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            settings = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
            self.bert = library.BertForMaskedLM(library.BertConfig(vocab_size=128, max_position_embeddings=64, **settings))

        def forward(self, input_ids, labels):
            out = self.bert(input_ids=input_ids, labels=labels)
            return out.loss, out.logits
    return Masked()


def vision(name, **settings):
    def make():
        import torchvision
        return getattr(torchvision.models, name)(**settings)
    return make


SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
NETWORKS = {
    "mlp": (Mlp, lambda batch: (torch.randn(batch, 64),), "cross-entropy"),
    "cnn": (Cnn, pictures(1, 8), "cross-entropy"),
    "resnet": (ResNet, pictures(3, 32), "cross-entropy"),
    "unet": (UNet, pictures(3, 64), "mean"),
    "unet-nearest": (lambda: UNet(nearest=True), pictures(3, 64), "mean"),
    "vae": (Vae, lambda batch: (torch.rand(batch, 784),), "inside"),
    "nanogpt": (NanoGpt, tokens(32, 128), "inside"),
    "nanogpt-fused": (lambda: NanoGpt(fused=True, dropout=0.0), tokens(32, 128), "inside"),
    "gpt2": (transformers("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64),
             tokens(32, 128), "inside"),
    "llama": (transformers("LlamaForCausalLM", "LlamaConfig", vocab_size=128, num_key_value_heads=2, max_position_embeddings=64, **SMALL),
              tokens(32, 128), "inside"),
    "bert": (bert, tokens(32, 128), "inside"),
    "resnet50": (vision("resnet50", num_classes=10), pictures(3, 64), "cross-entropy"),
    "mobilenet-v3": (vision("mobilenet_v3_small", num_classes=10), pictures(3, 32), "cross-entropy"),
    "shufflenet": (vision("shufflenet_v2_x0_5", num_classes=10), pictures(3, 64), "cross-entropy"),
    "swin": (vision("SwinTransformer", patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10),
             pictures(3, 64), "cross-entropy"),
    "vit": (vision("VisionTransformer", image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10),
            pictures(3, 32), "cross-entropy"),
}


# nn.MultiheadAttention asks how the result of attention lies in memory, which is otherwise on a GPU than on the CPU: an export on the CPU does
# not run there. On the device meta it has the copy that a GPU needs.
ON_META = {"vit"}


def exported(name, example=2):
    """The exported program of a network, with a symbolic batch."""
    make, examples, loss = NETWORKS[name]
    torch.manual_seed(0)
    with torch.device("meta" if name in ON_META else "cpu"):
        model, example = make().train(), examples(example)
    batch = torch.export.Dim("batch", min=1, max=65536)
    shapes = tuple({0: batch} for _ in example)
    return torch.export.export(model, example, dynamic_shapes=shapes, strict=False), model, loss
