"""What a run does besides its steps, as functions of the program: it evaluates, generates, saves and resumes."""

from .plan import Refused

# Names of the functions, which `main` calls in this order.
FUNCTIONS = ("evaluate", "generate", "save", "resume")
# Inputs that are answers, not questions.
ANSWERS = ("labels", "decoder_input_ids", "start_positions", "end_positions", "next_sentence_label", "sentence_order_label")

RESUME = '''
def resume(model):
    """As a new process: the checkpoint lies on the card beside the network that it is for."""
    model.train()
    optimizer = {optimizer}
    checkpoint = torch.load("checkpoint.pt", map_location="cuda")
    model.load_state_dict(checkpoint["model"]{strict})
    optimizer.load_state_dict(checkpoint["optimizer"])
'''
SAVE = '''
def save(model, optimizer):
    """PyTorch copies one tensor after another to the host."""
    network = {network}
    torch.save({{"model": network, "optimizer": optimizer.state_dict()}}, "checkpoint.pt")
'''
EVALUATE = '''
def evaluate(model):
    """Batches as those of a step, without gradients."""
    model.eval()
    for _ in range(2):
        batch = {batch}
        with torch.no_grad(){autocast}:
            {call}
'''
GENERATE = '''
def generate(model):
    """{words}"""
    model.eval()
    batch = {{name: value for name, value in inputs().items() if name in {names}}}
{cut}    batch = {{name: {move} for name, value in batch.items()}}
{mask}    with torch.no_grad(){autocast}:
        return model.generate(**batch, max_new_tokens={new}, min_new_tokens={new}, do_sample=False)
'''


def generates(model):
    """True if the network has `generate`, and its class can."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    can = getattr(inner, "can_generate", None)
    return hasattr(inner, "generate") and can is not None and bool(can())


def change(plan, model, options):
    """Adds the functions to a plan. The option `phases` is the number of new tokens."""
    config = getattr(model.get_base_model() if hasattr(model, "get_base_model") else model, "config", None)
    if generates(model):
        plan.life = {"decodes": bool(getattr(config, "is_encoder_decoder", False))}
        if options["phases"] >= (plan.tokens or 0) and plan.has("input_ids") and not plan.life["decodes"]:
            raise Refused("--phases=%d: prompt and new tokens together are %s tokens; use fewer, or a longer --sequence" % (options["phases"], plan.tokens))
        plan.notes.append("%s in the phase generate, greedily, with the class's own cache" % words(plan, options["phases"]))


def words(plan, new):
    if plan.life["decodes"] or not plan.has("input_ids"):
        return "%d new tokens" % new
    return "%d new tokens after a prompt of %d" % (new, plan.tokens - new)


def functions(plan, options, move, autocast, optimizer):
    """The text of the functions."""
    subset = options["bits"] or options["lora"]
    network = "{name: part for name, part in model.named_parameters() if part.requires_grad}" if subset else "model.state_dict()"
    call = plan.evaluation or "loss, outputs = forward(model, batch)"
    batch = "{name: %s for name, value in inputs().items()}" % move
    text = EVALUATE.format(batch=batch, autocast=autocast, call=call)
    if plan.life is not None:
        text += "\n" + generation(plan, options, move, autocast)
    text += "\n" + SAVE.format(network=network)
    return (text + "\n" + RESUME.format(optimizer=optimizer, strict=", strict=False" if subset else "")).rstrip().split("\n")


def generation(plan, options, move, autocast):
    new = options["phases"]
    names = [one.name for one in plan.inputs if one.name not in ANSWERS]
    # A prompt is shorter than an example; a decoder beside an encoder begins with one token.
    texts = [] if plan.life["decodes"] else [one.name for one in plan.inputs if one.name in names and one.shape == "batch x tokens"]
    cut = "    batch.update({name: batch[name][:, :SEQUENCE - %d] for name in %r})\n" % (new, texts) if texts else ""
    mask = '    batch["attention_mask"] = torch.ones_like(batch["input_ids"])\n' if "input_ids" in names else ""
    # No token ends a text early.
    mask += "    model.generation_config.eos_token_id = None\n"
    told = words(plan, new)
    return GENERATE.format(words=told[0].upper() + told[1:] + ".", names=names, cut=cut, mask=mask, move=move, autocast=autocast, new=new)


def calls(plan):
    """The lines of `main` after the steps."""
    generate = ["generate(model)"] if plan.life is not None else []
    return ["evaluate(model)", *generate, "save(model, optimizer)", "# A new process has neither gradients nor states yet.",
            "del optimizer, batch, loss, outputs", "model.zero_grad(set_to_none=True)", "torch.cuda.empty_cache()", "resume(model)"]


def told(function, tell):
    """The function of a phase: what keeps it from running is told, and the run goes on. Memory that runs out ends it."""

    def run(*args):
        try:
            return function(*args)
        except Exception as error:
            if "out of memory" in str(error).lower():
                raise
            tell("the phase %s is not whole: %s: %s" % (function.__name__, type(error).__name__, " ".join(str(error).split())[:200]))
            return None

    return run
