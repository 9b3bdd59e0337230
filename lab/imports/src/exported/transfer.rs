//! The order in which `model.to(device)` moves a network's tensors: a module's children first, then its own parameters, then its buffers.

/// A module, with the indices of its own parameters and buffers.
#[derive(Default)]
struct Module<'a> {
    children: Vec<(&'a str, Module<'a>)>,
    parameters: Vec<usize>,
    buffers: Vec<usize>,
}

impl<'a> Module<'a> {
    /// Returns the module at this path, and makes it if it is missing.
    fn at(&mut self, path: impl Iterator<Item = &'a str>) -> &mut Self {
        path.fold(self, |module, name| {
            let place = module.children.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                module.children.push((name, Module::default()));
                module.children.len() - 1
            });
            &mut module.children[place].1
        })
    }

    /// Moves the child at this path before its sibling of this name. `*` stands for any number.
    fn put_before(&mut self, path: &[&str], sibling: &str) {
        let [name, rest @ ..] = path else { return };
        let place = |children: &[(&str, Module<'_>)], name: &str| children.iter().position(|(known, _)| *known == name);
        if rest.is_empty() {
            if let (Some(from), Some(to)) = (place(&self.children, name), place(&self.children, sibling))
                && to < from
            {
                self.children[to..=from].rotate_right(1);
            }
            return;
        }
        let is_meant = |known: &str| known == *name || *name == "*" && known.bytes().all(|byte| byte.is_ascii_digit());
        self.children
            .iter_mut()
            .filter(|(known, _)| is_meant(known))
            .for_each(|(_, child)| child.put_before(rest, sibling));
    }

    fn moved(self, order: &mut Vec<usize>) {
        self.children.into_iter().for_each(|(_, child)| child.moved(order));
        order.extend(self.parameters);
        order.extend(self.buffers);
    }
}

/// Maximum depth of nested modules; tensors deeper down count as belonging to the module at this depth.
const MAX_DEPTH: usize = 64;

/// Returns the indices of these tensors in that order. A tensor is its path, and true for a parameter. Modules come in the order of first mention, but for
/// those of `moved_before`: a file names buffers after all parameters, and so modules that have none.
pub(super) fn transfer_order(tensors: &[(&str, bool)], moved_before: &[(String, String)]) -> Vec<usize> {
    let mut root = Module::default();
    for (number, (path, is_parameter)) in tensors.iter().enumerate() {
        let module = path.rsplit_once('.').map_or("", |(module, _)| module);
        let names = module.split('.').filter(|name| !name.is_empty()).take(MAX_DEPTH);
        let module = root.at(names);
        if *is_parameter { &mut module.parameters } else { &mut module.buffers }.push(number);
    }
    for (module, sibling) in moved_before {
        let path: Vec<&str> = module.split('.').take(MAX_DEPTH).collect();
        root.put_before(&path, sibling.rsplit('.').next().unwrap_or_default());
    }
    let mut order = Vec::new();
    root.moved(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_without_parameters_come_where_they_stand() {
        let tensors = [
            ("embed.weight", true),
            ("layers.0.linear.weight", true),
            ("layers.1.linear.weight", true),
            ("rotary.table", false),
            ("layers.0.mask.table", false),
            ("layers.1.mask.table", false),
        ];
        assert_eq!(transfer_order(&tensors, &[]), [0, 1, 4, 2, 5, 3]);
        let pairs =
            [("rotary", "layers"), ("layers.*.mask", "layers.*.linear"), ("none", "layers"), ("rotary", "none")];
        let pairs = pairs.map(|(module, sibling)| (module.to_string(), sibling.to_string()));
        assert_eq!(transfer_order(&tensors, &pairs), [0, 3, 4, 1, 5, 2]);
        let deep = "*.".repeat(100_000) + "w";
        assert_eq!(transfer_order(&tensors, &[(deep.clone(), deep)]), [0, 1, 4, 2, 5, 3]);
    }

    #[test]
    fn children_come_before_their_module() {
        let tensors = [
            ("scale", true),
            ("conv.weight", true),
            ("bn.weight", true),
            ("bn.bias", true),
            ("bn.running_mean", false),
            ("table", false),
        ];
        assert_eq!(transfer_order(&tensors, &[]), [1, 2, 3, 4, 0, 5]);
        let deep = "a.".repeat(100_000) + "w";
        assert_eq!(transfer_order(&[(&deep, true)], &[]), [0]);
    }
}
