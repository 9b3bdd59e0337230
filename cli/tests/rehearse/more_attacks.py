"""Changes files in further ways: by more calls of the system, through other processes, and with more tools. As `attacks.py`.

`PARENT` in the environment is the process id of a program outside of the run, and number 7 is open for writing, 8 a folder, 0 a file."""

import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tarfile
import time

from attack_cases import LIBC, case, read, run


def outside():
    """Processes outside of the run: those that this one descends from, and one that is told."""
    found, process = [int(os.environ.get("PARENT", "0"))], os.getppid()
    while process > 1:
        found.append(process)
        try:
            with open("/proc/%d/stat" % process) as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


@case
def renames_with_flags(path):
    for flags in (1, 2, 4):  # RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT
        LIBC.syscall(316, -100, path.encode(), -100, b"out/checkpoint-1/model", flags)
    return True


@case
def what_has_no_name_is_given_one(path):
    file = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(file, b"new")
    for name in (path, path + ".made"):
        LIBC.linkat(file, b"", -100, name.encode(), 0x1000)
        LIBC.linkat(-100, b"/proc/self/fd/%d" % file, -100, name.encode(), 0x400)
    os.replace(path + ".made", path) if os.path.exists(path + ".made") else None
    return True


@case
def memory_that_is_a_file(path):
    file = os.memfd_create("new")
    os.write(file, b"new")
    target = os.open(path, os.O_RDWR)
    os.sendfile(target, file, 0, 3)
    os.lseek(file, 0, 0)
    try:
        os.copy_file_range(file, target, 3)
    except OSError:
        pass  # Not between these file systems.
    return read(path).startswith(b"new")


@case
def ranges_are_cloned_punched_and_moved(path):
    with open(path + ".other", "wb") as other:
        other.write(b"x" * 8192)
    source, target = os.open(path + ".other", os.O_RDONLY), os.open(path, os.O_RDWR)
    for request, argument in ((0x40049409, source), (0x4020940D, struct.pack("<qQQQ", source, 0, 0, 0))):  # FICLONE, FICLONERANGE
        try:
            fcntl.ioctl(target, request, argument)
        except OSError:
            pass
    LIBC.fallocate(target, 3, ctypes.c_long(0), ctypes.c_long(4))  # PUNCH_HOLE | KEEP_SIZE
    LIBC.fallocate(target, 0x10, ctypes.c_long(0), ctypes.c_long(4))  # ZERO_RANGE
    LIBC.fallocate(target, 0, ctypes.c_long(0), ctypes.c_long(9000))
    return os.path.getsize(path) >= 9000


@case
def flags_through_a_descriptor_for_reading(path):
    for target in (path, os.path.dirname(path)):
        file = os.open(target, os.O_RDONLY)
        flags = bytearray(8)
        for request in (0x80086601, 0x801C581F):  # FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR
            try:
                fcntl.ioctl(file, request, flags) if request == 0x80086601 else fcntl.ioctl(file, request, bytearray(28))
            except OSError:
                pass
        changed = struct.pack("<Q", struct.unpack("<Q", flags)[0] | 0x80)  # FS_NOATIME_FL
        for request, argument in ((0x40086602, changed), (0x401C5820, struct.pack("<IIII12x", 0x40, 0, 0, 0)),
                                  (0x40087602, struct.pack("<q", 7)), (0x40086604, struct.pack("<q", 7))):
            try:
                fcntl.ioctl(file, request, argument)
            except OSError:
                pass
    return True


@case
def a_mapping_of_what_was_opened_before(path):
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    LIBC.mprotect(ctypes.c_void_p(0), 0, 3)
    try:
        with open(path, "r+b") as file:
            shared = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            shared[0:3] = b"new"
            shared.flush()
    finally:
        mapped.close()
    return read(path)[:3] == b"new"


@case
def attributes_by_every_call(path):
    LIBC.syscall(463, -100, path.encode(), 0, b"user.new", None, 0)  # setxattrat
    for call in (LIBC.setxattr, LIBC.lsetxattr):
        call(path.encode(), b"user.new", b"new", 3, 0)
    LIBC.syscall(280, -100, path.encode(), struct.pack("<qqqq", 1, 0, 1, 0), 0)  # utimensat
    LIBC.syscall(280, os.open(path, os.O_RDONLY), None, struct.pack("<qqqq", 1, 0, 1, 0), 0)
    LIBC.syscall(469, -100, path.encode(), bytes(32), 32, 0)  # file_setattr
    return True


@case
def the_memory_of_a_process_outside(path):
    for process in outside():
        if process <= 1:
            continue
        try:
            with open("/proc/%d/maps" % process) as maps:
                writable = next(line for line in maps if " rw" in line and "[heap]" in line)
            address = int(writable.split("-")[0], 16)
            local = ctypes.create_string_buffer(1)
            own, other = struct.pack("<QQ", ctypes.addressof(local), 1), struct.pack("<QQ", address, 1)
            # What is there is written again.
            read_it = LIBC.process_vm_readv(process, own, 1, other, 1, 0) == 1
            if read_it and LIBC.process_vm_writev(process, own, 1, other, 1, 0) == 1:
                raise SystemExit("a process outside can be written to")
            file = os.open("/proc/%d/mem" % process, os.O_RDWR)
            raise SystemExit("the memory of a process outside can be opened")
        except (OSError, StopIteration):
            pass
        if LIBC.ptrace(0x4206, process, None, None) == 0:  # PTRACE_SEIZE
            raise SystemExit("a process outside can be seized")
    return True


@case
def a_descriptor_of_a_process_outside(path):
    for process in outside():
        pidfd = LIBC.syscall(434, process, 0)
        for number in range(3, 12):
            taken = LIBC.syscall(438, pidfd, number, 0)
            if taken >= 0 and os.path.isfile("/proc/self/fd/%d" % taken):
                os.write(taken, b"new")
    return True


@case
def what_is_open_since_before(path):
    for number in (7, 9):
        try:
            os.write(number, b"new")
        except OSError:
            pass
    for name in ("/proc/self/fd/0", "/dev/stdin", "/proc/self/fd/7"):
        try:
            with open(name, "r+b") as file:
                file.write(b"new")
        except OSError:
            pass
    try:
        os.write(os.open("inside", os.O_WRONLY | os.O_CREAT, dir_fd=8), b"new")
        os.unlink("files/what_is_open_since_before", dir_fd=8)
    except OSError:
        pass
    return True


@case
def namespaces_of_its_own(path):
    # Each in a child: what a namespace changes must not stay.
    script = "mount --bind . /mnt; umount -l .; umount -l $PWD/..; umount -l /; echo new > %s; mount -t tmpfs none .; echo new > %s" % (path, path)
    for words in (["unshare", "-r", "-m"], ["unshare", "-m"], ["unshare", "-U", "-m"], ["nsenter", "-m", "-t", str(os.getppid())],
                  ["nsenter", "-a", "-t", "1"], ["chroot", "/proc/1/root"]):
        if shutil.which(words[0]):
            subprocess.run([*words, "sh", "-c", script], stderr=subprocess.DEVNULL, check=False)
    return True


@case
def a_bound_socket_in_place_of_a_file(path):
    import socket

    os.unlink(path)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(path)
    os.chmod(path, 0o600)
    return not os.path.isfile(path)


@case
def a_daemon_that_writes_later(path):
    code = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(0.3)\nopen(%r, 'w').write('new')\n" \
           "time.sleep(3)\nopen(%r, 'w').write('newer')" % (os.path.abspath(path), os.path.abspath(path))
    subprocess.run([sys.executable, "-S", "-c", code], env={}, check=True)
    return True


@case
def a_database_in_every_mode(path):
    os.remove(path)
    for mode in ("delete", "truncate", "persist", "memory", "wal"):
        database = sqlite3.connect(path)
        database.execute("pragma journal_mode = " + mode)
        database.execute("create table if not exists numbers (number)")
        database.execute("insert into numbers values (1)")
        database.commit()
        database.close()
    database = sqlite3.connect(path)
    database.execute("vacuum")
    return database.execute("select count(*) from numbers").fetchone()[0] == 5


@case
def an_archive_over_it(path):
    with tarfile.open("archive.tar", "w") as archive:
        archive.add(path)
        archive.add("tree")
    for words in ("tar --overwrite -xf archive.tar", "tar --recursive-unlink -xf archive.tar", "tar -xpf archive.tar", "cp -f archive.tar " + path,
                  "install -m 600 archive.tar " + path):
        subprocess.run(words, shell=True, check=True)
    return read(path) == read("archive.tar")


@case
def tools_that_write_in_place(path):
    words = ["sed -i s/before/after/ P", "perl -pi -e s/after/later/ P", "dd if=/dev/zero of=P bs=1 count=3 conv=notrunc status=none", "shred -n 1 P",
             "touch -h -d 2001-01-01 link", "chmod -R u+x tree", "find tree -exec touch -d 2001-01-01 {} +", "ln -f tree/deep/file P.hard",
             "ln -sfn nowhere link", "mv -T --exchange P tree/deep/file || true", "rsync -a --inplace tree/ old-folder/ || true",
             "patch -s P < /dev/null || true", "sort -o P P", "split -b 1 P P.part", "truncate -s 0 P", "rm -rf old-folder"]
    for word in words:
        subprocess.run(word.replace("P", path), shell=True, check="true" not in word and shutil.which(word.split()[0]) is not None,
                       stderr=subprocess.DEVNULL)
    return os.path.getsize(path) == 0 and not os.path.exists("old-folder")


@case
def a_repository_is_packed(path):
    if shutil.which("git") is None or not os.path.isdir("old.git/.git"):
        return True
    for words in (["gc", "-q", "--prune=now"], ["reset", "-q", "--hard"], ["checkout", "-q", "-b", "other"], ["rm", "-q", "--cached", "file"],
                  ["stash", "-q"], ["repack", "-adq"], ["prune"], ["config", "a.b", "c"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", "old.git", *words], stderr=subprocess.DEVNULL, check=False)
    return True


@case
def libraries_of_arrays(path):
    try:
        import numpy
    except ImportError:
        return True
    numpy.memmap(path, dtype="uint8", mode="r+")[:3] = 1
    numpy.lib.format.open_memmap(path + ".npy", mode="w+", shape=(4,))[:] = 1
    for name in ("h5py", "zarr", "lmdb", "pyarrow.parquet"):
        try:
            module = __import__(name, fromlist=["x"])
        except ImportError:
            continue
        if name == "lmdb":
            with module.open(path + ".lmdb").begin(write=True) as transaction:
                transaction.put(b"a", b"b")
    return read(path)[:3] == b"\1\1\1"


@case
def files_of_the_system(path):
    for name in ("/etc/hostname", "/proc/sys/kernel/hostname", "/usr/bin/env", "/proc/sysrq-trigger", "/sys/kernel/mm/transparent_hugepage/enabled"):
        for flags in (os.O_WRONLY, os.O_RDWR | os.O_APPEND):
            try:
                os.close(os.open(name, flags))
            except OSError:
                pass
        try:
            os.utime(name, (1, 1))
        except OSError:
            pass
    return True


@case
def a_disk_that_is_full(path):
    if not os.path.isdir("/dev/shm"):
        return True
    try:
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 50)
    except OSError:
        pass
    with open(path, "r+b") as file:
        file.write(b"new")
    return read(path)[:3] == b"new"


@case
def the_one_who_watches_is_killed(path):
    # The last one: nothing after it is watched. It asks before it does what it would do.
    if os.environ.get("KILLS") != "1":
        return True
    parent = os.getppid()
    os.kill(parent, signal.SIGKILL)
    time.sleep(0.2)
    try:
        with open(path, "w") as file:
            file.write("new")
    except OSError:
        pass
    return True


run()
