"""Aims at what protects the files: by calls of the system that say what they change in unusual ways, and by processes outside. As `attacks.py`.

`OUTSIDE` in the environment has the process ids of programs outside of the run."""

import ctypes
import errno
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import tempfile

from attack_cases import LIBC, case, read, run

OUTSIDE = [int(process) for process in os.environ.get("OUTSIDE", "").split(",") if process]


def harm(what):
    print("HARM:", what, file=sys.stderr, flush=True)


@case
def by_the_rules_of_openat2(path):
    here = os.open(".", os.O_RDONLY)
    for rules, name in ((0x10, "/" + path), (0x10, "/../" + path), (8, path), (4, path), (2, path), (1, path), (0x10, "/files/made")):
        for flags in (os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_CREAT):
            how = struct.pack("<QQQ", flags, 0o600 if flags & os.O_CREAT else 0, rules)
            file = LIBC.syscall(437, here, name.encode(), how, 24)
            if file >= 0:
                os.write(file, b"new")
    return read(path) == b"new"


@case
def by_a_path_that_is_nearly_too_long(path):
    padded = ("./" * ((4095 - len(path)) // 2) + path).encode()
    whole = os.path.abspath(path)
    slashes = ("/" * (4096 - len(whole)) + whole[1:]).encode()
    LIBC.syscall(76, slashes, 1)
    LIBC.syscall(90, slashes, 0o600)
    LIBC.syscall(87, padded)
    return not os.path.exists(path)


@case
def by_as_many_links_as_a_path_may_have(path):
    os.mkdir("links")
    os.symlink("../" + path, "links/1")
    for number in range(2, 41):
        os.symlink(str(number - 1), "links/%d" % number)
    for number in (38, 39, 40):
        LIBC.syscall(76, b"links/%d" % number, 1)
    return os.path.getsize(path) == 1


@case
def by_links_to_what_is_open(path):
    file = os.open(path, os.O_RDONLY)
    for number in range(3, 40):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(file, number)
    folder = tempfile.mkdtemp()
    for number in range(3, 40):
        for name, target in (("self", "/proc/self/fd/%d"), ("thread", "/proc/thread-self/fd/%d"), ("device", "/dev/fd/%d"),
                             ("around", "/proc/../proc/self/fd/%d")):
            link = "%s/%s%d" % (folder, name, number)
            os.symlink(target % number, link)
            for way in (link, target % number):
                if os.path.exists(way) and os.path.realpath(way) == os.path.abspath(path):
                    LIBC.syscall(90, way.encode(), 0o600)
                    LIBC.syscall(76, way.encode(), 1)
                    LIBC.syscall(2, way.encode(), os.O_WRONLY | os.O_TRUNC, 0)
    os.closerange(3, 40)
    return True


@case
def by_a_link_that_is_opened_as_if_it_were_new(path):
    folder = tempfile.mkdtemp()
    os.symlink(os.path.abspath(path), folder + "/link")
    file = LIBC.syscall(2, (folder + "/link").encode(), os.O_WRONLY | os.O_EXCL, 0)
    if file >= 0:
        os.write(file, b"new")
    return read(path).startswith(b"new")


@case
def by_a_path_in_memory_that_may_only_be_written(path):
    LIBC.mmap.restype = ctypes.c_void_p
    for rights in (2, 4):
        place = LIBC.mmap(None, 4096, 3, 0x22, -1, 0)
        ctypes.memmove(place, path.encode() + b"\0", len(path) + 1)
        LIBC.mprotect(ctypes.c_void_p(place), 4096, rights)
        LIBC.syscall(76, ctypes.c_void_p(place), 1)
        LIBC.syscall(90, ctypes.c_void_p(place), 0o600)
    return os.path.getsize(path) == 1


@case
def by_events_that_bring_open_files(path):
    watch = LIBC.fanotify_init(0, os.O_RDWR)
    if watch < 0 or LIBC.fanotify_mark(watch, 1, ctypes.c_uint64(0x20), -100, path.encode()) != 0:
        return True
    read(path)
    event = os.read(watch, 4096)
    try:
        os.write(int.from_bytes(event[16:20], sys.byteorder, signed=True), b"new")
    except OSError:
        pass
    os.close(watch)
    return True


@case
def by_the_memory_of_a_crash(path):
    # The system writes it to `core` in the working folder, as far as it writes files at all.
    child = os.fork()
    if child == 0:
        os.chdir(os.path.dirname(path))
        for wanted in (resource.RLIM_INFINITY, 1 << 20):
            try:
                resource.setrlimit(resource.RLIMIT_CORE, (wanted, wanted))
            except (OSError, ValueError):
                pass
        os.kill(os.getpid(), signal.SIGSEGV)
    os.waitpid(child, 0)
    return True


@case
def by_keys_typed_into_a_terminal(path):
    child, terminal = pty.fork()
    if child == 0:
        typed = LIBC.ioctl(0, 0x5412, ctypes.c_char_p(b"r"))
        os._exit(7 if typed == 0 else 0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7:
        harm("a key was typed")
    os.close(terminal)
    return True


def become(user):
    """Becomes another user, if this one is root, without rights; the process stays one that others may look into."""
    if os.getuid() == 0:
        for right in range(41):
            LIBC.prctl(24, right, 0, 0, 0)
        if user:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        LIBC.prctl(4, 1, 0, 0, 0)


def in_a_child(act):
    for user in (0, 65534):
        child = os.fork()
        if child == 0:
            try:
                become(user)
                act()
            finally:
                os._exit(0)
        os.waitpid(child, 0)


@case
def by_the_files_of_processes_outside(path):
    def act():
        for process in OUTSIDE:
            for name in ("/proc/%d/root%s" % (process, os.path.abspath(path)), "/proc/%d/cwd/%s" % (process, path)):
                try:
                    with open(name, "w") as file:
                        file.write("new")
                except OSError:
                    pass

    os.chmod(path, 0o666)
    in_a_child(act)
    return True


@case
def by_the_root_of_a_process_outside(path):
    for process in OUTSIDE:
        child = os.fork()
        if child == 0:
            try:
                os.chroot("/proc/%d/root" % process)
                with open(os.path.abspath(path), "w") as file:
                    file.write("new")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    return True


@case
def by_processes_outside_that_are_taken_hold_of(path):
    def act():
        for process in OUTSIDE:
            if LIBC.ptrace(0x4206, process, None, None) == 0:
                harm("process %d was seized" % process)
            if LIBC.syscall(438, LIBC.syscall(434, process, 0), 0, 0) >= 0:
                harm("process %d gave a descriptor" % process)
            try:
                os.close(os.open("/proc/%d/mem" % process, os.O_RDWR))
                harm("the memory of process %d was opened" % process)
            except OSError:
                pass

    in_a_child(act)
    return True


@case
def by_settings_of_groups_of_processes(path):
    for folder, _, files in os.walk("/sys/fs/cgroup"):
        for name in {"notify_on_release", "release_agent", "cgroup.procs", "cgroup.max.depth"} & set(files):
            try:
                file = os.open(os.path.join(folder, name), os.O_WRONLY)
            except OSError:
                continue
            # Behind a filter it is a copy.
            if os.readlink("/proc/self/fd/%d" % file).startswith("/sys"):
                harm(folder + "/" + name)
        break
    return True


@case
def devices_of_all_users(path):
    before = os.stat("/dev/null")
    for change in (lambda: os.chmod("/dev/null", 0o666), lambda: LIBC.syscall(90, b"/dev/null", 0o666), lambda: os.utime("/dev/null")):
        try:
            change()
        except OSError:
            pass
    try:
        with open("/dev/made-by-an-attack", "w") as file:
            file.write("new")
        os.unlink("/dev/made-by-an-attack")
        harm("an entry in /dev")
    except OSError:
        pass
    if os.stat("/dev/null").st_ctime_ns != before.st_ctime_ns:
        harm("/dev/null")
    with open("/dev/null", "w") as file:
        file.write("x")
    return True


@case
def signals_to_processes_outside(path):
    for process in OUTSIDE:
        pidfd = LIBC.syscall(434, process, 0)
        for words in ((62, process, 9), (424, pidfd, 9, None, 0), (62, -os.getpgid(process), 9), (234, process, process, 9), (200, process, 9)):
            if LIBC.syscall(*words) == 0:
                harm("signal to %d by call %d" % (process, words[0]))
        if LIBC.syscall(62, process, 0) != 0 and ctypes.get_errno() == errno.ESRCH:
            harm("process %d is gone" % process)
        try:
            resource.prlimit(process, resource.RLIMIT_CPU, (1, 1))
            harm("limits of process %d" % process)
        except OSError:
            pass
    subprocess.run(["sh", "-c", "kill -9 %s" % " ".join(map(str, OUTSIDE))], env={}, stderr=subprocess.DEVNULL, check=False)
    # Its own processes end as before, alone and in a group, and one that has ended already is no error.
    own, group = subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sleep", "60"], start_new_session=True)
    os.kill(own.pid, signal.SIGKILL)
    os.killpg(group.pid, signal.SIGTERM)
    ended = (own.wait(), group.wait())
    zombie = os.fork()
    if zombie == 0:
        os._exit(0)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    os.kill(zombie, signal.SIGTERM)
    os.waitpid(zombie, 0)
    return ended == (-9, -15)


run()
