"""Networks of transformers: class, construction, inputs."""

from . import classes, inputs
from .plan import Plan, Refused, literal, precision

TYPES = ("float32", "bfloat16", "float16")


def plan_of(source, options):
    """Returns the plan, and the network, built without weights."""
    import torch
    import transformers

    if source.member:
        plan, cls, config = of_class(transformers, source)
    else:
        config = classes.configuration(transformers, source)
        named = source.config.get("architectures") or []
        cls, why = classes.choose(transformers, config, named, options["head"])
        plan = Plan(source.name, "transformers " + transformers.__version__, cls.__name__)
        plan.head = why
        plan.imports = ["from transformers import %s, %s" % tuple(sorted([type(config).__name__, cls.__name__]))]
        if source.config.get("quantization_config"):
            plan.notes.append("quantization_config is left out: all weights have the type above")
        read = "from_dict(%s)" % literal(source.config) if source.path is None else "from_pretrained(%r)" % source.path
        plan.build = ["config = %s.%s" % (type(config).__name__, read)]
        if source.config.get("quantization_config"):
            plan.build.append("del config.quantization_config")
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0
        plan.build.append("config.decoder_start_token_id = 0")
    keep_layers(plan, config)
    of_type(plan, config, options)
    alone = classes.text_alone(transformers, cls)
    if alone:
        cls, config = alone[0], config.get_text_config()
        plan.class_name = cls.__name__
        plan.imports.append("from transformers import %s" % cls.__name__)
        plan.build.append("config = config.get_text_config()")
        plan.notes.append(alone[1])
    attention = ", attn_implementation=%r" % options["attention"] if options["attention"] else ""
    plan.build.append("model = %s._from_config(config, dtype=torch.%s%s)" % (cls.__name__, plan.dtype, attention))
    kept = kept_in_float32(cls, plan.dtype)
    if kept:
        plan.build += ["for name, part in model.named_parameters():", "    if any(kept in name for kept in %s):" % literal(kept),
                       "        part.data = part.data.to(torch.float32)"]
    plan.build.append("return model")
    facts = inputs.Facts(cls, config)
    model, how = built(plan)
    parameters_of(plan, model, how)
    inputs.fill(plan, facts, options, lambda made: tokens_of_pictures(torch, model, made, options, facts))
    as_the_network(plan)
    if plan.has("labels") and config.model_type in ("t5", "mt5") and plan.tokens is not None:
        plan.notes.append("as many tokens in the decoder as in the encoder")
    return plan, model


def of_class(transformers, source):
    cls = getattr(transformers, source.member)
    kind = getattr(cls, "config_class", None)
    if kind is None:
        raise Refused("%s is not a network of transformers" % source.member)
    plan = Plan(source.name, "transformers " + transformers.__version__, cls.__name__)
    plan.imports = ["from transformers import %s, %s" % tuple(sorted([kind.__name__, cls.__name__]))]
    plan.build = ["config = %s()" % kind.__name__]
    plan.notes.append("the sizes are the defaults of %s" % kind.__name__)
    return plan, cls, kind()


def keep_layers(plan, config):
    """Lets no step drop layers at random: the one that drops none takes most, and comes sooner or later."""
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if getattr(config, name, None):
            plan.notes.append("%s is 0 in place of %r: a step that drops no layer takes most" % (name, getattr(config, name)))
            plan.build.append("config.%s = 0.0" % name)
            setattr(config, name, 0.0)


def of_type(plan, config, options):
    """Chooses the type of the parameters: the user's, else the file's, else float32."""
    if options["precision"]:
        plan.dtype, plan.dtype_from = precision(options["precision"])[0], "--precision"
        return
    own = getattr(config, "dtype", None) or getattr(getattr(config, "text_config", None), "dtype", None)
    if own is not None:
        name = str(own).replace("torch.", "")
        if name in TYPES:
            plan.dtype, plan.dtype_from = name, "config.json"


def kept_in_float32(cls, dtype):
    """Parts that the library keeps in float32 whatever type is asked for, as `from_pretrained` does."""
    kept = set(getattr(cls, "_keep_in_fp32_modules_strict", None) or ()) if dtype != "float32" else set()
    if dtype == "float16":
        kept |= set(getattr(cls, "_keep_in_fp32_modules", None) or ())
    return sorted(kept)


def built(plan):
    """Runs the lines of `build` without weights."""
    from . import program, weightless

    text = "import torch\n%s\n\ndef build():\n%s\n" % ("\n".join(plan.imports), "\n".join(program.indented(plan.build)))
    space = {}
    exec(compile(text, "<build>", "exec"), space)
    return weightless.build(space["build"])


def parameters_of(plan, model, how):
    seen = {id(p): p for p in model.parameters()}
    plan.parameters = sum(p.numel() for p in seen.values())
    plan.layers = len([1 for name, module in model.named_modules() if name.split(".")[-1].isdigit()])
    if how == "meta":
        plan.notes.append("its small tensors could not be made on the host: what they hold is not known")


def as_the_network(plan):
    """Inputs that are no numbers of tokens have the type of the network, as a collator would make them."""
    if plan.dtype == "float32":
        return
    for one in plan.inputs:
        if one.kind == "float32" and not one.nested:
            one.expression += ".to(torch.%s)" % plan.dtype
            one.kind = plan.dtype


def tokens_of_pictures(torch, model, made, options, facts):
    """Asks the network itself how many tokens its pictures take: its `get_image_features` runs on `meta`, one picture at a time."""
    ask = getattr(model, "get_image_features", None)
    if ask is None:
        return None
    space = {"torch": torch, "BATCH": options["batch"]}
    given = {one.name: eval(one.expression, space) for one in made}
    counted = by_formula(facts, given)
    if counted:
        return counted * options["batch"]
    from . import weightless

    try:
        with torch.no_grad(), weightless.wholly_on_meta(model):
            vision = {name: value.to(device="meta", dtype=next(model.parameters()).dtype) if name == "pixel_values" else value.to("meta")
                      for name, value in given.items()}
            found = ask(**vision)
    except Exception:
        return None
    parts = [getattr(found, name, None) for name in ("pooler_output", "last_hidden_state")]
    found = next((part for part in parts if part is not None), found)
    if isinstance(found, (list, tuple)):
        return sum(part.shape[-2] if part.dim() > 1 else 1 for part in found)
    return found.numel() // found.shape[-1]


def by_formula(facts, given):
    """Families whose features are counted from the sizes that they are told: they read numbers that `meta` does not have."""
    if "image_grid_thw" in given:
        merge = getattr(facts.vision, "spatial_merge_size", 1)
        return int(given["image_grid_thw"][0].prod()) // (merge * merge)
    if "image_sizes" in given and hasattr(facts.config, "spatial_merge_size"):
        unit = facts.vision.patch_size * facts.config.spatial_merge_size
        height, width = given["image_sizes"][0].tolist()
        return (height // unit) * (width // unit)
    return None
