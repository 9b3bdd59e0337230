"""Operators on the host in a quicker way than PyTorch's, with the same results: those by which a detector matches its anchors with boxes.
Only the sign of a zero may be another, as it is between PyTorch's own loops. Functions return None where they do not apply.
Written for `values.py` and `nonzero.py`."""

# Results, or masks, with fewer elements are left to PyTorch.
LEAST = 1 << 16
# A last dimension of at most so many elements is narrow; so many rows of it are computed as one.
NARROW, ROWS = 8, 1024
# Most entries among which the first one that is the largest is found by bytes.
MOST_ENTRIES = 255

# Operators on two tensors, by the names under which they arrive.
PAIRED = {
    "max": "maximum", "maximum": "maximum", "min": "minimum", "minimum": "minimum", "add": "add", "__add__": "add", "sub": "sub",
    "__sub__": "sub", "mul": "mul", "__mul__": "mul",
}


def result(torch, name, args, kwargs):
    """Returns the result of an operator on tensors of the host."""
    if name not in PAIRED or kwargs or len(args) != 2 or args[0].numel() < NARROW or not args[0].is_floating_point():
        return None
    if type(args[1]) is torch.Tensor:
        return paired(torch, getattr(torch, PAIRED[name]), *args)
    if name in ("max", "min") and type(args[1]) is int and args[1] == 0:
        return extreme(torch, name, args[0])
    return None


def paired(torch, function, one, other):
    """An operator on all pairs of the rows of two tensors with narrow rows: PyTorch's inner loop is as long as a row, this one as long as
    `ROWS` of them."""
    if one.numel() + other.numel() < 2 * ROWS or min(one.dim(), other.dim()) < 2 or one.dtype is not other.dtype:
        return None
    dimensions = max(one.dim(), other.dim())
    one, other = (tensor[(None,) * (dimensions - tensor.dim())] for tensor in (one, other))
    many, single = (one, other) if one.shape[-2] > 1 else (other, one)
    rows, width = many.shape[-2:]
    shape = torch.broadcast_shapes(one.shape, other.shape)
    if single.shape[-2:] != (1, width) or not 1 < width <= NARROW or rows < 2 * ROWS or shape.numel() < LEAST:
        return None
    groups = rows // ROWS
    first, many = groups * ROWS, many.contiguous()
    repeated = single.expand(*single.shape[:-2], ROWS, width).reshape(*single.shape[:-2], 1, ROWS * width)
    grouped = many[..., :first, :].reshape(*many.shape[:-2], groups, ROWS * width)
    made = torch.empty(shape, dtype=one.dtype)
    function(*((repeated, grouped) if one is single else (grouped, repeated)), out=made[..., :first, :].unflatten(-2, (groups, ROWS)).flatten(-2))
    rest = many[..., first:, :]
    made[..., first:, :] = function(single, rest) if one is single else function(rest, single)
    return made


def extreme(torch, name, tensor):
    """`max` or `min` along the first dimension, with the place of the first such entry: PyTorch's loop steps from row to row."""
    entries = tensor.shape[0] if tensor.dim() == 2 else 0
    if not 0 < entries <= MOST_ENTRIES or tensor.numel() < LEAST:
        return None
    found = getattr(tensor, "a" + name)(0)
    # Not a number equals nothing, itself included.
    if bool(found.isnan().any()):
        return None
    weights = torch.arange(entries, 0, -1, dtype=torch.uint8)[:, None]
    places = entries - ((tensor == found).view(torch.uint8) * weights).amax(0).to(torch.int64)
    return getattr(torch.return_types, name)((found, places))


def nonzero(torch, tensor):
    """Returns the places of what is not zero. Of a mask, eight elements are looked at together: few of a detector's anchors match."""
    if tensor.dtype is not torch.bool or tensor.numel() < LEAST or not tensor.is_contiguous() or tensor.storage_offset() % 8:
        return torch.nonzero(tensor)
    flat = tensor.detach().view(-1)
    first = flat.numel() // 8 * 8
    groups = torch.nonzero(flat[:first].view(torch.int64))
    if 16 * groups.numel() > first // 8:
        return torch.nonzero(tensor)
    inside = torch.nonzero(flat[:first].view(-1, 8)[groups[:, 0]])
    found = torch.cat([groups[inside[:, 0], 0] * 8 + inside[:, 1], torch.nonzero(flat[first:])[:, 0] + first])
    places = []
    for size in reversed(tensor.shape):
        places.append(found % size)
        found = found // size
    return torch.stack(places[::-1], 1) if places else torch.nonzero(tensor)
