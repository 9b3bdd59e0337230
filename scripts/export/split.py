"""Records what the exported networks of networks.py take when they are split over several cards.

    PYTHONPATH=python python scripts/export/split.py FOLDER [NAME...]      FOLDER/NAME.json for each

The exported program is cut by `torch.fx.passes.split_module` at the first operators of the modules that RUNS names. Each card has the parameters
and buffers that its part uses, moved in the order of the whole network. A part is called with the values that it takes, moved to its card. One
optimizer is over all parameters. A parameter that two parts use is on both cards: the copy's gradient is added to the original's, and the sum is
the gradient of both. There is a row of each card after each phase of three steps with AdamW, at two batches other than the exported one.

Needed are as many cards as there are parts, which do not see each other's memory, or stand-ins for them.
"""
import contextlib
import operator

import torch
import torch.nn.functional as F
from torch.fx.passes.split_module import split_module

import networks
import record

# Name of a run: its network, the modules that the parts after the first begin with, the number of micro-batches, and the order of their passes;
# AUTOCAST names those whose forward passes are in torch.autocast. Encoder and decoder of bart meet two times at the cut: the threads of two cards work
# side by side in its backward pass, and the first card's peak differs from run to run.
AUTOCAST = {"nanogpt-autocast"}
RUNS = {
    "resnet50": ("resnet50", ["layer3.0"], 1, "gpipe"),
    "resnet50-four": ("resnet50", ["layer2.0", "layer3.0", "layer4.0"], 4, "1f1b"),
    "gpt2": ("gpt2", ["network.transformer.h.1"], 1, "gpipe"),
    "gpt2-gpipe": ("gpt2", ["network.transformer.h.1"], 4, "gpipe"),
    "gpt2-1f1b": ("gpt2", ["network.transformer.h.1"], 4, "1f1b"),
    "nanogpt-autocast": ("nanogpt", ["h.1"], 2, "1f1b"),
    "unet": ("unet", ["after.0"], 1, "gpipe"),
    "unet-four": ("unet", ["down.1", "down.2", "after.1"], 4, "gpipe"),
    "nanogpt": ("nanogpt", ["h.1"], 1, "gpipe"),
    "nanogpt-1f1b": ("nanogpt", ["h.1"], 4, "1f1b"),
    "bart": ("bart", ["network.model.decoder.layers.0"], 4, "1f1b"),
}


def places(module, starts):
    """The part of each node that calls something."""
    found, part = {}, 0
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        paths = {path.split("@")[0] for path, _ in (node.meta.get("nn_module_stack") or {}).values()}
        if part < len(starts) and starts[part] in paths:
            part += 1
        found[node] = part
    assert part == len(starts), f"{starts[part]} is not called, or not after those before it"
    return found


def on_card(module, card):
    """Makes what the operators of a graph make on this card."""
    def there(value):
        return torch.device(card) if isinstance(value, torch.device) else value
    for node in module.graph.nodes:
        node.args = torch.fx.node.map_aggregate(node.args, there)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, there)
    for inner in module.children():
        if isinstance(inner, torch.fx.GraphModule):
            on_card(inner, card)
    module.recompile()


def attribute(module, path):
    for name in path.split("."):
        module = getattr(module, name)
    return module


class Part:
    """A part of a program on its card."""

    def __init__(self, module, card, call):
        self.module, self.card = module, card
        # What it is called with, and what of its results others take or the program returns: nodes of the program of parts.
        self.takes = list(call.args)
        results = [node for node in call.users if node.op == "call_function" and node.target is operator.getitem]
        self.gives = [(node, node.args[1]) for node in results] or [(call, None)]
        # Its parameters and buffers, by node; values that no later part takes.
        self.state, self.ends = {}, []

    def __call__(self, held):
        given = [self.state[node] if node in self.state else moved(held[node], self.card) for node in self.takes]
        for node in self.ends:
            del held[node]
        return self.module(*given)

    def given(self, made):
        return [(node, made if place is None else made[place]) for node, place in self.gives]


def moved(value, card):
    return value.to(card) if isinstance(value, torch.Tensor) else value


def leaves(module):
    """The results of a graph."""
    (result,) = [node for node in module.graph.nodes if node.op == "output"]
    return [node for node in torch.utils._pytree.tree_leaves(result.args) if isinstance(node, torch.fx.Node)]


def is_scalar(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0


def split(program, starts):
    """The parts of a program, the nodes of its inputs, and its results, each with whether it is a scalar."""
    module = program.module(check_guards=False)
    scalars = [is_scalar(node) for node in leaves(module)]
    part_of = places(module, starts)
    parts_of = split_module(module, module, lambda node: part_of[node], keep_original_order=True)
    calls = [node for node in parts_of.graph.nodes if node.op == "call_module"]
    assert [call.target for call in calls] == [f"submod_{number}" for number in range(len(starts) + 1)]
    parts = [Part(getattr(parts_of, call.target), f"cuda:{number}", call) for number, call in enumerate(calls)]
    for part in parts:
        on_card(part.module, part.card)
    inputs = [node for node in parts_of.graph.nodes if node.op == "placeholder"]
    results = list(zip(leaves(parts_of), scalars, strict=True))
    for number, part in enumerate(parts):
        later = {node for other in parts[number + 1:] for node in other.takes}
        part.ends = [node for node in part.takes if node.op != "get_attr" and node not in later]
    return parts_of, parts, inputs, results


def fill(parts_of, parts, model):
    """Moves parameters and buffers to the cards of the parts that use them. Returns the parameters, and the copies of each with its original."""
    users, used = {}, {}
    for number, part in enumerate(parts):
        for node in part.takes:
            if node.op == "get_attr":
                value = attribute(parts_of, node.target)
                used[id(value)] = value
                users.setdefault(id(value), {}).setdefault(number, []).append(node)
    named = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    own = {node.target: attribute(parts_of, node.target) for part in parts for node in part.takes if node.op == "get_attr"}
    order = [own[name] if name in own else named[name] for name in record.transfer_order(model)]
    parameters, copies, seen = [], [], set()
    for value in [*order, *used.values()]:
        # A constant without dimensions is a number, which PyTorch keeps on the host.
        if id(value) in seen:
            continue
        seen.add(id(value))
        numbers = users.get(id(value), {})
        if not isinstance(value, torch.nn.Parameter) and value.dim() == 0 and not any(value is buffer for buffer in model.buffers()):
            for number, nodes in numbers.items():
                parts[number].state.update((node, value) for node in nodes)
            continue
        original = None
        for number, nodes in sorted(numbers.items()):
            card = parts[number].card
            there = torch.empty_like(value, device=card) if value.is_meta else value.detach().to(card)
            if isinstance(value, torch.nn.Parameter):
                there = torch.nn.Parameter(there, value.requires_grad)
                if original is None:
                    original = there
                    parameters.append(there)
                else:
                    copies.append((original, there))
            parts[number].state.update((node, there) for node in nodes)
    return parameters, copies


def order(schedule, parts, micro_batches):
    """Passes of a step: a micro-batch with the part that it goes through, or None for its backward pass."""
    found, done = [], [0] * parts
    for micro in range(micro_batches):
        def ahead(part, micro=micro):
            return micro_batches if schedule == "gpipe" else min(micro_batches, micro + parts - part)
        for after in range(micro, ahead(0)):
            for part in range(parts):
                if done[part] == after and after < ahead(part):
                    found.append((after, part))
                    done[part] += 1
        found.append((micro, None))
    return found


def changes(card):
    stats = torch._C._cuda_memoryStats(card)
    return stats["allocation"]["all"]["allocated"] + stats["allocation"]["all"]["freed"]


class Rows:
    """Rows of every card."""

    def __init__(self, cards):
        self.taken, self.highest, self.most_reserved = [[] for _ in range(cards)], [0] * cards, [0] * cards
        self.before = [changes(card) for card in range(cards)]

    def take(self, label):
        for card, taken in enumerate(self.taken):
            stats = torch._C._cuda_memoryStats(card)
            peak, reserved = stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]
            self.highest[card] = max(self.highest[card], peak)
            self.most_reserved[card] = max(self.most_reserved[card], reserved)
            current = [stats[name]["all"]["current"] for name in ("requested_bytes", "active_bytes", "inactive_split_bytes", "segment")]
            taken.append([label, torch.cuda.memory_allocated(card), self.highest[card], torch.cuda.memory_reserved(card),
                          self.most_reserved[card], peak, *current, changes(card) - self.before[card]])
            torch.cuda.reset_peak_memory_stats(card)


def trained(name, batch):
    network, starts, micro_batches, schedule = RUNS[name]
    program, model, loss_name = networks.exported(network)
    examples = networks.NETWORKS[network][1]
    parts_of, parts, inputs_of, results = split(program, starts)
    for part in parts:
        torch.zeros(1, device=part.card)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(part.card)
    rows = Rows(len(parts))
    parameters, copies = fill(parts_of, parts, model)
    loss_of = next(node for node, scalar in results if scalar or loss_name != "inside")
    del program, model, parts_of, results
    first_card = [next((part.card for part in parts if node in part.takes), "cuda:0") for node in inputs_of]
    passes, size = order(schedule, len(parts), micro_batches), batch // micro_batches
    optimizer = torch.optim.AdamW([*parameters, *(copy for _, copy in copies)])
    rows.take("model")

    def forward(micro, number):
        """Runs a part on a micro-batch; the last part gives the loss."""
        def share(value):
            return value if micro_batches == 1 else value.narrow(0, micro * size, size)
        part, held = parts[number], waiting[micro]
        held.update((node, share(value)) for node, value in zip(inputs_of, inputs) if node in part.takes)
        made = dict(part.given(part(held)))
        if number + 1 < len(parts):
            held.update((node, value) for node, value in made.items() if any(node in later.takes for later in parts[number + 1:]))
            return
        out = made[loss_of]
        loss = out if loss_name == "inside" else out.mean() if loss_name == "mean" else F.cross_entropy(out, share(target))
        waiting[micro] = loss / micro_batches if micro_batches > 1 else loss

    for step in range(3):
        inputs = [value.to(card) for value, card in zip(examples(batch), first_card)]
        if loss_name == "cross-entropy":
            target = torch.zeros(batch, dtype=torch.long).to(parts[-1].card)
        rows.take(f"s{step}.input")
        optimizer.zero_grad()
        rows.take(f"s{step}.zero_grad")
        waiting: dict = {micro: {} for micro in range(micro_batches)}
        for micro, number in passes:
            if number is None:
                waiting.pop(micro).backward()
            else:
                with torch.autocast("cuda", torch.bfloat16) if name in AUTOCAST else contextlib.nullcontext():
                    forward(micro, number)
        rows.take(f"s{step}.passes")
        for original, copy in copies:
            original.grad.add_(copy.grad.to(original.device))
        for original, copy in copies:
            copy.grad = original.grad.to(copy.device)
        optimizer.step()
        rows.take(f"s{step}.step")
    return rows.taken, loss_name


def recorded(name, _):
    network, starts, micro_batches, schedule = RUNS[name]
    runs = {}
    for batch in (8, 12):
        runs[batch], loss = record.in_a_child(trained, name, batch)
    return {"network": network, "loss": loss, "starts": starts, "micro_batches": micro_batches, "schedule": schedule,
            "autocast": name in AUTOCAST, "columns": record.COLUMNS, "runs": runs}


if __name__ == "__main__":
    record.main(recorded, RUNS)
