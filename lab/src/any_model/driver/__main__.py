"""`python FOLDER REQUEST.json`: `vramlab_driver/run.py` says what it does."""

import os
import sys

# The package lies where libraries lie, so that memory is told by the lines of the program, not by these.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))

from vramlab_driver import run

# What the user's own files import must not be found here.
del sys.path[:2]
run.main()
