"""Records what networks with LSTM, GRU and RNN take with cuDNN: as exported programs, and as their users write them.

    PYTHONPATH=python python scripts/export/recurrent.py FOLDER [NAME...]      FOLDER/NAME.json for each

A card is needed, or the stand-in of `vramlab rehearse`, which answers for cuDNN (`rehearsal/src/dnn`). A recording has the rows of record.py and of
eager.py at two batches, in float32 and under autocast with bfloat16, or in the type that the name ends with. Where the graph is not the one of
lab/imports/tests/golden/exported, it is written, too, as FOLDER/NAME.pt2.gz.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

import eager
import networks
import record
from libraries import tokens


class Tagger(nn.Module):
    """A tag for each word: a GRU of two layers in both directions, dropout between them."""

    def __init__(self, vocabulary=128, width=32, hidden=200, tags=128):
        super().__init__()
        self.embed, self.fc = nn.Embedding(vocabulary, width), nn.Linear(2 * hidden, tags)
        self.gru = nn.GRU(width, hidden, 2, dropout=0.3, bidirectional=True, batch_first=True)

    def forward(self, words, targets):
        out, _ = self.gru(self.embed(words))
        logits = self.fc(out)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Crnn(nn.Module):
    """A reader of lines of text: convolutions, then an LSTM in both directions over the columns of the picture."""

    def __init__(self, hidden=64, letters=20):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.norm, self.pool = nn.BatchNorm2d(32), nn.MaxPool2d(2)
        self.lstm, self.fc = nn.LSTM(32 * 8, hidden, bidirectional=True), nn.Linear(2 * hidden, letters)

    def forward(self, x):
        x = self.pool(torch.relu(self.first(x)))
        x = self.pool(torch.relu(self.norm(self.second(x))))
        out, _ = self.lstm(x.flatten(1, 2).permute(2, 0, 1))
        return self.fc(out)


class Seq2Seq(nn.Module):
    """An encoder, and a decoder of two layers whose first states come from the encoder's last one; neither has biases."""

    def __init__(self, vocabulary=96, width=40, hidden=160):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, hidden, bias=False, batch_first=True)
        self.first, self.memory = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.decoder = nn.LSTM(width, hidden, 2, bias=False, dropout=0.1, batch_first=True)
        self.fc = nn.Linear(hidden, vocabulary)

    def forward(self, source, target):
        _, last = self.encoder(self.source(source))
        states = torch.tanh(self.first(last)).repeat(2, 1, 1), self.memory(last).expand(2, -1, -1).contiguous()
        out, _ = self.decoder(self.target(target), states)
        logits = self.fc(out)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class Series(nn.Module):
    """A forecast of a series: an LSTM of one layer of a size that has kernels of its own in float16, frozen weights in a second one."""

    def __init__(self, features=128, hidden=256):
        super().__init__()
        self.lstm, self.fixed, self.fc = nn.LSTM(features, hidden), nn.GRU(hidden, hidden), nn.Linear(hidden, 4)
        self.fixed.requires_grad_(False)

    def forward(self, x):
        out, _ = self.lstm(x.transpose(0, 1))
        later, last = self.fixed(out)
        return self.fc(out[-1] + later[-1] + last[0])


OWN = {
    "tagger": (Tagger, tokens(16, 128), "inside"),
    "tagger-bf16": (lambda: Tagger().bfloat16(), tokens(16, 128), "inside"),
    "crnn": (Crnn, lambda batch: (torch.randn(batch, 1, 32, 64),), "mean"),
    "seq2seq": (Seq2Seq, lambda batch: (torch.randint(96, (batch, 10)), torch.randint(96, (batch, 12))), "inside"),
    "series": (Series, lambda batch: (torch.randn(batch, 24, 128),), "cross-entropy"),
    "series-fp16": (lambda: Series().half(), lambda batch: (torch.randn(batch, 24, 128).half(),), "cross-entropy"),
}
NETWORKS = {**OWN, **{name: networks.NETWORKS[name] for name in ("lstm", "lstm-lm", "gru", "gru-lm", "rnn")}}


def rows(name, form, batch, precision):
    """The rows of an exported program (`graph`) or of a module (`eager`)."""
    amp = torch.bfloat16 if precision == "autocast-bf16" else None
    return record.rows(name, batch, None, amp)[0] if form == "graph" else eager.rows(name, batch, amp=amp)


def recorded(name, folder):
    own = [precision for precision in ("bf16", "fp16") if name.endswith("-" + precision)]
    runs = [{"form": form, "precision": precision, "batch": batch, "rows": record.in_a_child(rows, name, form, batch, precision)}
            for precision in own or ("fp32", "autocast-bf16") for form in ("graph", "eager") for batch in (4, 7)]
    entry = record.in_a_child(eager.exported, name, folder)
    return {"loss": networks.NETWORKS[name][2], "columns": record.COLUMNS, "runs": runs, "entry": entry}


if __name__ == "__main__":
    networks.NETWORKS.update(OWN)
    record.main(recorded, NETWORKS, cudnn=True)
