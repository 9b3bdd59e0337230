"""Programs whose sizes and branches depend on data: under the library they give what they give on the CPU.

Run by `tests/values.rs`, with the library preloaded. Prints a line for each that differs, and ends with 1 if one does."""

import copy
import ctypes
import sys

import torch
from torch.fx.experimental.proxy_tensor import make_fx

library = ctypes.CDLL(None)
library.vramlab_rehearsal_python.restype = ctypes.c_char_p
layer: dict = {"__name__": "values"}
exec(compile(library.vramlab_rehearsal_python(), "<values>", "exec"), layer)
values = layer["install"](torch)

F = torch.nn.functional
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def padded(device):
    ids = torch.tensor([[3, 1, 0, 0], [2, 5, 7, 0], [9, 9, 9, 9]]).to(device)
    return ids, ids != 0


@case
def masks_are_asked(device):
    ids, mask = padded(device)
    return bool(mask.all()), mask.any().item(), 1 if (ids > 8).any() else 0, 5 in ids, torch.equal(ids, ids.clone()), torch.equal(ids, ids + 1)


@case
def tokens_are_taken_by_a_mask(device):
    ids, mask = padded(device)
    hidden = torch.rand(3, 4, 8, device=device)
    packed = hidden[mask]
    return packed.shape, [part.shape for part in packed.split(mask.sum(1).tolist())], torch.masked_select(ids, mask)


@case
def places_are_looked_for(device):
    _, mask = padded(device)
    return torch.nonzero(mask), mask.nonzero(as_tuple=True), torch.where(mask), torch.argwhere(mask), mask.count_nonzero().item()


@case
def anchors_are_matched_in_a_quicker_way(device):
    """What `quick.py` computes is what PyTorch does, ties and empty masks among it."""
    same_numbers = torch.Generator().manual_seed(0)
    rows, boxes = torch.rand(70_001, 4, generator=same_numbers), torch.rand(8, 4, generator=same_numbers)
    found = []
    for name in ("max", "min", "add", "__sub__", "mul"):
        for pair in (boxes[:, None, :2], rows[:, :2]), (rows[:, 2:], boxes[:, None, 2:]):
            found.append(computed(device, getattr(torch.Tensor, name), name, pair))
    overlaps = (torch.rand(8, 70_001, generator=same_numbers) - 0.7).clamp(min=0)
    missing = overlaps.masked_fill(overlaps > 0.29, torch.nan)
    found += [part for name in ("max", "min") for one in (overlaps, missing) for part in computed(device, getattr(torch, name), name, (one, 0))]
    masks = overlaps == overlaps.amax(1)[:, None], overlaps > 0.1, overlaps > 1, overlaps[0] == 0, overlaps[1:] > 0.29
    return [one.nan_to_num(2) for one in found], [quick().nonzero(torch, mask) if device == "cuda" else torch.nonzero(mask) for mask in masks]


def quick():
    return sys.modules["_vramlab_rehearsal.values.quick"]


def computed(device, function, name, args):
    """Returns an operator's result: PyTorch's, or for the card the quicker one, which must apply if nothing is missing."""
    made = quick().result(torch, name, args, {}) if device == "cuda" else None
    assert made is not None or device == "cpu" or args[0].isnan().any()
    return function(*args) if made is None else made


@case
def anchors_of_a_detector_are_matched(device):
    """As many anchors as RetinaNet has for one image, and two boxes."""
    steps = torch.arange(163_206, device=device, dtype=torch.float32)
    anchors = torch.stack([steps % 1000, steps % 700, steps % 1000 + 64, steps % 700 + 96], 1)
    boxes = torch.tensor([[10.0, 10.0, 200.0, 220.0], [50.0, 60.0, 120.0, 150.0]]).to(device)
    low, high = torch.max(boxes[:, None, :2], anchors[:, :2]), torch.min(boxes[:, None, 2:], anchors[:, 2:])
    inside = (high - low).clamp(min=0).prod(2)
    best, which = (inside / (64 * 96)).max(0)
    which[best < 0.4] = -1
    which[(best >= 0.4) & (best < 0.5)] = -2
    logits = torch.rand(163_206, 3, device=device)
    return logits[which != -2].shape, torch.where(which >= 0)[0], (which >= 0).sum().item()


@case
def large_contents_are_those_of_their_time(device):
    """They are computed when they are read, from what their operands were when the operator ran."""
    one = torch.arange(100_000, device=device)
    plus, rows = one + 1, one.view(100, 1000)
    one.mul_(2)
    one[10:20] = 7
    rows[3].copy_(rows[2])
    times, part = one * plus, one[5:15].clone()
    one.zero_()
    index = torch.tensor([1, 2, 3])
    taken = times[index.to(device)]
    index.zero_()
    mask = times % 3 == 0
    low, at = times.view(100, 1000).min(0)
    pieces = (plus.float() / 3).split(30_000)
    return (plus[:3], times[9:21], part, taken, one.sum().item(), mask.nonzero().shape, low[:4], at[:4].tolist(), pieces[3][:2],
            times[-1].item(), torch.equal(plus, plus.clone()), times[mask].shape)


@case
def large_contents_are_written_where_they_are_views(device):
    x = torch.zeros(300, 300, device=device)
    batch = x.new_full((2, 300, 300), 0.5)
    batch[1, :200, :100].copy_(x[:200, :100] + 3)
    x[1:] += 1
    x[:, 1:] += x[:, :-1]
    x.mul_(2)
    done = (x > 1).sum()
    batch[0].add_(batch[1])
    return batch.sum().item(), x[5, :4], done.item(), F.interpolate(batch[None], size=(30, 30)).mean().item()


@case
def different_values_are_counted(device):
    ids, _ = padded(device)
    return torch.unique(ids), torch.unique(ids, return_inverse=True, return_counts=True), torch.unique(ids, dim=0), torch.unique_consecutive(ids.flatten())


@case
def things_are_repeated(device):
    _, mask = padded(device)
    lengths, rows = mask.sum(1), torch.rand(3, 5, device=device)
    indices = torch.arange(3, device=device)
    return torch.repeat_interleave(indices, lengths), rows.repeat_interleave(lengths, dim=0).shape, torch.repeat_interleave(lengths), indices.repeat_interleave(2)


@case
def classes_are_counted(device):
    ids, _ = padded(device)
    return torch.bincount(ids.flatten()), torch.bincount(ids.flatten(), minlength=20), F.one_hot(ids), F.one_hot(ids, 12)


@case
def values_are_ordered(device):
    ids, _ = padded(device)
    return ids.cumsum(1), ids.max().item(), ids.argmax(1), ids.sort(1)[0], ids.flatten().topk(3)[0], torch.aminmax(ids), ids.kthvalue(2)[0]


@case
def parts_are_written(device):
    x = torch.zeros(10, dtype=torch.long, device=device)
    seen = []
    for change in (
        lambda: x.__setitem__(slice(2, 5), 7),
        lambda: x.__setitem__(x == 7, 3),
        lambda: x.add_(1),
        lambda: x.__iadd__(2),
        lambda: x.scatter_(0, torch.tensor([0, 1], device=device), torch.tensor([50, 60], device=device)),
        lambda: x.clamp_(0, 20),
        lambda: torch.add(x, 1, out=x),
        lambda: torch._foreach_add_([x], 1),
    ):
        change()
        seen.append(x.tolist())
    return seen


@case
def numbers_become_sizes(device):
    n = torch.tensor(5, device=device)
    return torch.arange(n, device=device), torch.zeros(10, device=device)[:n].shape, list(range(n)), torch.zeros(n, 3, device=device).shape, f"{n}", int(n)


@case
def tensors_are_brought_back(device):
    ids, _ = padded(device)
    return ids.cpu(), ids.t().cpu(), ids.t().to("cpu"), ids.cpu().numpy().tolist(), ids.float() / 2, ids.float().mean().item(), copy.deepcopy(ids)


@case
def tensors_are_copied(device):
    large, host = torch.arange(5000, device=device), torch.zeros(5000, dtype=torch.long)
    host.copy_(large)
    rows = torch.zeros(2, 3, dtype=torch.long, device=device)
    rows.copy_(torch.tensor([1, 2, 3], device=device))
    rows[1].copy_(torch.tensor([4, 5, 6]))
    return host.sum().item(), rows, large.to(device, torch.int32).sum()


@case
def tensors_are_made(device):
    like = torch.rand(2, 3, device=device)
    made = torch.empty(3, device=device)
    made.fill_(2)
    with torch.device(device):
        inside = torch.arange(3), torch.tensor([1, 2])
    return torch.full((3,), 4, device=device), torch.zeros_like(like), like.new_full((2,), 6), like.new_tensor([1, 2]), made, inside, torch.eye(2, device=device)


@case
def tensors_are_rearranged(device):
    ids, _ = padded(device)
    first = torch.tensor([2, 0], device=device)
    return torch.cat([ids, ids]), F.pad(ids, (1, 1)), ids.flip(0), ids.roll(1), ids[first], ids.gather(1, first[None, :1].expand(3, 1)), torch.bucketize(ids, torch.tensor([1, 3, 5], device=device))


@case
def gradients_go_through_a_mask(device):
    _, mask = padded(device)
    weight = torch.ones(12, 8, device=device, requires_grad=True)
    taken = weight[mask.flatten()]
    taken.sum().backward()
    return taken.shape, weight.grad.shape


@case
def sequences_are_packed(device):
    _, mask = padded(device)
    rows = torch.nn.utils.rnn.pad_sequence([torch.tensor([1, 2], device=device), torch.tensor([3], device=device)], batch_first=True)
    return rows, torch.nn.utils.rnn.pack_padded_sequence(rows[:, :, None], (rows != 0).sum(1).cpu(), batch_first=True).batch_sizes


@case
def inference_mode_counts_no_versions(device):
    with torch.inference_mode():
        x = torch.zeros(4, dtype=torch.long, device=device)
        x[1] = 5
        x.add_(1)
        y = torch.arange(4, device=device)
        y[y > 1] = 0
        return x, torch.nonzero(x > 2), y


@case
def one_operand_decides(device):
    torch.manual_seed(0)
    unknown = torch.rand(3, device=device) < 2
    ended = torch.zeros(3, dtype=torch.bool, device=device) | torch.ones(3, dtype=torch.bool, device=device) | unknown
    unfinished = torch.ones(3, dtype=torch.long, device=device) * unknown & ~ended
    return ended, unfinished, bool(unfinished.max() == 0)


@case
def transforms_and_modes_are_left_alone(device):
    ids, mask = padded(device)
    torch.vmap(lambda row: row + 1)(ids)
    torch.func.grad(lambda x: (x * x).sum())(torch.ones(3, device=device))
    ids.to_sparse().mul_(2)
    nodes = len(make_fx(lambda x: x + 1)(ids).graph.nodes)
    return nodes, mask.sum(1), torch.nonzero(mask)


@case
def views_share_contents(device):
    ids, _ = padded(device)
    ids.view(-1)[1] = 77
    ids.detach()[0, 2] = 55
    return ids


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype and a.tolist() == b.tolist()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@case
def large_constants_are_asked(device):
    table = torch.arange(1 << 20, dtype=torch.float32).reshape(4096, 256).to(device)
    module = torch.nn.Module()
    module.register_buffer("table", torch.arange(1 << 20).reshape(256, 4096))
    module.to(device)
    head = bool(table[0, 0] == 0), bool(module.table[0, 1] == 0)
    return *head, table[5, :4].tolist(), table[-1].sum().item(), module.table[7, 9].item(), table[:2, :3] + 1


@case
def a_constant_of_the_host_is_not_changed_by_the_card(device):
    source = torch.arange(1 << 20, dtype=torch.float32)
    table = source.to(device)
    first = table[:3].tolist()
    if device != "cpu":
        table[:3] = 9
        assert source[:3].tolist() == [0, 1, 2], "the script's own tensor"
    return first


# What copies unknown contents to the host, where nobody reads them: nothing is told.
def offloaded(x):
    with torch.autograd.graph.save_on_cpu():
        made = (x.requires_grad_() * x.detach()).tanh()
    made.sum().backward()


def kept_and_returned(x):
    kept = torch.empty(8, 8)
    kept.copy_(x)
    return kept.to("cuda"), x.cpu().half().to("cuda"), x.sum().cpu()


UNREAD = [offloaded, kept_and_returned]


# Reads of unknown values, and what is reported of each.
def random_mask(x):
    return x[x > 0.5]


def written_through_an_alias(x):
    known = torch.zeros(4, dtype=torch.long, device="cuda")
    known.data.copy_((x[0, :4] * 9).long())
    return known.tolist()


def written_by_the_backward_pass(x):
    weight = torch.ones(4, device="cuda", requires_grad=True)
    weight.grad = torch.zeros(4, device="cuda")
    (weight * x[0, :4]).sum().backward()
    return weight.grad.tolist()


def written_by_a_graph(x):
    known = torch.zeros(4, dtype=torch.long, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = x[0, :4].long()
    known.copy_(torch.arange(4))
    graph.replay()
    return known.tolist()


def freed_and_taken_again(x):
    known = torch.arange(1000, device="cuda")
    address = known.data_ptr()
    del known
    other = torch.empty(1000, dtype=torch.long, device="cuda")
    assert other.data_ptr() == address
    return other[7].item()


def averaged_by_a_norm(x):
    norm = torch.nn.BatchNorm1d(8).cuda()
    norm(x)
    return norm.running_mean.tolist()


def checked(x):
    assert (x > 0.5).all(), "what is not known is taken to be as it must be"
    if not (x > 0.5).all():
        raise ValueError
    torch.distributions.Categorical(logits=x)
    return True


UNKNOWN = [
    (checked, "values"),
    (lambda x: bool((x > 0.5).all()), "branch"),
    (lambda x: x.sum().item(), "number"),
    (lambda x: x.argmax(1).tolist(), "contents"),
    (random_mask, "size"),
    (lambda x: torch.unique(x), "size"),
    (lambda x: torch.bincount((x.flatten() * 9).long()), "size"),
    (lambda x: torch.randint(0, 9, (4,), device="cuda").tolist(), "contents"),
    (lambda x: F.dropout(torch.ones(9, device="cuda")).tolist(), "contents"),
    (written_through_an_alias, "contents"),
    (written_by_the_backward_pass, "number"),
    (written_by_a_graph, "values"),
    (freed_and_taken_again, "number"),
    (averaged_by_a_norm, "contents"),
    (lambda x: x.cpu().numpy(), "contents"),
    (lambda x: (x.cpu() * 2).tolist(), "contents"),
    (lambda x: x.sum().cpu().item(), "number"),
    (lambda x: x[0].cpu()[x[0].cpu() > 0.5], "size"),
]


def transformers_in_evaluation():
    """Allocations of transformers in evaluation mode, under the layer and without it: fast paths stay what they are."""
    of_one = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = torch.nn.TransformerEncoder(of_one, 2).cuda().eval()
    attention = torch.nn.MultiheadAttention(64, 4, batch_first=True).cuda().eval()
    x = torch.zeros(4, 6, 64, device="cuda")

    @torch.no_grad()
    def allocations():
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        encoder(x), attention(x, x, x, need_weights=False), attention(x, x, x)
        return torch.cuda.memory_stats()["allocation.all.allocated"] - before

    allocations()
    under_the_layer = allocations()
    values.mode.__exit__(None, None, None)
    without = allocations()
    values.mode.__enter__()
    return under_the_layer, without


def main():
    failed = 0
    under_the_layer, without = transformers_in_evaluation()
    if under_the_layer != without:
        failed += 1
        print(f"transformers in evaluation mode: {under_the_layer} allocations under the layer, {without} without it")
    for name, function in CASES.items():
        try:
            on_cpu, on_card = function("cpu"), function("cuda")
            is_same = same(on_cpu, on_card)
        except Exception as error:
            is_same, on_cpu, on_card = False, None, repr(error)
        if not is_same:
            failed += 1
            print(f"{name}: {on_cpu} on the CPU, {on_card} on the card")
    told = [place for place in values.report()["places"] if place["event"] != "assumed"]
    if told:
        failed += 1
        print("told of what is known:", told)
    for function in UNREAD:
        values.reads.places.clear()
        function(torch.rand(8, 8, device="cuda"))
        told = values.report()["places"]
        if told:
            failed += 1
            print(f"{function.__name__}: nobody reads it, and it is told: {told}")
    before = values.computed
    picture = F.interpolate(torch.rand(1, 3, 200, 200, device="cuda").cpu().cuda() / 255, size=(300, 300))
    picture.add_(1)
    if values.computed > before + 1:
        failed += 1
        print("what nobody reads is computed:", values.computed - before)
    for number, (function, kind) in enumerate(UNKNOWN):
        values.reads.places.clear()
        line = function.__code__.co_firstlineno
        function(torch.rand(8, 8, device="cuda"))
        told = values.report()["places"]
        if kind not in [place["kind"] for place in told] or not all("values.py:" in place["where"] for place in told):
            failed += 1
            print(f"unknown read {number} (line {line}): {kind} is not told: {told}")
    print(len(CASES), "cases,", len(UNKNOWN), "unknown reads,", failed, "failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
