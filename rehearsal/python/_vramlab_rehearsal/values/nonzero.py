"""Replaces `nonzero`, which operators call in C++."""

import warnings


def replace_nonzero(torch, values):
    """Operators call `nonzero` in C++ (indexing by a mask, and its backward in a thread of its own). The replacement
    queues the number of elements that are not zero, which `nonzero` reads from the card."""
    operator, select = torch.ops.aten.nonzero.default, torch._C.DispatchKey.BackendSelect

    def nonzero(keys, tensor):
        def on_card():
            return operator.redispatch(keys.remove(select), tensor)

        doing = values.doing.now
        if not tensor.is_cuda or torch.compiler.is_compiling():
            return on_card()
        before = doing.busy, doing.operator
        doing.busy, doing.operator = True, doing.operator if doing.busy and doing.operator else "nonzero"
        try:
            twin = values.find(tensor) if values.has_few_elements(tensor) else None
            with values.one_thread, torch._C.DisableTorchFunction(), torch.no_grad():
                true = values.nonzero(tensor, twin) if twin is not None else None
                if true is None:
                    return on_card()
                values.tell_doubt("nonzero", {0: twin})
                shape, keep = true
                values.library.vramlab_rehearsal_queue(shape[0])
                out = on_card()
                if out.shape == shape:
                    if values.is_small(out) and values.has_room(out):
                        keep(out, twin.doubtful)
                else:
                    values.reads.tell("wrong_size", "nonzero", "size", answer=str(tuple(out.shape)), true=str(tuple(shape)))
                return out
        finally:
            values.library.vramlab_rehearsal_unqueue()
            doing.busy, doing.operator = before

    # Calls of every thread pass this dispatch key on their way to the card, below the keys of autograd.
    values.overrides = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values.overrides.impl("nonzero", nonzero, "BackendSelect", with_keyset=True)
