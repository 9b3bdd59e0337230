"""Records what the networks of networks.py take as their users write them, and what `vramlab.export` says of when their values die.

    PYTHONPATH=python python scripts/export/eager.py FOLDER [NAME...]      FOLDER/NAME.json for each

As record.py, of the module itself instead of its exported program: a row after each phase of three steps with AdamW, at two batches other than
the exported one. `entry` is what the package writes into the file beside the graph. Where that graph is not the one of
lab/imports/tests/golden/exported, it is written, too, as FOLDER/NAME.pt2.gz.

Some code asks tensors for their values: whether a mask hides anything. A stand-in for a card computes nothing, so the module is called on the
CPU first, and its questions get the same answers on the card.
"""
import contextlib
import copy
import gzip
import io
import json
import os
import tempfile
import zipfile

import torch

import networks
import record
from vramlab.export import export

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lab/imports/tests/golden/exported")
ENTRY = "extra/vramlab.json"


def made(name):
    make, examples, loss = networks.NETWORKS[name]
    torch.manual_seed(0)
    return make().train(), examples, loss


def exported(name, folder):
    """The entry that the package adds to the graph."""
    model, examples, _ = made(name)
    with tempfile.TemporaryDirectory() as there:
        path = export(model, *examples(2), path=os.path.join(there, "net.pt2"))
        with open(path, "rb") as file:
            graph = record.shortened_archive(file.read())
    entry = json.loads(entries(graph)[ENTRY])
    path = os.path.join(GOLDEN, name + ".pt2.gz")
    known = None
    if os.path.exists(path):
        with open(path, "rb") as file:
            known = operators(gzip.decompress(file.read()))
    if known != operators(graph):
        with open(os.path.join(folder, name + ".pt2.gz"), "wb") as file:
            file.write(gzip.compress(graph, mtime=0))
    return entry


def entries(archive):
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        return {name.split("/", 1)[1]: source.read(name) for name in source.namelist()}


def operators(archive):
    """The operators of a graph with the names of their results."""
    def of(graph):
        found = []
        for node in graph["nodes"]:
            found.append([node["target"], node["outputs"]])
            found.extend(of(given["arg"]["as_graph"]["graph"]) for given in node["inputs"] if "as_graph" in given["arg"])
        return found
    return of(json.loads(entries(archive)["models/model.json"])["graph_module"]["graph"])


@contextlib.contextmanager
def asking(answer):
    """Gives `answer(a tensor's own answer)` where code asks a tensor whether it is true."""
    ask = torch.Tensor.__bool__
    torch.Tensor.__bool__ = lambda tensor: answer(ask(tensor))
    try:
        yield
    finally:
        del torch.Tensor.__bool__


class Answered:
    """A module whose questions get these answers in each call."""

    def __init__(self, module, answers):
        self.module, self.answers = module, answers

    def __call__(self, *inputs):
        left = iter(self.answers)
        with asking(lambda _: next(left)):
            return self.module(*inputs)


def answers(model, inputs):
    found = []

    def heard(answer):
        found.append(answer)
        return answer

    state = copy.deepcopy(model.state_dict())
    with asking(heard), torch.no_grad():
        model(*inputs)
    model.load_state_dict(state)
    return found


def rows(name, batch, change=lambda model: None, amp=None):
    """Rows of the module itself, changed after the answers to its questions are known. `amp` is autocast's type."""
    model, examples, loss_name = made(name)
    answered = Answered(model, answers(model, examples(batch)))
    change(model)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = record.changes()
    model.to("cuda")
    return record.trained(answered, list(model.parameters()), before, examples, batch, loss_name, amp)


def recorded(name, folder):
    """The entry that the package adds to the graph, and rows of the module itself at two batches."""
    entry = record.in_a_child(exported, name, folder)
    runs = {batch: record.in_a_child(rows, name, batch) for batch in (4, 7)}
    return {"loss": networks.NETWORKS[name][2], "columns": record.COLUMNS, "runs": runs, "entry": entry}


if __name__ == "__main__":
    record.main(recorded)
