"""The container that grows, of those that hold a tensor. Lines of the script that put something into a holder, and that empty it or limit
its length: read from its text."""

import collections
import sys

# Most things that are looked at within a container.
MAX_WITHIN = 20_000


def is_container(thing):
    return isinstance(thing, (list, dict, set, collections.deque))


def growing(containers, tensor, others):
    """Returns the container that grows, of those on the way from a tensor to its holder, innermost first: `None` if there are none. It is the
    innermost that has tensors of another step, too: of `history["all"].append({"weight": tensor})` the list, neither the dictionary
    in it nor the one around it."""
    if not containers:
        return None
    found = next((one for one in containers if tensor is not None and others and has_all(one, (tensor,), others)), containers[-1])
    # Each step may put tensors into several lists: of a dictionary of lists it is these that grow, if they are longer than the dictionary.
    inner = containers[0]
    return inner if isinstance(inner, list) and isinstance(found, dict) and len(inner) > len(found) else found


def has_all(container, *several):
    """True if one of each of these tensors is within a container, its containers, tuples and the script's own objects."""
    import gc
    import types

    left, seen, missing = [container], {id(container)}, [set(map(id, tensors)) for tensors in several]
    while left and len(seen) < MAX_WITHIN:
        for one in gc.get_referents(left.pop()):
            if id(one) in seen or isinstance(one, (type, types.ModuleType, types.FunctionType, types.FrameType)):
                continue
            seen.add(id(one))
            missing = [tensors for tensors in missing if id(one) not in tensors]
            if not missing:
                return True
            if gc.is_tracked(one):
                left.append(one)
    return False


def source_file(kind, source):
    if kind == "global":
        return source
    code = source if hasattr(source, "co_filename") else getattr(source, "__code__", None)
    if code is not None:
        return code.co_filename
    module = sys.modules.get(getattr(source, "__module__", None) or "")
    return getattr(module, "__file__", None)


def lines_of(file, name, is_attribute, is_closure=False):
    """Finds the lines of a file that put something into a variable or an attribute, and that empty it or limit its length. A variable may
    have the name of an attribute. One of a closure is not a variable of the module, which may have the same name."""
    import linecache
    import re

    found: dict[str, int | None] = {"put": None, "emptied": None}
    if not file or not name:
        return found
    this = (r"(?:(?:\w|\])\s*\.\s*)" if is_attribute else r"(?<![\w.])") + re.escape(name) + r"\b"
    here = (r"(?:\w+\.)+" if is_attribute else r"(?<![\w.])") + re.escape(name) + r"\b"
    entry = r"\s*(\[[^=]*\]\s*)?"
    puts = re.compile(this + r"(" + entry + r"\.\s*(append|appendleft|add|extend|insert|update|setdefault|put|push)\s*\(|\s*\[.*\]\s*=(?!=)|\s*\+=)")
    empties = re.compile(this + entry + r"\.\s*(pop|popleft|popitem|clear|remove)\s*\(|len\(\s*" + here + r"\s*\)\s*(<|>|==|%)|(<|>|==)=?\s*len\(\s*" +
                         here + r"\s*\)|\bdel\s+" + here)
    sets = re.compile("(" + here + r"(\s*,\s*[\w.]+)*|[\w.]+\s*,\s*" + here + r")\s*(:[^=]+)?=(?!=)")
    assigned = []
    for number, line in enumerate(linecache.getlines(file), 1):
        code = line.split("#")[0]
        if is_closure and not code[:1].isspace():
            continue
        if found["put"] is None and puts.search(code):
            found["put"] = number
        if found["emptied"] is None and empties.search(code):
            found["emptied"] = number
        if sets.search(code) and "(" not in code.split("=")[0]:
            assigned.append(number)
    # What is assigned again after it was made is emptied there, unless it is assigned from itself.
    if found["put"] is None and assigned:
        found["put"] = assigned[-1]
    elif found["emptied"] is None and len(assigned) > 1:
        found["emptied"] = assigned[-1]
    return found


def is_made_anew(file, name, line):
    """True if a variable or an attribute is assigned in this line, and from nothing that goes back to itself: then it only holds what is
    larger each time, as batches whose length grows."""
    import ast
    import linecache

    try:
        tree = ast.parse("".join(linecache.getlines(file))) if file and line else None
    except (SyntaxError, ValueError):
        tree = None
    if tree is None:
        return False

    def names(node):
        return {getattr(one, "id", None) or getattr(one, "attr", None) for one in ast.walk(node)} - {None}

    assigned = {}
    for node in ast.walk(tree):
        for target in getattr(node, "targets", [getattr(node, "target", None)]) if isinstance(node, (ast.Assign, ast.AnnAssign)) else ():
            for one in names(target) if getattr(node, "value", None) is not None else ():
                assigned.setdefault(one, []).append(node)
    if not any(node.lineno <= line <= node.end_lineno for node in assigned.get(name, ())):
        return False
    # Everything from which it is made, through other variables.
    left, seen = [name], set()
    while left:
        one = left.pop()
        for node in assigned.get(one, ()):
            new = names(node.value)
            if name in new:
                return False
            left += new - seen
            seen |= new
    return True
