"""Conditions that hold only every N steps, found in a script's text."""

import types

from _vramlab_rehearsal.boot.periods import Text


def periods(tmp_path, text):
    file = tmp_path / "train.py"
    file.write_text(text)
    return Text({str(file): types.ModuleType("__main__")}).periods()


def test_a_variable_that_has_itself_as_a_part_is_read(tmp_path):
    # As in timm's `train.py`: `update = update or …`.
    text = """
for step in range(100):
    logs = step % 5 == 0
    logs = logs and step % 10 == 0
    optimizer.step()
    if logs:
        kept.append(loss)
"""
    assert [one["every"] for one in periods(tmp_path, text)] == [10]
