"""Projects that attacks of `run.py` change: what they hold, their state, and what differs from it."""

import hashlib
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

FACTS = ("mode", "owner", "group", "contents", "written", "changed", "links", "attributes", "number")
# As in /proc.
NOBODY = 65534
# Names that programs confuse with something else.
NAMES = [b"new\nline", b"\xff\xfe", b"x" * 255, b"gone (deleted)", b"gone", b" ", b"-rf", b"a\\b", b"\xe2\x80\xae.txt"]
# Makes what these libraries read and write. The first database has a log that is not written into it yet, the second one broke off.
STORES = """
import os, sqlite3
os.makedirs("stores"); os.chdir("stores")
def database(name, mode, more):
    if os.fork() == 0:
        c = sqlite3.connect(name); c.execute("pragma journal_mode=" + mode); c.execute("create table t(x)"); c.execute("insert into t values(1)"); c.commit()
        more(c); os._exit(0)
    os.wait()
database("hot.db", "wal", lambda c: (c.execute("insert into t values(2)"), c.commit()))
database("crashed.db", "persist", lambda c: (c.execute("pragma cache_size=1"), [c.execute("insert into t values(?)", ("x" * 9000,)) for _ in range(50)]))
try:
    import h5py, lmdb, pyarrow as pa, pyarrow.parquet as pq, zarr
    with h5py.File("a.h5", "w") as f: f["x"] = list(range(1000)); f["y"] = [1, 2]
    z = zarr.open("z.zarr", mode="w", shape=(10, 10), chunks=(5, 5), dtype="f4"); z[:] = 1
    e = lmdb.open("l.lmdb", map_size=1 << 24)
    with e.begin(write=True) as t: t.put(b"k", b"old"); t.put(b"other", b"1")
    e.close()
    pq.write_table(pa.table({"a": list(range(1000))}), "t.parquet")
    pq.write_to_dataset(pa.table({"a": [1, 2], "b": ["x", "y"]}), "set", partition_cols=["b"])
except ImportError as error:
    print("without", error)
"""


def make_stores(python, preamble):
    """Makes the stores once. Returns the folder that holds them."""
    folder = tempfile.mkdtemp(prefix="attacks-stores-")
    subprocess.run([python, "-c", preamble + STORES], cwd=folder, check=True)
    return pathlib.Path(folder, "stores")


def build(root, case, stores):
    """Makes a project, and a folder beside it."""
    project, outside = root / "project", root / "outside"
    for name in ("data/deep", "out/checkpoint-1", "out/checkpoint-2", "link_target", "emptydir", "open", "names", "crash"):
        (project / name).mkdir(parents=True)
    (outside / "ckpt").mkdir(parents=True)
    texts = {"old.txt": b"old contents\n", "data/a.bin": b"a" * 5000, "data/deep/b.bin": bytes(range(256)) * 40, "link_target/x": b"x",
             "out/checkpoint-1/m.pt": b"one", "out/checkpoint-2/m.pt": b"two", "hard1.txt": b"hard", "ro.txt": b"read only", "core": b"a file",
             "crash/core": b"another", "theirs.txt": b"everybody's", "open/theirs.txt": b"everybody's"}
    for name, text in texts.items():
        (project / name).write_bytes(text)
    for name in NAMES:
        pathlib.Path(os.fsdecode(os.fsencode(project) + b"/names/" + name)).write_bytes(b"old")
    (outside / "ckpt/last.pt").write_bytes(b"precious")
    os.setxattr(project / "hard1.txt", "user.orig", b"1")
    os.link(project / "hard1.txt", project / "hard2.txt")
    (project / "lnk").symlink_to("link_target")
    (project / "up").symlink_to("../outside")
    for name, mode in (("ro.txt", 0o444), ("theirs.txt", 0o666), ("open/theirs.txt", 0o666), ("open", 0o777)):
        (project / name).chmod(mode)
    if os.getuid() == 0:
        os.chown(project / "theirs.txt", NOBODY, NOBODY)
    database = "import sqlite3; c = sqlite3.connect('d.db'); c.execute('create table t(x)'); c.execute('insert into t values(1)'); c.commit()"
    subprocess.run([sys.executable, "-c", database], cwd=project, check=True)
    for words in (["init", "-q"], ["add", "old.txt", "data"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", project, *words], stdout=subprocess.DEVNULL)
    if "stores" in case:
        shutil.copytree(stores, project / "stores")
    if "big" in case:
        (project / "bigs").mkdir()
        for name in ("big.bin", "bigs/big.bin"):
            (project / name).write_bytes(b"big" * 3_000_000)
    if "deep" in case:
        build_deep(project / "deep")


def build_deep(folder):
    """Makes folders so deep that no path leads to the innermost one."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("n" * 200, dir_fd=at)
        inner = os.open("n" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    with open(os.open("inside", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at), "wb") as file:
        file.write(b"inside")
    os.close(at)


def fact(name, folder):
    """What an entry of an open folder is now, as in `FACTS`."""
    found = os.lstat(name, dir_fd=folder)
    contents, path = "", b"/proc/self/fd/%d/%s" % (folder, os.fsencode(name))
    if stat.S_ISREG(found.st_mode):
        with open(os.open(name, os.O_RDONLY | os.O_NOATIME if os.getuid() == 0 else os.O_RDONLY, dir_fd=folder), "rb") as file:
            contents = hashlib.sha1(file.read()).hexdigest()
    elif stat.S_ISLNK(found.st_mode):
        contents = os.readlink(name, dir_fd=folder)
    attributes = [(key, os.getxattr(path, key, follow_symlinks=False)) for key in os.listxattr(path, follow_symlinks=False)]
    return (found.st_mode, found.st_uid, found.st_gid, contents, found.st_mtime_ns, found.st_ctime_ns, found.st_nlink, attributes, found.st_ino)


def state(base):
    """All entries below a folder, and the folder itself."""
    found = {}
    for folder, folders, files, at in os.fwalk(base):
        found.setdefault(folder, fact(".", at))
        found |= {f"{folder}/{name}": fact(name, at) for name in folders + files}
    return found


def differing(before, after):
    """Names what differs between two states, with the facts that do."""
    lines = [f"{path} is gone" for path in before.keys() - after.keys()] + [f"{path} is new" for path in after.keys() - before.keys()]
    for path in before.keys() & after.keys():
        facts = [name for name, one, other in zip(FACTS, before[path], after[path]) if one != other]
        if facts:
            lines.append(f"{path}: {', '.join(facts)}")
    return sorted(ascii(line)[1:-1] for line in lines)
