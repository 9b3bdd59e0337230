"""Some ranks of many: what the ranks that were not started would have said."""

import contextlib
import json
import os
import sys

from .endings import PROBLEM
from .report import write_whole
from .settings import SETTINGS, WORLD_VARIABLES


def problem(text):
    """Reports a request of the script that a rehearsal cannot fulfil."""
    write_whole("%d%s" % (os.getpid(), PROBLEM), text)
    return RuntimeError(text)


# Prefix of the keys under which ranks send each other tensors of the host. The keys end with the rank.
HOSTS = "hosts/"


class World:
    """Some ranks of many: if one waits for a rank that was not started, it gets an answer.

    Ranks meet in a store that is a file. An identity of NCCL that an absent rank would set is made up. A rank reports
    everything else that it waits for. If all started ranks wait, only an absent one could set it: then a barrier is passed. NCCL
    itself (`nccl/` of the library) is told the members of each group, and assumes that an absent rank sends what this one sends."""

    # Seconds that all must have waited, and maximum seconds that one waits.
    SETTLED, PATIENCE = 0.3, 60.0

    def __init__(self, torch):
        import ctypes

        self.torch, self.rank = torch, int(WORLD_VARIABLES["RANK"])
        self.size, self.started = SETTINGS["world"]["size"], SETTINGS["world"]["started"]
        self.folder = SETTINGS["world"]["meet"]
        self.library, self.ctypes = ctypes.CDLL(None), ctypes
        # The ranks of each group, by its name.
        self.groups = {}
        self.stores = []

    def install(self):
        if not getattr(self.torch, "distributed", None) or not self.torch.distributed.is_available():
            return
        from torch.distributed import distributed_c10d as c10d

        self.c10d = c10d
        own, make, split = c10d.rendezvous, c10d._new_process_group_helper, getattr(c10d, "split_group", None)

        def rendezvous(url, rank=-1, world_size=-1, **kwargs):
            self.check(rank, world_size)
            yield self.store(), self.rank, self.size

        def helper(size, rank, members, backend, store, name, *args, **kwargs):
            self.groups[str(name)] = list(members) or list(range(self.size))
            asked, backend = backend, self.without_gloo(backend)
            with self.part(members):
                made = make(size, rank, members, backend, store, name, *args, **kwargs)
            if made[0] in c10d._world.pg_map:
                c10d._world.pg_map[made[0]] = (asked, c10d._world.pg_map[made[0]][1])
            return made

        def split_group(parent_pg=None, split_ranks=None, *args, **kwargs):
            known = c10d._world.pg_group_ranks.get(parent_pg or c10d._get_default_group(), {})
            whole = {rank: member for member, rank in known.items()}
            mine = next((part for part in split_ranks or [] if known.get(self.rank) in part), [])
            members = [whole[rank] for rank in sorted(mine)]
            with self.part(members):
                made = split(parent_pg, split_ranks, *args, **kwargs)
            if made is not None:
                self.groups[str(made.group_name)] = members
            return made

        c10d._new_process_group_helper = helper
        for before, after in ((own, rendezvous), (split, split_group)):
            # Other modules hold these functions under the names by which they imported them.
            for name, module in list(sys.modules.items()):
                if before is not None and name.startswith("torch.distributed") and vars(module).get(before.__name__) is before:
                    setattr(module, before.__name__, after)
        on_hosts(self)

    def check(self, rank, size):
        told = tuple(os.environ.get(name) for name in ("RANK", "WORLD_SIZE"))
        if rank not in (-1, self.rank) or size not in (-1, self.size) or told != (str(self.rank), str(self.size)):
            raise problem(
                "the script starts its ranks by itself, or does not number them as RANK and WORLD_SIZE do: --world and "
                "--ranks are for scripts that torchrun would start once for each rank; leave them out")

    def store(self):
        made = meeting(self)
        # The Python part of the store must live as long as its C++ part.
        self.stores.append(made)
        return made

    def without_gloo(self, backend):
        """Replaces Gloo, which connects all ranks when a group is made, by PyTorch's own fake backend and
        `on_hosts`."""
        chosen = self.c10d.BackendConfig(self.c10d.Backend(backend)).get_device_backend_map()
        if "gloo" not in chosen.values():
            return backend
        import torch.testing._internal.distributed.fake_pg  # noqa: F401

        if set(chosen.values()) == {"gloo"}:
            return "fake"
        return ",".join("%s:%s" % (device, "fake" if name == "gloo" else name) for device, name in chosen.items())

    @contextlib.contextmanager
    def part(self, members):
        """Tells NCCL the members of the part that it makes of a communicator inside the block."""
        self.library.vramlab_rehearsal_part(self.numbers(members), self.ctypes.c_size_t(len(members)))
        try:
            yield
        finally:
            self.library.vramlab_rehearsal_part(self.numbers([]), self.ctypes.c_size_t(0))

    def numbers(self, ranks):
        return (self.ctypes.c_uint32 * max(len(ranks), 1))(*ranks)

    def identity(self, key, value):
        """Tells NCCL the members of the communicator with this identity."""
        members = self.members(key) if len(value) == 128 else None
        if members:
            self.library.vramlab_rehearsal_members(bytes(value), self.numbers(members), self.ctypes.c_size_t(len(members)))

    def members(self, key):
        """Returns the members of the communicator with the identity under this key: `…/GROUP//cuda//NUMBER`, `…//LOWER:HIGHER` for two ranks."""
        words = [word for word in key.split("/") if word]
        if len(words) < 3 or words[-2] != "cuda" or words[-3] not in self.groups:
            return None
        members, last = self.groups[words[-3]], words[-1]
        if last.isdigit() or last.startswith("UniqueNCCLID:"):
            return members
        pair = last.split(":")
        if len(pair) == 2 and all(one.isdigit() and int(one) < len(members) for one in pair):
            return [members[int(one)] for one in pair]
        return None

    def setter(self, key):
        """Returns the rank that sets a key, if that is known."""
        members, last = self.members(key), key.rpartition("/")[2]
        if members:
            return None if last.startswith("UniqueNCCLID:") else members[0]
        return int(last) if key.startswith(HOSTS) else None

    # --- Who waits ---------------------------------------------------------------------------------------------------

    def mark(self, rank):
        return os.path.join(self.folder, "waits-%d" % rank)

    def wait(self, keys):
        """Reports what this rank waits for; none means that it is done."""
        with open(self.mark(self.rank) + ".part", "w", encoding="utf-8") as file:
            json.dump(keys, file)
        os.replace(self.mark(self.rank) + ".part", self.mark(self.rank))

    def go_on(self):
        with contextlib.suppress(OSError):
            os.remove(self.mark(self.rank))

    def all_wait(self, file):
        """True if all started ranks wait, and none for something that exists."""
        for rank in self.started:
            try:
                with open(self.mark(rank), encoding="utf-8") as mark:
                    keys = json.load(mark)
            except (OSError, ValueError):
                return False
            if keys and file.check(keys):
                return False
        return True


def meeting(world):
    """A store for PyTorch. C++ calls these methods by the names of its own stores."""
    import hashlib
    import time

    distributed = world.torch.distributed

    class Meeting(distributed.Store):  # type: ignore[name-defined]
        def __init__(self):
            super().__init__()
            self.file = distributed.FileStore(os.path.join(world.folder, "store"), -1)

        def set(self, key, value):
            world.identity(key, value if isinstance(value, bytes) else b"")
            return self.file.set(key, value)

        def get(self, key):
            self.wait([key], absent=self.made_up)
            value = self.file.get(key)
            world.identity(key, value)
            return value

        def made_up(self, key):
            """Returns the value that a rank that was not started would have set."""
            if world.members(key):
                return hashlib.sha512(key.encode()).digest() * 2
            raise problem("in the store the script waits for %r, which only a rank that was not started sets: start that "
                          "rank as well (--ranks)" % key[-100:])

        def wait(self, keys, timeout=None, absent=lambda key: "1"):
            start, since = time.monotonic(), None
            setters = {key: world.setter(key) for key in keys}
            for key, setter in setters.items():
                if setter is not None and setter not in world.started and not self.file.check([key]):
                    self.file.compare_set(key, "", absent(key))
            if self.file.check(keys):
                return
            world.wait(keys)
            try:
                while not self.file.check(keys):
                    now = time.monotonic()
                    since = (since or now) if world.all_wait(self.file) else None
                    if now - start > World.PATIENCE or (since is not None and now - since > World.SETTLED):
                        for key, setter in setters.items():
                            if setter is None and not self.file.check([key]):
                                self.file.compare_set(key, "", absent(key))
                        start, since = now, None
                    elif timeout is not None and now - start > timeout.total_seconds():
                        raise RuntimeError("timeout in the store, waiting for %s" % keys)
                    else:
                        time.sleep(0.005)
            finally:
                world.go_on()

        def add(self, key, amount):
            return self.file.add(key, amount)

        def check(self, keys):
            return self.file.check(keys)

        def compare_set(self, key, expected, desired):
            return self.file.compare_set(key, expected, desired)

        def delete_key(self, key):
            return self.file.delete_key(key)

        def num_keys(self):
            return self.file.num_keys()

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

        def append(self, key, value):
            self.file.set(key, (self.file.get(key) if self.file.check([key]) else b"") + value)

        def has_extended_api(self):
            return False

        def clone(self):
            return world.store()

        deleteKey, getNumKeys, compareSet, multiGet, multiSet = delete_key, num_keys, compare_set, multi_get, multi_set
        hasExtendedApi = has_extended_api

    return Meeting()


def on_hosts(world):
    """Collectives on tensors of the host: started ranks exchange tensors through the store; absent ranks are assumed to send what
    this one sends."""
    import functools

    torch = world.torch
    group, done = torch.distributed.ProcessGroup, torch._C._distributed_c10d.FakeWork
    counts = {}

    def heard(of, tensors):
        """Returns the tensor of each rank of a group, by its number in it."""
        name = str(of.group_name)
        counts[name] = counts.get(name, 0) + 1
        meet = world.hosts = getattr(world, "hosts", None) or world.store()
        key, own = "%s%s/%d/" % (HOSTS, name, counts[name]), [tensor.tolist() for tensor in tensors]
        meet.set(key + str(world.rank), json.dumps(own))
        found = []
        for member in world.groups.get(name, range(of.size())):
            sent = json.loads(meet.get(key + str(member))) if member in world.started else own
            found.append([torch.tensor(rows, dtype=like.dtype) for rows, like in zip(sent, tensors)] if member in world.started else tensors)
        if len(found) > len(world.started):
            write_whole("%d%s" % (os.getpid(), PROBLEM), "gloo: ranks that were not started were taken to send what a started one sends")
        return found

    def broadcast(of, tensors, options):
        sent = heard(of, tensors)[options.rootRank]
        for tensor, other in zip(tensors, sent):
            tensor.copy_(other.reshape(tensor.shape))

    def allreduce(of, tensors, options):
        op, kinds = getattr(options.reduceOp, "op", options.reduceOp), torch.distributed.ReduceOp.RedOpType
        how = {kinds.SUM: torch.sum, kinds.AVG: torch.mean, kinds.MAX: torch.amax, kinds.MIN: torch.amin, kinds.PRODUCT: torch.prod}
        if op not in how:
            raise problem("gloo: this reduction is not computed where only some ranks are started")
        for tensor, all_sent in zip(tensors, zip(*heard(of, tensors))):
            tensor.copy_(how[op](torch.stack([sent.reshape(tensor.shape) for sent in all_sent]), 0))

    def allgather(of, outputs, inputs, _options=None):
        for output, sent in zip(outputs[0], heard(of, inputs)):
            output.copy_(sent[0].reshape(output.shape))

    def gather(of, outputs, inputs, options):
        sent = heard(of, inputs)
        if of.rank() == options.rootRank:
            for output, one in zip(outputs[0], sent):
                output.copy_(one[0].reshape(output.shape))

    def into_one(of, output, own, _options=None):
        output.view(-1).copy_(torch.cat([sent[0].reshape(-1) for sent in heard(of, [own])]))

    answered = {"broadcast": broadcast, "allreduce": allreduce, "reduce": allreduce, "allgather": allgather, "gather": gather,
                "_allgather_base": into_one}

    def first(value):
        return first(value[0]) if isinstance(value, (list, tuple)) and value else value

    def replaced(name, method):
        @functools.wraps(method)
        def collective(of, *args, **kwargs):
            tensor = next((one for one in map(first, args) if isinstance(one, torch.Tensor)), None)
            if tensor is None or tensor.device.type != "cpu":
                return method(of, *args, **kwargs)
            if name not in answered:
                raise problem("gloo: %s on tensors of the host is not answered where only some ranks are started" % name)
            answered[name](of, *args, **kwargs)  # type: ignore[operator]
            return done()

        return collective

    for name in [*answered, *"scatter reduce_scatter _reduce_scatter_base alltoall alltoall_base send recv recv_anysource".split()]:
        if hasattr(group, name):
            setattr(group, name, replaced(name, getattr(group, name)))


def after_launcher(module):
    """Turns torchrun, and launchers built on it, into the rank that this process was started for."""

    def start(self, *args):
        local = WORLD_VARIABLES["LOCAL_RANK"]
        if not isinstance(self._entrypoint, str):
            raise problem("--world and --ranks cannot start what this launcher starts: a function, not a program")
        words = [self._entrypoint] + [str(word).replace("${local_rank}", local) for word in args]
        os.execvpe(words[0], words, dict(os.environ, **WORLD_VARIABLES))

    module.elastic_launch.__call__ = start


