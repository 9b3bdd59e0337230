"""Prints the CPU time of each step in milliseconds, with or without a rehearsal; `measure.py` puts this folder on
PYTHONPATH. Imported before the script, it imports PyTorch a little earlier than the script would."""

import time

try:
    from torch.optim.optimizer import register_optimizer_step_post_hook
except ImportError:
    pass
else:
    last = [time.process_time()]

    def stepped(*_):
        now = time.process_time()
        print(f"processor {1000 * (now - last[0]):.2f}ms", flush=True)
        last[0] = now

    register_optimizer_step_post_hook(stepped)
