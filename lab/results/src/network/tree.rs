//! Modules as a tree, which shows as many rows as there is room for.

use super::module::ModuleResult;

/// Name of the row for code outside of every module: the loss, and the network's own `forward`.
pub(super) const OUTSIDE: &str = "(outside of the modules)";

/// Modules as a tree.
pub(super) struct Tree<'a> {
    roots: Vec<Branch<'a>>,
}

/// A module with those inside it, or several equal ones side by side.
struct Branch<'a> {
    module: &'a ModuleResult,
    parameter_bytes: u64,
    saved_bytes: u64,
    /// Last part of the path.
    name: &'a str,
    /// Name of the last of several equal ones.
    last: Option<&'a str>,
    inside: Vec<Branch<'a>>,
    open: bool,
}

/// A row.
pub(super) struct Shown<'a> {
    pub name: String,
    /// Sizes of its result.
    pub output: Option<&'a [usize]>,
    pub parameter_bytes: u64,
    pub saved_bytes: u64,
}

impl<'a> Tree<'a> {
    /// `modules`: each before those inside it; the first is the network, with an empty path.
    pub(super) fn from_modules(modules: &'a [ModuleResult]) -> Self {
        let Some((network, modules)) = modules.split_first() else { return Self { roots: Vec::new() } };
        let mut roots = branches(modules, "");
        let of_modules = |figure: fn(&Branch<'_>) -> u64| roots.iter().map(figure).sum::<u64>();
        let outside = Branch {
            parameter_bytes: network.parameter_bytes.saturating_sub(of_modules(|root| root.parameter_bytes)),
            saved_bytes: network.saved_bytes.saturating_sub(of_modules(|root| root.saved_bytes)),
            ..Branch::from_module(network, OUTSIDE, Vec::new())
        };
        if outside.parameter_bytes > 0 || outside.saved_bytes > 0 {
            roots.push(outside);
        }
        Self { roots }
    }

    /// Opens the branches that hold most, as long as there are no more than this many rows.
    fn opened(mut self, most: usize) -> Self {
        let mut rows = self.roots.len();
        loop {
            let room = most.saturating_sub(rows);
            let mut closed = Vec::new();
            self.roots.iter_mut().for_each(|root| root.closed(room, &mut closed));
            let largest = closed.into_iter().max_by_key(|branch| (branch.saved_bytes, branch.parameter_bytes));
            let Some(branch) = largest else { return self };
            branch.open = true;
            rows += branch.inside.len();
        }
    }

    /// Returns at most this many rows, unless there are more outermost modules.
    pub(super) fn rows(self, most: usize) -> Vec<Shown<'a>> {
        let mut out = Vec::new();
        self.opened(most).roots.iter().for_each(|root| root.rows(0, &mut out));
        out
    }

    /// Returns the innermost of those rows.
    pub(super) fn leaves(self, most: usize) -> Vec<Shown<'a>> {
        let mut out = Vec::new();
        self.opened(most).roots.iter().for_each(|root| root.leaves("", &mut out));
        out
    }
}

/// The modules directly inside of `path`.
fn branches<'a>(modules: &'a [ModuleResult], path: &str) -> Vec<Branch<'a>> {
    let mut out: Vec<Branch<'a>> = Vec::new();
    let below = |one: &'a ModuleResult| match path {
        "" => Some(one.path.as_str()),
        path => one.path.strip_prefix(path)?.strip_prefix('.'),
    };
    for module in modules {
        let Some(name) = below(module).filter(|name| !name.is_empty() && !name.contains('.')) else { continue };
        let branch = Branch::from_module(module, name, branches(modules, &module.path));
        match out.last_mut().filter(|before| before.alike(&branch)) {
            Some(before) => before.last = Some(branch.name),
            None => out.push(branch),
        }
    }
    out
}

impl<'a> Branch<'a> {
    fn from_module(module: &'a ModuleResult, name: &'a str, inside: Vec<Branch<'a>>) -> Self {
        let (parameter_bytes, saved_bytes) = (module.parameter_bytes, module.saved_bytes);
        Self { module, parameter_bytes, saved_bytes, name, last: None, inside, open: false }
    }

    fn shown(&self, name: String) -> Shown<'a> {
        // The network's last result is its loss, not a result of this row.
        let output = self.module.output.as_deref().filter(|_| !self.module.path.is_empty());
        Shown { name, output, parameter_bytes: self.parameter_bytes, saved_bytes: self.saved_bytes }
    }

    /// True if these are numbered neighbours with equal figures, inside too.
    fn alike(&self, other: &Self) -> bool {
        let number = |name: &str| name.parse::<usize>().ok();
        let next = number(self.last.unwrap_or(self.name)).zip(number(other.name)).is_some_and(|(a, b)| a + 1 == b);
        next && self.same(other)
    }

    fn same(&self, other: &Self) -> bool {
        let figures = |branch: &Self| {
            (branch.parameter_bytes, branch.module.buffer_bytes, branch.saved_bytes, branch.inside.len())
        };
        let inside = self.inside.iter().zip(&other.inside);
        figures(self) == figures(other)
            && self.module.output == other.module.output
            && inside.into_iter().all(|(a, b)| a.name == b.name && a.same(b))
    }

    /// Collects the closed branches that have few enough rows inside.
    fn closed<'b>(&'b mut self, room: usize, out: &mut Vec<&'b mut Branch<'a>>) {
        if self.open {
            self.inside.iter_mut().for_each(|inside| inside.closed(room, out));
        } else if !self.inside.is_empty() && self.inside.len() <= room {
            out.push(self);
        }
    }

    fn name(&self) -> String {
        match self.last {
            Some(last) => format!("{} to {last}, each", self.name),
            None => self.name.to_string(),
        }
    }

    fn rows(&self, depth: usize, out: &mut Vec<Shown<'a>>) {
        out.push(self.shown("  ".repeat(depth) + &self.name()));
        if self.open {
            self.inside.iter().for_each(|inside| inside.rows(depth + 1, out));
        }
    }

    fn leaves(&self, path: &str, out: &mut Vec<Shown<'a>>) {
        let name = if path.is_empty() { self.name() } else { format!("{path}.{}", self.name()) };
        if !self.open || self.inside.is_empty() {
            out.push(self.shown(name));
            return;
        }
        self.inside.iter().for_each(|inside| inside.leaves(&name, out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, saved_bytes: u64) -> ModuleResult {
        ModuleResult { path: path.into(), saved_bytes, ..ModuleResult::default() }
    }

    #[test]
    fn equal_neighbours_are_one_row_and_the_largest_opens_first() {
        let paths = ["", "wte", "h", "h.0", "h.0.a", "h.0.b", "h.1", "h.1.a", "h.1.b", "head", "head.x", "head.y"];
        let saved = [90, 1, 60, 30, 20, 10, 30, 20, 10, 29, 14, 15];
        let modules: Vec<_> = paths.into_iter().zip(saved).map(|(path, saved)| module(path, saved)).collect();
        let rows = |most| Tree::from_modules(&modules).rows(most).into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(rows(0), ["wte", "h", "head"]);
        assert_eq!(rows(4), ["wte", "h", "  0 to 1, each", "head"]);
        // The blocks hold more than the head, and there is room to open one of them.
        assert_eq!(rows(6), ["wte", "h", "  0 to 1, each", "    a", "    b", "head"]);
        assert_eq!(rows(99).len(), 8);
        let leaves: Vec<_> = Tree::from_modules(&modules).leaves(4).into_iter().map(|row| row.name).collect();
        assert_eq!(leaves, ["wte", "h.0 to 1, each", "head"]);
    }

    #[test]
    fn neighbours_that_differ_inside_stay_apart() {
        let paths = ["", "0", "0.a", "0.b", "1", "1.a", "1.b", "3", "3.a", "3.b"];
        let saved = [9, 3, 1, 2, 3, 2, 1, 3, 2, 1];
        let modules: Vec<_> = paths.into_iter().zip(saved).map(|(path, saved)| module(path, saved)).collect();
        let rows: Vec<_> = Tree::from_modules(&modules).rows(0).into_iter().map(|row| row.name).collect();
        assert_eq!(rows, ["0", "1", "3"]);
    }
}
