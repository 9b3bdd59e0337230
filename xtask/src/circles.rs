//! No file of a crate uses, through whatever other files, one that uses it: what two files need of each other is in a
//! third, below both.
//!
//! An arrow runs from a file to the one that *defines* what it names: where a child takes from its parent what the
//! parent has from a third file, the arrow goes to the third. A parent that declares its children, and re-exports what
//! it does not use itself, has no arrow to them. A method has no path: who calls one has an arrow to its type alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::Path;

use crate::Violation;
use crate::files::SourceFile;
use crate::resolve::{Arrow, Tree};
use crate::sources::without_tests;

/// Arrows that may be part of a circle. In files and items a `*` stands for anything.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The file that uses.
    pub from: &'static str,
    /// The file that is used.
    pub to: &'static str,
    /// The items that it may name there.
    pub items: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

/// The arrows that are left.
pub const EXCEPTIONS: &[Exception] = &[Exception {
    from: "backend-cuda/src/kernels.rs",
    to: "backend-cuda/src/*.rs",
    items: &["*Args"],
    reason: "the table of kernels has the size of each one's argument, and who launches one names it by the table",
}];

impl Exception {
    /// Whether it allows a file to name an item of another.
    pub fn allows(&self, from: &Path, to: &Path, item: &str) -> bool {
        let is = |pattern: &str, path: &Path| path.to_str().is_some_and(|text| fits(pattern, text));
        is(self.from, from) && is(self.to, to) && self.items.iter().any(|pattern| fits(pattern, item))
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

/// Checks all files of a member's library and programs.
pub fn check(files: &[SourceFile], exceptions: &[Exception]) -> Vec<Violation> {
    let is_root = |file: &&SourceFile| file.path.ends_with("lib.rs") || file.path.ends_with("main.rs");
    let source_dirs: BTreeSet<&Path> = files.iter().filter(is_root).filter_map(|file| file.path.parent()).collect();
    source_dirs.into_iter().flat_map(|source_dir| check_below(source_dir, files, exceptions)).collect()
}

fn check_below(source_dir: &Path, files: &[SourceFile], exceptions: &[Exception]) -> Vec<Violation> {
    let sources = match without_tests(source_dir, files) {
        Ok(sources) => sources,
        Err(violation) => return vec![violation],
    };
    let path_of = |file: usize| sources[file].file.path.as_path();
    let mut graph = Graph::default();
    let is_root = |at: &usize| sources[*at].module.is_empty() && path_of(*at).parent() == Some(source_dir);
    for root in (0..sources.len()).filter(is_root) {
        for arrow in Tree::new(&sources, root).arrows() {
            let (from, to) = (path_of(arrow.from), path_of(arrow.to));
            if !exceptions.iter().any(|exception| exception.allows(from, to, &arrow.item)) {
                graph.0.entry((arrow.from, arrow.to)).or_insert(arrow);
            }
        }
    }
    let violation = |circle: &Vec<&Arrow>| {
        let step = |arrow: &&Arrow| {
            let (from, to) = (path_of(arrow.from).display(), path_of(arrow.to).display());
            format!("{from}:{} uses `{}` of {to}", arrow.line, arrow.item)
        };
        let steps: Vec<String> = circle.iter().map(step).collect();
        Violation::new(path_of(circle[0].from), circle[0].line, format!("files in a circle: {}", steps.join(", ")))
    };
    graph.circles().iter().map(violation).collect()
}

/// Who uses whom: the first arrow between each two.
#[derive(Default)]
struct Graph(BTreeMap<(usize, usize), Arrow>);

impl Graph {
    /// A shortest circle through every file that is in one, without those that an earlier one goes through.
    fn circles(&self) -> Vec<Vec<&Arrow>> {
        let mut told = HashSet::new();
        let mut found = Vec::new();
        let starts: BTreeSet<usize> = self.0.keys().map(|&(from, _)| from).collect();
        for start in starts {
            if told.contains(&start) {
                continue;
            }
            let Some(circle) = self.shortest_circle(start) else { continue };
            told.extend(circle.iter().map(|arrow| arrow.from));
            found.push(circle);
        }
        found
    }

    /// The arrows of a shortest circle through this file, from it on.
    fn shortest_circle(&self, start: usize) -> Option<Vec<&Arrow>> {
        let mut reached_by: HashMap<usize, &Arrow> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(file) = queue.pop_front() {
            for arrow in self.0.range((file, 0)..=(file, usize::MAX)).map(|(_, arrow)| arrow) {
                if arrow.to == start {
                    let before = |arrow: &&Arrow| reached_by.get(&arrow.from).copied();
                    let mut circle: Vec<&Arrow> = std::iter::successors(Some(arrow), before).collect();
                    circle.reverse();
                    return Some(circle);
                }
                reached_by.entry(arrow.to).or_insert_with(|| {
                    queue.push_back(arrow.to);
                    arrow
                });
            }
        }
        None
    }
}
