"""The program that trains the network: plain PyTorch, which the user can take as it is."""

from . import life
from .plan import precision

FORMS = {"loop": ", foreach=False", "foreach": ", foreach=True", "fused": ", fused=True"}

HELPER = '''
def to_card(value):
    """Moves tensors in dictionaries and lists to the card."""
    if isinstance(value, dict):
        return {name: to_card(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_card(one) for one in value]
    return value.to("cuda") if isinstance(value, torch.Tensor) else value
'''


def write(plan, options):
    """Returns the text of the program.

    `options`: `batch`, `steps`, `optimizer` (its class, and its arguments), `optimizer_impl`, `precision`, `accumulate`, `clip`, `zero_grad`, `keep`, `release`."""
    nested = any(one.nested for one in plan.inputs)
    move = "to_card(value)" if nested else 'value.to("cuda")'
    lines = ['"""One training of %s, written by `vramlab predict`: %s.' % (plan.class_name, plan.library), ""]
    lines += ["Inputs are made up; sizes and types are those of the class. Loss: %s." % plan.loss, '"""', "", "import torch"]
    library = options["optimizer"][0].split(".")[0]
    lines += ["import " + library] if library != "torch" else []
    lines += plan.imports + ["", "BATCH = %d" % options["batch"]]
    if plan.tokens is not None:
        lines.append("SEQUENCE = %d" % plan.tokens)
    lines += ["", "", "def build():", '    """The network; `from_pretrained` in its place loads weights."""'] + indented(plan.build)
    lines += ["", "", "def inputs():", '    """A batch, on the host."""', "    return {"]
    lines += ["        %r: %s," % (one.name, one.expression) for one in plan.inputs] + ["    }", ""]
    if nested:
        lines += HELPER.split("\n")
    lines += ["", "def forward(model, batch):", '    """Returns the loss, and what is held until the next step."""']
    lines += indented(plan.forward + ["return loss, %s" % ("None" if options["keep"] == "loss" else "outputs")])
    if options.get("phases"):
        lines += [""] + life.functions(plan, options, move, autocast_of(options), optimizer_of(options))
    after = life.calls(plan) if options.get("phases") else []
    lines += ["", "", "def main():"] + indented(loop(move, options) + after) + ["", "", 'if __name__ == "__main__":', "    main()", ""]
    return "\n".join(lines)


def loop(move, options):
    """The lines of the training loop."""
    autocast = precision(options["precision"])[1] if options["precision"] else None
    scaled = autocast == "float16"
    lines = ['model = build().to("cuda").train()']
    lines += options["checkpoint"]
    lines.append("optimizer = " + optimizer_of(options))
    if scaled:
        lines.append('scaler = torch.amp.GradScaler("cuda")')
    lines.append("for step in range(%d):" % options["steps"])
    zero = "optimizer.zero_grad(%s)" % ("set_to_none=False" if options["zero_grad"] == "zero" else "")
    accumulate = options["accumulate"] or 1
    body = [] if accumulate == 1 else [zero]
    once = ["batch = {name: %s for name, value in inputs().items()}" % move] + ([zero] if accumulate == 1 else [])
    call = "loss, outputs = forward(model, batch)"
    once += ["with torch.autocast(\"cuda\", torch.%s):" % autocast, "    " + call] if autocast else [call]
    loss = "loss" if accumulate == 1 else "(loss / %d)" % accumulate
    once.append("scaler.scale(%s).backward()" % loss if scaled else "%s.backward()" % loss)
    body += once if accumulate == 1 else ["for _ in range(%d):" % accumulate] + indented(once)
    if options["clip"] is not None:
        body += (["scaler.unscale_(optimizer)"] if scaled else [])
        body += ["torch.nn.utils.clip_grad_norm_(model.parameters(), %r)" % options["clip"]]
    body += ["scaler.step(optimizer)", "scaler.update()"] if scaled else ["optimizer.step()"]
    return lines + indented(body)


def optimizer_of(options):
    """The expression that makes the optimizer."""
    kind, arguments = options["optimizer"]
    # Only PyTorch's own have forms.
    form = FORMS.get(options["optimizer_impl"] or "", "") if kind.startswith("torch.optim.") else ""
    return "%s((p for p in model.parameters() if p.requires_grad), %s%s)" % (kind, arguments, form)


def autocast_of(options):
    """What stands after `with torch.no_grad()`."""
    autocast = precision(options["precision"])[1] if options["precision"] else None
    return ', torch.autocast("cuda", torch.%s)' % autocast if autocast else ""


def indented(lines):
    return ["    " + line if line else "" for line in lines]
