"""Records networks of networks.py as their users train and evaluate them, and what `vramlab.export` writes of both.

    PYTHONPATH=python python scripts/export/evaluated.py FOLDER [NAME...]      FOLDER/NAME.json and FOLDER/NAME.pt2.gz for each

As eager.py, with an evaluation of two batches after each step, in a function of its own, under `model.eval()` and `torch.no_grad()`. The file is
the package's, with both graphs.
"""
import gzip
import json
import os
import tempfile

import torch
import torchvision

import eager
import networks
import record
from vramlab.export import export

# Examples of each batch that is evaluated, and how many batches are.
SIZE, COUNT = 6, 2
EVALUATION = "extra/vramlab-evaluation.json"



class Cached(torch.nn.Module):
    """A decoder as a script calls it: its cache is among its results."""

    def __init__(self):
        super().__init__()
        import transformers
        self.network = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=64))

    def forward(self, ids, labels):
        return self.network(input_ids=ids, labels=labels).to_tuple()


NETWORKS = {**networks.NETWORKS,
            "gpt2-cached": (Cached, networks.tokens(32, 128), "inside"),
            "resnet18": (lambda: torchvision.models.resnet18(num_classes=10), networks.pictures(3, 64), "cross-entropy")}
networks.NETWORKS = NETWORKS


def exported(name, folder):
    """Writes the package's export of a network."""
    model, examples, _ = eager.made(name)
    with tempfile.TemporaryDirectory() as there:
        path = export(model, *examples(2), path=os.path.join(there, "net.pt2"))
        with open(path, "rb") as file:
            archive = record.shortened_archive(file.read())
    entry = json.loads(eager.entries(archive)[EVALUATION])
    with open(os.path.join(folder, name + ".pt2.gz"), "wb") as file:
        file.write(gzip.compress(archive, mtime=0))
    return entry.get("problem")


def evaluated(name):
    """A function that evaluates a network, with the rows of it."""
    _, examples, loss_name = networks.NETWORKS[name]

    def evaluate(module, at, row):
        module.eval()
        with torch.no_grad():
            for number in range(COUNT):
                given = examples(SIZE)
                inputs = [value.to("cuda") for value in given]
                if loss_name in record.OF_CLASSES:
                    target = torch.zeros(SIZE, dtype=torch.long).to("cuda")
                row(f"{at}eval{number}.input")
                out = module(*inputs)
                if loss_name == "inside":
                    _loss = out if isinstance(out, torch.Tensor) else next(value for value in out if value.dim() == 0)
                    row(f"{at}eval{number}.forward")
                else:
                    row(f"{at}eval{number}.forward")
                    _loss = out.mean() if loss_name == "mean" else record.OF_CLASSES[loss_name](out, target)
                    row(f"{at}eval{number}.loss")
        module.train()
    return evaluate


class Answered(eager.Answered):
    """A module whose questions get the answers of a training, or those of an evaluation."""

    def __init__(self, module, training, evaluation):
        super().__init__(module, training)
        self.by_mode = {True: training, False: evaluation}

    def train(self):
        self.module.train()
        self.answers = self.by_mode[True]

    def eval(self):
        self.module.eval()
        self.answers = self.by_mode[False]


def rows(name, batch):
    model, examples, loss_name = eager.made(name)
    training = eager.answers(model, examples(batch))
    evaluation = eager.answers(model.eval(), examples(SIZE))
    answered = Answered(model.train(), training, evaluation)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = record.changes()
    model.to("cuda")
    return record.trained(answered, list(model.parameters()), before, examples, batch, loss_name, evaluate=evaluated(name))


def recorded(name, folder):
    """Rows of a network at two batches, beside the package's file."""
    problem = record.in_a_child(exported, name, folder)
    runs = {batch: record.in_a_child(rows, name, batch) for batch in (4, 7)}
    return {"loss": networks.NETWORKS[name][2], "columns": record.COLUMNS, "evaluation": [SIZE, COUNT], "problem": problem, "runs": runs}


if __name__ == "__main__":
    record.main(recorded, NETWORKS)
