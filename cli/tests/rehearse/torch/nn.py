class Module:
    training = True

    def train(self, mode=True):
        self.training = mode
        return self

    def eval(self):
        return self.train(False)

    def parameters(self):
        from . import Tensor

        return [Tensor()]
