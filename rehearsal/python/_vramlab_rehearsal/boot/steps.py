"""How many steps the training has made, from the steps of its optimizers."""


class Steps:
    """Counts the steps of each optimizer; the one with the most counts. A new optimizer that takes over the parameters of one that
    stepped before it was made, and no more since, goes on with its count: scripts make one for each epoch."""

    def __init__(self):
        self.clear()

    def clear(self):
        # By identity of an optimizer: the optimizer itself, weakly, its count, and how many steps of all had been made when it was made.
        self.known = {}
        # By identity of an optimizer's first parameter: the count of the last one that stepped it, and when that was, in steps of all.
        self.of_parameters = {}
        self.total = 0

    def made(self, optimizer):
        """Notes a new optimizer."""
        import weakref

        self.known[id(optimizer)] = [weakref.ref(optimizer), None, self.total]

    def count(self, optimizer):
        """Counts a step of this optimizer, and returns how many the training has made."""
        parameter = self.first_parameter(optimizer)
        known = self.known.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            self.made(optimizer)
            known = self.known[id(optimizer)]
        if known[1] is None:
            before, last = self.of_parameters.get(parameter, (0, 0))
            known[1] = before if last <= known[2] else 0
        known[1] += 1
        self.total += 1
        self.of_parameters[parameter] = (known[1], self.total)
        return known[1]

    def first_parameter(self, optimizer):
        for group in getattr(optimizer, "param_groups", ()):
            for parameter in group["params"]:
                return id(parameter)
        return None
