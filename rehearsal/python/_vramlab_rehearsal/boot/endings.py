"""Endings of the files that a process writes for the launcher; before each stands the process's number.

Made by `cargo xtask json` from lab/src/rehearse/contract.rs; a test compares.
"""

# Ending of a process's answer: Answer, as JSON. The name before it is the process's number, as of all files here.
ANSWER = ".json"

# Ending of PyTorch's snapshot of a process.
SNAPSHOT = ".pickle"

# Ending of an empty file that says that a Python has started.
PYTHON = ".python"

# Ending of an empty file that says that a process imports PyTorch.
IMPORTS = ".imports"

# Ending of the path of a Python that looked for PyTorch and has none, as text.
NO_TORCH = ".no-torch"

# Ending of Started, as JSON.
STARTED = ".started"

# Ending of an error of the rehearsal's own code, as text.
FAULT = ".fault"

# Ending of a request of the script that a rehearsal cannot fulfil, as text.
PROBLEM = ".problem"

# Ending of what was made up in place of downloads: a list of sentences, as JSON.
MADE_UP = ".made-up"

# Ending of what the script wanted from a network and did not get: a list of sentences, as JSON.
ASKED = ".asked"

# Name of the file whose presence tells processes that all ranks are done.
STOP = "stop"
