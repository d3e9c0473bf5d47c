"""Operations of torch as its dispatcher sees them."""

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """Lists the operations of a block. note(function, arguments, options, result) is called after each of them."""

    def __init__(self, note=lambda *_: None):
        super().__init__()
        self.functions, self.note = [], note

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.functions.append(function)
        self.note(function, args, kwargs or {}, result)
        return result

    @property
    def names(self):
        return [function.overloadpacket.__name__ for function in self.functions]
