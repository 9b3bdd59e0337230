"""More networks written by hand: recurrent ones, and ones made of what the others have no use for."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GruLm(nn.Module):
    """A language model of GRUs: two layers, dropout between them."""

    def __init__(self, vocabulary=128, width=48, layers=2):
        super().__init__()
        self.embed, self.decoder = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.gru = nn.GRU(width, width, layers, dropout=0.2, batch_first=True)

    def forward(self, words, targets):
        out, _ = self.gru(self.embed(words))
        logits = self.decoder(out)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class GruClassifier(nn.Module):
    """The last states of a bidirectional GRU without biases."""

    def __init__(self, vocabulary=128, width=32, hidden=48, classes=4):
        super().__init__()
        self.embed, self.gru = nn.Embedding(vocabulary, width), nn.GRU(width, hidden, bias=False, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, words):
        _, last = self.gru(self.embed(words.t()))
        return self.fc(torch.cat([last[0], last[1]], dim=1))


class Rnn(nn.Module):
    """Elman's network with both nonlinearities: one reads the features forth and back, one its outputs."""

    def __init__(self, features=16, hidden=32, classes=4):
        super().__init__()
        self.first = nn.RNN(features, hidden, batch_first=True, bidirectional=True)
        self.second = nn.RNN(2 * hidden, hidden, 2, nonlinearity="relu", bias=False, batch_first=True, dropout=0.1)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        out, _ = self.first(x)
        out, _ = self.second(out)
        return self.fc(out.mean(1))


class Cells(nn.Module):
    """A loop over cells of each kind, as decoders are written."""

    def __init__(self, features=16, hidden=32, classes=4):
        super().__init__()
        self.tanh, self.relu = nn.RNNCell(features, hidden), nn.RNNCell(hidden, hidden, nonlinearity="relu", bias=False)
        self.gru, self.lstm, self.fc = nn.GRUCell(hidden, hidden), nn.LSTMCell(hidden, hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        size = (x.size(0), self.gru.hidden_size)
        first, second, third, state = x.new_zeros(size), x.new_zeros(size), x.new_zeros(size), None
        for step in range(x.size(1)):
            first = self.tanh(x[:, step], first)
            second = self.relu(first, second)
            third = self.gru(second, third)
            state = self.lstm(third, state)
        return self.fc(state[0])
