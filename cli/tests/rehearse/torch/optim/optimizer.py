HOOKS = []


def register_optimizer_step_post_hook(hook):
    HOOKS.append(hook)


class Optimizer:
    def __init__(self, parameters):
        self.param_groups, self.state = [{"params": list(parameters)}], {}

    def state_dict(self):
        return {"state": self.state}

    def load_state_dict(self, states):
        from ..cuda import memory

        self.state = dict(states["state"], address=memory.allocate(states["size"]))

    def step(self):
        for hook in HOOKS:
            hook(self, (), {})
