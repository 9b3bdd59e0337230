"""Records what the modules of exported networks save for the backward pass, on the real PyTorch: saved_tensors_hooks sees every saved tensor.

    python saved.py FILE      FILE.json: bytes of blocks by module, for each network

A card is needed, or a stand-in for one. A tensor counts once, where it is saved first; parameters, buffers and the batch do not count. The program
runs node by node, so that the module of each is known; a value is freed after its last use, as the program itself frees it."""
import json
import sys

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks

import networks
import record

NAMES = ["resnet20", "unet", "nanogpt", "llama", "efficientnet"]
BATCH = 4


class ByModule(torch.fx.Interpreter):
    """Runs a program, and knows the module of the node that runs."""
    path = ""

    def run_node(self, node):
        stack = node.meta.get("nn_module_stack") or {}
        path = list(stack.values())[-1][0] if stack else ""
        self.path = path.replace("L['self'].", "").replace("L['self']", "")
        return super().run_node(node)


def saved(name):
    """Bytes that each module saves; the key "" is what belongs to none, the loss for example."""
    program, model, loss_name = networks.exported(name)
    module, _, _ = record.on_card(program, model)
    del program, model
    inputs = [value.to("cuda") for value in networks.NETWORKS[name][1](BATCH)]
    target = torch.zeros(BATCH, dtype=torch.long).to("cuda") if loss_name == "cross-entropy" else None
    known = [*module.parameters(), *module.buffers(), *inputs, *([] if target is None else [target])]
    seen = {value.untyped_storage().data_ptr() for value in known if isinstance(value, torch.Tensor) and value.is_cuda}
    runner = ByModule(module)
    found = []

    def pack(value):
        place = value.untyped_storage().data_ptr()
        if value.is_cuda and place and place not in seen:
            seen.add(place)
            found.append((runner.path, place))
        return value

    with saved_tensors_hooks(pack, lambda value: value):
        out = runner.run(*inputs)
        runner.path = ""
        if loss_name == "inside":
            loss = out if isinstance(out, torch.Tensor) else next(value for value in out if value.dim() == 0)
        else:
            out = out[0] if isinstance(out, (tuple, list)) else out
            loss = out.mean() if loss_name == "mean" else F.cross_entropy(out, target)
    sizes = {block["address"]: block["size"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]}
    modules = {}
    for path, place in found:
        modules[path] = modules.get(path, 0) + sizes[place]
    assert loss.requires_grad
    return {"loss": loss_name, "batch": BATCH, "modules": modules, "all": sum(modules.values())}


def main():
    torch.backends.cudnn.enabled = False
    torch.set_num_threads(1)
    found = {name: record.in_a_child(saved, name) for name in NAMES}
    for name, entry in found.items():
        print(name, entry["all"], len(entry["modules"]))
    with open(sys.argv[1], "w") as file:
        json.dump({"torch": torch.__version__, "networks": found}, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
