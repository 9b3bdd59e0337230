//! The modules of a graph, and the blocks that repeat among them.

use std::collections::{HashMap, HashSet};

use super::modules::calls;
use super::program::Program;

/// A module that a graph calls.
pub(super) struct Module<'a> {
    pub path: &'a str,
    class: &'a str,
}

/// Class of modules that only hold others. Those of a network are alike, whatever they hold.
const SEQUENTIAL: &str = "torch.nn.modules.container.Sequential";

/// Returns the modules that a graph and the graphs inside it call, in the order of their first calls, without the network itself.
pub(super) fn modules(program: &Program) -> Vec<Module<'_>> {
    fn add<'a>(program: &'a Program, found: &mut Vec<Module<'a>>, seen: &mut HashSet<&'a str>) {
        for node in &program.nodes {
            for call in calls(&node.modules).filter(|call| !call.path.is_empty()) {
                if seen.insert(call.path) {
                    found.push(Module { path: call.path, class: call.class });
                }
            }
            node.graphs().for_each(|inner| add(inner, found, seen));
        }
    }
    let mut found = Vec::new();
    add(program, &mut found, &mut HashSet::new());
    found
}

/// Returns the paths of the repeated blocks: modules with modules of their own, numbered one after the other, of one class, and not inside of others
/// that are so. Modules of the class `nn.Sequential` are blocks only where there are no others.
pub(super) fn repeated<'a>(modules: &[Module<'a>]) -> Vec<&'a str> {
    let parents: HashSet<&str> =
        modules.iter().filter_map(|module| module.path.rsplit_once('.')).map(|p| p.0).collect();
    let of = |is_one: &dyn Fn(&&Module<'a>) -> bool| {
        let numbered = modules.iter().filter(|module| parents.contains(module.path)).filter(is_one);
        let numbered = numbered.filter_map(|module| Some((module, numbered_name(module.path)?)));
        let mut groups: HashMap<(&str, &str), HashSet<u64>> = HashMap::new();
        numbered.clone().for_each(|(module, (name, number))| {
            groups.entry((name, module.class)).or_default().insert(number);
        });
        let neighbours = |(module, (name, number)): &(&Module<'a>, (&str, u64))| {
            let others = &groups[&(*name, module.class)];
            others.contains(&number.wrapping_sub(1)) || others.contains(&number.wrapping_add(1))
        };
        outermost(numbered.filter(neighbours).map(|(module, _)| module.path).collect())
    };
    let own = of(&|module| module.class != SEQUENTIAL);
    if own.is_empty() { of(&|_| true) } else { own }
}

/// Returns the paths of the outermost modules. One that only holds others does not count, but what it holds: an `nn.Sequential`, and a module around all
/// others.
pub(super) fn outer<'a>(modules: &[Module<'a>]) -> Vec<&'a str> {
    let known: HashSet<&str> = modules.iter().map(|module| module.path).collect();
    let parents: HashSet<&str> = modules.iter().flat_map(|module| above(module.path)).collect();
    let holds = |module: &&Module<'a>| module.class == SEQUENTIAL && parents.contains(module.path);
    let mut opened: HashSet<&str> = modules.iter().filter(holds).map(|module| module.path).collect();
    loop {
        let is_inside = |path: &str| above(path).any(|path| known.contains(path) && !opened.contains(path));
        let paths = modules.iter().map(|module| module.path);
        let found: Vec<&str> = paths.filter(|path| !opened.contains(path) && !is_inside(path)).collect();
        match found.as_slice() {
            [one] if parents.contains(one) => opened.insert(one),
            _ => return found,
        };
    }
}

/// The paths of the modules that a module lies in.
pub(super) fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('.').map(move |(at, _)| &path[..at])
}

/// Splits `h.12` into `h.` and 12, and `block_3` into `block_` and 3; `None` without a number at the end.
fn numbered_name(path: &str) -> Option<(&str, u64)> {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((name, path[name.len()..].parse().ok()?))
}

/// Paths that differ in their last number alone, one after the other.
struct Run<'a> {
    first: &'a str,
    /// Name and number of the last path; `None` if it has no number.
    last: Option<(&'a str, u64)>,
    is_longer: bool,
}

/// Names paths in few words: `layer1.0–2, layer3`.
pub(super) fn in_words<'a>(paths: impl IntoIterator<Item = &'a str>) -> String {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for path in paths {
        let numbered = numbered_name(path);
        let before = numbered.and_then(|(name, number)| Some((name, number.checked_sub(1)?)));
        match runs.last_mut().filter(|run| before.is_some() && run.last == before) {
            Some(run) => (run.last, run.is_longer) = (numbered, true),
            None => runs.push(Run { first: path, last: numbered, is_longer: false }),
        }
    }
    let one = |run: &Run<'_>| match run.last {
        Some((_, last)) if run.is_longer => format!("{}–{last}", run.first),
        _ => run.first.to_string(),
    };
    runs.iter().map(one).collect::<Vec<String>>().join(", ")
}

/// Leaves out the paths that lie inside of others.
fn outermost(paths: Vec<&str>) -> Vec<&str> {
    let all: HashSet<&str> = paths.iter().copied().collect();
    let is_inside = |path: &str| above(path).any(|path| all.contains(path));
    paths.into_iter().filter(|path| !is_inside(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated_of(modules: &[(&'static str, &'static str)]) -> Vec<&'static str> {
        let modules: Vec<Module<'_>> = modules.iter().map(|(path, class)| Module { path, class }).collect();
        repeated(&modules)
    }

    #[test]
    fn blocks_are_numbered_modules_of_one_class_with_modules_of_their_own() {
        let found = repeated_of(&[
            ("conv1", "Conv2d"),
            ("layer1", SEQUENTIAL),
            ("layer1.0", "Bottleneck"),
            ("layer1.0.conv1", "Conv2d"),
            ("layer1.0.conv2", "Conv2d"),
            ("layer1.1", "Bottleneck"),
            ("layer1.1.conv1", "Conv2d"),
            ("layer2", SEQUENTIAL),
            ("layer2.0", "Bottleneck"),
            ("layer2.0.conv1", "Conv2d"),
        ]);
        assert_eq!(found, ["layer1.0", "layer1.1"]);
    }

    #[test]
    fn paths_in_few_words() {
        assert_eq!(in_words(["h.0", "h.1", "h.2", "ln", "g.0", "g.2", "x9", "y10"]), "h.0–2, ln, g.0, g.2, x9, y10");
        assert_eq!(in_words([]), "");
    }

    #[test]
    fn the_outermost_are_taken_and_sequences_only_without_others() {
        let stages =
            [("s1", "Stage"), ("s1.b1", "B"), ("s1.b1.c", "C"), ("s1.b2", "B"), ("s1.b2.c", "C"), ("s2", "Stage")];
        let stages = [&stages[..], &[("s2.b1", "B")]].concat();
        assert_eq!(repeated_of(&stages), ["s1", "s2"]);
        let sequences = [("0", SEQUENTIAL), ("0.0", "Conv2d"), ("1", SEQUENTIAL), ("1.0", "Conv2d"), ("3", SEQUENTIAL)];
        assert_eq!(repeated_of(&sequences), ["0", "1"]);
        assert!(repeated_of(&[("a0", "A"), ("a0.x", "X"), ("a2", "A"), ("a2.x", "X"), ("b1", "A")]).is_empty());
    }

    #[test]
    fn outer_modules_are_looked_for_inside_of_those_that_only_hold_others() {
        let outer_of = |modules: &[(&'static str, &'static str)]| {
            outer(&modules.iter().map(|(path, class)| Module { path, class }).collect::<Vec<_>>())
        };
        assert_eq!(outer_of(&[("a", "A"), ("a.x", "X"), ("b", "B")]), ["a", "b"]);
        assert_eq!(outer_of(&[("net", "Net"), ("net.s", SEQUENTIAL), ("net.s.0", "X"), ("net.s.1", "Y")]).len(), 2);
        assert_eq!(outer_of(&[("net", "Net")]), ["net"]);
        // A list is not called itself.
        assert_eq!(outer_of(&[("list.0", "A"), ("list.0.x", "X"), ("list.1", "B")]), ["list.0", "list.1"]);
    }
}
