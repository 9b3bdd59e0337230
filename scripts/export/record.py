"""Exports the networks of networks.py, and records what each takes when the real PyTorch trains the exported program.

    python record.py FOLDER [NAME...]      FOLDER/NAME.pt2.gz and FOLDER/NAME.json for each

A card is needed, or a stand-in for one: no figure depends on what is computed. The files hold the program without weights, with the names of
files instead of their paths. A recording has one row after each phase of three steps with AdamW, at two batches other than the exported one. A
network that cannot be exported or recorded is named, and the next one is taken.
"""
import contextlib
import functools
import gzip
import io
import json
import os
import re
import sys
import traceback
import zipfile

import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensor
from torch.export.passes import move_to_device_pass

import kinds
import networks
import sequences

# Losses outside of a network, against classes.
OF_CLASSES = {"cross-entropy": F.cross_entropy, "nll": F.nll_loss}

# Files and classes that have another name since they were recorded: recordings keep the first one.
RECORDED_AS = {"architectures": "further", "arithmetic": "everyday", "patches_and_pairs": "seldom", "Pointwise": "Curves", "Arithmetic": "Everyday"}

COLUMNS = ["label", "allocated", "max_allocated", "reserved", "max_reserved", "phase_peak_allocated", "requested", "active",
           "inactive_split", "segments", "n_alloc_plus_free"]


def archived(program, weights=False):
    """The archive of a program: its graph, with short names of files, and its weights, or where they would lie, without their values."""
    saved = io.BytesIO()
    torch.export.save(program, saved)
    return gzip.compress(shortened_archive(saved.getvalue(), weights), mtime=0)


def shortened_archive(archive, weights=False, guards=False):
    """The same archive with short names of files, without examples and, unless they are wanted, values and conditions on sizes."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for entry in source.namelist():
            data = source.read(entry)
            if "/sample_inputs/" in entry or "/.data/" in entry:
                continue
            if not weights and re.search(r"/data/(weights|constants)/(weight|tensor)_", entry):
                data = b""
            if "/models/" in entry or "evaluation" in entry:
                program = json.loads(data)
                kept = {"guards_code": program["guards_code"]} if guards and "guards_code" in program else {}
                data = json.dumps({**shortened(program), **kept}, separators=(",", ":")).encode()
            target.writestr(zipfile.ZipInfo("net/" + entry.split("/", 1)[1], (1980, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def shortened(part):
    """Names of files instead of their paths, inside of PyTorch with its folder; nothing of the machine."""
    if isinstance(part, dict):
        kept = {key: value for key, value in part.items() if key not in ("torch_fn", "from_node", "module_call_graph", "guards_code")}
        rewritten = {"stack_trace": shorten_trace, "nn_module_stack": as_recorded}
        return {key: rewritten.get(key, shortened)(value) for key, value in kept.items()}
    if isinstance(part, list):
        return [shortened(value) for value in part]
    return part


def as_recorded(calls):
    """Calls of modules, with the first name of each class and its file."""
    return re.sub(r",(%s)\.(\w+)(?=;|$)" % "|".join(RECORDED_AS), lambda match: ",%s.%s" % tuple(RECORDED_AS.get(name, name) for name in match.groups()), calls)


def shorten_trace(trace):
    def name(match):
        path = match.group(1)
        own, ending = os.path.splitext(os.path.basename(path))
        return 'File "%s"' % (path.split("/site-packages/")[1] if "/site-packages/" in path else RECORDED_AS.get(own, own) + ending)
    frames = re.sub(r'File "([^"]+)"', lambda match: name(match).replace('"torch/', '"/torch/'), trace).splitlines()
    return "\n".join(frame for frame in frames if frame.lstrip().startswith("File "))


def transfer_order(model):
    """As model.to(device) goes: a module's children, its own parameters, its own buffers."""
    names = []

    def visit(module, prefix):
        for name, child in module.named_children():
            visit(child, prefix + name + ".")
        names.extend(prefix + name for name, value in module._parameters.items() if value is not None)
        names.extend(prefix + name for name, value in module._buffers.items() if value is not None)
    visit(model, "")
    return names


def on_card(program, model):
    """The program's module on the card; its tensors are moved in the order in which an eager network's are."""
    state, constants = program._state_dict, program._constants
    program._example_inputs, program._state_dict, program._constants = None, {}, {}
    # The pass allocates its own tensor on the card, and would miss the network's.
    program.validate = lambda: None
    # Numbers that a program makes are on the host, where it made them. The graph's description of them would be moved.
    for node in program.graph_module.graph.nodes:
        if isinstance(node.meta.get("val"), FakeTensor):
            node.meta["val"].constant = None
    program = move_to_device_pass(program, "cuda")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = changes()
    moved = {}
    for name in transfer_order(model):
        for table in (state, constants):
            value = table.get(name)
            if not isinstance(value, torch.Tensor):
                continue
            if id(value) not in moved:
                there = torch.empty_like(value, device="cuda") if value.is_meta else value.detach().to("cuda")
                moved[id(value)] = torch.nn.Parameter(there, value.requires_grad) if isinstance(value, torch.nn.Parameter) else there
            table[name] = moved[id(value)]
    program._state_dict, program._constants = state, constants
    parameters = list({id(p): p for p in state.values() if isinstance(p, torch.nn.Parameter)}.values())
    return program.module(), parameters, before


def changes():
    stats = torch._C._cuda_memoryStats(0)
    return stats["allocation"]["all"]["allocated"] + stats["allocation"]["all"]["freed"]


def rows(name, batch, archive, amp=None):
    """The rows of a network at a batch, and its loss; its export goes into the file `archive`, where one is named. `amp` is autocast's type."""
    program, model, loss_name = networks.exported(name)
    if archive is not None:
        with open(archive, "wb") as file:
            file.write(archived(program))
    module, parameters, before = on_card(program, model)
    del program, model
    return trained(module, parameters, before, networks.NETWORKS[name][1], batch, loss_name, amp, kinds.PLACES.get(name, ())), loss_name


def trained(module, parameters, before, examples, batch, loss_name, amp=None, places=(), evaluate=None):
    """The rows of three steps of a module on the card, where `before` changes of its allocator lie before the module. `places`: sizes of an example's classes.
    `evaluate(module, at, row)` is called after each step, if there is one."""
    lower = functools.partial(torch.autocast, "cuda", dtype=amp) if amp else contextlib.nullcontext
    taken, highest, most_reserved = [], 0, 0

    def row(label):
        nonlocal highest, most_reserved
        stats = torch._C._cuda_memoryStats(0)
        peak, reserved = stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]
        highest, most_reserved = max(highest, peak), max(most_reserved, reserved)
        taken.append([label, torch.cuda.memory_allocated(), highest, torch.cuda.memory_reserved(), most_reserved, peak,
                      stats["requested_bytes"]["all"]["current"], stats["active_bytes"]["all"]["current"],
                      stats["inactive_split_bytes"]["all"]["current"], stats["segment"]["all"]["current"], changes() - before])
        torch.cuda.reset_peak_memory_stats()

    sequences.know_lengths(module)
    optimizer = torch.optim.AdamW(parameters)
    row("model")
    for step in range(3):
        given = examples(batch)
        inputs = [value.to("cuda") for value in given]
        sequences.KNOWN.update((there.data_ptr(), value) for there, value in zip(inputs, given))
        if loss_name in OF_CLASSES:
            target = torch.zeros(batch, *places, dtype=torch.long).to("cuda")
        row(f"s{step}.input")
        optimizer.zero_grad()
        row(f"s{step}.zero_grad")
        with lower():
            out = module(*inputs)
            if loss_name == "inside":
                loss = out if isinstance(out, torch.Tensor) else next(value for value in out if value.dim() == 0)
            else:
                row(f"s{step}.forward")
                loss = out.mean() if loss_name == "mean" else OF_CLASSES[loss_name](out, target)
        row(f"s{step}.forward" if loss_name == "inside" else f"s{step}.loss")
        loss.backward()
        row(f"s{step}.backward")
        optimizer.step()
        row(f"s{step}.step")
        if evaluate is not None:
            evaluate(module, f"s{step}.", row)
            row(f"s{step}.evaluated")
    return taken


def in_a_child(function, *arguments):
    """Runs a function in a separate process, so that recordings do not share an allocator. Returns its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            result = json.dumps(function(*arguments))
            with os.fdopen(writing, "w") as pipe:
                pipe.write(result)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        result = pipe.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError(f"{function.__name__} of {arguments[:2]} failed")
    return json.loads(result)


def main(of, networks=networks.NETWORKS, cudnn=False):
    """Writes `of(name, folder)`, with the release of PyTorch, as FOLDER/NAME.json for each network; 1 if one of them failed."""
    folder, names = sys.argv[1], sys.argv[2:] or list(networks)
    torch.backends.cudnn.enabled = cudnn
    torch.set_num_threads(1)
    failed = False
    for name in names:
        try:
            recorded = {"torch": torch.__version__, **of(name, folder)}
        except RuntimeError as error:
            failed = True
            print(name, "FAILED", error, flush=True)
            continue
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump(recorded, file, separators=(",", ":"))
        print(name, flush=True)
    sys.exit(1 if failed else 0)


def recorded(name, folder):
    """Rows of a network at two batches; the first of them leaves the archive."""
    runs = {}
    for batch in (4, 7):
        archive = None if runs else os.path.join(folder, name + ".pt2.gz")
        runs[batch], loss = in_a_child(rows, name, batch, archive)
    return {"loss": loss, "columns": COLUMNS, "runs": runs}


if __name__ == "__main__":
    main(recorded)
