"""A process that attacks must neither reach nor end: of this user's, of nobody's, or of root's without rights, by the word that it is given."""

import ctypes
import os
import sys

if sys.argv[1] != "user" and os.getuid() == 0:
    if sys.argv[1] == "without-rights":
        for right in range(41):
            ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
    else:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
os.write(1, b"ready")
os.execvp("sleep", ["sleep", "600"])
