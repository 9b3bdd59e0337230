"""Lines of the script that run only every N steps, as `if step % N == 0`, found in its text: what they keep shows only after N steps."""

import os
import sys

from ..libraries import is_library
from . import schema
from .settings import SETTINGS

# Most files, and bytes of text, that are read.
MAX_FILES, MAX_TEXT = 300, 4 << 20
# A period of at most this number of steps is waited for; and the periods after which something kept once is told from what grows.
MAX_PERIOD, PERIODS = 20, 4
# Calls that make a step, or a part of one.
STEPS = {"step", "backward", "manual_backward", "training_step", "train_batch", "optimizer_step"}
# Calls that keep what they are given.
KEEPS = {"append", "appendleft", "add", "extend", "insert", "put", "push", "update", "setdefault"}
# Functions that a library's loop calls.
CALLED_BACK = ("on_", "after_", "before_", "training_step", "compute_loss", "train_batch")
# Names that count, if nothing shows what they are; and names of which it is not known how many steps one is.
COUNTERS = ("step", "iter", "batch", "idx", "index", "count", "epoch", "tick")
SHORT_COUNTERS = {"i", "it", "n", "t"}
# Values of the script's command line, as its parsers gave them.
ARGUMENTS = {}


def after_argparse(module):
    parse = module.ArgumentParser.parse_known_args

    def parsed(parser, args=None, namespace=None):
        found = parse(parser, args, namespace)
        try:
            ARGUMENTS.update(vars(found[0]))
        except TypeError:
            pass
        return found

    module.ArgumentParser.parse_known_args = parsed


class Periods:
    """The conditions that hold only every N steps, or every N turns of a loop around those of the steps."""

    def __init__(self):
        self.found = None

    def look(self):
        """Reads the script and the modules in its folder, once: when the first steps are over, it has imported them."""
        if self.found is None:
            self.found = []
            self.found = Text(own_modules()).periods()

    def waited_for(self):
        return {one["every"] for one in self.found or () if one["of"] == "step" and one["every"] <= MAX_PERIOD}

    def first(self, every, growth, is_alone=True):
        """Returns the number of steps after which it is known what a line adds that runs every so many: a whole period, beyond the first
        two steps. If more is held than a period ago, some periods more: then growth is told from what was kept once."""
        return every * (PERIODS if is_alone and growth.grew_over(every) else 1) + 2

    def needed(self, growth, is_alone):
        """Returns the number of steps after which memory can be called flat. Where several ranks end together, each must need the same."""
        return max([0, *(self.first(every, growth, is_alone) for every in self.waited_for())])

    def report(self, steps, growth):
        return [
            schema.Period(
                where=one["where"], every=one["every"], of=one["of"], loop=one.get("loop"),
                settled=one["of"] == "step" and steps >= self.first(one["every"], growth),
            )
            for one in self.found or ()
        ]


def own_modules():
    """Returns the names and the files of the script and of the modules in its folder or in the working folder."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = {os.path.dirname(os.path.abspath(main)) if main else os.getcwd(), os.getcwd()}
    found, size = {}, 0
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # Some modules of PyTorch name a file without a folder.
        if not isinstance(file, str) or not file.endswith(".py") or not os.path.isfile(file) or is_library(file):
            continue
        file = os.path.abspath(file)
        if not any(file.startswith(folder + os.sep) for folder in folders) or file.startswith(os.path.dirname(SETTINGS["answers"])) or file in found:
            continue
        size += os.path.getsize(file)
        if len(found) >= MAX_FILES or size > MAX_TEXT:
            break
        found[file] = module
    return found


class Text:
    """The script's own files: their functions, which of these make steps, and what numbers their names stand for."""

    def __init__(self, modules):
        import ast
        import tokenize

        self.ast, self.modules, self.trees = ast, modules, {}
        for file in modules:
            try:
                with tokenize.open(file) as text:
                    self.trees[file] = ast.parse(text.read())
            except (OSError, SyntaxError, ValueError, RecursionError):
                continue
        # Functions by name; numbers by name; names to which something is added; calls by part of the program.
        self.functions, self.numbers, self.counted, self.called = {}, {}, set(), {}
        for tree in self.trees.values():
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.functions.setdefault(node.name, []).append(node)
                elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                    self.counted.add(last_name(ast, node.target))
                self.learn_numbers(node)
        self.stepping = self.closed(lambda node: bool(self.calls(node) & STEPS))
        self.looping = self.closed(lambda node: any(self.is_training(one) for one in ast.walk(node)))
        self.reached = self.reached_functions()

    def learn_numbers(self, node):
        """Notes what a name, an attribute, a keyword or a flag is said to be, if that is a whole number."""
        ast = self.ast
        pairs = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            pairs = [(last_name(ast, target), node.value) for target in getattr(node, "targets", None) or [node.target]]
        elif isinstance(node, ast.arguments):
            positional = node.posonlyargs + node.args
            pairs = list(zip((one.arg for one in positional[len(positional) - len(node.defaults):]), node.defaults))
            pairs += zip((one.arg for one in node.kwonlyargs), node.kw_defaults)
        elif isinstance(node, ast.Call):
            pairs = [(one.arg, one.value) for one in node.keywords]
            flags = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if flags:
                default = next((one.value for one in node.keywords if one.arg == "default"), None)
                pairs += [(flag.lstrip("-").replace("-", "_"), default) for flag in flags]
        elif isinstance(node, ast.Dict):
            pairs = [(getattr(key, "value", None), value) for key, value in zip(node.keys, node.values)]
        for name, value in pairs:
            if isinstance(name, str) and isinstance(value, ast.Constant) and type(value.value) is int:
                self.numbers.setdefault(name, []).append(value.value)

    def closed(self, starts):
        """Returns the names of the functions for which something holds, and of those that call one of them."""
        names = {name for name, nodes in self.functions.items() if any(map(starts, nodes))}
        while True:
            more = {name for name, nodes in self.functions.items() if any(self.calls(node) & names for node in nodes)} - names
            if not more:
                return names
            names |= more

    def calls(self, node):
        found = self.called.get(node)
        if found is None:
            ast = self.ast
            found = {last_name(ast, one.func) for one in ast.walk(node) if isinstance(one, ast.Call)} - {None}
            self.called[node] = found
        return found

    def is_training(self, node):
        """True for a loop that makes steps."""
        return isinstance(node, (self.ast.For, self.ast.AsyncFor, self.ast.While)) and self.makes_steps(node.body)

    def makes_steps(self, block):
        return any(self.calls(node) & (STEPS | self.stepping) for node in block)

    def is_outer(self, loop):
        """True for a loop of whose turns each makes the steps of another loop."""
        left, inner = list(loop.body), False
        while left:
            node = left.pop()
            if self.is_training(node):
                inner = True
            elif isinstance(node, self.ast.Call) and self.is_optimizers(node):
                return False
            else:
                left.extend(self.ast.iter_child_nodes(node))
        return inner or any(self.calls(node) & self.looping for node in loop.body)

    def is_optimizers(self, call):
        """True for a call that steps an optimizer, and not what sets its learning rate."""
        owner = last_name(self.ast, getattr(call.func, "value", call.func)) or ""
        return last_name(self.ast, call.func) in ("step", "optimizer_step") and "sched" not in owner

    def reached_functions(self):
        """Returns the names of the functions that run in steps: those that training loops call, and those that libraries call back."""
        loops = [node for tree in self.trees.values() for node in self.ast.walk(tree) if self.is_training(node)]
        left = {name for name in self.functions if name.startswith(CALLED_BACK)}
        left |= {name for loop in loops if not self.is_outer(loop) for node in loop.body for name in self.calls(node)}
        reached = set()
        while left:
            name = left.pop()
            if name in self.functions and name not in reached:
                reached.add(name)
                left.update(called for node in self.functions[name] for called in self.calls(node))
        return reached

    def periods(self):
        found = []
        for file, tree in self.trees.items():
            for one in self.block(tree.body, Around(file, [], None, {})):
                if one not in found:
                    found.append(one)
        return sorted(found, key=lambda one: (one["every"], one["where"]))

    def block(self, statements, around):
        """Yields the periods of some statements that stand in these loops and this function."""
        ast = self.ast
        for number, node in enumerate(statements):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                around.named[node.targets[0].id] = node.value
            if isinstance(node, (ast.For, ast.AsyncFor)):
                yield from self.turn(node, around)
            if isinstance(node, ast.If):
                yield from self.condition(node.test, node.body, node.orelse, statements[number + 1:], node.lineno, around)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp) and isinstance(node.value.op, ast.And):
                yield from self.condition(node.value, [node], [], [], node.lineno, around)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = Around(around.file, [], node, {})
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                inner = Around(around.file, [*around.loops, node], around.function, around.named)
            else:
                inner = around
            for name in ("body", "orelse", "finalbody"):
                yield from self.block(getattr(node, name, ()), inner)
            for handler in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
                yield from self.block(handler.body, inner)

    def turn(self, loop, around):
        """Yields the period of what a loop keeps in each of its turns, of which each makes the steps of one other loop, if their number is known."""
        inner = [node for node in loop.body if self.is_training(node)]
        if len(inner) != 1 or not self.is_outer(loop) or isinstance(inner[0], self.ast.While):
            return
        kept = [node for node in loop.body if node is not inner[0] and self.keeps(node)]
        numbers = [number for number in self.lengths(inner[0].iter, around) if number > 1] if kept else []
        if numbers:
            yield {"where": "%s:%d" % (around.file, kept[0].lineno), "every": max(numbers), "of": "step", "loop": None}

    def keeps(self, statement):
        """True for a statement that gives something to a container or an attribute."""
        ast = self.ast
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
                return True
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
            if any(isinstance(one, (ast.Subscript, ast.Attribute)) for one in targets):
                return True
        return False

    def lengths(self, node, around):
        """Returns the numbers of turns that a loop over this may have: `range(N)`, or something of the script's that has a length."""
        ast = self.ast
        kinds = (list, tuple, getattr(sys.modules.get("torch.utils.data"), "DataLoader", list))
        while isinstance(node, ast.Call) and node.args and last_name(ast, node.func) in ("enumerate", "tqdm", "trange", "range"):
            if last_name(ast, node.func) in ("range", "trange"):
                return self.values(node.args[0], around) if len(node.args) == 1 else []
            node = node.args[0]
        value = self.modules[around.file].__dict__.get(node.id) if isinstance(node, ast.Name) else None
        try:
            return [len(value)] if isinstance(value, kinds) else []
        except TypeError:
            return []

    def condition(self, test, body, orelse, rest, line, around):
        for counter, every, holds in self.remainders(test, around, True):
            numbers = [number for number in self.values(every, around) if number > 1]
            leaves = not holds and body and isinstance(body[-1], (self.ast.Continue, self.ast.Return))
            seldom = body if holds else rest if leaves else orelse or (body if numbers == [2] else [])
            # The step itself, where gradients of several batches are added up, is not an exception to steps.
            if not seldom or self.is_the_step(seldom):
                continue
            of, loop = self.counts(counter, around)
            if numbers and of:
                place = "%s:%d" % (around.file, line)
                yield {"where": place, "every": max(numbers), "of": of, "loop": loop and "%s:%d" % (around.file, loop.lineno)}

    def remainders(self, test, around, holds, seen=()):
        """Yields the counters and the divisors of a condition, each with whether it holds, or does not hold, every so many steps. `seen` are
        the variables around: `last = last and step % 10` has itself as a part."""
        ast = self.ast
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield from self.remainders(test.operand, around, not holds, seen)
        elif isinstance(test, ast.BoolOp):
            for one in test.values:
                yield from self.remainders(one, around, holds, seen)
        elif isinstance(test, ast.Name) and test.id in around.named and test.id not in seen:
            value = around.named[test.id]
            if not isinstance(value, ast.Name):
                yield from self.remainders(value, around, holds, (*seen, test.id))
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            if is_remainder(ast, test.left):
                yield test.left.left, test.left.right, isinstance(test.ops[0], ast.Eq) == holds
        elif is_remainder(ast, test):
            yield test.left, test.right, not holds

    def is_the_step(self, block):
        calls = [one for node in block for one in self.ast.walk(node) if isinstance(one, self.ast.Call)]
        return any(self.is_optimizers(one) or last_name(self.ast, one.func) == "zero_grad" for one in calls)

    def values(self, node, around):
        """Returns the whole numbers that a divisor may be."""
        ast = self.ast
        if isinstance(node, ast.Constant):
            return [node.value] if type(node.value) is int else []
        name = last_name(ast, node)
        for known in (ARGUMENTS, getattr(self.modules[around.file], "__dict__", {}) if isinstance(node, ast.Name) else {}):
            if type(known.get(name)) is int:
                return [known[name]]
        return self.numbers.get(name, [])

    def counts(self, counter, around):
        """Returns what a counter counts: `step`; `turn`, with a loop of whose turns each makes many steps; `epoch`, if that loop is not
        known; or `None`, if it counts something else."""
        ast = self.ast
        while isinstance(counter, ast.BinOp) and isinstance(counter.op, (ast.Add, ast.Sub)):
            counter = counter.left
        name = last_name(ast, counter)
        if name is None:
            return None, None
        targets = [loop for loop in around.loops if isinstance(counter, ast.Name) and hasattr(loop, "target") and
                   any(getattr(one, "id", None) == name for one in ast.walk(loop.target))]
        is_one = targets or name in self.counted or name in SHORT_COUNTERS or any(part in name.lower() for part in COUNTERS)
        loop = targets[-1] if targets else next((loop for loop in reversed(around.loops) if self.is_training(loop)), None)
        if not is_one or (loop is not None and not self.is_training(loop)):
            return None, None
        if loop is not None:
            return ("turn", loop) if self.is_outer(loop) else ("step", None)
        if around.function is None or around.function.name not in self.reached:
            return None, None
        return ("epoch" if "epoch" in name.lower() else "step"), None


class Around:
    """Where a statement stands: its file, the loops and the function around it, and what was assigned to names there."""

    def __init__(self, file, loops, function, named):
        self.file, self.loops, self.function, self.named = file, loops, function, named


def is_remainder(ast, node):
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not isinstance(node.left, (ast.Constant, ast.JoinedStr))


def last_name(ast, node):
    """Returns the name of a variable, an attribute, or an entry whose key is a text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        key = getattr(node.slice, "value", node.slice)
        key = getattr(key, "value", key)
        return key if isinstance(key, str) else None
    return None


