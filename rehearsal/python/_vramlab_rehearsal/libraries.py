"""Files of libraries, as opposed to the script's own; packages that write logs."""

import sys

# Packages that read contents for a log or a picture, and use no memory of a card.
LOGGERS = "wandb mlflow comet_ml neptune aim clearml swanlab visdom tensorboardX matplotlib".split()


def is_library(file):
    # Compiled code lies in a cache, as generated Python.
    return "site-packages" in file or "/torchinductor_" in file or "dist-packages" in file or file.startswith(sys.base_prefix + "/lib/")
