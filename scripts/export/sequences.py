"""Networks that read speech or writing: name -> (make, examples, loss), as in networks.py."""
import torch
import torch.nn as nn


class Ctc(nn.Module):
    """A recogniser of speech: frames, halved in time, a recurrent layer, and CTC of letters and, of all frames, of words."""

    def __init__(self, features=16, hidden=24, letters=20, words=40):
        super().__init__()
        self.first, self.fewer = nn.Conv1d(features, hidden, 3, padding=1), nn.Conv1d(hidden, hidden, 3, stride=4, padding=1)
        self.rnn, self.letters, self.words = nn.GRU(hidden, hidden, bidirectional=True), nn.Linear(2 * hidden, letters), nn.Linear(hidden, words)
        self.of_letters, self.of_words = nn.CTCLoss(zero_infinity=True), nn.CTCLoss(blank=1, reduction="sum", zero_infinity=True)

    def forward(self, x, spelled, said, frames, steps, letters, words):
        x = torch.relu(self.first(x))
        y, _ = self.rnn(self.fewer(x).permute(2, 0, 1))
        loss = self.of_letters(self.letters(y).log_softmax(2), spelled, steps, letters)
        all_frames = self.words(x.transpose(1, 2)).log_softmax(2).transpose(0, 1)
        each = nn.functional.ctc_loss(all_frames, said.int(), frames, words, reduction="none")
        return loss + self.of_words(all_frames, said, frames, words) / 100 + each.mean()


def speech(batch):
    """Frames, letters and words that fill their width, with all lengths."""
    lengths = [torch.full((batch,), length) for length in (240, 60, 9, 5)]
    return (torch.randn(batch, 16, 240), torch.randint(2, 20, (batch, 9)), torch.randint(2, 40, (batch, 5)), *lengths)


# What lies on a card by its address, where CTC asks for it: a stand-in for a card does not keep values.
KNOWN = {}
OWN = torch.ctc_loss


def with_known_lengths(log_probs, targets, input_lengths, target_lengths, *options):
    return OWN(log_probs, targets, KNOWN[input_lengths.data_ptr()], KNOWN[target_lengths.data_ptr()], *options)


def know_lengths(module):
    """Lets CTC find the lengths that are in KNOWN, in a module and in the graph of an exported one."""
    torch.ctc_loss = with_known_lengths
    for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else []:
        if node.target is torch.ops.aten.ctc_loss.Tensor:
            node.target = with_known_lengths
            module.recompile()


NETWORKS = {"ctc": (Ctc, speech, "inside")}
