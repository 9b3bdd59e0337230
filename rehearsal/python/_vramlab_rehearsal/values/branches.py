"""Tells if a branch decides only what is saved, printed or remembered for that: then no size depends on it. `if accuracy > best:` before
`torch.save` is such a branch.

Reads the source at the branch and looks up names where it runs, but calls nothing. What is assigned there may only be compared, printed or
saved elsewhere in the file. What is not understood counts as a reason."""

import ast
import builtins
import functools
import linecache
import os
import sys
import types

from ..libraries import LOGGERS, is_library

# Packages whose functions and objects use no memory of a card.
PACKAGES = frozenset(
    "os posixpath ntpath genericpath shutil json logging time datetime sys pickle yaml csv math pathlib io warnings re glob numpy pandas "
    "tqdm loguru rich".split()
    + LOGGERS
)
# Such parts of other packages.
PARTS = ("torch.utils.tensorboard",)
# Functions of Python whose results hold no tensor.
PLAIN = frozenset("str int float round len repr format bool print open isinstance hasattr range".split())
# Functions of Python that return one of their arguments, or hold them.
HOLDING = frozenset("max min abs list tuple dict sorted enumerate zip".split())
# Methods whose results hold no memory of a card that was not held before.
METHODS = frozenset(
    "item tolist numpy cpu format join strip lower upper replace split startswith endswith state_dict save_pretrained write flush close "
    "mkdir exists unlink isoformat strftime".split()
)
# Methods whose results, or whose objects afterwards, hold what they are given or called on.
HOLDING_METHODS = frozenset("detach append get items keys values copy update".split())
# Those of them that change the object.
GROWING = frozenset("append update".split())
# Most elements of a tensor that counts as a number; deepest call that is looked into.
FEW, DEEPEST = 128, 2


def decides_nothing(frame):
    """True if the statement that runs in a frame is a branch on which no memory of a card depends."""
    tree = parsed(frame.f_code.co_filename)
    if tree is None:
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and covers(node, frame.f_lineno)]
    function = max(functions, key=lambda node: node.lineno, default=tree)
    body = Body({**frame.f_globals, **frame.f_locals}, function, frozenset(frame.f_code.co_varnames))
    return any(body.is_decided(found, tree) for found in branches(tree, frame.f_lineno))


@functools.lru_cache(maxsize=64)
def parsed(file):
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def covers(node, line):
    return getattr(node, "lineno", line + 1) <= line <= getattr(node, "end_lineno", line)


def branches(tree, line):
    """Returns the branch at a line: an `if`, a call that is given one of two values, or a statement with `max` or `min`. Nothing if there are
    several."""
    tests = [node for node in ast.walk(tree) if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) and covers(node.test, line)]
    simple = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.Expr)) and covers(node, line)]
    if len(tests) == 1 and isinstance(tests[0], ast.IfExp):
        return [node for node in simple if isinstance(node, ast.Expr)]
    if tests:
        return tests if len(tests) == 1 and isinstance(tests[0], ast.If) else []
    chooses = (ast.BoolOp, ast.IfExp, ast.Not, ast.comprehension, ast.Lambda)
    if len(simple) != 1 or any(isinstance(node, chooses) for node in ast.walk(simple[0])):
        return []
    calls = [node.func for node in ast.walk(simple[0]) if isinstance(node, ast.Call)]
    return simple if any(isinstance(call, ast.Name) and call.id in ("max", "min") for call in calls) else []


def package(name):
    return name.partition(".")[0] if isinstance(name, str) else ""


def is_of_a_package(thing):
    """True for a module, function, class or object of `PACKAGES`."""
    if isinstance(thing, types.ModuleType):
        name = thing.__name__
    elif isinstance(thing, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        name = thing.__module__
    else:
        name = type(thing).__module__
    return package(name) in PACKAGES or (isinstance(name, str) and name.startswith(PARTS))


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_number(thing):
    """True for what is at most as large as a number, or a text."""
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)) or is_of_a_package(thing):
        return True
    size = getattr(type(thing), "numel", None)
    return callable(size) and package(type(thing).__module__) == "torch" and size(thing) <= FEW


UNKNOWN = object()


class Body:
    """Statements of a function that run with these names, of which those in `own` are its own; `depth` is the number of calls around them."""

    def __init__(self, names, function, own=frozenset(), depth=0):
        self.names, self.function, self.own, self.depth = names, function, own, depth

    def is_decided(self, node, tree, seen=()):
        """True if no memory of a card depends on a branch. `seen` are the branches on which this one depends."""
        if node in seen:
            return True
        names, seen = assigned(node), (*seen, node)
        if isinstance(node, ast.If):
            names |= grown(node)
        elsewhere = names - self.own
        return (
            self.decides_little(node, tree)
            and self.are_for_a_log(names & self.own, self.function, tree, seen)
            and all(self.are_for_a_log(elsewhere, one, one, seen) for one in (own_files(tree) if elsewhere else ()))
        )

    def decides_little(self, node, tree):
        if not isinstance(node, ast.If):
            return self.statement(node)
        leaves = [last for last in (node.body[-1:] + node.orelse[-1:]) if isinstance(last, ast.Continue)]
        if leaves and not self.block(rest_of_loop(node, tree)):
            return False
        return all(one in leaves or self.statement(one) for one in node.body + node.orelse)

    def are_for_a_log(self, names, where, tree, seen):
        """True if no other part of a function, or of a file, makes more of these names than a branch such as this one, or the end of a loop."""
        parts = list(ast.walk(seen[0]))
        for node, value in units(where) if names else ():
            if node in parts or not names & loaded(value) or self.is_logged(node):
                continue
            if isinstance(node, ast.If):
                ends = all(isinstance(one, ast.Break) or self.statement(one) for one in node.body + node.orelse)
                if not ends and not self.is_decided(node, tree, seen):
                    return False
            elif not self.statement(node) or (not assigned(node) <= names and not self.is_decided(node, tree, seen)):
                return False
        return True

    def is_logged(self, node):
        """True for a statement that gives what it is given to a log, whatever it computes for that."""
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            return False
        called = node.value.func
        if isinstance(called, ast.Name):
            return called.id == "print"
        found = [self.found(called), self.found(getattr(called, "value", called))]
        return any(thing is not UNKNOWN and is_of_a_package(thing) for thing in found)

    def block(self, statements):
        return statements is not None and all(map(self.statement, statements))

    def statement(self, node):
        if isinstance(node, (ast.Pass, ast.Import, ast.ImportFrom)):
            return True
        if isinstance(node, ast.Expr):
            return self.expression(node.value)
        if isinstance(node, ast.Assign):
            return all(map(self.target, node.targets)) and self.kept(node.value)
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            return self.target(node.target) and (node.value is None or self.kept(node.value))
        if isinstance(node, ast.If):
            return self.expression(node.test) and self.block(node.body + node.orelse)
        if isinstance(node, ast.With):
            return all(self.expression(item.context_expr) for item in node.items) and self.block(node.body)
        if isinstance(node, ast.For):
            return self.expression(node.iter) and self.block(node.body + node.orelse)
        return isinstance(node, ast.Return) and self.depth > 0 and (node.value is None or self.kept(node.value))

    def target(self, node):
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(map(self.target, node.elts))
        # What a function that is called leaves behind is not followed.
        if self.depth > 0:
            return isinstance(node, ast.Name)
        if isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, (ast.Name, ast.Attribute))

    def kept(self, node):
        """True if a value holds no memory of a card when it is kept."""
        if isinstance(node, ast.Call):
            return self.call(node, is_kept=True)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return is_number(self.found(node))
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(map(self.kept, node.elts))
        if isinstance(node, ast.IfExp):
            return self.expression(node.test) and self.kept(node.body) and self.kept(node.orelse)
        if isinstance(node, ast.Dict):
            return None not in node.keys and all(map(self.kept, node.values))
        return not isinstance(node, ast.Subscript) and self.expression(node)

    def expression(self, node):
        """True if a value can be computed without memory of a card."""
        if isinstance(node, (ast.Constant, ast.Name)):
            return True
        if isinstance(node, ast.BinOp) and any(isinstance(side, ast.JoinedStr) or is_text(side) for side in (node.left, node.right)):
            return self.expression(node.left) and self.expression(node.right)
        if isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp)):
            return all(self.kept(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        if isinstance(node, ast.Subscript):
            return self.expression(node.value) and isinstance(node.slice, (ast.Constant, ast.Name, ast.Attribute))
        if isinstance(node, ast.Call):
            return self.call(node, is_kept=False)
        parts = (ast.Attribute, ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.IfExp, ast.Starred)
        return isinstance(node, parts) and all(self.expression(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))

    def call(self, node, is_kept):
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not all(map(self.expression, arguments)):
            return False
        called = self.found(node.func)
        if isinstance(node.func, ast.Name) and called is getattr(builtins, node.func.id, UNKNOWN):
            return node.func.id in PLAIN or (node.func.id in HOLDING and (not is_kept or all(map(self.kept, arguments))))
        if called is not UNKNOWN and is_of_a_package(called):
            return True
        if getattr(called, "__module__", None) == "torch.serialization" and called.__name__ == "save":
            return True
        if isinstance(node.func, ast.Attribute):
            owner = self.found(node.func.value)
            if owner is not UNKNOWN and is_of_a_package(owner):
                return True
            if node.func.attr in METHODS:
                return self.expression(node.func.value)
            if node.func.attr in HOLDING_METHODS and (self.depth == 0 or node.func.attr not in GROWING):
                return self.expression(node.func.value) and all(map(self.kept, arguments)) and (not is_kept or is_number(owner))
            called = called if owner is UNKNOWN else getattr(type(owner), node.func.attr, called)
        return self.is_harmless_function(called, node)

    def is_harmless_function(self, called, node):
        """Looks into a function of the script that is called with arguments that are known."""
        called = getattr(called, "__wrapped__", called)
        if not isinstance(called, types.FunctionType) or self.depth >= DEEPEST:
            return False
        tree = parsed(called.__code__.co_filename)
        first = called.__code__.co_firstlineno
        found = [
            node
            for node in ast.walk(tree or ast.Module([], []))
            if isinstance(node, ast.FunctionDef) and node.name == called.__name__ and min([node.lineno, *(one.lineno for one in node.decorator_list)]) == first
        ]
        if len(found) != 1:
            return False
        given = dict(zip((one.arg for one in found[0].args.args), node.args)) if not isinstance(node.func, ast.Attribute) else {}
        given.update({keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
        names = {name: value.value if isinstance(value, ast.Constant) else self.found(value) for name, value in given.items()}
        return Body({**called.__globals__, **names}, found[0], depth=self.depth + 1).block(found[0].body)

    def found(self, node):
        """Returns what a name or a chain of attributes stands for, without running code."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, getattr(builtins, node.id, UNKNOWN))
        if not isinstance(node, ast.Attribute):
            return UNKNOWN
        owner = self.found(node.value)
        own = getattr(owner, "__dict__", {}) if owner is not UNKNOWN else {}
        return own.get(node.attr, UNKNOWN) if hasattr(own, "get") else UNKNOWN


def units(tree):
    """Returns the statements of a file, each with the part that it computes by itself: of an `if` the test."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While)):
            yield node, node.test
        elif isinstance(node, ast.For):
            yield node, node.iter
        elif isinstance(node, ast.With):
            for item in node.items:
                yield node, item.context_expr
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield node, node


def loaded(tree):
    """Returns the names and attributes that are read."""
    nodes = [node for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Load)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)} | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names | ({name_of(tree.target)} if isinstance(tree, ast.AugAssign) else set())


def assigned(tree):
    """Returns the names and attributes that are assigned, those to whose items something is assigned among them."""
    targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in ast.walk(tree) if isinstance(node, (ast.AugAssign, ast.AnnAssign))]
    found = set()
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        else:
            found.add(name_of(target))
    return found


def grown(tree):
    """Returns the names and attributes of what is added to."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return {name_of(call.value) for call in calls if call.attr in GROWING}


def own_files(tree):
    """Returns the trees of a script's files, `tree` first: the modules in the folder of the program."""
    yield tree
    folder = os.path.dirname(os.path.abspath(getattr(sys.modules.get("__main__"), "__file__", None) or "x"))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(folder + os.sep) and file.endswith(".py") and not is_library(file):
            other = parsed(file)
            if other is not None and other is not tree:
                yield other


def name_of(target):
    while isinstance(target, ast.Subscript):
        target = target.value
    return getattr(target, "id", getattr(target, "attr", ""))


def rest_of_loop(node, tree):
    """Returns the statements that `continue` at the end of an `if` leaves out. `None` if the `if` is not a statement of the loop itself."""
    for loop in ast.walk(tree):
        if isinstance(loop, (ast.For, ast.While)) and node in loop.body:
            return loop.body[loop.body.index(node) + 1 :]
    return None
