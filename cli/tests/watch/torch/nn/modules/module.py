import types


def register_module_forward_pre_hook(_hook):
    return types.SimpleNamespace(remove=lambda: None)
