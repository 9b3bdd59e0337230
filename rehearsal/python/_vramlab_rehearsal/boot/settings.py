"""What the launcher asks for. The dictionary is filled once, at the start."""

import json
import os

# As `typing` has it, whose import would cost every Python its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .schema import Settings

SETTINGS: "Settings" = {}  # type: ignore[typeddict-item]

# Variables that torchrun would set for a rank, where some ranks of many are started. These are the rehearsal's values, whatever the
# script's own launchers set.
WORLD_VARIABLES: "dict[str, str]" = {}


def read(folder):
    """Reads the settings from the folder of `sitecustomize.py`."""
    with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
        SETTINGS.update(json.load(file))
    if SETTINGS["world"]:
        WORLD_VARIABLES.update((name, os.environ[name]) for name in SETTINGS["world"]["variables"])
