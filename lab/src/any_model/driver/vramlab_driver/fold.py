"""A graph of a few layers as a text that any number of layers follows from: first + (n - 1) times a layer of its kind.

Each name of a value, a parameter or a module that a layer owns holds the layer's number as a mark: `%0@` is the layer itself, `%0-` the one
before, `%0^` the first and `%0$` the last, where 0 is the number of the stack of layers.
"""
import json
import re

LAYER = re.compile(r"^((?:[A-Za-z_]\w*\.)*(?:layers|layer|h|blocks|block))\.(\d+)(?=\.|$)")
NO_STACK = "_empty_nn_module_stack_from_metadata_hook"


class Cannot(Exception):
    """The graph is not one of layers that repeat."""


class Stacks:
    """The stacks of layers, by the paths of their modules."""

    def __init__(self):
        self.known = {}

    def owner(self, path):
        """The stack and the number of the layer that a module lies in, or None."""
        found = LAYER.match(path)
        if not found:
            return None
        return self.known.setdefault(found.group(1), len(self.known)), int(found.group(2))

    def marked(self, path):
        """A path with the layer's number as a mark."""
        owner = self.owner(path)
        return LAYER.sub(lambda found: "%s.%s" % (found.group(1), mark(owner)), path) if owner else path


def mark(owner):
    return "<%d:%d>" % owner


def names_of(output):
    (kind, value), = output.items()
    if kind == "as_tensor":
        return [value["name"]]
    if kind == "as_tensors":
        return [one["name"] for one in value]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return [value["as_name"]] if "as_name" in value else []
    if kind == "as_optional_tensors":
        return [one["as_tensor"]["name"] for one in value if "as_tensor" in one]
    return []


def calls(node):
    """The calls of modules that a node lies in: path, class, and the number of the call after a `@`."""
    stack = node.get("metadata", {}).get("nn_module_stack", "")
    fields = [call.split(",", 2) for call in stack.split(";") if call]
    return [(one[1], one[2] if len(one) > 2 else "") for one in fields if len(one) > 1 and one[1] != NO_STACK]


def line_of(trace):
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [one for one in frames if "/torch/" not in one[0]] or frames
    return 'File "%s", line %s, in f' % (own[-1][0].rsplit("/", 1)[-1], own[-1][1]) if own else ""


class Folded:
    """The parts of an export: lists of JSON texts, each with the layer that owns it or None."""

    def __init__(self, program, beside):
        self.stacks, self.names, self.owners = Stacks(), {}, {}
        module = program["graph_module"]
        graph, signature = module["graph"], module["signature"]
        self.owned = self.owners_of(graph["nodes"])
        self.constants_of_layers(graph["nodes"], signature)
        self.constants_by_layer(signature)
        self.name_inputs(graph, signature)
        self.name_nodes(graph["nodes"])
        outputs = [name for output in graph["outputs"] for name in names_of(output)]
        users = [name for spec, given in zip(signature["input_specs"], graph["inputs"]) if "user_input" in spec for name in names_of(given)]
        kept = set(outputs + users)
        self.parts = {
            "inputs": [(self.owner_of(names_of(given)), self.text(self.renamed(given))) for given in graph["inputs"]],
            "input_specs": [(self.owner_of(names_of(given)), self.text(self.spec(spec)))
                            for given, spec in zip(graph["inputs"], signature["input_specs"])],
            "nodes": [(owner, self.text(self.node(node))) for owner, node in zip(self.owned, graph["nodes"])],
            "values": self.values(graph["tensor_values"], kept),
            "outputs": [(self.owner_of(names_of(given)), self.text(self.renamed(given))) for given in graph["outputs"]],
            "output_specs": [(self.owner_of(names_of(given)), self.text(self.renamed(spec)))
                             for given, spec in zip(graph["outputs"], signature["output_specs"])],
            "dies_after": self.deaths(beside["dies_after"]),
        }
        self.whole = {"tied": beside["tied"], "moved_before": beside.get("moved_before", []),
                      "range_constraints": program["range_constraints"], "guards_code": program.get("guards_code", []),
                      "schema_version": program["schema_version"], "torch_version": program["torch_version"]}

    def owners_of(self, nodes):
        owners = []
        for node in nodes:
            found = None
            for path, _ in calls(node):
                found = self.stacks.owner(path.split("@")[0]) or found
            owners.append(found)
        # What lies between two layers of a stack goes with the first.
        known, after = list(owners), None
        following = [None] * len(owners)
        for place in range(len(owners) - 1, -1, -1):
            following[place] = after
            after = known[place] or after
        before = None
        for place, owner in enumerate(owners):
            if owner is None and before and following[place] and before[0] == following[place][0]:
                owners[place] = before
            before = owners[place] or before
        return owners

    def constants_of_layers(self, nodes, signature):
        """Gives constants that are made before the layers to the one layer that uses them, as caches make some for each layer."""
        constants = {what["arg"]["name"]: what for spec in signature["input_specs"] for kind, what in spec.items()
                     if kind == "tensor_constant" and self.stacks.owner(what["tensor_constant_name"]) is None}
        loose, users = set(constants), {}
        for place, node in enumerate(nodes):
            used = {name for one in node["inputs"] for name in names_of(one["arg"])}
            for name in used:
                users.setdefault(name, []).append(place)
            if self.owned[place] is None and used and used <= loose:
                loose.update(name for output in node["outputs"] for name in names_of(output))

        def user_of(names):
            found = {self.owned[place] for name in names for place in users.get(name, [])}
            return found.pop() if len(found) == 1 else None

        for place in range(len(nodes) - 1, -1, -1):
            made = [name for output in nodes[place]["outputs"] for name in names_of(output)]
            if self.owned[place] is None and made and loose.issuperset(made):
                self.owned[place] = user_of(made)
        for name, what in constants.items():
            owner = user_of([name])
            if owner:
                path = next(path for path, stack in self.stacks.known.items() if stack == owner[0])
                what["tensor_constant_name"] = "%s.%d.lifted_tensor_0" % (path, owner[1])

    def constants_by_layer(self, signature):
        """Numbers the constants of each layer on their own: PyTorch numbers them through the network."""
        counts = {}
        for spec in signature["input_specs"]:
            for what in spec.values():
                before, found, _ = what.get("tensor_constant_name", "").rpartition("lifted_tensor_")
                if found:
                    number = counts[before] = counts.get(before, 0) + 1
                    what["tensor_constant_name"] = "%slifted_tensor_%d" % (before, number)

    def name_inputs(self, graph, signature):
        for given, spec in zip(graph["inputs"], signature["input_specs"]):
            what = next(iter(spec.values()))
            for name in names_of(given):
                path = next((what[key] for key in ("parameter_name", "buffer_name", "tensor_constant_name") if key in what), None)
                if path is None:
                    self.names[name], self.owners[name] = name, None
                else:
                    self.names[name], self.owners[name] = "p." + self.stacks.marked(path), self.stacks.owner(path)

    def name_nodes(self, nodes):
        # By operator: the first layer has sizes that later ones use, too, and its other values have the numbers of theirs.
        counts = {}
        for owner, node in zip(self.owned, nodes):
            base = node["target"].removeprefix("torch.ops.").removeprefix("aten.").split(".")[0].lstrip("_")
            for output in node["outputs"]:
                for name in names_of(output):
                    number = counts[owner, base] = counts.get((owner, base), 0) + 1
                    self.names[name] = "%s%d" % (base, number) if owner is None else "%s.%s%d" % (mark(owner), base, number)
                    self.owners[name] = owner

    def owner_of(self, names):
        return next((self.owners.get(name) for name in names), None)

    def renamed(self, part):
        """The same JSON with new names. A graph inside of a node keeps its own."""
        if isinstance(part, dict):
            if "as_graph" in part:
                return {"as_graph": {"name": part["as_graph"].get("name", ""), "graph": self.inside(part["as_graph"]["graph"])}}
            return {key: self.names.get(value, value) if key in ("name", "as_name") and isinstance(value, str) else self.renamed(value)
                    for key, value in part.items()}
        return [self.renamed(one) for one in part] if isinstance(part, list) else part

    def inside(self, graph):
        values = {name: self.meta(meta, False) for name, meta in graph["tensor_values"].items()}
        return {"inputs": graph["inputs"], "outputs": graph["outputs"], "tensor_values": values,
                "nodes": [dict(target=node["target"], inputs=node["inputs"], outputs=node["outputs"], metadata=self.metadata(node))
                          for node in graph["nodes"]]}

    def metadata(self, node):
        stack = ";".join("%s,%s,%s" % (self.stacks.marked(path), self.stacks.marked(path), kind) for path, kind in calls(node))
        return {"nn_module_stack": stack, "stack_trace": line_of(node.get("metadata", {}).get("stack_trace", ""))}

    def node(self, node):
        given = [{"name": one["name"], "arg": self.renamed(one["arg"])} for one in node["inputs"]]
        return {"target": node["target"], "inputs": given, "outputs": self.renamed(node["outputs"]), "metadata": self.metadata(node)}

    def spec(self, spec):
        (kind, what), = spec.items()
        kept = {key: self.stacks.marked(value) for key, value in what.items()
                if key in ("parameter_name", "buffer_name", "tensor_constant_name")}
        return {kind: kept}

    def meta(self, meta, exact):
        sizes = [size if "as_int" in size or exact else {"as_expr": {"expr_str": "s"}} for size in meta["sizes"]]
        found = {"dtype": meta["dtype"], "sizes": sizes}
        return dict(found, requires_grad=True) if meta.get("requires_grad") else found

    def values(self, values, kept):
        found = []
        for name, meta in values.items():
            if name in self.names:
                entry = "%s:%s" % (json.dumps(self.names[name]), self.text(self.meta(meta, name in kept)))
                found.append((self.owners[name], entry))
        # In the order of the layers: how PyTorch sorts them does not count.
        return sorted(found, key=lambda one: ((-1, -1) if one[0] is None else one[0], one[1]))

    def deaths(self, pairs):
        found = []
        for value, last in pairs:
            owner = self.owners.get(last) or self.owners.get(value)
            found.append((owner, self.text([self.names.get(value, value), self.names.get(last, last)])))
        return sorted(found, key=lambda one: (-1, -1) if one[0] is None else one[0])

    def text(self, part):
        return json.dumps(part, separators=(",", ":"))


def templated(text, owner, layers):
    """A text of a layer, or of none, with marks that hold for any number of layers."""
    def relative(found):
        stack, layer = int(found.group(1)), int(found.group(2))
        if owner and owner[0] == stack:
            if layer == owner[1]:
                return "%%%d@" % stack
            if layer == owner[1] - 1:
                return "%%%d-" % stack
        if layer == layers[stack] - 1:
            return "%%%d$" % stack
        if layer == 0:
            return "%%%d^" % stack
        raise Cannot("%s refers to layer %d of %d: %s" % (owner, layer, layers[stack], text[max(0, found.start() - 90):found.end() + 30]))
    if "%" in text:
        raise Cannot("a percent sign")
    return re.sub(r"<(\d+):(\d+)>", relative, text)


def fold(program, beside, kinds):
    """Returns the folded program. `kinds` of each stack: the kind of each layer of the whole network; its beginning was traced."""
    parts = Folded(program, beside)
    layers = {}
    for stack, layer in (owner for owner in parts.owned if owner):
        layers[stack] = max(layers.get(stack, 0), layer + 1)
    texts, sections = [], {}
    numbers = {}

    def number(text):
        if text not in numbers:
            numbers[text] = len(texts)
            texts.append(text)
        return numbers[text]

    for name, items in parts.parts.items():
        groups = []
        for owner, text in items:
            if not groups or groups[-1][0] != owner:
                groups.append((owner, []))
            groups[-1][1].append(templated(text, owner, layers))
        section, place = [], 0
        while place < len(groups):
            owner, lines = groups[place]
            if owner is None:
                section.append(number(",".join(lines)))
                place += 1
                continue
            stack, run = owner[0], []
            # A list that begins again, as that of the values after that of the keys, is another run.
            while place < len(groups) and groups[place][0] and groups[place][0][0] == stack and not (run and groups[place][0][1] <= run[-1][0]):
                run.append((groups[place][0][1], ",".join(groups[place][1])))
                place += 1
            section.append(repeated(name, stack, run, layers[stack], kinds, number))
        sections[name] = section
    paths = sorted(parts.stacks.known, key=parts.stacks.known.get)
    return {"layers": [len(kinds) for _ in paths], "stacks": paths, "texts": texts, "sections": sections, **parts.whole}


def differing(one, other):
    place = next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return "%s | %s" % (one[max(0, place - 60):place + 60], other[max(0, place - 60):place + 60])


def repeated(name, stack, run, count, kinds, number):
    """The texts of a stack's layers, by their kinds and those before."""
    found = dict(run)
    if len(found) != len(run):
        raise Cannot("%s: layers are not one after another" % name)
    # To the second the first is the one before, too.
    key = lambda layer: "layer %d" % layer if layer < 2 else "%s after %s" % (kinds[layer], kinds[layer - 1])
    known, last = {}, None
    for layer in range(count):
        text = found.get(layer, "")
        if layer == count - 1 and known.get(key(layer)) != text:
            last = text
        elif known.setdefault(key(layer), text) != text:
            raise Cannot("%s: layer %d differs from others of its kind: %s" % (name, layer, differing(known[key(layer)], text)))
    if last is not None and key(len(kinds) - 1) not in (key(count - 1),):
        raise Cannot("%s: the last layer is another, and of another kind than the network's" % name)
    missing = {key(layer) for layer in range(len(kinds) - (last is not None))} - set(known)
    if missing:
        raise Cannot("%s: no layer is %s" % (name, missing))
    plan = [number(known[key(layer)]) if key(layer) in known else -1 for layer in range(len(kinds))]
    return {"stack": stack, "plan": plan, "last": None if last is None else number(last)}
