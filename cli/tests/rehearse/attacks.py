"""Changes files in every way that needs no further package, and looks whether it sees its own changes.

Run by `rehearse_files.rs` in a folder with `files/NAME` for each case below, and `out/checkpoint-1/model`. Prints what it did not see."""

import ctypes
import fcntl
import mmap
import os
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

from attack_cases import LIBC, case, read, run


@case
def a_child_with_an_environment_of_its_own(path):
    subprocess.run(["rm", path], env={"PATH": os.environ["PATH"]}, check=True)
    return not os.path.exists(path)


@case
def a_child_with_another_preloaded_library(path):
    subprocess.run(["sh", "-c", "echo new > " + path], env=dict(os.environ, LD_PRELOAD=""), check=True)
    return read(path) == b"new\n"


@case
def calls_of_the_system_without_the_c_library(path):
    descriptor = LIBC.syscall(2, path.encode(), os.O_WRONLY | os.O_TRUNC, 0)
    os.write(descriptor, b"new")
    return read(path) == b"new"


@case
def attributes_through_a_descriptor(path):
    file = os.open(path, os.O_RDONLY)
    os.fchmod(file, 0o600)
    os.fchown(file, os.getuid(), os.getgid())
    os.utime(file, (1, 1))
    try:
        os.setxattr(file, "user.new", b"new")
    except OSError:
        pass  # This file system has none.
    return os.stat(path).st_mtime == 1 and os.stat(path).st_mode & 0o777 == 0o600


@case
def attributes_by_name(path):
    os.chmod(path, 0o400)
    os.utime(path, (1, 1))
    return os.stat(path).st_mtime == 1


@case
def a_mapping(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:3] = b"new"
    return read(path)[:3] == b"new"


@case
def a_file_action_of_a_started_process(path):
    truncates = (os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_TRUNC, 0o600)
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}, file_actions=[truncates]), 0)
    return read(path) == b""


@case
def a_file_handle(path):
    handle = ctypes.create_string_buffer(136)
    handle[0:4] = (128).to_bytes(4, sys.byteorder)  # type: ignore[call-overload]
    mount = ctypes.c_int()
    if LIBC.name_to_handle_at(-100, path.encode(), handle, ctypes.byref(mount), 0) == 0:
        folder = os.open(".", os.O_RDONLY)
        # Only root may; else nothing happens.
        file = LIBC.open_by_handle_at(folder, handle, os.O_WRONLY | os.O_TRUNC)
        if file >= 0:
            os.write(file, b"new")
    return True


@case
def a_number_of_a_file_below_a_folder_that_stays_open(path):
    # The folder of the run is on the same file system as the originals, or on another one, where the number means nothing.
    number, version = os.stat(path).st_ino, bytearray(8)
    with open(path, "rb") as file:
        try:
            fcntl.ioctl(file, 0x80087601, version)  # FS_IOC_GETVERSION
        except OSError:
            pass
    handle = struct.pack("<IiI4s", 8, 1, number & 0xFFFFFFFF, bytes(version[:4])).ljust(136, b"\0")
    for folder in [os.path.dirname(os.environ["VRAMLAB_REHEARSAL_LOG"]), os.path.expanduser("~/.cache"), "/"]:
        if os.path.isdir(folder):
            file = LIBC.open_by_handle_at(os.open(folder, os.O_RDONLY), handle, os.O_WRONLY | os.O_TRUNC)
            if file >= 0:
                os.write(file, b"new")
    return True


@case
def the_root_of_a_process_outside(path):
    process = os.getpid()
    while process > 0:
        for name in ["root" + os.path.abspath(path), "cwd/" + path]:
            try:
                with open("/proc/%d/%s" % (process, name), "r+b") as file:
                    file.write(b"new")
            except OSError:
                pass
        try:
            with open("/proc/%d/stat" % process) as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return True


@case
def a_ring_of_requests(path):
    room = ctypes.create_string_buffer(120)
    ring = LIBC.syscall(425, 4, room)
    if ring < 0:
        return True
    head, tail, mask, entries, flags, dropped, array, _, _ = struct.unpack("<IIIIIIIIQ", room[40:80])  # type: ignore[arg-type]
    queue = mmap.mmap(ring, array + 16, offset=0)
    requests = mmap.mmap(ring, 256, offset=0x10000000)
    name = ctypes.create_string_buffer(path.encode())
    requests[0:64] = struct.pack("<BBHiQQIIQ", 36, 0, 0, -100, 0, ctypes.addressof(name), 0, 0, 0).ljust(64, b"\0")
    queue[array : array + 4] = struct.pack("<I", 0)
    queue[tail : tail + 4] = struct.pack("<I", struct.unpack("<I", queue[tail : tail + 4])[0] + 1)
    LIBC.syscall(426, ring, 1, 1, 1, None, 0)
    time.sleep(0.1)
    return not os.path.exists(path)


@case
def a_second_name(path):
    os.link(path, path + ".second")
    with open(path + ".second", "ab") as file:
        file.write(b"new")
    return read(path + ".second").endswith(b"new")


@case
def a_second_name_for_an_open_file(path):
    # Perhaps in a folder for temporary files, where new files are real.
    names = [path + ".open", tempfile.mktemp()]
    for number, name in enumerate(names):
        # AT_EMPTY_PATH, and AT_SYMLINK_FOLLOW of the descriptor's name; once past the C library.
        file = os.open(path, os.O_RDONLY)
        LIBC.linkat(file, b"", -100, name.encode(), 0x1000)
        LIBC.syscall(265, file, b"", -100, (name + "-raw").encode(), 0x1000)
        LIBC.linkat(-100, b"/proc/self/fd/%d" % file, -100, (name + "-fd").encode(), 0x400)
        for made in [name, name + "-raw", name + "-fd"]:
            if os.path.exists(made):
                with open(made, "wb") as second:
                    second.write(b"new")
    return read(names[0] + "-fd") == b"new"


@case
def modes_of_what_is_open_without_a_name(path):
    file = os.open(path, os.O_RDONLY)
    LIBC.fchmodat(file, b"", 0o600, 0x1000)
    LIBC.fchownat(file, b"", os.getuid(), os.getgid(), 0x1000)
    # Landlock knows no modes.
    if os.environ.get("VRAMLAB_REHEARSAL_PROTECTION") != "landlock":
        LIBC.syscall(452, file, b"", 0o600, 0x1000)
        LIBC.syscall(452, -100, b"", 0o700, 0x1000)  # the working folder
    return True


@case
def two_that_change_places(path):
    os.mkdir(path + ".new")
    with open(path + ".new/model", "wb") as file:
        file.write(b"new")
    os.mkdir("swapped")
    with open("swapped/other", "wb") as file:
        file.write(b"other")
    for one, other in [(path + ".new", "out/checkpoint-1"), (path, "swapped/other"), ("swapped", "tree")]:
        if LIBC.renameat2(-100, one.encode(), -100, other.encode(), 2):
            raise OSError(ctypes.get_errno(), "renameat2")
    seen = read("out/checkpoint-1/model") == b"new" and read(path + ".new/model") == b"before" and read(path) == b"other"
    seen = seen and read("tree/other") == b"before" and read("swapped/deep/file") == b"before"
    for one, other in [("swapped", "tree"), (path + ".new", "out/checkpoint-1")]:
        LIBC.renameat2(-100, one.encode(), -100, other.encode(), 2)
    return seen


@case
def a_repository(path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", path + ".work"]
    if shutil.which("git") is None:
        return True
    os.mkdir(path + ".work")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"], ["clone", "-q", "../" + os.path.basename(path) + ".work", "../clone"]):
        subprocess.run(git + words, check=True)
    # The objects of a repository from before the run.
    subprocess.run(["git", "clone", "-q", "old.git", "cloned"], check=True)
    return os.path.isdir("files/clone/.git") and os.path.exists("cloned/file")

@case
def a_file_from_elsewhere_in_its_place(path):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"new")
    os.replace(file.name, path)
    return read(path) == b"new" and not os.path.exists(file.name)


@case
def a_database_with_a_log_beside_it(path):
    os.remove(path)
    database = sqlite3.connect(path)
    database.execute("pragma journal_mode = wal")
    database.execute("create table numbers (number)")
    database.execute("insert into numbers values (1)")
    database.commit()
    return sqlite3.connect(path).execute("select count(*) from numbers").fetchone()[0] == 1


@case
def appending_by_many_at_once(path):
    loop = "for i in 1 2 3 4 5 6 7 8 9; do echo line >> " + path + "; done"
    children = [subprocess.Popen(["sh", "-c", loop]) for _ in range(8)]
    return all(child.wait() == 0 for child in children) and read(path).count(b"line") == 72


@case
def tools(path):
    subprocess.run("sed -i s/before/after/ P; truncate -s 1 P; touch -d 2001-01-01 P; mv P P.moved".replace("P", path), shell=True, check=True)
    return os.path.getsize(path + ".moved") == 1


@case
def a_socket(path):
    for _ in range(2):
        os.unlink(path)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        socket.socket(socket.AF_UNIX).connect(path)
    os.mkdir(path + ".folder")
    socket.socket(socket.AF_UNIX).bind(path + ".folder/s")
    return True


@case
def folders_that_rotate(path):
    os.rename("out/checkpoint-1", "out/best")
    seen = read("out/best/model") == b"before" and not os.path.exists("out/checkpoint-1")
    subprocess.run(["mv", "out", "moved"], env={"PATH": os.environ["PATH"]}, check=True)
    os.makedirs("out")
    return seen and read("moved/best/model") == b"before" and os.listdir("out") == []


@case
def a_child_that_renames_an_old_folder(path):
    code = "import os; os.rename('old-folder', 'new-folder')"
    subprocess.run([sys.executable, "-S", "-c", code], env={}, check=True)
    return read("new-folder/model") == b"before"


@case
def standard_streams_by_name(path):
    subprocess.run("echo said > /dev/stderr; echo said > /dev/stdout; echo said > /proc/self/fd/2; echo said | dd of=/dev/fd/2 status=none", shell=True, check=True)
    return True


@case
def a_whole_tree(path):
    shutil.rmtree("tree")
    return not os.path.exists("tree")


run()
