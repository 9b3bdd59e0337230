"""Runs inside the processes of a rehearsal: `boot` watches a script, `values` computes small tensors of a card that is not there.

Written for any Python from 3.8 on: a script may start others. `boot/start.py` begins. `importer.py` beside this folder imports it from memory."""

# File name of all code here. What shows lines of the script skips code with it.
OWN = "<vramlab>"
