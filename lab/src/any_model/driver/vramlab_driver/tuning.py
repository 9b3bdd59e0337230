"""What of a network is trained, and in which numbers the rest is kept: adapters of PEFT, frozen parameters, weights of bitsandbytes.

Each change is lines of the program. They run on the network without weights here, and on the network with weights in the user's hands."""

import importlib.util
import re

from .plan import Refused, literal, precision

# PEFT's kinds of tasks, by the end of a class's name.
TASKS = (
    ("ForCausalLM", "CAUSAL_LM"), ("LMHeadModel", "CAUSAL_LM"), ("ForSequenceClassification", "SEQ_CLS"), ("ForTokenClassification", "TOKEN_CLS"),
    ("ForQuestionAnswering", "QUESTION_ANS"), ("ForConditionalGeneration", "SEQ_2_SEQ_LM"),
)
# What stands in a regular expression, and in no name of a layer.
PATTERN = re.compile(r"[*|\\(\[^$+?]")
# A parameter that layers share has every name of theirs.
FROZEN = """names = {}
for name, parameter in model.named_parameters(remove_duplicate=False):
    names.setdefault(parameter, []).extend([name[:end] for end in range(len(name)) if name[end] == "."] + [name])
for parameter, parts in names.items():
    last = next((one for one in reversed(%s) if any(fnmatchcase(part, one.lstrip("!")) for part in parts)), "!")
    parameter.requires_grad_(last.startswith("!"))"""


def change(plan, model, options):
    """Returns the network with what the options ask for. The plan gets the same as lines before the end of `build`, and what it is in words."""
    made = [
        bits(plan, options) if options["bits"] else None,
        adapters(plan, options) if options["lora"] else None,
        frozen(model, options["freeze"]) if options["freeze"] else None,
    ]
    made = [one for one in made if one]
    if not made:
        return model
    for imports, lines in made:
        plan.imports = sorted({*plan.imports, *imports})
        before = plan.build.pop()[len("return "):]
        plan.build += ([] if before == "model" else ["model = " + before]) + lines + ["return model"]
        try:
            model = applied(model, imports, lines)
        except ValueError as error:
            if not options["lora"]:
                raise
            said = " ".join(str(error).split()).split(". ")[0]
            raise Refused("--lora: PEFT cannot adapt %s: %s" % (plan.class_name, said), "--lora-target %s" % ",".join(layers(model))) from error
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    if options["bits"] and options["lora"] and any(p.dim() == 3 and "experts" in name for name, p in model.named_parameters()):
        plan.notes.append("bitsandbytes leaves stacked weights of experts as they are, and prepare_model_for_kbit_training makes them float32")
    trained = sum(size for size, is_trained in sizes if is_trained)
    if not trained:
        raise Refused("--freeze %s leaves no parameter to train" % options["freeze"])
    plan.parameters = sum(size for size, _ in sizes)
    plan.notes.append(f"{trained:,} of {plan.parameters:,} parameters are trained")
    return model


def layers(model):
    """The ends of the names of a network's linear layers, the most frequent first: those of a few bits too, but not the output layer."""
    import collections

    linear = ("Linear", "Linear4bit", "Linear8bitLt")
    names = (name.split(".")[-1] for name, module in model.named_modules() if type(module).__name__ in linear)
    ends = collections.Counter(name for name in names if name not in ("lm_head", "embed_out"))
    return [end for end, _ in ends.most_common(4)] or ["NAMES"]


def applied(model, imports, lines):
    """Runs lines on the network without weights, and returns what `model` is then."""
    from . import weightless

    space = {"model": model}
    text = "\n".join(["import torch", *imports, *lines])
    with weightless.ParametersOnMeta():
        exec(compile(text, "<build>", "exec"), space)
    return space["model"]


def needs(package, flag):
    if importlib.util.find_spec(package) is None:
        raise Refused("%s: this Python has no %s" % (flag, package), "pip install %s" % package)


def bits(plan, options):
    """Linear layers with weights of 4 or 8 bits, as `from_pretrained` with this configuration makes them."""
    flag = "--load-in-%dbit" % options["bits"]
    needs("bitsandbytes", flag)
    if not plan.library.startswith("transformers"):
        raise Refused("%s: only for networks of transformers, not of %s" % (flag, plan.library))
    inner = precision(options["precision"])[1] if options["precision"] else None
    computed = inner or (plan.dtype if plan.dtype != "float32" else "bfloat16")
    four = "load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_compute_dtype=torch.%s" % computed
    if options["double_quant"]:
        four += ", bnb_4bit_use_double_quant=True"
    imports = ["from transformers import BitsAndBytesConfig", "from transformers.integrations import replace_with_bnb_linear"]
    lines = [
        "# `from_pretrained` with this configuration does the same while it loads weights.",
        "kept = [name for name, module in model.named_modules() if module is model.get_output_embeddings()]",
        "model.config.quantization_config = BitsAndBytesConfig(%s)" % (four if options["bits"] == 4 else "load_in_8bit=True"),
        "model = replace_with_bnb_linear(model, modules_to_not_convert=kept, quantization_config=model.config.quantization_config)",
        "model.is_loaded_in_%dbit = model.is_quantized = True" % options["bits"],
    ]
    plan.notes.append("weights of %d bits by bitsandbytes" % options["bits"])
    if options["lora"]:
        needs("peft", "--lora")
        imports.append("from peft import prepare_model_for_kbit_training")
        lines.append("model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)")
    return imports, lines


def adapters(plan, options):
    """Low-rank adapters."""
    needs("peft", "--lora")
    target, dropout = options["lora_target"], options["lora_dropout"]
    task = next((task for end, task in TASKS if plan.class_name.endswith(end)), None)
    arguments = ["r=%d" % options["lora"]]
    if target:
        arguments.append("target_modules=%s" % literal(target if target == "all-linear" or PATTERN.search(target) else target.split(",")))
    if dropout:
        arguments.append("lora_dropout=%r" % dropout)
    if "use_dora" in options["lora_switches"] and options["bits"]:
        raise Refused("--dora: magnitudes beside weights of %d bits need their values" % options["bits"], "leave --dora out")
    if options["modules_to_save"]:
        arguments.append("modules_to_save=%s" % literal([name.strip() for name in options["modules_to_save"].split(",")]))
    arguments += ["%s=True" % name for name in options["lora_switches"]]
    if task:
        arguments.append('task_type="%s"' % task)
    plan.notes.append("adapters of rank %d%s" % (options["lora"], " on " + target if target else ""))
    return ["from peft import LoraConfig, get_peft_model"], ["model = get_peft_model(model, LoraConfig(%s))" % ", ".join(arguments)]


def frozen(model, patterns):
    """Parameters by their names: the last pattern that matches decides."""
    from fnmatch import fnmatchcase

    words = [word.strip() for word in patterns.split(",")]
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    parts = {name[:end] for name in names for end in range(len(name)) if name[end] == "."} | set(names)
    for word in words:
        if not any(fnmatchcase(part, word.lstrip("!")) for part in parts):
            raise Refused("--freeze: no parameter is called %s; there are %s, ..." % (word.lstrip("!"), ", ".join(names[:4])))
    return ["from fnmatch import fnmatchcase"], (FROZEN % literal(words)).split("\n")
