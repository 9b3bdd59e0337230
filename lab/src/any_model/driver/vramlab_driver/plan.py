"""What was chosen for a network: its class, its inputs, its loss. Everything that the program says is in it."""

import json


class Refused(Exception):
    """The network cannot be trained here. The message is a sentence for the user; `instead` is a command that works, or empty."""

    def __init__(self, message, instead=""):
        super().__init__(message)
        self.instead = instead


class Input:
    """One argument of the network's forward pass: its name, the Python expression that makes it on the host, its shape and type in words."""

    def __init__(self, name, expression, shape="", kind="", nested=False):
        self.name, self.expression, self.shape, self.kind = name, expression, shape, kind
        # True if it is a list or a dictionary of tensors, or no tensor at all.
        self.nested = nested

    def told(self):
        return {"name": self.name, "shape": self.shape, "type": self.kind}


class Plan:
    """A network with what its program needs. The lists are lines of Python without indentation."""

    def __init__(self, name, library, class_name):
        # What the user named, the library with its release, and the class that is trained.
        self.name, self.library, self.class_name = name, library, class_name
        self.head = ""
        self.loss = ""
        # Number type of the parameters, and who chose it.
        self.dtype, self.dtype_from = "float32", "default"
        self.tokens = None
        self.tokens_from = ""
        self.imports = []
        self.build = []
        self.inputs = []
        # Lines that compute `loss`; they may use `model` and `batch`, and what they bind to `outputs` is held until the next step.
        self.forward = ["outputs = model(**batch)", "loss = outputs.loss"]
        # Lines of an evaluation, if they are not those; and what `generate` needs to know, if the network has it.
        self.evaluation = None
        self.life = None
        self.notes = []

    def add(self, name, expression, shape="", kind="", nested=False):
        self.inputs.append(Input(name, expression, shape, kind, nested))

    def has(self, name):
        return any(one.name == name for one in self.inputs)

    def told(self, **more):
        """Returns the plan for the answer."""
        return dict({
            "name": self.name, "library": self.library, "class": self.class_name, "head": self.head, "loss": self.loss,
            "dtype": self.dtype, "dtype_from": self.dtype_from, "tokens": self.tokens, "tokens_from": self.tokens_from,
            "inputs": [one.told() for one in self.inputs], "notes": self.notes,
        }, **more)


# Types of the parameters, and of products under autocast, by the words of `--precision`.
PRECISIONS = {
    "fp32": ("float32", None), "bf16": ("bfloat16", None), "fp16": ("float16", None),
    "autocast-bf16": ("float32", "bfloat16"), "autocast-fp16": ("float32", "float16"), "bf16-autocast-bf16": ("bfloat16", "bfloat16"),
}


def precision(word):
    """Returns the types that a word of `--precision` means.

    Raises `Refused` for another word."""
    if word not in PRECISIONS:
        raise Refused("--precision %s: only %s" % (word, ", ".join(PRECISIONS)))
    return PRECISIONS[word]


def shaped(*sizes):
    """Writes a shape as people do: `2 x 1024`."""
    return " x ".join(str(size) for size in sizes)


def literal(value):
    """Writes data of JSON as an expression of Python."""
    return repr(json.loads(json.dumps(value)))


def first(config, *names):
    """Returns the first of these fields that a configuration has, and that is not empty."""
    for name in names:
        value = config.get(name) if isinstance(config, dict) else getattr(config, name, None)
        if value is not None and value != []:
            return value
    return None
