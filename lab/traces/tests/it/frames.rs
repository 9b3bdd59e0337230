//! Whose a frame is.

use lab_traces::snapshot::FrameText;
use lab_traces::stacks::{Origin, origin};

#[test]
fn each_frame_is_somebodys() {
    let of = |filename, line, name| origin(&FrameText { filename, line, name });
    let hash = "/tmp/t/5k/c5kw7og7fbjlhrzqni56ortnl2sovwoiz7o373gfl6ogxxosrawg.py";
    for (file, line, name, expected) in [
        ("/home/me/train.py", 7, "forward", Origin::Own),
        ("C:\\Users\\me\\train.py", 7, "forward", Origin::Own),
        ("/tmp/ipykernel_7/123.py", 1, "<module>", Origin::Own),
        ("<ipython-input-3-0a>", 1, "<module>", Origin::Own),
        ("<string>", 1, "<module>", Origin::Text),
        ("/v/lib/python3.11/site-packages/torch/nn/modules/conv.py", 553, "forward", Origin::Torch),
        ("/src/pytorch/torch/optim/adam.py", 5, "step", Origin::Torch),
        (hash, 2405, "call", Origin::Torch),
        ("/v/lib/python3.11/site-packages/transformers/trainer.py", 5, "train", Origin::Library),
        ("/v/bin/torchrun", 8, "<module>", Origin::Library),
        ("/usr/lib/python3.11/runpy.py", 5, "run", Origin::Interpreter),
        ("<frozen importlib._bootstrap>", 5, "_load", Origin::Interpreter),
        ("<vramlab>", 5, "call", Origin::Interpreter),
        ("/usr/local/src/Python-3.11.7/Python/ceval.c", 4769, "_PyEval_EvalFrameDefault", Origin::Native),
        ("??", 0, "torch::unwind::unwind()", Origin::Native),
        ("/v/site-packages/torch/lib/libtorch_cpu.so", 107817241, "??", Origin::Native),
        ("/lib/x86_64-linux-gnu/libc.so.6", 561652, "??", Origin::Native),
        ("/v/bin/python3.11", 4224, "_start", Origin::Native),
    ] {
        assert_eq!(of(file, line, name), expected, "{file}");
    }
}
