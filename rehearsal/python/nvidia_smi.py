#!/usr/bin/env -S python3 -S -E
"""Stands in for `nvidia-smi` in a rehearsal: answers from NVML, which is the rehearsed card's there.

Knows `-L`, `--query-gpu=FIELDS --format=csv[,noheader][,nounits]`, `--query-compute-apps=…`, `-i N`, and, without any of these, prints a
short table. Fields that no card is there to measure are `[N/A]`."""
import ctypes
import sys

nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
MIB = 1 << 20


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def text(function, *before):
    room = ctypes.create_string_buffer(96)
    code = getattr(nvml, function)(*before, room, ctypes.c_uint(96))
    return room.value.decode() if code == 0 else "[N/A]"


def number(function, *before):
    value = ctypes.c_uint()
    code = getattr(nvml, function)(*before, ctypes.byref(value))
    return value.value if code == 0 else None


def card(index):
    """The fields of a card, with their units: of memory MiB."""
    device, memory = ctypes.c_void_p(), Memory()
    nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
    nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    major, minor = ctypes.c_int(), ctypes.c_int()
    known = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) == 0
    sizes = {"total": memory.total, "used": memory.used, "free": memory.free}
    fields = {"memory." + name: (str(size // MIB), "MiB") for name, size in sizes.items()}
    fields.update({
        "index": (str(index), ""), "name": (text("nvmlDeviceGetName", device), ""), "gpu_name": (text("nvmlDeviceGetName", device), ""),
        "uuid": (text("nvmlDeviceGetUUID", device), ""), "gpu_uuid": (text("nvmlDeviceGetUUID", device), ""), "count": (str(count), ""),
        "driver_version": (text("nvmlSystemGetDriverVersion"), ""), "compute_cap": ("%d.%d" % (major.value, minor.value) if known else "[N/A]", ""),
        "utilization.gpu": ("0", "%"), "utilization.memory": ("0", "%"), "mig.mode.current": ("[N/A]", ""),
    })
    return fields


def rows(fields, cards, style):
    names = [name.strip() for name in fields.split(",")]
    if "noheader" not in style:
        units = {"memory": " [MiB]", "utilization": " [%]"}
        print(", ".join(name + units.get(name.split(".")[0], "") for name in names))
    for one in cards:
        values = [one.get(name, ("[N/A]", "")) for name in names]
        print(", ".join(value if "nounits" in style or not unit else "%s %s" % (value, unit) for value, unit in values))


count = number("nvmlDeviceGetCount_v2") or 0
words = [part for word in sys.argv[1:] for part in ([word] if not word.startswith("--") else word.split("=", 1))]
option = {word: words[at + 1] if at + 1 < len(words) else "" for at, word in enumerate(words) if word.startswith("-")}
chosen = option.get("-i") or option.get("--id")
indices = [int(one) for one in chosen.split(",") if one.isdigit() and int(one) < count] if chosen else range(count)
cards = [card(index) for index in indices]
style = option.get("--format", "csv").split(",")
if "--query-gpu" in option:
    rows(option["--query-gpu"], cards, style)
elif "--query-compute-apps" in option:
    rows(option["--query-compute-apps"], [], style)
elif "-L" in option or "--list-gpus" in option:
    for one in cards:
        print("GPU %s: %s (UUID: %s)" % (one["index"][0], one["name"][0], one["uuid"][0]))
else:
    version = number("nvmlSystemGetCudaDriverVersion") or 0
    print("NVIDIA-SMI (rehearsed)   Driver Version: %s   CUDA Version: %d.%d" % (
        text("nvmlSystemGetDriverVersion"), version // 1000, version % 1000 // 10))
    for one in cards:
        print("| %3s  %-40s | %7sMiB / %7sMiB |" % tuple(one[name][0] for name in ("index", "name", "memory.used", "memory.total")))
