"""Groups of operators, by the facts that are needed to compute them on the host. Used by `values.py`."""

# Most elements of a tensor whose contents are computed: a detector compares 20 boxes with each of 200,000 anchors, by two coordinates.
MAX_ELEMENTS = 1 << 23
# The same of one that repeats the elements of such a tensor, if they are only counted.
MAX_REPEATED = 1 << 28
# Contents up to this many bytes are always kept. All together have about this many at most: a network's gradients, when they are set
# to zero, would fill the host's memory.
ALWAYS_KEPT, MAX_KEPT = 256 << 10, 256 << 20
# Where there is no room, one of this many tensors looks for contents that are gone.
SWEEP_EVERY = 32
# Contents up to this many bytes are shown to every operator that takes the tensor, not only to those that read it.
MAX_SHOWN = 4096
# Most bytes of larger contents that are known together, because the script's tensors on the host have them.
MAX_LARGE = 1 << 30
# A tensor with more elements shares no storage with a computed tensor, unless it is expanded: storages of computed tensors
# have at most this many bytes.
LARGE = 8 * MAX_ELEMENTS
# Longest list that is searched for tensors.
MAX_LIST = 1 << 16

# Accessors that are called many thousands of times. None reads or writes elements.
PLAIN = frozenset(
    "__get__ __set__ __delete__ size dim stride numel nelement data_ptr element_size storage_offset untyped_storage __len__ __hash__ backward "
    "is_complex is_floating_point is_contiguous is_same_size get_device _set_grad_enabled result_type can_cast".split()
)
# Operators that always return views which begin where their operand does: what is known of its storage is known of them.
VIEWS = frozenset("view view_as transpose permute unsqueeze squeeze expand expand_as t swapaxes movedim unflatten".split())
# Of these, the operators whose sizes may be tensors.
SIZED_VIEWS = frozenset("view expand".split())
# Operators that read numbers to find the sizes of their results. Those that call `nonzero` are reported there.
COUNTED = frozenset("unique _unique2 unique_consecutive unique_dim bincount repeat_interleave one_hot".split())
# Of these, the operators whose results `nonzero` has made known (`nonzero.py`), if they have one operand.
FOUND = frozenset("nonzero argwhere where".split())
# Operators that make tensors with unknown contents.
EMPTY = frozenset("empty empty_like empty_strided empty_permuted new_empty new_empty_strided new resize_ resize_as_ set_".split())
# Operators that make tensors whose contents do not depend on those of the operand.
FILLS = {"zeros_like": 0, "new_zeros": 0, "zero_": 0, "ones_like": 1, "new_ones": 1}
# Operators that make known contents although those of the operand are unknown.
FILLING = frozenset([*FILLS, "fill_", "full_like", "new_full", "copy_", "new_tensor"])
# Operators on tensors of the host whose result may lie on a card although no keyword says so.
MOVING = frozenset("to cuda type as_tensor asarray copy_".split())
# Operators of the host whose results may lie in memory that PyTorch did not make for them.
SHARING = frozenset("from_numpy as_tensor asarray frombuffer from_dlpack from_file set_".split())
# Operators whose result is known if one operand is known and all true, or all zero. So a loop over unknown tokens ends
# at its greatest length.
DECIDED_BY_TRUE = frozenset("__or__ __ior__ __ror__ bitwise_or bitwise_or_ logical_or logical_or_".split())
DECIDED_BY_ZERO = frozenset("__and__ __iand__ __rand__ bitwise_and bitwise_and_ logical_and logical_and_".split())
# Operators that read no contents on the card and draw no random numbers, if tensors and numbers are given by position.
ARITHMETIC = frozenset(
    "__add__ __radd__ __iadd__ add add_ __sub__ __rsub__ __isub__ sub sub_ __mul__ __rmul__ __imul__ mul mul_ __truediv__ "
    "__rtruediv__ __itruediv__ div div_ __floordiv__ __mod__ __neg__ neg __invert__ logical_not __and__ __rand__ __or__ __ror__ "
    "__xor__ logical_and logical_or __eq__ eq __ne__ ne __lt__ lt __le__ le __gt__ gt __ge__ ge exp log sqrt abs minimum maximum "
    "cat stack".split()
)
# As `ARITHMETIC`, if no other tensor is among the arguments.
SHAPING = frozenset(
    "view reshape unsqueeze squeeze expand transpose permute flatten t contiguous clone detach chunk split unbind sum max min any "
    "all cumsum argmax argmin clamp clamp_ float long int zeros_like ones_like".split()
)
DIMENSIONS = frozenset(("dim", "keepdim"))
# Operators that make one tensor from the numbers that they are given.
MAKING = frozenset("zeros ones full arange zeros_like ones_like full_like new_zeros new_ones new_full sum max min any all cumsum argmax argmin".split())
# Operators that may be put off, until something reads their results: the sizes of these depend on no contents, and no random numbers are drawn.
PUT_OFF = ARITHMETIC | SHAPING | MAKING | frozenset(
    "__getitem__ __setitem__ where copy_ to interpolate pad expand_as type_as type half bfloat16 double float long int fill_ zero_ masked_fill "
    "masked_fill_ index_select gather take_along_dim repeat tile flip roll sin cos sigmoid tanh pow __pow__ prod mean tril triu sort "
    "__rtruediv__ abs amax amin clamp_min clamp_max floor ceil round".split()
)
# Of these, the operators that write their first operand.
PUT_OFF_IN_PLACE = frozenset("__setitem__ copy_ add_ sub_ mul_ div_ __iadd__ __isub__ __imul__ __itruediv__ clamp_ fill_ zero_ masked_fill_".split())
# Parts of an index for which `[]` gives a view. Below, arguments that are the same on the CPU.
INDICES = frozenset((int, type(None), type(...)))
PLAIN_NUMBERS = frozenset((int, float, bool, type(None)))
# Answers about unknown numbers: that they are sound. `torch.distributions` asks the last question about its parameters.
SOUND = {"isfinite": True, "isnan": False, "isinf": False, "_is_all_true": True}
