"""torchvision's data sets of pictures that are made up."""

import types

import pytest

from _vramlab_rehearsal.boot import made_up, made_up_pictures
from _vramlab_rehearsal.boot.settings import SETTINGS

numpy = pytest.importorskip("numpy")


pytestmark = pytest.mark.usefixtures("data_made_up")


class VisionDataset:
    def __init__(self, root, transform=None, target_transform=None):
        self.root, self.transform, self.target_transform = root, transform, target_transform


def library():
    """torchvision's classes, as far as they are used here: nothing is on the machine, and nothing can be fetched."""

    class CIFAR10(VisionDataset):
        __module__ = "torchvision.datasets.cifar"

        def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
            super().__init__(root, transform=transform, target_transform=target_transform)
            if download:
                made_up.asked("a server: https://example.org/cifar.tar.gz")
                raise OSError("no network")
            raise RuntimeError("Dataset not found")

    class CIFAR100(CIFAR10):
        __module__ = "torchvision.datasets.cifar"

    class SVHN(VisionDataset):
        __module__ = "torchvision.datasets.svhn"

        def __init__(self, root, split="train", transform=None, target_transform=None, download=False):
            raise RuntimeError("Dataset not found")

    module = types.SimpleNamespace(VisionDataset=VisionDataset, CIFAR10=CIFAR10, CIFAR100=CIFAR100, SVHN=SVHN)
    made_up_pictures.after_pictures(module)
    return module


def test_a_data_set_of_pictures_has_its_length_its_sizes_and_its_classes():
    module = library()
    train = module.CIFAR10("data", True, len, download=True)
    assert train.data.shape == (50000, 32, 32, 3) and train.data.dtype == numpy.uint8
    assert len(train.targets) == 50000 and set(train.targets) == set(range(10)) and train.classes[3] == "cat"
    assert train.transform is len and train.train is True and made_up.ASKED == []

    class Own(module.CIFAR100):  # type: ignore[name-defined]
        pass

    test = Own("data", train=False)
    assert test.data.shape == (10000, 32, 32, 3) and len(test.classes) == 100 and test.train is False
    digits = module.SVHN("data", split="test")
    assert digits.data.shape == (26032, 3, 32, 32) and digits.labels.max() == 9
    assert made_up.MADE_UP[0] == "the data set CIFAR10 (train): 50000 pictures of 32 x 32 x 3, all black, 10 classes"
    assert len(made_up.MADE_UP) == 3


def test_a_data_set_that_nobody_asked_to_make_up_is_named(monkeypatch):
    monkeypatch.setitem(SETTINGS, "make_data", None)
    module = library()
    with pytest.raises(OSError):
        module.CIFAR10("data", download=True)
    assert made_up.ASKED == ["the data set CIFAR10"]
    with pytest.raises(RuntimeError):
        module.CIFAR10("data")
    assert made_up.ASKED == ["the data set CIFAR10"] and made_up.MADE_UP == []


def test_a_part_that_is_not_known_is_the_scripts_own_mistake():
    with pytest.raises(RuntimeError):
        library().SVHN("data", split="dev")
    assert made_up.MADE_UP == []
