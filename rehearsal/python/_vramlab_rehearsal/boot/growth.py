"""Growth of memory from step to step: marks after each step, whether a step repeats the one before it, and who holds what grows."""

import collections
import itertools
import sys

from .. import OWN
from ..libraries import is_library
from . import schema
from .holding import growing, is_container, is_made_anew, lines_of, source_file

# Number of last steps whose marks are kept.
MAX_MARKS = 512
# In how many steps the allocator's blocks may come back, as where replays look for it.
MAX_CYCLE = 64
# Least number of steps without growth after which steps that are alike are believed, if memory grew after the second step.
LEAST_QUIET = 5
# Least number of steps after which growth is looked into.
LEAST_TO_SUSPECT = 4
# Allocations of all the steps that a run makes although memory is flat, to see what happens every some steps by a condition that nobody can
# read. PyTorch is imported in the time of some 60,000 allocations and their operators.
CHEAP_ALLOCATIONS = 6000
# Most things between a tensor and a name that holds it, and seconds for the search.
MAX_WAY, MAX_SECONDS = 60, 6
# Most lines, and blocks of each, whose holders are looked for; most nodes of a graph that are visited.
MAX_LINES, MAX_BLOCKS, MAX_NODES = 12, 3, 200000


class Growth:
    """Marks of the steps. Reading the allocator's counters takes some 20 microseconds a card."""

    def __init__(self, torch):
        self.torch = torch
        self.clear()

    def clear(self):
        import collections

        self.marks = collections.deque(maxlen=MAX_MARKS)
        self.before = self.last = None
        # What each of the last steps left that made the same requests.
        self.lefts = collections.deque(maxlen=MAX_CYCLE)
        # Whether the last step was as one before it; and whether memory can be called flat by that.
        self.repeats = self.flat = False
        self.holders = []

    def mark(self):
        """Marks the end of a step. The run is flat if this step requested what the last one did, and left the same blocks as an earlier one
        since which the requests are the same: a block with a rest too small to split goes to this tensor in one step and to that one in the next.
        What one of several steps keeps is not seen in two steps that are alike, so that memory must not have grown for some steps."""
        read = self.torch._C._cuda_memoryStats
        cards = [(index, read(index)) for index in range(self.torch.cuda.device_count())]
        made, left, mark = [], [], []
        for index, figures in cards:
            of = {name: figures[name]["all"] for name in ("allocation", "requested_bytes")}
            made += [of[name][kind] for name in of for kind in ("allocated", "freed")]
            left += [figures[name]["all"]["current"] for name in ("allocation", "requested_bytes", "allocated_bytes",
                                                                  "reserved_bytes", "active_bytes", "inactive_split_bytes")]
            if of["allocation"]["allocated"]:
                mark.append([index, of["allocation"]["allocated"], of["allocation"]["freed"], of["requested_bytes"]["current"]])
        before, self.before = self.before, made
        step = None if before is None else [now - then for now, then in zip(made, before)]
        if step is None or step != self.last:
            self.lefts.clear()
        self.repeats = left in self.lefts
        self.lefts.append(left)
        self.last = step
        self.marks.append(mark)
        self.flat = self.repeats and all(self.is_quiet(index) for index, _ in cards)

    def requests(self):
        """Returns the numbers of allocations of the last step, by card; `None` after the first one."""
        return self.last and tuple(self.last[::4])

    def cheap_steps(self):
        """Returns the number of steps as the last one that cost little beside the run until here. It goes by their work, not by time, so that
        a run ends after the same step each time. A step without a request shows nothing."""
        requests = sum(self.requests() or ())
        return CHEAP_ALLOCATIONS // requests if requests else 0

    def to_tell_a_period(self):
        """Returns the step that shows whether what one of several like steps kept is kept again: after four times the longest time between
        such steps. 0 if there was none, or if these steps cost much."""
        longest = max(self.times(index)[0] for index in range(self.torch.cuda.device_count())) if self.repeats else 0
        needed = 4 * longest + 2 if longest else 0
        return needed if needed - len(self.marks) <= self.cheap_steps() else 0

    def times(self, index):
        """Returns the longest time, in steps, from one growth of a card's memory to the next, 0 without any, and the time since the last.
        The first two steps do not count."""
        live = [figures[3] for mark in self.marks for figures in mark if figures[0] == index][1:]
        most = list(itertools.accumulate(live, max))
        grew = [at for at in range(1, len(live)) if live[at] > most[at - 1]]
        longest = max((at - before for before, at in zip([0, *grew], grew)), default=0)
        return longest, len(live) - 1 - (grew[-1] if grew else 0)

    def is_quiet(self, index):
        """True if a card's memory has not grown for more than twice the longest time from one growth to the next."""
        longest, since = self.times(index)
        return not longest or since >= max(LEAST_QUIET, 2 * longest + 1)

    def grew(self, index):
        """True if more was requested on a card after the last step than after an earlier one, beyond the first two."""
        live = [figures[3] for mark in self.marks for figures in mark if figures[0] == index]
        return len(live) >= LEAST_TO_SUSPECT and live[-1] > min(live[1:])

    def grew_over(self, steps):
        """True if more is requested on a card than so many steps ago; the first two steps do not count."""
        if len(self.marks) < steps + 2:
            return False
        before = {figures[0]: figures[3] for figures in self.marks[-1 - steps]}
        return any(figures[3] > before.get(figures[0], 0) for figures in self.marks[-1])

    def report(self):
        marks = [[figures[:3] for figures in mark] for mark in self.marks]
        return schema.Growth(flat=self.flat, marks=marks, holders=list(map(told_of_holder, self.holders)))

    def find_holders(self, traces, collect=True):
        """Finds who holds what grew, from the entries of each card; then, where that may be done, which of it Python's garbage
        collector frees."""
        import gc

        for index, trace in enumerate(traces):
            if not self.grew(index):
                continue
            found = self.grown(index, trace)
            if not found:
                continue
            holders = Holders(self.torch)
            for addresses in found:
                holder = holders.of(addresses)
                self.holders.append({"card": index, "addresses": addresses, "cycle": False, **(holder or {})})
            del holders
            if not collect:
                continue
            gc.collect()
            segments = self.torch.cuda.memory._snapshot()["segments"]
            live = {block["address"] for segment in segments for block in segment.get("blocks", ())
                    if block["state"].startswith("active")}
            for told in self.holders if live else ():
                if told["card"] == index:
                    told["cycle"] = not any(address in live for address in told["addresses"])

    def grown(self, index, trace):
        """Returns addresses of blocks that steps added and that are still there, by line, most bytes first."""
        ends = [figures[1] for mark in self.marks for figures in mark if figures[0] == index]
        # The trace may have lost its first entries.
        made = self.torch._C._cuda_memoryStats(index)["allocation"]["all"]["allocated"]
        made -= sum(entry["action"] == "alloc" for entry in trace)
        step, live, sizes = 0, {}, {}
        for entry in trace:
            action = entry["action"]
            if action == "alloc":
                while step < len(ends) and made >= ends[step]:
                    step += 1
                made += 1
                live[entry["addr"]] = (step, entry)
                of_line = sizes.setdefault(lines_in(entry), {})
                of_line[step] = max(of_line.get(step, 0), entry["size"])
            elif action == "free_requested":
                live.pop(entry["addr"], None)
        lines, last = {}, len(ends) - 1
        for address, (step, entry) in live.items():
            frames = lines_in(entry)
            # The last step holds what the next one replaces; but a tensor that is replaced by a larger one in every step grows, too.
            steps = [sizes[frames].get(number, 0) for number in range(max(1, last - 5), last + 1)]
            replaced = step >= last and all(one < next_one for one, next_one in zip(steps, steps[1:]))
            if 1 < step < last or replaced:
                lines.setdefault(frames, []).append((step, address, entry["size"], replaced))
        several = [blocks for blocks in lines.values() if len({step for step, *_ in blocks}) > 1 or blocks[-1][3]]
        several.sort(key=lambda blocks: -sum(block[2] for block in blocks))
        return [[block[1] for block in blocks[:: max(1, len(blocks) // MAX_BLOCKS)]] for blocks in several[:MAX_LINES]]


def told_of_holder(holder):
    """Returns what the launcher is told of a holder, which may not have been found."""
    return schema.Holder(
        card=holder["card"], addresses=holder["addresses"], cycle=holder["cycle"], holder=holder.get("holder"), where=holder.get("where"),
        fills=holder.get("fills", False), emptied=holder.get("emptied"), limit=holder.get("limit"), length=holder.get("length"),
    )


def lines_in(entry):
    return tuple((frame["filename"], frame["line"]) for frame in entry.get("frames", ()))


class Holders:
    """All tensors of the cards that Python knows, by address, and the names through which a program reaches them."""

    def __init__(self, torch):
        import gc
        import time

        self.torch, self.at, kinds = torch, {}, {}
        self.until = time.monotonic() + MAX_SECONDS
        # Tensors with a graph; and the nodes that other nodes lead to.
        self.graphs, self.inner = [], None
        objects = gc.get_objects()
        for thing in objects:
            kind = type(thing)
            if kind not in kinds:
                kinds[kind] = issubclass(kind, torch.Tensor)
            if kinds[kind]:
                self.add(thing)
        self.own = {id(self.at), id(self.graphs), id(objects), id(self.__dict__)}
        self.own.update(map(id, self.at.values()))
        del objects
        self.locals = self.locals_of_frames()

    def add(self, tensor):
        try:
            gradient = tensor.grad if tensor.is_leaf else None
            if tensor.is_cuda:
                self.at.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
            for one in (tensor, gradient):
                if one is not None and one.grad_fn is not None:
                    self.graphs.append((tensor, one.grad_fn, one is gradient))
        except (RuntimeError, NotImplementedError):
            pass

    def locals_of_frames(self):
        """Returns the variables of running functions, by the identity of what they hold."""
        found = {}
        for frame in sys._current_frames().values():
            while frame is not None:
                if frame.f_code.co_filename != OWN and frame.f_locals is not frame.f_globals:
                    for name, value in frame.f_locals.items():
                        found.setdefault(id(value), (name, frame.f_code))
                frame = frame.f_back
        return found

    def of(self, addresses):
        """Describes who holds the tensors at these addresses."""
        for address in addresses:
            for tensor in self.at.get(address, ()):
                way = self.way(tensor)
                if way:
                    # One of another step, as far as there is one: the blocks are in the order of the steps.
                    other = addresses[0] if address == addresses[-1] else addresses[-1]
                    return self.described(way, tensor, self.at.get(other, ()))
        holder = self.graph(set(addresses))
        if holder is None:
            return None
        tensor, is_gradient = holder
        way = self.way(tensor)
        told = self.described(way)
        name = told.get("name") or "a tensor"
        what = "the gradients' graph (create_graph) of" if is_gradient else "the graph of"
        return {**told, "holder": "%s %s" % (what, name), "kind": "graph", "fills": False, "emptied": None}

    def graph(self, addresses):
        """Returns the tensor whose graph saved what lies at one of these addresses: an outermost one, which no other graph contains."""
        if self.inner is None:
            self.inner = set()
            for node in self.nodes([node for _, node, _ in self.graphs]):
                self.inner.update(following for following, _ in node.next_functions)
        # A graph that hangs on gradients is theirs, whoever else holds the gradient.
        for tensor, root, is_gradient in sorted(self.graphs, key=lambda graph: not graph[2]):
            if root not in self.inner and any(self.saves(node, addresses) for node in self.nodes([root])):
                return tensor, is_gradient
        return None

    def nodes(self, left):
        """Yields the nodes of a graph, each once."""
        visited = set()
        while left and len(visited) < MAX_NODES:
            node = left.pop()
            if node is not None and node not in visited:
                visited.add(node)
                yield node
                left.extend(following for following, _ in node.next_functions)

    def saves(self, node, addresses):
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    saved = getattr(node, name)
                except RuntimeError:
                    continue
                for one in saved if isinstance(saved, (list, tuple)) else (saved,):
                    if type(one) is self.torch.Tensor and one.is_cuda and one.untyped_storage().data_ptr() in addresses:
                        return True
        return False

    def way(self, tensor):
        """Returns the way from a tensor to a name: everything between them, innermost first, and the name's kind, text and source.
        An attribute of the script's own objects, or a function's variable, is enough only where a list or the like is on the way; else
        who holds that is looked for, too."""
        import time

        first = Step(tensor, None)
        seen, level, found = {id(tensor)}, [first], None
        while level and level[0].depth < MAX_WAY and time.monotonic() < self.until:
            for step in level:
                name = self.locals.get(id(step.thing)) if step is not first else None
                if name and not is_library(name[1].co_filename):
                    return step.parts(), ("local", *name)
                found = found or (name and (step.parts(), ("local", *name)))
            following = []
            for holder, step in self.holders_of(level):
                if id(holder) in seen or id(holder) in self.own or self.is_own(holder):
                    continue
                seen.add(id(holder))
                end = self.named(holder, step)
                # What a library's object holds is held by whom the script gave the object to.
                ends = end and not (end[0] == "attribute" and is_library(source_file(*end[::2]) or ""))
                if ends and (end[0] not in ("attribute", "frame") or any(is_container(part) and not is_attributes(part) for part in step.parts())):
                    return step.parts(), end
                found = found or (end and (step.parts(), end))
                following.append(Step(holder, step))
            level = following
        name = self.locals.get(id(tensor))
        return found or (name and ([], ("local", *name)))

    def holders_of(self, level):
        """Returns who holds the things of these steps, each with the first step whose thing it holds, in the order of the steps. One look
        at all of Python's objects serves all of them."""
        import gc

        things = [step.thing for step in level]
        numbers = {id(thing): number for number, thing in enumerate(things)}
        found = []
        for holder in gc.get_referrers(*things):
            if holder is not things and type(holder) is not Step:
                held = [numbers[id(one)] for one in gc.get_referents(holder) if id(one) in numbers]
                found += [(min(held), holder)] if held else []
        found.sort(key=lambda one: one[0])
        return [(holder, level[number]) for number, holder in found]

    def is_own(self, holder):
        code = getattr(holder, "f_code", None)
        return type(holder) is type(sys._getframe()) and code is not None and code.co_filename == OWN

    def named(self, holder, step):
        """Returns what a holder is called, if it ends the search: a module's variable, an attribute, a closure."""
        import types

        # Between an object, or a class, and what it holds there may be the dictionary of its attributes.
        held = [step.thing] if step.before is None else [step.thing, step.before.thing]

        def name_in(variables):
            return next((name for name, value in list(variables.items()) if any(value is one for one in held)), None)

        kind = type(holder)
        if kind is dict:
            module = sys.modules.get(holder.get("__name__")) if isinstance(holder.get("__name__"), str) else None
            if module is not None and getattr(module, "__dict__", None) is holder:
                name = name_in(holder)
                return name and ("global", name, holder.get("__file__"))
            return None
        if kind is types.CellType:
            return self.closure(holder)
        if kind is types.FrameType:
            # A frame that an exception keeps.
            return ("frame", name_in(holder.f_locals) or "?", holder.f_code)
        if kind.__name__ == "_lru_cache_wrapper":
            return ("cache", getattr(holder, "__qualname__", "?"), holder)
        if kind is collections.OrderedDict:
            # A hook may hold something by its defaults: the module's name would say nothing of it.
            return hooks_in(holder)
        if isinstance(holder, (self.torch.Tensor, types.ModuleType)):
            return None
        attributes = getattr(holder, "__dict__", None)
        name = name_in(attributes) if isinstance(attributes, (dict, types.MappingProxyType)) else None
        owner = holder if isinstance(holder, (type, types.FunctionType)) else kind
        return name and ("attribute", name, owner)

    def closure(self, cell):
        import gc
        import types

        for cells in gc.get_referrers(cell):
            for function in gc.get_referrers(cells) if type(cells) is tuple else ():
                if type(function) is types.FunctionType and function.__closure__ is cells:
                    at = next((at for at, one in enumerate(cells) if one is cell), 0)
                    return ("closure", function.__code__.co_freevars[at], function.__code__)
        return ("closure", "?", None)

    def described(self, way, tensor=None, others=()):
        """Says in words who holds a tensor, whether that may fill, and at which line the program puts something there. `others`: tensors
        of another step, which the container that grows has, too."""
        if not way:
            return {}
        parts, (kind, name, source) = way
        containers = [part for part in parts if is_container(part) and not is_attributes(part)]
        container = growing(containers, tensor, others)
        is_object = parts and kind in ("global", "local") and not is_container(parts[-1])
        shown = container if container is not None and not is_object else (parts[-1] if parts else None)
        sort = type(shown).__name__ if shown is not None else "tensor"
        full = name
        if kind == "attribute":
            full = "%s.%s" % (getattr(source, "__qualname__", "?"), name)
        told = {"kind": kind, "name": full, "length": len(container) if container is not None else None,
                "limit": getattr(container, "maxlen", None)}
        if kind == "cache":
            told["limit"], told["length"] = source.cache_parameters()["maxsize"], source.cache_info().currsize
        file = source_file(kind, source)
        found = lines_of(file, name, kind == "attribute", kind == "closure")
        put = getattr(getattr(source, "__code__", None), "co_firstlineno", None) if kind == "hooks" else found["put"]
        told["where"] = put and "%s:%d" % (file, put)
        told["emptied"] = found["emptied"] and "%s:%d" % (file, found["emptied"])
        keyed = container is not None and not isinstance(container, list) and (told["limit"] is not None or not hasattr(container, "append"))
        anew = container is None and kind in ("global", "local", "attribute", "closure") and is_made_anew(file, name, found["put"])
        told["fills"] = bool(kind == "cache" or keyed or told["emptied"] or anew)
        told["holder"] = {"closure": "%s %s of a closure", "frame": "%s %s of a function that an exception keeps",
                          "hooks": "%s of %s"}.get(kind, "%s %s") % (sort, full)
        if kind == "cache":
            told["holder"] = "the cache of %s" % full
        return told


class Step:
    """A thing on the way from a tensor to a name, and the one before it."""

    __slots__ = ("thing", "before", "depth")

    def __init__(self, thing, before):
        self.thing, self.before = thing, before
        self.depth = before.depth + 1 if before else 0

    def parts(self):
        found, step = [], self
        while step.before is not None:
            found.append(step.thing)
            step = step.before
        return found[::-1]


def hooks_in(holder):
    """Returns the end of a way at the hooks of a module; `None` if this dictionary has none."""
    import gc

    for owner in gc.get_referrers(holder):
        # The module's dictionary, or the module itself where Python keeps its attributes within it.
        attributes = owner if type(owner) is dict else getattr(owner, "__dict__", None)
        is_module = type(attributes) is dict and "_parameters" in attributes
        if is_module and any(one is holder and name.endswith("_hooks") for name, one in list(attributes.items())):
            hook = next(reversed(holder.values()), None)
            hook = getattr(hook, "hook", hook)
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            return ("hooks", "hook %s" % name, hook)
    return None


def is_attributes(thing):
    """True for the dictionary of a module, a class or an object."""
    import gc

    if type(thing) is not dict:
        return False
    if "__name__" in thing or "__module__" in thing:
        return True
    return any(getattr(holder, "__dict__", None) is thing for holder in gc.get_referrers(thing))
