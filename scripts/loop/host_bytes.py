"""Bytes of the host that saved tensors take, where they are kept there between forward and backward."""
import weakref


class Host:
    """Bytes of the host that saved tensors of the card take: all at once, and the pinned blocks that PyTorch made for them."""

    def __init__(self):
        self.now, self.peak, self.pinned = 0, 0, 0

    def saved(self, kind):
        """What makes the context of a forward pass: `torch.autograd.graph.save_on_cpu`."""
        from torch.autograd.graph import save_on_cpu

        def made():
            hooks = save_on_cpu(pin_memory=kind == "pinned")
            pack = hooks.pack_hook

            def counting(tensor):
                # What is on the host already is not counted: states of random generators.
                if not tensor.is_cuda:
                    return pack(tensor)
                before = pinned_bytes()
                packed = pack(tensor)
                self.pinned += pinned_bytes() - before
                return self.counted(packed)

            hooks.pack_hook = counting
            return hooks

        return made

    def counted(self, packed):
        count = packed[1].nbytes
        self.now += count
        self.peak = max(self.peak, self.now)
        weakref.finalize(packed[1], self.freed, count)
        return packed

    def freed(self, count):
        self.now -= count

    def figures(self):
        return {"copies": self.peak, "pinned": self.pinned}


def pinned_bytes():
    import torch

    return torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
