//! The origin of a node: its module, and its line in the user's program.

use std::fmt;
use std::path::Path;

use super::modules::calls;

/// Origin of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Path of the module, such as `layers.0.attn`; empty for the network itself.
    pub module: String,
    /// File and line, such as `model.py:41`; empty if the export does not say.
    pub line: String,
}

impl Place {
    /// Reads the origin from a node's `nn_module_stack` and `stack_trace`.
    pub(super) fn new(modules: &str, trace: &str) -> Self {
        let module = calls(modules).next_back().map_or("", |call| call.path);
        Self { module: module.to_string(), line: line(trace) }
    }

    /// Formats the scope that memory is attributed to: `layers.0.attn (model.py:41)`.
    pub(super) fn scope(&self) -> String {
        match (self.module.as_str(), self.line.as_str()) {
            (module, "") => module.to_string(),
            ("", line) => line.to_string(),
            (module, line) => format!("{module} ({line})"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module.as_str(), self.line.as_str()) {
            ("", "") => f.write_str("the network"),
            ("", line) => f.write_str(line),
            (module, "") => f.write_str(module),
            (module, line) => write!(f, "{module}, {line}"),
        }
    }
}

/// Returns file and line of the innermost frame outside PyTorch; of the innermost frame if all are PyTorch's.
fn line(trace: &str) -> String {
    let frames = || trace.lines().filter_map(frame);
    let own = frames().rfind(|(file, _)| !file.contains("/torch/") && !file.contains("\\torch\\"));
    let Some((file, line)) = own.or_else(|| frames().next_back()) else { return String::new() };
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    format!("{name}:{line}")
}

/// Reads file and line of a frame: `File "model.py", line 41, in forward`.
fn frame(text: &str) -> Option<(&str, u32)> {
    let (file, rest) = text.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let digits = rest.split(',').next()?;
    Some((file, digits.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_module_and_the_users_own_line() {
        let modules = "L__self__,,__main__.Net;L__self___h_0,h.0,__main__.Block;L__self___h_0_fc,h.0.fc,torch.nn.modules.linear.Linear";
        let trace = "File \"/home/me/net.py\", line 41, in forward\n    x = self.fc(x)\n  File \"/x/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n    return F.linear(input, self.weight, self.bias)";
        assert_eq!(Place::new(modules, trace), Place { module: "h.0.fc".into(), line: "net.py:41".into() });
        assert_eq!(Place::new("L__self__,,__main__.Net", trace).to_string(), "net.py:41");
        assert_eq!(Place::new("", "").to_string(), "the network");
        assert_eq!(Place::new("a,fc@1,L", "File \"/torch/nn/x.py\", line 3, in f").to_string(), "fc, x.py:3");
        assert_eq!(Place::new("no commas", "File \"a\", line x, in f"), Place::default());
    }
}
