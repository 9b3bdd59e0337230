import types

_hooks = []


def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)
    return types.SimpleNamespace(remove=lambda: _hooks.remove(hook))


class Optimizer:
    def __init__(self):
        self.param_groups, self.state = [{"params": []}], {}

    def step(self):
        for hook in _hooks:
            hook(self, (), {})
