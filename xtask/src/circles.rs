//! No file of a crate uses, directly or through other files, a file that uses it. If two files need something of each
//! other, it belongs in a third file below both. The same holds for the modules that the root declares, each with the
//! folder of its children.
//!
//! An arrow runs from a file to the file that *defines* the item that it names. If a child takes from its parent an
//! item that the parent has from a third file, the arrow goes to the third. A parent that declares its children, and
//! re-exports items that it does not use itself, has no arrow to them. A method has no path: a caller has an arrow only
//! to its type.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::Path;

use crate::Violation;
use crate::files::SourceFile;
use crate::resolve::{Arrow, Tree};
use crate::sources::without_tests;

/// The nodes that may not form a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Files.
    Files,
    /// The modules that a crate's root declares: a file and the folder of its children are one.
    Modules,
}

/// Checks all files of a member's library and programs.
pub fn check(files: &[SourceFile], nodes: Nodes) -> Vec<Violation> {
    let is_root = |file: &&SourceFile| file.path.ends_with("lib.rs") || file.path.ends_with("main.rs");
    let source_dirs: BTreeSet<&Path> = files.iter().filter(is_root).filter_map(|file| file.path.parent()).collect();
    source_dirs.into_iter().flat_map(|source_dir| check_below(source_dir, files, nodes)).collect()
}

fn check_below(source_dir: &Path, files: &[SourceFile], nodes: Nodes) -> Vec<Violation> {
    let sources = match without_tests(source_dir, files) {
        Ok(sources) => sources,
        Err(violation) => return vec![violation],
    };
    let path_of = |file: usize| sources[file].file.path.as_path();
    let node_of = |file: usize| match sources[file].module.first() {
        Some(name) if nodes == Nodes::Modules => {
            sources.iter().position(|other| other.module.first() == Some(name)).unwrap_or(file)
        }
        _ => file,
    };
    let mut graph = Graph::default();
    let is_root = |at: &usize| sources[*at].module.is_empty() && path_of(*at).parent() == Some(source_dir);
    for root in (0..sources.len()).filter(is_root) {
        for arrow in Tree::new(&sources, root).arrows() {
            let (from, to) = (node_of(arrow.from), node_of(arrow.to));
            if from != to {
                graph.0.entry((from, to)).or_insert(arrow);
            }
        }
    }
    let violation = |circle: &Vec<&Arrow>| {
        let step = |arrow: &&Arrow| {
            let (from, to) = (path_of(arrow.from).display(), path_of(arrow.to).display());
            format!("{from}:{} uses `{}` of {to}", arrow.line, arrow.item)
        };
        let steps: Vec<String> = circle.iter().map(step).collect();
        let of = if nodes == Nodes::Files { "files" } else { "modules" };
        Violation::new(path_of(circle[0].from), circle[0].line, format!("{of} in a circle: {}", steps.join(", ")))
    };
    graph.circles().iter().map(violation).collect()
}

/// The arrows between files: the first one for each pair.
#[derive(Default)]
struct Graph(BTreeMap<(usize, usize), Arrow>);

impl Graph {
    /// Returns a shortest circle through every node that is in one, except nodes of circles already returned.
    fn circles(&self) -> Vec<Vec<&Arrow>> {
        let mut told = HashSet::new();
        let mut found = Vec::new();
        let starts: BTreeSet<usize> = self.0.keys().map(|&(from, _)| from).collect();
        for start in starts {
            if told.contains(&start) {
                continue;
            }
            let Some(circle) = self.shortest_circle(start) else { continue };
            told.extend(circle.iter().map(|(from, _)| *from));
            found.push(circle.into_iter().map(|(_, arrow)| arrow).collect());
        }
        found
    }

    /// Returns the nodes of a shortest circle through `start`, beginning there, each with the arrow that leaves it.
    fn shortest_circle(&self, start: usize) -> Option<Vec<(usize, &Arrow)>> {
        let mut reached_by: HashMap<usize, (usize, &Arrow)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (&(from, to), arrow) in self.0.range((node, 0)..=(node, usize::MAX)) {
                if to == start {
                    let before = |(from, _): &(usize, &Arrow)| reached_by.get(from).copied();
                    let mut circle: Vec<_> = std::iter::successors(Some((from, arrow)), before).collect();
                    circle.reverse();
                    return Some(circle);
                }
                reached_by.entry(to).or_insert_with(|| {
                    queue.push_back(to);
                    (from, arrow)
                });
            }
        }
        None
    }
}
