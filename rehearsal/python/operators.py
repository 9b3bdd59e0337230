"""Operators by what must be known of them to compute them beside the card. Written for `values.py`."""

# The most elements of a tensor that is computed: whole numbers and truth values, and others.
MAX_WHOLE, MAX_OTHER = 1 << 18, 1 << 16
# Contents of so many bytes are shown to every operator that takes the tensor, not only to those that read it.
MAX_SHOWN = 4096
# A tensor of more elements shares no storage with one that is computed, unless it is expanded: such a storage has at most so
# many bytes.
LARGE = 8 * MAX_WHOLE
# Longer lists are not searched for tensors.
MAX_LIST = 1 << 16

# Accessors, of which many thousands are called: none reads or writes elements.
PLAIN = frozenset("__get__ __set__ __delete__ size dim stride numel data_ptr element_size __len__ __hash__ backward".split())
# They read numbers to know how large their results are; what calls `nonzero` is told there.
COUNTED = frozenset("unique _unique2 unique_consecutive unique_dim bincount repeat_interleave one_hot".split())
# They make tensors whose contents are not known.
EMPTY = frozenset("empty empty_like empty_strided empty_permuted new_empty new_empty_strided new resize_ resize_as_ set_".split())
# They make tensors whose contents do not depend on the operand's.
FILLS = {"zeros_like": 0, "new_zeros": 0, "zero_": 0, "ones_like": 1, "new_ones": 1}
# What of an operand that is not known makes known contents.
FILLING = frozenset([*FILLS, "fill_", "full_like", "new_full", "copy_", "new_tensor"])
# Of the operators on tensors of the host, those whose result may lie on a card without a keyword saying so.
MOVING = frozenset("to cuda type as_tensor asarray copy_".split())
# One known operand decides the result: all true, and all zero. So a loop of unknown tokens ends at its greatest length.
DECIDED_BY_TRUE = frozenset("__or__ __ior__ __ror__ bitwise_or bitwise_or_ logical_or logical_or_".split())
DECIDED_BY_ZERO = frozenset("__and__ __iand__ __rand__ bitwise_and bitwise_and_ logical_and logical_and_".split())
# They read no contents on the card and draw no random numbers, given tensors and numbers by position.
ARITHMETIC = frozenset(
    "__add__ __radd__ __iadd__ add add_ __sub__ __rsub__ __isub__ sub sub_ __mul__ __rmul__ __imul__ mul mul_ __truediv__ "
    "__rtruediv__ __itruediv__ div div_ __floordiv__ __mod__ __neg__ neg __invert__ logical_not __and__ __rand__ __or__ __ror__ "
    "__xor__ logical_and logical_or __eq__ eq __ne__ ne __lt__ lt __le__ le __gt__ gt __ge__ ge exp log sqrt abs minimum maximum "
    "cat stack".split()
)
# The same, if no other tensor is among what they are given.
SHAPING = frozenset(
    "view reshape unsqueeze squeeze expand transpose permute flatten t contiguous clone detach chunk split unbind sum max min any "
    "all cumsum argmax argmin clamp clamp_ float long int zeros_like ones_like".split()
)
DIMENSIONS = frozenset(("dim", "keepdim"))
# They make one tensor, of numbers that they are given.
MAKING = frozenset("zeros ones full arange zeros_like ones_like full_like new_zeros new_ones new_full sum max min any all cumsum argmax argmin".split())
# Parts of indices by which `[]` gives a view, and arguments that are the same on the CPU.
INDICES = frozenset((int, type(None), type(...)))
PLAIN_NUMBERS = frozenset((int, float, bool, type(None)))
# What they say of numbers that are not known: that these are sound.
# `torch.distributions` asks the last of its parameters.
SOUND = {"isfinite": True, "isnan": False, "isinf": False, "_is_all_true": True}
