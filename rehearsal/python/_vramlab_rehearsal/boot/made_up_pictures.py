"""torchvision's data sets of pictures, made up if they are not on this machine: as many black pictures, of the same size and classes, as the
real ones have. Nothing is fetched then.

Nothing is made up unless the launcher asks for it. Without that, a data set that could not be fetched is told by its name."""

from . import made_up
from .made_up_data import tokens

# Pictures of each part, sizes of one, and classes: from the classes' documentation in torchvision, and the pages of the data sets.
DIGITS = ({True: 60000, False: 10000}, (28, 28), 10)
SMALL = ({True: 50000, False: 10000}, (32, 32, 3), 10)
STREETS = ({"train": 73257, "test": 26032, "extra": 531131}, (3, 32, 32), 10)
BIRDS = ({"train": 5000, "test": 8000, "unlabeled": 100000, "train+unlabeled": 105000}, (3, 96, 96), 10)
KNOWN: dict = {
    "MNIST": DIGITS,
    "FashionMNIST": DIGITS,
    "KMNIST": DIGITS,
    "CIFAR10": SMALL,
    "CIFAR100": (SMALL[0], SMALL[1], 100),
    "SVHN": STREETS,
    "STL10": BIRDS,
}
# Names of classes that a script prints; the other data sets have theirs as an attribute of the class, or none.
OF_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def name_of(data):
    """Returns the name of torchvision's data set that this one is, also if the script derives a class from it. None if it is another one."""
    names = (one.__name__ for one in type(data).__mro__ if one.__module__.startswith("torchvision.datasets."))
    name = next(names, None)
    return name if name in KNOWN else None


def filled(data, name, part):
    """Gives a data set its pictures: black ones, of all classes in turn."""
    import numpy

    counts, sizes, classes = KNOWN[name]
    count = counts[part]
    pictures, labels = numpy.zeros((count,) + sizes, dtype=numpy.uint8), numpy.arange(count) % classes
    data.data = pictures
    if len(sizes) == 2:
        import torch

        data.data, data.targets = torch.from_numpy(pictures), torch.from_numpy(labels)
    elif isinstance(part, str):
        data.split, data.labels = part, labels
    else:
        data.targets = labels.tolist()
        data.classes = list(OF_CIFAR10) if classes == 10 else ["class%02d" % number for number in range(classes)]
        data.class_to_idx = {one: number for number, one in enumerate(data.classes)}
    if not isinstance(part, str):
        data.train = part
    shape = " x ".join(map(str, sizes))
    which = part if isinstance(part, str) else ("test", "train")[part]
    made_up.made_up("the data set %s (%s): %d pictures of %s, all black, %d classes" % (name, which, count, shape, classes))


def with_pictures(make, base):
    """Returns a constructor of a data set that finds one, whatever this machine has. `base`: the constructor of all of them."""
    import functools
    import inspect

    takes = inspect.signature(make)

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        name, asked = name_of(self), len(made_up.ASKED)
        given = takes.bind(self, *args, **kwargs)
        given.apply_defaults()
        said = given.arguments
        wanted = tokens() and name is not None
        try:
            if wanted:
                # What is there is read, what is not there is not fetched.
                said["download"] = False
            make(*given.args, **given.kwargs)
        except (RuntimeError, OSError):
            part = bool(said["train"]) if "train" in said else said.get("split")
            if wanted and part in KNOWN[name][0]:
                base(self, said["root"], transform=said["transform"], target_transform=said["target_transform"])
                filled(self, name, part)
                return
            if name is not None and said.get("download"):
                made_up.forget(asked)
                made_up.asked("the data set %s" % name)
            raise

    return __init__


def after_pictures(module):
    """Each class of the module that has a constructor of its own and is known, or from which a known one is derived."""
    for name in ("MNIST", "CIFAR10", "SVHN", "STL10"):
        kind = getattr(module, name, None)
        if kind is not None:
            kind.__init__ = with_pictures(kind.__init__, module.VisionDataset.__init__)
