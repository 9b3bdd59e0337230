"""Tables of pairs of which most entries are zero, as a detector's: how far each box and each of its anchors overlap.

Bounds of the operands, a block of columns at a time, say in which blocks every entry is zero, before anything is computed: an operator on
floats is monotonic, rounded as it is, so that its results lie between those on bounds. The other blocks are computed by PyTorch's own
operators, from the same numbers in the same order. Only the sign of a zero may be another. Written for `put_off.py` and `nonzero.py`."""

import collections
import itertools

from . import vectors
from .vectors import BLOCK, COMPARISONS, Vector, blocks_of

# The least number of a table's entries, and of its bytes. At most this part of the blocks may have entries that are not zero.
LEAST, MOST = 1 << 17, 0.5

# Operators that a table may be made of, by the names under which they arrive.
OPERATIONS = {
    "max": "maximum", "maximum": "maximum", "min": "minimum", "minimum": "minimum", "add": "add", "__add__": "add", "sub": "sub",
    "__sub__": "sub", "mul": "mul", "__mul__": "mul", "div": "div", "__truediv__": "div", "clamp": "clamp",
}


class Unfit(Exception):
    """No table can be made of this."""


class Table:
    """A matrix of `shape`. `entries` has the entries of some blocks, in order, of which `rows` and `blocks` say where each lies. All other
    entries of a row are equal: `rest` has one for each row."""

    def __init__(self, torch, shape, rows, blocks, entries, rest):
        self.torch, self.shape, self.rows, self.blocks, self.entries, self.rest = torch, shape, rows, blocks, entries, rest
        self.strides, self.positive = (shape[1], 1), None

    def dense(self):
        rows, columns = self.shape
        made = self.rest[:, None, None].expand(rows, blocks_of(columns), BLOCK).clone()
        made[self.rows, self.blocks] = self.entries
        return made.view(rows, -1)[:, :columns].contiguous()

    def each(self, function, other):
        """Returns the table of the results of an operator on each entry, with a number or with a tensor that has one for each row."""
        if isinstance(other, self.torch.Tensor):
            entries, rest = function(self.entries, other[self.rows]), function(self.rest, other[:, 0])
        else:
            entries, rest = function(self.entries, other), function(self.rest, other)
        return Table(self.torch, self.shape, self.rows, self.blocks, entries, rest)

    def is_positive(self):
        """True if these are floats of which no entry is negative, and the rest is zero."""
        if self.positive is None:
            # What is not a number is not a least entry that is zero or more.
            is_least = self.entries.dtype is self.torch.float32 and (not self.entries.numel() or bool(self.entries.amin() >= 0))
            self.positive = is_least and not bool(self.rest.any())
        return self.positive

    def each_row(self, *tensors):
        """Returns the parts of tensors, beside `rows`, that belong to each row."""
        counts = self.torch.bincount(self.rows, minlength=self.shape[0]).tolist()
        return enumerate(zip(*(tensor.split(counts) for tensor in tensors)))

    def largest_of_columns(self):
        """Returns what `max(0)` does, as vectors: the largest entries, and the first row of each. Of columns of zeros that is the first row."""
        torch = self.torch
        if not self.is_positive():
            return None
        # Those that have entries in any row, and which of them each block is.
        seen, numbers = torch.unique(self.blocks, return_inverse=True)
        shift, last = self.shape[0].bit_length(), self.shape[0] - 1
        # The bits of floats that are not negative have their order: with its row in the bits below, of equal ones the first is the largest.
        keys = torch.full((len(seen), BLOCK), last, dtype=torch.int64)
        bits = self.entries.view(torch.int32).to(torch.int64).bitwise_left_shift_(shift)
        for row, (blocks, found) in self.each_row(numbers, bits):
            keys.index_copy_(0, blocks, torch.maximum(keys.index_select(0, blocks), found.bitwise_or_(last - row)))
        values = (keys >> shift).to(torch.int32).view(torch.float32)
        places = last - (keys & (1 << shift) - 1)
        return tuple(Vector(torch, self.shape[1], seen, found, torch.zeros(1, dtype=found.dtype)) for found in (values, places))

    def largest_of_rows(self):
        """Returns what `max(1)` does: the largest entries, and the first column of each. None if a row is zero."""
        torch = self.torch
        if not self.is_positive():
            return None
        values, places = [], []
        for _, (blocks, entries) in self.each_row(self.blocks, self.entries):
            place = int(entries.argmax()) if entries.numel() else 0
            values.append(entries.view(-1)[place : place + 1])
            column = int(blocks[place // BLOCK]) * BLOCK + place % BLOCK if blocks.numel() else 0
            # What fills up the last block repeats the last column.
            places.append(min(column, self.shape[1] - 1))
        largest = torch.cat(values)
        is_whole = len(largest) == self.shape[0] and bool(largest.all())
        return (largest, torch.tensor(places)) if is_whole else None

    def places(self):
        """Returns the places of what is not zero, as `nonzero`; None if those are most."""
        if bool(self.rest.any()):
            return None
        block, column = self.torch.nonzero(self.entries, as_tuple=True)
        rows, columns = self.rows[block], self.blocks[block] * BLOCK + column
        return self.torch.stack([rows, columns], 1)[columns < self.shape[1]]


def strides_of(shape):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides)


class Leaf:
    """An operand by coordinates, rows and columns: of those with one row the columns are in blocks, the last of which is filled up."""

    def __init__(self, torch, tensor, columns):
        self.has_columns = tensor.shape[2] == columns
        if self.has_columns:
            lacking = blocks_of(columns) * BLOCK - columns
            tensor = torch.cat([tensor, tensor[..., -1:].expand(-1, -1, lacking)], -1).view(tensor.shape[0], -1, BLOCK)
        self.tensor = tensor
        self.bounds = (tensor.amin(-1)[:, None], tensor.amax(-1)[:, None]) if self.has_columns else (tensor, tensor)
        # Whether `at` returns a copy.
        self.is_copied = self.has_columns or tensor.shape[1] > 1

    def at(self, rows, blocks):
        """Returns the part for entries in these blocks of these rows."""
        if self.has_columns:
            return self.tensor.index_select(1, blocks)
        return self.tensor.index_select(1, rows) if self.is_copied else self.tensor


class Expression:
    """What a table is made of: operators that were put off, on operands that have one entry for each row, each column, or at all. Their
    tensors are seen as of three dimensions here: coordinates, rows and columns."""

    def __init__(self, values, work):
        self.values, self.torch = values, values.torch
        self.rows, self.columns = work.made[0].shape
        self.steps, self.known, self.numbers = [], {}, {}
        self.operation(work, -1)
        # How many operands each step is.
        every = itertools.chain.from_iterable(operands for name, operands in self.steps if name is not None)
        self.taken = collections.Counter(operand[0] for operand in every if type(operand) is tuple)

    def operation(self, work, axis):
        """Adds an operator whose result has the columns at this dimension."""
        name, place = OPERATIONS.get(work.name), work.made[0]
        if name is None or place.strides != strides_of(place.shape) or place.offset:
            raise Unfit
        if name == "clamp":
            least = work.kwargs.get("min") if len(work.args) == 1 and len(work.kwargs) == 1 else None
            if type(least) not in (int, float):
                raise Unfit
            operands = [self.operand(work.args[0], axis), least]
        elif work.kwargs or len(work.args) != 2:
            raise Unfit
        else:
            operands = [self.operand(one, axis) for one in work.args]
            if name in ("maximum", "minimum") and not all(type(one) is tuple for one in operands):
                raise Unfit
        self.steps.append((name, operands))
        return len(self.steps) - 1

    def operand(self, place, axis):
        """Returns a number, or a step and which of its coordinates is meant; all of them if that is None."""
        if type(place) in (int, float):
            return place
        shape, work = getattr(place, "shape", None), getattr(getattr(place, "twin", None), "work", None)
        if shape is None or place.dtype is not self.torch.float32:
            raise Unfit
        if work is None or work.base is not None or len(work.made) != 1 or work.made[0].shape.numel() < self.rows * self.columns:
            return self.leaf(place, axis), None
        made, part = work.made[0], None
        if (place.shape, place.strides, place.offset) != (made.shape, made.strides, made.offset):
            coordinates = made.shape[-1]
            is_part = axis == -1 and len(made.shape) == 3 and shape == made.shape[:2] and place.offset < coordinates
            if not is_part or place.strides != (coordinates * self.columns, coordinates):
                raise Unfit
            axis, part = -2, place.offset
        if id(made.twin) not in self.known:
            self.known[id(made.twin)] = self.operation(work, axis)
        return self.known[id(made.twin)], part

    def leaf(self, place, axis):
        """Adds an operand that is computed as it is."""
        twin, stored = self.values.finished(place.twin), self.values.stored
        key = (twin.number, place.shape, place.strides, place.offset, axis) if twin.number is not None else None
        made = stored.find(key)
        if made is None:
            made = Leaf(self.torch, self.arranged(place, twin, axis), self.columns)
            if key is not None:
                stored.offer(key, made, 2 * place.shape.numel() * made.tensor.element_size())
        self.steps.append((None, made))
        return len(self.steps) - 1

    def arranged(self, place, twin, axis):
        """Returns an operand as of coordinates, rows and columns."""
        tensor, dimensions = place.over(self.torch, twin.storage), 1 - axis
        if tensor.dim() > dimensions:
            raise Unfit
        tensor = tensor[(None,) * (dimensions - tensor.dim())]
        tensor = tensor[None] if axis == -1 else tensor.permute(2, 0, 1)
        if tuple(tensor.shape[1:]) not in ((1, 1), (self.rows, 1), (1, self.columns)):
            raise Unfit
        return tensor

    def bounds(self):
        """Returns the least and the largest value in each block that the result can have."""
        torch, found = self.torch, []

        def of(operand):
            if type(operand) is not tuple:
                return operand, operand
            lower, upper = found[operand[0]]
            return (lower, upper) if operand[1] is None else (lower[operand[1]][None], upper[operand[1]][None])

        for name, operands in self.steps:
            if name is None:
                found.append(operands.bounds)
            else:
                found.append(between(torch, name, of(operands[0]), of(operands[1])))
        return found[-1]

    def entries(self, rows, blocks):
        """Returns the result in these blocks of these rows."""
        torch, found = self.torch, []

        def of(operand):
            if type(operand) is not tuple:
                return operand
            return found[operand[0]] if operand[1] is None else found[operand[0]][operand[1]][None]

        for name, operands in self.steps:
            if name is None:
                found.append(operands.at(rows, blocks))
                continue
            given = [of(operand) for operand in operands]
            out = self.overwritten(operands, given)
            if name == "clamp":
                found.append(torch.clamp(given[0], min=given[1], out=out))
            else:
                found.append(applied(torch, name, *given, out=out))
        return found[-1][0]

    def overwritten(self, operands, given):
        """Returns an operand of the result's shape that nothing else takes, which so need not stay; None if there is none."""
        shape = self.torch.broadcast_shapes(*(one.shape for one in given if type(one) is self.torch.Tensor))
        for operand, tensor in zip(operands, given):
            if type(operand) is tuple and operand[1] is None and self.taken[operand[0]] == 1 and tensor.shape == shape:
                name, leaf = self.steps[operand[0]]
                if name is not None or leaf.is_copied:
                    return tensor
        return None


def applied(torch, name, one, other, out=None):
    """Applies an operator to tensors and numbers."""
    if type(one) is not torch.Tensor:
        one = torch.tensor(one, dtype=other.dtype)
    return getattr(torch, name)(one, other, out=out)


def between(torch, name, one, other):
    """Returns bounds of an operator's results from bounds of its operands. Neither is a number where nothing is known."""
    if name == "clamp":
        return tuple(torch.clamp(bound, min=other[0]) for bound in one)
    if name == "sub":
        return applied(torch, name, one[0], other[1]), applied(torch, name, one[1], other[0])
    if name in ("mul", "div") and all(type(low) is torch.Tensor and bool((low >= 0).all()) for low, _ in (one, other)):
        if name == "mul":
            return torch.mul(one[0], other[0]), torch.mul(one[1], other[1])
        return torch.where(other[0] > 0, torch.div(one[0], other[1]), float("nan")), torch.div(one[1], other[0])
    if name in ("mul", "div"):
        ends = [applied(torch, name, mine, theirs) for mine in one for theirs in other]
        lower, upper = ends[0], ends[0]
        for end in ends[1:]:
            lower, upper = torch.minimum(lower, end), torch.maximum(upper, end)
        if name == "div":
            lower = torch.where(other[0] * other[1] > 0, lower, float("nan"))
        return lower, upper
    return applied(torch, name, one[0], other[0]), applied(torch, name, one[1], other[1])


def started(values, work):
    """Returns the table of an operator's result; None if it would not be worth it."""
    torch, place = values.torch, work.made[0]
    is_large = len(work.made) == 1 and len(place.shape) == 2 and place.shape.numel() >= LEAST and place.shape[1] > 2 * BLOCK
    if not is_large or work.name not in OPERATIONS or place.dtype is not torch.float32:
        return None
    try:
        made = Expression(values, work)
    except Unfit:
        return None
    lower, upper = made.bounds()
    rows, blocks = torch.nonzero(((lower != 0) | (upper != 0)).expand(1, place.shape[0], blocks_of(place.shape[1]))[0], as_tuple=True)
    if rows.numel() > MOST * place.shape[0] * blocks_of(place.shape[1]):
        return None
    with values.one_thread.several():
        entries = made.entries(rows, blocks)
    return Table(torch, place.shape, rows, blocks, entries, torch.zeros(place.shape[0]))


def followed(values, work):
    """Returns the results of an operator on a table or a vector: such ones or tensors. None if they are computed from all entries."""
    table = values.table(work.args[0])
    if type(table) is Vector:
        return vectors.followed(values, work, table)
    rest = [*work.args[1:], *work.kwargs.values()]
    if table is None or len(rest) != 1:
        return None
    other = rest[0]
    if work.name == "max":
        is_dimension = type(other) is int and work.kwargs.keys() <= {"dim"}
        return (table.largest_of_rows() if other % 2 else table.largest_of_columns()) if is_dimension else None
    if work.name not in COMPARISONS:
        return None
    if type(other) in (int, float):
        return table.each(work.function, other)
    if getattr(other, "shape", None) != (table.shape[0], 1):
        return None
    return table.each(work.function, values.placed(other))
