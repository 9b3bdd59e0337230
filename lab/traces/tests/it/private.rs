//! Functions of files that no one outside sees. The files are compiled here once more, instead of the whole library for its tests.

use std::io::Read;

#[path = "../../src/stacks/native.rs"]
#[allow(dead_code, reason = "not every function has a test of its own")]
mod native;
#[path = "../../src/snapshot/parse_error.rs"]
mod parse_error;
#[path = "../../src/explain/script.rs"]
mod script;
#[path = "../../src/snapshot/source.rs"]
#[allow(dead_code, reason = "not every function has a test of its own")]
mod source;

#[test]
fn operators_and_nodes_are_found_in_names() {
    assert_eq!(native::operator("at::_ops::conv2d::call(at::Tensor const&)"), Some("conv2d"));
    assert_eq!(native::operator("at::_ops::add_Tensor::redispatch(c10::DispatchKeySet)"), Some("add"));
    assert_eq!(native::operator("at::_ops::_to_copy::call(at::Tensor const&)"), Some("_to_copy"));
    assert_eq!(native::operator("at::_ops::to_dtype_layout::call(at::Tensor const&)"), Some("to"));
    assert_eq!(native::operator("at::native::add(at::Tensor const&)"), None);
    let applied = "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)";
    assert_eq!(native::node(applied), Some("AddmmBackward0"));
    assert_eq!(
        native::node("torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)"),
        Some("AccumulateGrad")
    );
    assert_eq!(native::node("torch::autograd::PyNode::apply(int)"), None);
    assert!(native::is_engine(
        "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"
    ));
    assert_eq!(native::meaning("torch::unwind::unwind()"), None);
    assert_eq!(native::meaning("??"), None);
    let cublas = "at::cuda::(anonymous namespace)::allocateCUBLASWorkspace(int)";
    assert_eq!(native::meaning(cublas).as_deref(), Some("at::cuda::allocateCUBLASWorkspace"));
}

#[test]
fn the_outermost_line_of_the_program_is_the_script() {
    let traceback = "[rank0]: Traceback (most recent call last): [rank0]: File \"/opt/conda/bin/torchrun\", line 8, in <module> \
        [rank0]: File \"/home/me/fine tune.py\", line 93, in <module> [rank0]: main() [rank0]: File \"/home/me/model.py\", line 7, in main";
    assert_eq!(script::find(traceback).as_deref(), Some("'/home/me/fine tune.py'"));
    let two = format!("{traceback} Traceback (most recent call last): File \"b.py\", line 1, in <module>");
    assert_eq!(script::find(&two).as_deref(), Some("b.py"));
    for text in [
        "File \"/v/lib/python3.11/site-packages/torch/a.py\", line 3, in <module>",
        "File \"C:\\me\\train.py\", line 3, in <module>",
        "File \"<stdin>\", line 1, in <module>",
        "File \"/home/me/train.py\", line 3, in main",
        "File \"/home/me/train.py",
        "",
    ] {
        assert_eq!(script::find(text), None, "{text}");
    }
}

/// Gives three bytes at a time.
struct Slow(u8);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(3).min(usize::from(u8::MAX - self.0));
        for byte in &mut buffer[..count] {
            *byte = self.0;
            self.0 += 1;
        }
        Ok(count)
    }
}

#[test]
fn the_window_moves() {
    let mut source = source::Source::new(Slow(0), 1000);
    assert_eq!((source.byte("x").unwrap(), source.peek().unwrap()), (0, Some(1)));
    assert_eq!(source.take(7, "x").unwrap(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((source.array("x").unwrap(), source.offset()), ([8, 9], 10));
    let error = source.take(1 << 40, "a text").unwrap_err().error("f");
    assert_eq!(error.to_string(), "f: byte 10: a text needs 1099511627776 bytes, but the file ends after 245");
    assert!(source::Source::new(Slow(0), 100).take(200, "x").unwrap_err().error("f").to_string().contains("byte 100"));
}
