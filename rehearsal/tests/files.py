"""A script that writes in every way that trainings do, in a folder whose files must stay as they are.

Run by `files.rs` in a folder with `old.txt`, `data/a.bin`, `data/b.bin`, `out/checkpoint-1/model.bin`, `link` (to `data`).
It reads back what it wrote; `files.rs` then looks at the originals and the copies."""

import ctypes
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile

CASES = []


def case(function):
    CASES.append(function)
    return function


def read(path):
    with open(path, "rb") as file:
        return file.read()


def raises(kind, function, *args):
    try:
        function(*args)
    except kind:
        return True
    raise AssertionError(f"{function} {args} did not raise {kind}")


@case
def writing_replaces_and_reads_back():
    with open("old.txt", "w") as file:
        file.write("new")
    assert read("old.txt") == b"new" and os.path.getsize("old.txt") == 3
    assert os.stat("old.txt").st_size == 3 and os.path.exists("old.txt")


@case
def appending_and_changing_in_place_keep_what_was_there():
    with open("data/a.bin", "ab") as file:
        file.write(b"+")
    assert read("data/a.bin") == b"aaaa+"
    with open("data/a.bin", "r+b") as file:
        file.seek(1)
        file.write(b"X")
    assert read("data/a.bin") == b"aXaa+"
    os.truncate("data/a.bin", 2)
    assert read("data/a.bin") == b"aX"


@case
def saving_then_loading():
    os.makedirs("runs/one/two")
    with open("runs/one/two/state.pkl", "wb") as file:
        pickle.dump({"a": list(range(1000))}, file)
    with open("runs/one/two/state.pkl", "rb") as file:
        assert pickle.load(file)["a"][999] == 999
    assert os.listdir("runs/one") == ["two"] and sorted(os.listdir("runs/one/two")) == ["state.pkl"]
    assert "runs" in os.listdir(".") and "old.txt" in os.listdir(".")


@case
def a_new_file_takes_the_place_of_an_old_one():
    with open("data/b.tmp", "wb") as file:
        file.write(b"new b")
    os.replace("data/b.tmp", "data/b.bin")
    assert read("data/b.bin") == b"new b" and not os.path.exists("data/b.tmp")
    assert sorted(os.listdir("data")) == ["a.bin", "b.bin"], os.listdir("data")


@case
def checkpoints_rotate():
    os.makedirs("out/tmp-checkpoint-2")
    with open("out/tmp-checkpoint-2/model.bin", "wb") as file:
        file.write(b"two")
    os.rename("out/tmp-checkpoint-2", "out/checkpoint-2")
    shutil.rmtree("out/checkpoint-1")
    assert os.listdir("out") == ["checkpoint-2"], os.listdir("out")
    assert not os.path.exists("out/checkpoint-1/model.bin")
    raises(FileNotFoundError, open, "out/checkpoint-1/model.bin", "rb")
    os.mkdir("out/checkpoint-1")
    assert os.listdir("out/checkpoint-1") == []
    with open("out/checkpoint-1/other.bin", "wb") as file:
        file.write(b"again")
    assert os.listdir("out/checkpoint-1") == ["other.bin"]
    os.symlink("checkpoint-2", "out/latest")
    assert read("out/latest/model.bin") == b"two" and os.readlink("out/latest") == "checkpoint-2"
    assert os.path.realpath("out/latest").endswith("/out/checkpoint-2")
    with os.scandir("out") as entries:
        kinds = {entry.name: (entry.is_dir(), entry.is_symlink()) for entry in entries}
    assert kinds == {"checkpoint-1": (True, False), "checkpoint-2": (True, False), "latest": (True, True)}, kinds
    assert sorted(name for _, names, files in os.walk("out") for name in names + files) == [
        "checkpoint-1", "checkpoint-2", "latest", "model.bin", "other.bin"]
    shutil.move("out/checkpoint-2", "out/best")
    assert read("out/best/model.bin") == b"two" and not os.path.lexists("out/checkpoint-2")


@case
def whole_folders_are_copied_moved_and_removed():
    shutil.copytree("data", "copy")
    assert read("copy/b.bin") == b"new b"
    os.rename("copy", "moved")
    shutil.copy2("old.txt", "moved/old.txt")
    raises(OSError, os.rmdir, "moved")
    shutil.rmtree("data")
    assert not os.path.exists("data") and "data" not in os.listdir(".")
    raises(FileNotFoundError, os.listdir, "data")


@case
def links_of_folders_lead_to_copies():
    assert not os.path.exists("link/a.bin"), "data was removed"
    os.mkdir("data")
    with open("link/c.bin", "wb") as file:
        file.write(b"c")
    assert read("data/c.bin") == b"c" and os.listdir("link") == ["c.bin"]


@case
def what_must_fail_fails():
    raises(FileNotFoundError, open, "nowhere/file", "w")
    raises(FileExistsError, open, "old.txt", "x")
    raises(FileExistsError, os.mkdir, "out")
    raises(FileNotFoundError, os.remove, "missing")
    raises(IsADirectoryError, open, "out", "w")
    raises(OSError, os.rmdir, "out")
    raises(FileNotFoundError, os.rename, "missing", "other")
    raises(NotADirectoryError, os.listdir, "old.txt")


@case
def descriptors_of_folders_lead_the_same_way():
    folder = os.open(".", os.O_RDONLY)
    file = os.open("by_fd.txt", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
    os.write(file, b"fd")
    os.close(file)
    assert read("by_fd.txt") == b"fd" and os.stat("by_fd.txt", dir_fd=folder).st_size == 2
    assert "by_fd.txt" in os.listdir(folder)
    os.rename("by_fd.txt", "fd.txt", src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink("fd.txt", dir_fd=folder)
    os.close(folder)
    assert not os.path.exists("fd.txt")


@case
def a_new_folder_can_be_gone_into():
    here = os.getcwd()
    os.makedirs("inside/deep")
    os.chdir("inside/deep")
    assert os.getcwd() == here + "/inside/deep", os.getcwd()
    with open("file", "w") as file:
        file.write("deep")
    os.chdir("../..")
    assert os.getcwd() == here and read("inside/deep/file") == b"deep"


@case
def what_moves_hides_what_was_there_before():
    os.makedirs("new/deep")
    with open("new/deep/other.bin", "wb") as file:
        file.write(b"other")
    shutil.rmtree("past")
    os.rename("new", "past")
    assert os.listdir("past/deep") == ["other.bin"], os.listdir("past/deep")


@case
def what_was_removed_does_not_move_with_its_folder():
    os.remove("kept/gone.bin")
    shutil.rmtree("kept/gone")
    os.rename("kept", "moved-later")
    assert sorted(os.listdir("moved-later")) == ["stays.bin"], os.listdir("moved-later")
    os.makedirs("exchanged")
    os.remove("moved-later/stays.bin")
    assert ctypes.CDLL(None).renameat2(-100, b"moved-later", -100, b"exchanged", 2) == 0
    assert os.listdir("exchanged") == os.listdir("moved-later") == [], os.listdir("exchanged")


@case
def two_entries_change_places():
    libc = ctypes.CDLL(None, use_errno=True)
    os.makedirs("one/new")
    assert libc.renameat2(-100, b"one", -100, b"other", 2) == 0, os.strerror(ctypes.get_errno())
    assert os.listdir("other") == ["new"] and read("one/deep/model.bin") == b"other"
    assert libc.renameat2(-100, b"one", -100, b"one/deep", 2) == -1
    assert libc.renameat2(-100, b"one", -100, b"missing", 2) == -1
    assert libc.renameat2(-100, b"one/deep/model.bin", -100, b"another.txt", 2) == 0
    assert read("another.txt") == b"other" and read("one/deep/model.bin") == b"another"
    assert libc.renameat2(-100, b"one/deep/model.bin", -100, b"another.txt", 2) == 0


@case
def what_is_read_only_changes_its_name_and_mode():
    # Root may write it anyway.
    before = os.stat("read-only.txt")
    os.utime("read-only.txt", (1, 2))
    os.chmod("read-only.txt", 0o440)
    os.link("read-only.txt", "linked.txt")
    os.rename("read-only.txt", "renamed.txt")
    after = os.stat("renamed.txt")
    assert after.st_mode & 0o777 == 0o440 and after.st_mtime == 2, after
    assert (after.st_uid, after.st_gid, read("renamed.txt")) == (before.st_uid, before.st_gid, b"read only")


@case
def attributes_and_times_go_with_a_copy():
    before = os.stat("attributes.txt").st_mtime_ns
    os.chmod("attributes.txt", 0o600)
    assert os.stat("attributes.txt").st_mtime_ns == before
    with open("attributes.txt", "ab") as file:
        file.write(b"+")
    if os.environ.get("HAS_ATTRIBUTES"):
        assert os.getxattr("attributes.txt", "user.before") == b"kept"


@case
def modes_and_times():
    os.chmod("untouched.txt", 0o600)
    os.utime("untouched.txt", (1, 1))
    stat = os.stat("untouched.txt")
    assert stat.st_mode & 0o777 == 0o600 and stat.st_mtime == 1 and read("untouched.txt") == b"untouched"
    os.link("untouched.txt", "second.txt")
    with open("second.txt", "a") as file:
        file.write("!")
    assert read("untouched.txt") == b"untouched!"


@case
def temporary_files_are_as_ever():
    with tempfile.NamedTemporaryFile(dir=os.environ["OPEN_FOLDER"], delete=False) as file:
        file.write(b"temporary")
    os.replace(file.name, "from_temporary.bin")
    assert read("from_temporary.bin") == b"temporary" and not os.path.exists(file.name)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        with open(folder + "/x", "w") as file:
            file.write("x")
    assert not os.path.exists(folder)
    with open(os.environ["OPEN_FOLDER"] + "/cached", "w") as file:
        file.write("kept")


@case
def other_programs_see_the_same():
    subprocess.run("echo shell > shell.txt; mv shell.txt shell2.txt; cp shell2.txt s3.txt; rm s3.txt", shell=True, check=True)
    assert read("shell2.txt") == b"shell\n" and not os.path.exists("s3.txt")
    assert "shell2.txt" in subprocess.run(["ls"], capture_output=True, text=True).stdout.split()
    child = subprocess.run([sys.executable, "-c", "print(open('old.txt').read())"], capture_output=True, text=True)
    assert child.stdout == "new\n", child


@case
def children_with_an_environment_of_their_own_are_held_back():
    with open("child.txt", "w") as file:
        file.write("before")
    subprocess.run(["rm", "child.txt"], env={"PATH": os.environ["PATH"]}, check=True)
    assert not os.path.exists("child.txt")
    subprocess.run([sys.executable, "-S", "-c", "open('untouched.txt', 'w').write('child')"], env={"LD_PRELOAD": ""}, check=True)
    assert read("untouched.txt") == b"child"
    subprocess.run(["sh", "-c", "env -i /bin/sh -c 'echo emptied > untouched.txt'"], check=True)
    assert read("untouched.txt") == b"emptied\n"
    opens = (os.POSIX_SPAWN_OPEN, 1, "untouched.txt", os.O_WRONLY | os.O_TRUNC, 0o600)
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}, file_actions=[opens]), 0)
    assert read("untouched.txt") == b""


@case
def attributes_change_through_descriptors():
    with open("untouched.txt", "rb") as file:
        os.fchmod(file.fileno(), 0o640)
        os.utime(file.fileno(), (2, 2))
    found = os.stat("untouched.txt")
    assert found.st_mode & 0o777 == 0o640 and found.st_mtime == 2
    assert os.stat("another.txt").st_mode & 0o777 == 0o644
    file = os.open("another.txt", os.O_RDONLY)
    os.fchmod(file, 0o600)
    os.fchown(file, os.getuid(), os.getgid())
    os.utime(file, (3, 3))
    os.close(file)
    assert os.stat("another.txt").st_mode & 0o777 == 0o600 and os.stat("another.txt").st_mtime == 3


@case
def a_mode_is_changed_by_each_function():
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.lchmod(b"untouched.txt", 0o604) == 0 and os.stat("untouched.txt").st_mode & 0o777 == 0o604


@case
def a_shell_is_started_without_any_environment():
    code = "import os, ctypes; ctypes.CDLL(None).clearenv(); os.system('/bin/rm b.bin'); os.popen('echo new > c.bin').close()"
    code += "; ctypes.CDLL(None).system(b'echo new > d.bin')"
    subprocess.run([sys.executable, "-c", code], cwd="data", check=True)
    assert not os.path.exists("data/b.bin") and read("data/c.bin") == read("data/d.bin") == b"new\n"


@case
def sockets_have_paths_of_their_own():
    import socket

    os.mkdir("sockets")
    for _ in range(2):
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("sockets/s")
        listening.listen()
        socket.socket(socket.AF_UNIX).connect("sockets/s")
        raises(OSError, socket.socket(socket.AF_UNIX).bind, "sockets/s")
        os.unlink("sockets/s")


@case
def pipes_are_written_by_the_names_of_their_descriptors():
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]:
        said = subprocess.run(["sh", "-c", "echo said > " + name], capture_output=True, text=True)
        assert said.stdout == "said\n", (name, said)


@case
def copies_appear_whole():
    loop = "for i in 1 2 3 4 5 6 7 8 9; do echo line >> appended.bin; done"
    children = [subprocess.Popen(["sh", "-c", loop]) for _ in range(8)]
    assert all(child.wait() == 0 for child in children)
    assert read("appended.bin").count(b"line\n") == 72 and os.path.getsize("appended.bin") == (4 << 20) + 72 * 5


@case
def holes_are_not_copied():
    with open("sparse.bin", "r+b") as file:
        file.write(b"new")
    found = os.stat("sparse.bin")
    assert found.st_size == 1 << 30 and found.st_blocks * 512 < 1 << 20, found


@case
def what_must_be_there_is():
    with open("result.json", "w") as file:
        json.dump({"done": True}, file)
    assert json.load(io.open("result.json")) == {"done": True}


for function in CASES:
    function()
    print("passed", function.__name__)
