"""What the tests take from pytest: runs of pytest in a folder of their own."""

from __future__ import annotations

pytest_plugins = ["pytester"]
