"""The end of a decoder in parts: output layer and loss are computed again in backward, of all tokens or of some after others, so that the scores of all
tokens never lie beside each other."""

from .plan import Refused, first
from .step import PLAIN

# Heads that scale their scores: the field of the configuration, and what is done with it.
SCALES = (("final_logit_softcapping", "torch.tanh(scores / {0!r}) * {0!r}"), ("logit_scale", "scores * {0!r}"), ("logits_scaling", "scores / {0!r}"))


def change(plan, model, options):
    """Replaces the class's own loss by that of the option `loss`, `checkpointed` or `chunked:N`, as lines of the program."""
    word = options["loss"]
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
    of_text = plan.class_name.endswith(("ForCausalLM", "LMHeadModel"))
    if not of_text or head is None or plan.forward != PLAIN or getattr(inner, "base_model", inner) is inner:
        raise Refused("--loss %s: only decoders that predict the next token have it, not %s" % (word, plan.class_name))
    scaled = [text.format(value) for name, text in SCALES for value in [first(inner.config, name)] if value not in (None, 1.0)]
    chunks = 1 if word == "checkpointed" else int(word.partition(":")[2] or 8)
    plan.imports += ["from torch.nn.functional import cross_entropy, pad", "from torch.utils.checkpoint import checkpoint"]
    plan.forward = [
        'labels = pad(batch.pop("labels"), (0, 1), value=-100)[:, 1:]',
        'network = model.get_base_model() if hasattr(model, "get_base_model") else model',
        "outputs = network.base_model(**batch).last_hidden_state",
        "",
        "def head_and_loss(hidden, labels):",
        "    scores = network.get_output_embeddings()(hidden)",
        *["    scores = %s" % text for text in scaled],
        '    return cross_entropy(scores.float(), labels, reduction="sum")',
        "",
        "hidden, total = outputs.view(-1, outputs.shape[-1]), None",
        "for part, targets in zip(hidden.chunk(%d), labels.reshape(-1).chunk(%d)):" % (chunks, chunks),
        "    loss = checkpoint(head_and_loss, part, targets, use_reentrant=False)",
        "    total = loss if total is None else total + loss",
        "loss = total / (len(labels) * (labels.shape[1] - 1))",
    ]
    plan.loss = "cross entropy of the next token, in %d parts that backward computes again" % chunks
