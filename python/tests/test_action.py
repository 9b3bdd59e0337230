"""Tests of `action.yml`: its own commands, with this repository's example."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from common import ROOT

import vramlab

LOCK = "examples/memory.lock.json"
STEP = re.compile(r"- shell: bash\n      run: (.*)\n      env:\n((?:        .*\n)+)")


def steps() -> list[tuple[str, dict[str, str]]]:
    """The commands of `action.yml`, with their variables."""
    found = STEP.findall((ROOT / "action.yml").read_text(encoding="utf-8"))
    return [(run, dict(line.strip().split(": ", 1) for line in variables.splitlines())) for run, variables in found]


@unittest.skipIf(sys.platform == "win32", "there is no bash")
class Action(unittest.TestCase):
    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory(prefix="vramlab action ")
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)
        self.summary = self.folder / "summary.md"

    def run_step(self, number: int, cwd: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Runs a step as a job would."""
        command, variables = steps()[number]
        values = {"inputs.baseline": LOCK, "inputs.tolerance": "0", "runner.temp": str(self.folder)}
        values |= {f"inputs.{name}": value for name, value in inputs.items()}
        filled = {name: re.sub(r"\$\{\{ (\S+) \}\}", lambda match: values[match[1]], text) for name, text in variables.items()}
        job = {"RUNNER_TEMP": str(self.folder), "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(self.summary)}
        environment = {**os.environ, **job, **filled}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", check=False)

    def checked(self, cwd: Path, code: int) -> str:
        """Runs the check; returns the job's summary."""
        done = self.run_step(1, cwd)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return self.summary.read_text(encoding="utf-8")

    def installed(self) -> None:
        programs = self.folder / "vramlab/bin"
        programs.mkdir(parents=True)
        (programs / "vramlab").symlink_to(vramlab.binary())

    def test_there_are_an_installation_and_a_check(self) -> None:
        self.assertEqual([sorted(variables) for _, variables in steps()], [["WHAT"], ["BASELINE", "TOLERANCE", "VRAMLAB"]])

    def test_the_example_passes_until_a_network_grows(self) -> None:
        self.installed()
        summary = self.checked(ROOT, 0)
        self.assertIn("### vramlab check: nothing grew", summary)
        shutil.copytree(ROOT / "examples", self.folder / "examples")
        # As the repository's own job makes it grow.
        job = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
        self.assertEqual(job.count(f"baseline: {LOCK},"), job.count("uses: ./\n"))
        subprocess.run(["bash", "-c", re.findall(r"- run: (sed -i .*)", job)[0]], cwd=self.folder, check=True)
        summary = self.checked(self.folder, 1)
        self.assertIn("### vramlab check: failed", summary)
        self.assertIn("| run | figure | baseline | now | change |", summary)
        self.assertIn("1 of 2 locked runs grew", summary)
        self.assertIn("digits-mlp: memory grew", summary)

    def test_without_a_lock_file_it_fails(self) -> None:
        self.installed()
        self.assertIn("### vramlab check: failed", self.checked(self.folder, 2))

    @unittest.skipUnless(os.environ.get("VRAMLAB_REHEARSAL_PYTHON"), "--full runs it")
    def test_a_wheel_is_installed_and_checks(self) -> None:
        wheel = self.folder / "vramlab-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as parts:
            info = "vramlab-0.1.0.dist-info"
            program = zipfile.ZipInfo("vramlab-0.1.0.data/scripts/vramlab")
            program.external_attr = 0o100755 << 16
            parts.writestr(program, f'#!/bin/sh\nexec "{vramlab.binary()}" "$@"\n')
            parts.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: vramlab\nVersion: 0.1.0\n")
            parts.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            parts.writestr(f"{info}/RECORD", "")
        done = self.run_step(0, ROOT, vramlab=str(wheel))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.checked(ROOT, 0)


if __name__ == "__main__":
    unittest.main()
