"""Networks of patches as columns and of pairs of sentences: name -> (make, examples, loss), as in networks.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Folds(nn.Module):
    """Patches as columns and back, channels in another order, and a signal that is widened again."""

    def __init__(self, width=8, classes=4):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 3, padding=1), nn.LocalResponseNorm(3)
        self.mix, self.shuffle, self.pool = nn.Linear(width * 9, width * 9), nn.ChannelShuffle(2), nn.AdaptiveMaxPool2d((3, 5))
        self.up, self.fc = nn.ConvTranspose1d(width, 4, 4, stride=2, padding=1), nn.Linear(4 * 30, classes)

    def forward(self, x):
        x = self.shuffle(self.norm(F.relu(self.conv(x))))
        columns = F.unfold(x, 3, stride=2, padding=1)
        x = F.fold(self.mix(columns.transpose(1, 2)).transpose(1, 2), x.shape[2:], 3, stride=2, padding=1)
        return self.fc(F.relu(self.up(self.pool(x).flatten(2))).flatten(1))


class Pairs(nn.Module):
    """Sentences in pairs: their distances, and the losses that want a margin between them."""

    def __init__(self, vocabulary=64, width=16):
        super().__init__()
        self.embed, self.far, self.score = nn.Embedding(vocabulary, width), nn.PairwiseDistance(), nn.Linear(width, 1)
        self.triplet, self.margin, self.hinge = nn.TripletMarginLoss(), nn.MarginRankingLoss(0.1), nn.HingeEmbeddingLoss()
        self.drop, self.count = nn.AlphaDropout(0.1), nn.PoissonNLLLoss()

    def forward(self, first, second, sign):
        a, b = self.drop(F.selu(self.embed(first).mean(1))), self.embed(second).mean(1)
        far = self.far(a, b)
        losses = self.triplet(a, b, b.flip(0)) + self.margin(self.score(a).squeeze(1), far, sign)
        return losses + self.hinge(far, sign) + self.count(self.score(b).squeeze(1), sign)


NETWORKS = {
    "folds": (Folds, lambda batch: (torch.randn(batch, 3, 12, 12),), "cross-entropy"),
    "pairs": (Pairs, lambda batch: (torch.randint(64, (batch, 6)), torch.randint(64, (batch, 6)), torch.ones(batch)), "inside"),
}
