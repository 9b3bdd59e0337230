"""A script of a rehearsal's tests: its words say what it does, one after the other."""

import importlib.util
import os
import signal
import sys
import time

assert importlib.util.find_spec("torch") is not None, "libraries ask before they import"
import torch  # noqa: E402

parameter = torch.Tensor(torch.cuda.memory.allocate(1 << 20)) if "without-card" not in sys.argv else torch.Tensor()
optimizer = torch.optim.Optimizer([parameter])
kept = []
for word in sys.argv[1:]:
    what, _, value = word.partition("=")
    if what == "steps":
        for _ in range(int(value)):
            optimizer.step()
    elif what == "allocate":
        torch.cuda.memory.allocate(int(value))
    elif what == "passing":
        torch.cuda.memory.free(torch.cuda.memory.allocate(int(value), limit=int(os.environ["VRAMLAB_REHEARSAL_MEMORY"])), int(value))
    elif what == "resume":
        optimizer.load_state_dict({"state": {}, "size": int(value)})
    elif what == "leak":
        for _ in range(int(value)):
            kept.append(torch.Tensor(torch.cuda.memory.allocate(3 << 20)))
            optimizer.step()
    elif what == "fills":
        cache = {}
        for step in range(int(value)):
            cache[step] = torch.Tensor(torch.cuda.memory.allocate((1 << 20) + 512 * step))
            optimizer.step()
    elif what == "lengths":
        for step in range(int(value)):
            size = 1000 * (step * 7 % 5 + 1)
            torch.cuda.memory.free(torch.cuda.memory.allocate(size), size)
            optimizer.step()
    elif what == "smi":
        os.system("nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits")
    elif what == "raise":
        torch.save(lambda: "cannot be pickled", "nowhere.pt")
    elif what == "raise-caught":
        import logging
        import threading

        def fail():
            torch.save(lambda: "cannot be pickled", "nowhere.pt")

        try:
            fail()
        except Exception:
            logging.exception("caught")
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    elif what == "need":
        torch.cuda.memory.allocate(int(value), limit=int(os.environ["VRAMLAB_REHEARSAL_MEMORY"]))
    elif what == "streams":
        # A program of several streams that asks about one: with late events it reserves more.
        more, size = value.split(",")
        with open(os.environ["VRAMLAB_REHEARSAL_LOG"], "a") as log:
            log.write('{"event":"late_events","name":""}\n')
        late = int(more) if os.environ.get("VRAMLAB_REHEARSAL_LATE_EVENTS") == "1" else 0
        torch.cuda.memory.allocate(int(size) + late, limit=int(os.environ["VRAMLAB_REHEARSAL_MEMORY"]))
    elif what == "batch_size":
        torch.cuda.memory.allocate(int(value) * 10**7, limit=int(os.environ["VRAMLAB_REHEARSAL_MEMORY"]))
    elif what == "full":
        torch.cuda.memory.allocate(8, limit=0)
    elif what == "full-caught":
        try:
            torch.cuda.memory.allocate(8, limit=0)
        except torch.OutOfMemoryError:
            pass
    elif what == "full-then-raise":
        try:
            torch.cuda.memory.allocate(8, limit=0)
        except torch.OutOfMemoryError:
            raise RuntimeError("a smaller batch would help")
    elif what == "reset":
        torch._C._cuda_resetPeakMemoryStats(0)
    elif what == "forget":
        torch.cuda.memory.NOW = 1
    elif what == "evaluate":
        torch.nn.Module().eval()
    elif what == "train":
        network = torch.nn.Module()
        network.train()
    elif what == "save":
        torch.save({"weights": 1}, value)
    elif what == "exit":
        sys.exit(int(value))
    elif what == "fail-of-rank":
        assert os.environ["RANK"] != value, "this rank fails"
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "crash":
        __import__("ctypes").string_at(0)
    elif what == "outlive":
        # A child of a child, in a session of its own, that nobody waits for and that cannot be asked to end.
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                with open(value, "w") as file:
                    file.write(str(os.getpid()))
                time.sleep(600)
            os._exit(0)
        os.wait()
        while not os.path.exists(value) or not open(value).read():
            time.sleep(0.01)
    elif what == "leave":
        os._exit(0)
    elif what == "sleep":
        time.sleep(float(value))
    elif what == "print":
        for _ in range(int(value)):
            sys.stdout.write("x" * 1023 + "\n")
    elif what == "part":
        print(value, end="", flush=True)
    elif what == "terminal":
        print("columns:", os.get_terminal_size(0).columns)
        try:
            input()
        except EOFError:
            print("nothing to read")
    elif what == "fork":
        child = os.fork()
        if child == 0:
            optimizer.step()
            os._exit(0)
        os.waitpid(child, 0)
    elif what == "garbage":
        folder = [entry for entry in os.environ["PYTHONPATH"].split(":") if "rehearsal" in entry][0] + "/../answers/"
        for name, text in (("1.json", "\x1b]0;x\x07{"), ("2.json", '{"pid": "no"}'), ("3.json", "[" * 100000),
                           ("4.json", '{"pid":4,"why":"steps","cards":[{"index":99999999}]}'), ("5.started", "{}")):
            with open(folder + name, "w") as file:
                file.write(text)
        with open(folder + "4.pickle", "wb") as file:
            file.write(b"cos\nsystem\n(S'touch executed'\ntR.")
    elif what == "user":
        assert os.environ.get("USERS_OWN") == "ran", "the user's own sitecustomize"
print("the script's last line")
