//! Place of an allocation: the program's line, and PyTorch's operator.

use super::frame::{Origin, origin};
use super::native;
use crate::snapshot::{FrameText, Snapshot, StackId};

/// A line of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// File, as it was recorded.
    pub file: String,
    /// Its line.
    pub line: i64,
    /// The function.
    pub function: String,
}

impl Line {
    fn from_frame(frame: &FrameText<'_>) -> Self {
        Self { file: frame.filename.into(), line: frame.line, function: frame.name.into() }
    }

    /// Formats file and line; `folder` is removed from the file's path.
    pub fn within(&self, folder: &str) -> String {
        let inside = (!folder.is_empty()).then(|| self.file.strip_prefix(folder)?.strip_prefix('/')).flatten();
        format!("{}:{}", inside.unwrap_or(&self.file), self.line)
    }

    /// Formats the file's name and the line.
    pub fn short(&self) -> String {
        format!("{}:{}", file_name(&self.file), self.line)
    }
}

/// Place of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Innermost line of the program's own files.
    pub own: Option<Line>,
    /// Innermost line outside of PyTorch, if it is a library's.
    pub library: Option<Line>,
    /// PyTorch's operator or function there: `conv2d`, `linear`.
    pub operator: Option<String>,
    /// Node of the backward pass, if C++ was recorded: `AddmmBackward0`.
    pub node: Option<String>,
    /// For a stack without Python: innermost informative function of C++.
    pub native: Option<String>,
}

/// Functions of PyTorch's modules that only delegate; their file names the operation.
const LEADING: [&str; 8] =
    ["forward", "_conv_forward", "_call_impl", "_wrapped_call_impl", "__call__", "<lambda>", "wrapper", "inner"];

/// Functions through which every operator passes while a mode watches them, as under activation checkpointing.
const DISPATCHING: [&str; 3] = ["__torch_dispatch__", "__torch_function__", "_fn"];

impl Place {
    /// Returns the place of a stack.
    pub fn from_stack(snapshot: &Snapshot, stack: StackId) -> Self {
        Self::of_frames(snapshot.stack(stack))
    }

    /// Returns the place of frames, innermost first.
    pub fn of_frames<'a>(frames: impl Iterator<Item = FrameText<'a>>) -> Self {
        let frames: Vec<(Origin, FrameText<'_>)> = frames.map(|frame| (origin(&frame), frame)).collect();
        if let Some(ours) = of_our_own(&frames) {
            return ours;
        }
        let line =
            |wanted: &[Origin]| frames.iter().find(|(origin, _)| wanted.contains(origin)).map(|(_, frame)| frame);
        let own = line(&[Origin::Own]).or_else(|| line(&[Origin::Text])).map(Line::from_frame);
        let library = line(&[Origin::Own, Origin::Library, Origin::Text]).map(Line::from_frame);
        let is_python = |(origin, _): &(Origin, FrameText<'_>)| *origin != Origin::Native;
        let python = frames.iter().position(is_python).unwrap_or(frames.len());
        let inner = frames[..python].iter().map(|(_, frame)| frame.name);
        let operator = inner.clone().filter_map(native::operator).next_back().map(String::from);
        let workspace = frames.iter().any(|(_, frame)| native::is_workspace(frame.name));
        let operator = if workspace { Some("cuBLAS workspace".to_string()) } else { operator };
        Self {
            library: library.filter(|library| Some(library) != own.as_ref()),
            operator: operator.or_else(|| called(&frames)),
            node: frames.iter().find_map(|(_, frame)| native::node(frame.name)).map(String::from),
            native: if own.is_none() { inner.clone().find_map(native::meaning) } else { None },
            own,
        }
    }

    /// Returns the program's line and PyTorch's operator there, or the node of the backward pass.
    pub fn with_operator(&self) -> String {
        match (&self.own, self.operator.as_ref().or(self.node.as_ref())) {
            (Some(_), Some(operator)) => format!("{} ({operator})", self.in_words()),
            _ => self.in_words(),
        }
    }

    /// Returns the program's line and the library's line that it called, or whatever else is known, in a few words.
    pub fn in_words(&self) -> String {
        let operator = self.operator.as_deref();
        match (&self.own, &self.library, &self.node) {
            (Some(own), ..) if own.line == 0 => format!("{} {}", own.file, own.function),
            (Some(own), Some(library), _) => format!("{} {}, in {}", own.short(), own.function, library.short()),
            (Some(own), ..) => format!("{} {}", own.short(), own.function),
            (None, _, Some(node)) => operator.map_or(node.clone(), |operator| format!("{node} > {operator}")),
            (None, Some(library), None) => format!("{} {}", library.short(), library.function),
            (None, None, None) => operator.or(self.native.as_deref()).map_or("no line recorded".into(), String::from),
        }
    }
}

/// The last part of a file's path, of any system.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Returns the place of frames of our own histories: operator, module and phase, without lines.
fn of_our_own(frames: &[(Origin, FrameText<'_>)]) -> Option<Place> {
    let named = |kind: &str| frames.iter().find(|(_, frame)| frame.filename == kind && frame.line == 0);
    let operator = named("op")?.1.name;
    let own = named("module").map(|(_, frame)| Line::from_frame(frame));
    Some(Place { own, operator: Some(operator.into()), ..Place::default() })
}

/// Returns the innermost function of PyTorch's Python; a module by its file.
fn called(frames: &[(Origin, FrameText<'_>)]) -> Option<String> {
    let outside = |(origin, _): &(Origin, FrameText<'_>)| matches!(origin, Origin::Own | Origin::Library);
    let inner = frames.iter().take_while(|frame| !outside(frame)).filter(|(origin, _)| *origin == Origin::Torch);
    let mut names = inner.map(|(_, frame)| {
        let file = file_name(frame.filename).trim_end_matches(".py");
        if DISPATCHING.contains(&frame.name) {
            return None;
        }
        if file == "module" || file.len() >= 40 || LEADING.contains(&frame.name) && file.starts_with('_') {
            return None;
        }
        Some(if LEADING.contains(&frame.name) { file } else { frame.name })
    });
    names.find_map(|name| name).map(String::from)
}

/// Returns the lines of the program's own files and of libraries, innermost first; runs of the same line once.
pub fn callers(snapshot: &Snapshot, stack: StackId) -> Vec<Line> {
    let wanted = |frame: &FrameText<'_>| matches!(origin(frame), Origin::Own | Origin::Library | Origin::Text);
    let mut lines: Vec<Line> = snapshot.stack(stack).filter(wanted).map(|frame| Line::from_frame(&frame)).collect();
    lines.dedup();
    lines
}

/// True if a line (`train.py:7`), a module's file or a function (`conv.py`, `forward`), or an operator is in a stack.
pub fn matches(snapshot: &Snapshot, stack: StackId, wanted: &str) -> bool {
    let has = |frame: FrameText<'_>| {
        let python = origin(&frame) != Origin::Native;
        let line = python.then(|| format!("{}:{} ", frame.filename, frame.line));
        // `train.py:7` is not `train.py:71`.
        let in_line = line.is_some_and(|line| match wanted.rsplit_once(':') {
            Some((_, number)) if number.parse::<u64>().is_ok() => line.contains(&format!("{wanted} ")),
            _ => line.contains(wanted),
        });
        in_line
            || native::operator(frame.name) == Some(wanted)
            || frame.name == wanted
            || native::node(frame.name) == Some(wanted)
    };
    snapshot.stack(stack).any(has) || Place::from_stack(snapshot, stack).operator.as_deref() == Some(wanted)
}
