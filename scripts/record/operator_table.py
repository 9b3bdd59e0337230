"""Operators one by one: what each saves for its backward pass, and what it allocates for a moment."""

import gc
import types

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from small_networks import CUDA

# Arguments of operators. Each function makes them anew.


def normal(*shape, g=True, dt=None):
    return torch.randn(*shape, device=CUDA, dtype=dt).requires_grad_(g)


def whole(most, *shape):
    return torch.randint(0, most, shape, device=CUDA)


def rows():
    return normal(64, 256)


def images():
    return normal(8, 16, 20, 20)


def heads():
    return normal(4, 4, 32, 16)


def one(function, make=rows):
    """An operator of one argument."""
    return lambda: (make(),), function


def attention(q, k, v, backend):
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def lowered(function, x, kind):
    with torch.autocast("cuda", dtype=kind):
        return function(x)


def modules():
    """Modules that some operators belong to."""
    made = {
        "lin": nn.Linear(256, 192),
        "linn": nn.Linear(256, 192, bias=False),
        "ln": nn.LayerNorm(256),
        "bn": nn.BatchNorm2d(16),
        "gn": nn.GroupNorm(4, 16),
        "c3": nn.Conv2d(16, 24, 3, padding=1),
        "c1": nn.Conv2d(16, 24, 1),
        "cs": nn.Conv2d(16, 24, 3, stride=2),
        "cd": nn.Conv2d(16, 16, 3, padding=1, groups=16),
        "ct": nn.ConvTranspose2d(16, 24, 2, stride=2),
        "cv1": nn.Conv1d(16, 24, 3, padding=1),
        "cg": nn.Conv2d(16, 24, 3, padding=1, groups=2),
        "emb": nn.Embedding(1000, 64),
        "lstm": nn.LSTM(32, 48, batch_first=True),
        "gru": nn.GRU(32, 48, batch_first=True),
        "mha": nn.MultiheadAttention(64, 4, batch_first=True),
        "tel": nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True),
    }
    return types.SimpleNamespace(**{name: module.to(CUDA) for name, module in made.items()})


def pointwise(m):
    return {
        "relu": one(torch.relu),
        "relu_inplace_after_mul": one(lambda x: F.relu(x * 2.0, inplace=True)),
        "leaky_relu": one(F.leaky_relu),
        "gelu": one(F.gelu),
        "gelu_tanh": one(lambda x: F.gelu(x, approximate="tanh")),
        "sigmoid": one(torch.sigmoid),
        "tanh": one(torch.tanh),
        "silu": one(F.silu),
        "elu": one(F.elu),
        "softplus": one(F.softplus),
        "exp": one(torch.exp),
        "log": one(lambda x: x.log()),
        "sqrt": one(torch.sqrt),
        "square_pow2": one(lambda x: x**2),
        "pow3": one(lambda x: x**3),
        "abs": one(torch.abs),
        "clamp": one(lambda x: x.clamp(-1, 1)),
        "neg": one(torch.neg),
        "mul_scalar": one(lambda x: x * 3.0),
        "add_scalar": one(lambda x: x + 1.0),
    }


def arithmetic(m):
    return {
        "add": (lambda: (rows(), rows()), torch.add),
        "sub": (lambda: (rows(), rows()), torch.sub),
        "mul": (lambda: (rows(), rows()), torch.mul),
        "div": (lambda: (rows(), rows()), torch.div),
        "mul_self": one(lambda x: x * x),
        "add_bcast": (lambda: (rows(), normal(256)), torch.add),
        "mul_bcast": (lambda: (rows(), normal(256)), torch.mul),
        "sum": one(lambda x: x.sum()),
        "sum_dim": one(lambda x: x.sum(0)),
        "mean": one(lambda x: x.mean()),
        "mean_dim": one(lambda x: x.mean(1)),
        "max_dim": one(lambda x: x.max(1)[0]),
        "amax": one(lambda x: x.amax(1)),
        "var": one(lambda x: x.var(1)),
        "norm": one(lambda x: x.norm()),
        "sum_big": (lambda: (normal(4096, 1024),), lambda x: x.sum()),
        "softmax": one(lambda x: F.softmax(x, -1)),
        "log_softmax": one(lambda x: F.log_softmax(x, -1)),
        "logsumexp": one(lambda x: torch.logsumexp(x, 1)),
        "cross_entropy": (lambda: (rows(), whole(256, 64)), F.cross_entropy),
        "cross_entropy_smooth": (lambda: (rows(), whole(256, 64)), lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
        "nll_loss": (lambda: (rows(), whole(256, 64)), F.nll_loss),
        "mse": (lambda: (rows(), normal(64, 256, g=False)), F.mse_loss),
        "mse_both": (lambda: (rows(), rows()), F.mse_loss),
        "l1": (lambda: (rows(), normal(64, 256, g=False)), F.l1_loss),
        "smooth_l1": (lambda: (rows(), normal(64, 256, g=False)), F.smooth_l1_loss),
        "bce_logits": (lambda: (rows(), normal(64, 256, g=False)), F.binary_cross_entropy_with_logits),
        "bce": (lambda: (rows(), normal(64, 256, g=False)), lambda x, y: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(y))),
        "kl_div": (lambda: (rows(), normal(64, 256, g=False)), lambda x, y: F.kl_div(x, y, reduction="batchmean")),
    }


def products(m):
    return {
        "linear": one(m.lin),
        "linear_nobias": one(m.linn),
        "linear_3d": (lambda: (normal(4, 16, 256),), m.lin),
        "linear_3d_nobias": (lambda: (normal(4, 16, 256),), m.linn),
        "linear_1row": (lambda: (normal(1, 256),), m.lin),
        "linear_noinputgrad": (lambda: (normal(64, 256, g=False),), m.lin),
        "mm": (lambda: (rows(), normal(256, 128)), torch.mm),
        "bmm": (lambda: (normal(8, 32, 48), normal(8, 48, 40)), torch.bmm),
        "matmul_4d": (lambda: (heads(), heads()), lambda q, k: q @ k.transpose(-2, -1)),
        "matmul_4d_noncontig": (
            lambda: (normal(4, 32, 4, 16), normal(4, 32, 4, 16)),
            lambda q, k: q.transpose(1, 2) @ k.transpose(1, 2).transpose(-2, -1),
        ),
        "addmm": (lambda: (normal(64, 128), rows(), normal(256, 128)), torch.addmm),
        "einsum": (lambda: (rows(), normal(256, 128)), lambda a, b: torch.einsum("ij,jk->ik", a, b)),
        "mv": (lambda: (rows(), normal(256)), torch.mv),
        "dot": (lambda: (normal(512), normal(512)), torch.dot),
    }


def layers(m):
    return {
        "layer_norm": one(m.ln),
        "layer_norm_3d": (lambda: (normal(4, 16, 256),), m.ln),
        "batch_norm2d": one(m.bn, images),
        "group_norm": one(m.gn, images),
        "dropout": one(lambda x: F.dropout(x, 0.1)),
        "rms_norm": one(lambda x: F.rms_norm(x, (256,))),
        "embedding": (lambda: (whole(1000, 4, 32),), m.emb),
        "embedding_4096": (lambda: (whole(1000, 8, 512),), m.emb),
        "embedding_big": (lambda: (whole(1000, 16, 1024),), m.emb),
        "max_pool2d": one(lambda x: F.max_pool2d(x, 2), images),
        "max_pool2d_overlap": one(lambda x: F.max_pool2d(x, 3, 2, 1), images),
        "avg_pool2d": one(lambda x: F.avg_pool2d(x, 2), images),
        "adaptive_avg_pool2d_1": one(lambda x: F.adaptive_avg_pool2d(x, 1), images),
        "adaptive_avg_pool2d_4": one(lambda x: F.adaptive_avg_pool2d(x, 4), images),
        "upsample_nearest": one(lambda x: F.interpolate(x, scale_factor=2), images),
        "upsample_bilinear": one(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), images),
        "conv2d_3x3": one(m.c3, images),
        "conv2d_1x1": one(m.c1, images),
        "conv2d_stride2": one(m.cs, images),
        "conv2d_depthwise": one(m.cd, images),
        "conv2d_groups2": one(m.cg, images),
        "conv_transpose2d": one(m.ct, images),
        "conv1d": one(m.cv1, lambda: normal(8, 16, 100)),
        "conv2d_noinputgrad": one(m.c3, lambda: normal(8, 16, 20, 20, g=False)),
    }


def shapes(m):
    return {
        "cat": (lambda: (rows(), rows()), lambda a, b: torch.cat([a, b], 1)),
        "stack": (lambda: (rows(), rows()), lambda a, b: torch.stack([a, b])),
        "chunk": one(lambda x: [t * 2.0 for t in x.chunk(2, 1)][0]),  # noqa: RUF015  (both halves are computed)
        "split3": one(lambda x: sum(x.split(64, 1))),
        "transpose_contiguous": one(lambda x: x.t().contiguous()),
        "view": one(lambda x: x.view(128, 128)),
        "reshape_copy": one(lambda x: x.t().reshape(128, 128)),
        "expand": (lambda: (normal(1, 256),), lambda x: x.expand(64, 256)),
        "repeat": (lambda: (normal(1, 256),), lambda x: x.repeat(64, 1)),
        "permute": (lambda: (normal(4, 8, 16),), lambda x: x.permute(2, 0, 1)),
        "slice": one(lambda x: x[10:20]),
        "select": one(lambda x: x[3]),
        "index_select": (lambda: (rows(), whole(64, 40)), lambda x, i: x.index_select(0, i)),
        "gather": (lambda: (rows(), whole(256, 64, 10)), lambda x, i: x.gather(1, i)),
        "index_int": (lambda: (rows(), whole(64, 40)), lambda x, i: x[i]),
        "masked_fill": (lambda: (rows(), torch.zeros(64, 256, dtype=torch.bool, device=CUDA)), lambda x, m: x.masked_fill(m, -1e9)),
        "where": (lambda: (rows(), rows(), torch.zeros(64, 256, dtype=torch.bool, device=CUDA)), lambda a, b, m: torch.where(m, a, b)),
        "tril": one(torch.tril),
        "cumsum": one(lambda x: x.cumsum(1)),
        "sort": one(lambda x: x.sort(1)[0]),
        "topk": one(lambda x: x.topk(5, 1)[0]),
    }


def attention_and_others(m):
    return {
        "sdpa_default": (lambda: (heads(), heads(), heads()), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        "sdpa_math": (lambda: (heads(), heads(), heads()), lambda q, k, v: attention(q, k, v, "MATH")),
        "sdpa_efficient": (lambda: (heads(), heads(), heads()), lambda q, k, v: attention(q, k, v, "EFFICIENT_ATTENTION")),
        "sdpa_flash_bf16": (
            lambda: tuple(normal(4, 4, 32, 16, dt=torch.bfloat16) for _ in range(3)),
            lambda q, k, v: attention(q, k, v, "FLASH_ATTENTION"),
        ),
        "mha_selfattn": (lambda: (normal(4, 32, 64),), lambda x: m.mha(x, x, x, need_weights=False)[0]),
        "mha_weights": (lambda: (normal(4, 32, 64),), lambda x: m.mha(x, x, x)[0]),
        "transformer_encoder_layer": (lambda: (normal(4, 32, 64),), m.tel),
        "lstm_native": (lambda: (normal(4, 20, 32),), lambda x: m.lstm(x)[0]),
        "gru_native": (lambda: (normal(4, 20, 32),), lambda x: m.gru(x)[0]),
        "cast_bf16": one(lambda x: x.bfloat16()),
        "half_linear_autocast": one(lambda x: lowered(m.lin, x, torch.float16)),
        "bf16_linear_autocast": one(lambda x: lowered(m.lin, x, torch.bfloat16)),
        "bf16_layernorm_autocast": one(lambda x: lowered(m.ln, x, torch.bfloat16)),
        "bf16_softmax_autocast": one(lambda x: lowered(lambda t: F.softmax(t.bfloat16(), -1), x, torch.bfloat16)),
        "ckpt_two_linear": one(lambda x: checkpoint(lambda t: F.relu(m.lin(t)), x, use_reentrant=False)),
        "ckpt_reentrant": one(lambda x: checkpoint(lambda t: F.relu(m.lin(t)), x, use_reentrant=True)),
        "detach_mul": one(lambda x: x * x.detach()),
        "clone": one(lambda x: x.clone()),
        "rsqrt": one(torch.rsqrt),
        "maximum": (lambda: (rows(), rows()), torch.maximum),
    }


def run(row):
    """Each operator: its arguments, its forward pass, a gradient, its backward pass, and everything let go."""
    made = modules()
    table: dict = {}
    for part in (pointwise, arithmetic, products, layers, shapes, attention_and_others):
        table.update(part(made))
    x = torch.randn(8, 8, device=CUDA, requires_grad=True)
    layer = nn.Linear(8, 8).to(CUDA)
    layer(x).sum().backward()
    del x, layer
    row("warm")
    for name, (make, function) in table.items():
        y = gradient = given = None
        try:
            given = make()
            row(name + ".input")
            y = function(*given)
            row(name + ".forward")
            gradient = torch.ones_like(y) if y.dtype.is_floating_point else None
            row(name + ".gradout")
            y.backward(gradient)
            row(name + ".backward")
        except Exception as error:
            row.notes.append([name, repr(error)[:300]])
        y = gradient = given = None
        for thing in gc.get_objects():
            if isinstance(thing, nn.Parameter):
                thing.grad = None
        row(name + ".cleared")
