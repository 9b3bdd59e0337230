"""Vectors of which most elements are equal, as a detector's: which box each of its anchors is for. Most anchors overlap none.

A table's largest entries of each column are such vectors (`tables.py`), and so is what is made of these one by one. PyTorch's own operators
compute the elements that differ, and the others once. Written for `put_off.py` and `tables.py`."""

# Columns of a table, and elements of a vector, in a block.
BLOCK = 64

# Operators on each element, beside a number, beside another vector, and alone.
COMPARISONS = frozenset("__eq__ eq __ne__ ne __lt__ lt __le__ le __gt__ gt __ge__ ge".split())
PAIRED = frozenset("__and__ __or__ logical_and logical_or".split())
ALONE = frozenset("clone to float long clamp".split())
NUMBERS = (int, float, bool)


def blocks_of(columns):
    return -(-columns // BLOCK)


class Vector:
    """A vector of `size` elements. `entries` has the elements of some blocks, whose numbers, in ascending order, are in `blocks`. All other
    elements are that of `rest`. None of the tensors is written."""

    strides = (1,)

    def __init__(self, torch, size, blocks, entries, rest):
        self.torch, self.shape, self.blocks, self.entries, self.rest = torch, torch.Size((size,)), blocks, entries, rest

    def dense(self):
        size = self.shape[0]
        made = self.rest.expand(blocks_of(size), BLOCK).clone()
        made.index_copy_(0, self.blocks, self.entries)
        return made.view(-1)[:size].clone()

    def is_alike(self, other):
        """True if another vector has elements of the same blocks."""
        return other.shape == self.shape and (other.blocks is self.blocks or self.torch.equal(other.blocks, self.blocks))

    def each(self, function, *numbers, **words):
        """Returns the results of an operator on each element."""
        entries, rest = function(self.entries, *numbers, **words), function(self.rest, *numbers, **words)
        return Vector(self.torch, self.shape[0], self.blocks, entries, rest)

    def beside(self, function, other):
        """The same with the elements of another vector. None if its blocks are others."""
        if not self.is_alike(other):
            return None
        return Vector(self.torch, self.shape[0], self.blocks, function(self.entries, other.entries), function(self.rest, other.rest))

    def filled(self, mask, number):
        """Returns the vector with a number where a mask is true. None if its blocks are others, or the number would be rounded."""
        is_whole = type(number) is int or self.entries.dtype.is_floating_point
        if mask.entries.dtype is not self.torch.bool or not is_whole or not self.is_alike(mask):
            return None
        entries, rest = self.entries.masked_fill(mask.entries, number), self.rest.masked_fill(mask.rest, number)
        return Vector(self.torch, self.shape[0], self.blocks, entries, rest)

    def found(self, index):
        """Returns where the elements with these numbers lie in `entries`, and which do; None if there is no such element."""
        torch, size = self.torch, self.shape[0]
        if index.dtype is not torch.int64 or index.dim() != 1 or not len(self.blocks):
            return None
        if index.numel() and (int(index.amin()) < 0 or int(index.amax()) >= size):
            return None
        wanted = index // BLOCK
        at = torch.searchsorted(self.blocks, wanted).clamp_(max=len(self.blocks) - 1)
        return at, index % BLOCK, self.blocks[at] == wanted

    def at(self, index):
        """Returns the elements with these numbers."""
        found = self.found(index)
        if found is None:
            return None
        block, column, is_there = found
        return self.torch.where(is_there, self.entries[block, column], self.rest)

    def written(self, index, value):
        """Returns the vector with other elements at these places. None if one of them lies outside of the blocks."""
        found = self.found(index)
        if found is None or not bool(found[2].all()):
            return None
        entries = self.entries.clone()
        entries[found[0], found[1]] = value
        return Vector(self.torch, self.shape[0], self.blocks, entries, self.rest)

    def places(self):
        """Returns the places of what is not zero, as `nonzero`; None if those are most."""
        if bool(self.rest):
            return None
        block, column = self.torch.nonzero(self.entries, as_tuple=True)
        places = self.blocks[block] * BLOCK + column
        return places[places < self.shape[0]][:, None]

    def count(self):
        """Returns the number of elements that are not zero."""
        size, entries = self.shape[0], self.entries
        # What fills up the last block does not count.
        lacking = blocks_of(size) * BLOCK - size
        if lacking and len(self.blocks) and int(self.blocks[-1]) == blocks_of(size) - 1:
            inside = int(self.torch.count_nonzero(entries[:-1])) + int(self.torch.count_nonzero(entries[-1, : BLOCK - lacking]))
            covered = entries.numel() - lacking
        else:
            inside, covered = int(self.torch.count_nonzero(entries)), entries.numel()
        return inside + (size - covered if bool(self.rest) else 0)


def followed(values, work, vector):
    """Returns the result of an operator on a vector, which is its first operand: a vector or a tensor. None if it is computed from all elements."""
    name, function, rest, words = work.name, work.function, work.args[1:], work.kwargs
    if name == "__setitem__":
        return written(values, vector, *rest) if len(rest) == 2 and not words else None
    if name in ALONE:
        numbers = NUMBERS if name == "clamp" else ()
        is_plain = all(type(one) in numbers or (type(one) is values.torch.dtype and one in values.kinds) for one in (*rest, *words.values()))
        return vector.each(function, *rest, **words) if is_plain else None
    if len(rest) != 1 or words:
        return None
    if name in COMPARISONS and type(rest[0]) in NUMBERS:
        return vector.each(function, rest[0])
    if not is_place(rest[0]):
        return None
    if name in PAIRED:
        other = values.table(rest[0])
        return vector.beside(function, other) if type(other) is Vector else None
    if name == "__getitem__":
        return vector.at(values.placed(rest[0])) if type(values.table(rest[0])) is not Vector else None
    return None


def written(values, vector, index, value):
    """Returns the vector that `vector[index] = value` makes; None if that is computed from all elements."""
    if not is_place(index):
        return None
    mask = values.table(index)
    if type(mask) is Vector:
        return vector.filled(mask, value) if type(value) in (int, float) else None
    if not (is_place(value) or type(value) in (int, float)):
        return None
    return vector.written(values.placed(index), values.placed(value) if is_place(value) else value)


def is_place(argument):
    """True if an argument stands for a tensor on the card (`put_off.Place`)."""
    return hasattr(argument, "twin")
