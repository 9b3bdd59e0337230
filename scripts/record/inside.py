"""Records inside of a rehearsal, for `record.py`: prints a line with each recording. `python inside.py KIND CASE…`, a case as JSON.

Each case runs in a process of its own, whose card is untouched."""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "RECORDED "


def without_cudnn():
    """Neither cuDNN's convolutions nor its attention: its workspaces are not PyTorch's."""
    import torch

    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)


def script(case, profiled):
    import programs
    import script_format

    without_cudnn()
    return script_format.recorded(programs.PROGRAMS[case["name"]][0], profiled)


def scripts(case):
    """A program of `programs.py`, twice: as it is and under the profiler."""
    import programs
    import script_format

    plain, profiled = (script_format.in_a_child(script, case, profiled) for profiled in (False, True))
    return script_format.packed(case["name"], plain, profiled, programs.PROGRAMS[case["name"]][1])


def loops(case):
    """A program of `scripts/loop`."""
    sys.path.insert(0, os.path.join(HERE, "..", "loop"))
    import loop_record

    return loop_record.packed(case["name"])


def techniques(case):
    """A program of `scripts/loop/techniques.py`."""
    sys.path.insert(0, os.path.join(HERE, "..", "loop"))
    # Every program is a fork: what this process has imported, none imports again. (bitsandbytes begins CUDA when it is imported.)
    import transformers  # noqa: F401

    import script_format
    import techniques

    return script_format.in_a_child(techniques.recorded, case)


def models(case):
    """A network of transformers."""
    import models
    import script_format

    return script_format.in_a_child(models.record, case)


def traces(case):
    """What the allocator does for a list of operations."""
    import script_format
    import traces

    return script_format.in_a_child(traces.recording, case)


def main():
    import torch

    torch.set_num_threads(1)
    kind = {"scripts": scripts, "loops": loops, "models": models, "traces": traces, "techniques": techniques}[sys.argv[1]]
    with open(sys.argv[2]) as file:
        cases = json.load(file)
    for case in cases:
        try:
            text = json.dumps(kind(case), separators=(",", ":"))
        except RuntimeError as error:
            print(f"{case['name']}: {error}", file=sys.stderr, flush=True)
            continue
        print(MARK + text, flush=True)


if __name__ == "__main__":
    main()
