//! The modules that a node was called in, from its `nn_module_stack`: `key,path,class` for each, with `;` between, the network itself first.

/// A call of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleCall<'a> {
    /// Differs from call to call: the second call of a module has a number after its name, `fc@1`.
    pub key: &'a str,
    /// Path of the module, such as `layers.0.attn`; empty for the network itself.
    pub path: &'a str,
    /// Class of the module, with its Python module.
    pub class: &'a str,
}

/// Where the classes of transformers lie.
const TRANSFORMERS: &str = "transformers.";

/// Path that `torch.export` gives to nodes that it makes itself.
const NONE: &str = "_empty_nn_module_stack_from_metadata_hook";

/// Returns the calls that a node lies in, the outermost first. A node that PyTorch made itself lies in none.
pub(super) fn calls(stack: &str) -> impl DoubleEndedIterator<Item = ModuleCall<'_>> {
    stack.split(';').filter_map(|call| {
        let mut fields = call.splitn(3, ',');
        let (key, path, class) = (fields.next()?, fields.next()?, fields.next().unwrap_or_default());
        let path = path.split('@').next().unwrap_or_default();
        (path != NONE).then_some(ModuleCall { key, path, class })
    })
}

/// True if the network that a node lies in is one of transformers.
pub(super) fn is_of_transformers(stack: &str) -> bool {
    calls(stack).next().is_some_and(|network| network.class.starts_with(TRANSFORMERS))
}

/// The type of the model of transformers that a node lies in, as its folder is called: `qwen3_moe`.
pub(super) fn model_type(stack: &str) -> Option<&str> {
    let class = calls(stack).next()?.class.strip_prefix(TRANSFORMERS)?;
    class.split('.').skip_while(|part| *part != "models").nth(1)
}

/// True if a pattern names the module at a path. A `*` stands for any part of one name.
pub(super) fn names(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('.'), path.split('.'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if names_one(wanted, found) => {}
            _ => return false,
        }
    }
}

fn names_one(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_a_stack_the_outermost_first() {
        let stack = "L__self__,,net.Net;L__self__h.0,h.0,net.Block;L__self__h.0.drop@1,h.0.drop,torch.nn.Dropout";
        let found: Vec<(&str, &str, &str)> = calls(stack).map(|call| (call.key, call.path, call.class)).collect();
        let drop = ("L__self__h.0.drop@1", "h.0.drop", "torch.nn.Dropout");
        assert_eq!(found, [("L__self__", "", "net.Net"), ("L__self__h.0", "h.0", "net.Block"), drop]);
        assert_eq!(calls("a,fc@1,L").next_back().unwrap().path, "fc");
        let made_by_pytorch = format!("{NONE},{NONE},{NONE}");
        assert_eq!(["", "no commas", &made_by_pytorch].map(|stack| calls(stack).count()), [0, 0, 0]);
    }

    #[test]
    fn a_star_stands_for_any_part_of_one_name() {
        for (pattern, path) in [("h.*", "h.0"), ("layer3", "layer3"), ("*.layer_*", "net.layer_12"), ("a*b*c", "abbc")]
        {
            assert!(names(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("h.*", "h"), ("h.*", "h.0.attn"), ("layer", "layer3"), ("a*b*c", "ac"), ("h.*", "")] {
            assert!(!names(pattern, path), "{pattern} {path}");
        }
    }
}
