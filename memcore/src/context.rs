//! The activity of the current thread: its module, its operator, its autograd node, and its role.
//!
//! Allocations are attributed to it. It is a `Copy` value in a thread-local cell, set and restored by guards, so that
//! an operator costs no allocation, no lock and no string work.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::memory::{AllocId, Origin, PhaseId, ScopeId};

/// PyTorch's thread that an operator stands for: the user's, or autograd's. In PyTorch cuBLAS handles belong to a
/// thread, and so do their workspaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub enum Role {
    /// Forward passes, optimizers: the user's thread.
    #[default]
    Main,
    /// Everything inside backward.
    Autograd,
}

#[derive(Clone, Copy)]
struct Context {
    scope: ScopeId,
    op: &'static str,
    node: Option<&'static str>,
    role: Role,
}

thread_local! {
    static CONTEXT: Cell<Context> =
        const { Cell::new(Context { scope: ScopeId(0), op: "", node: None, role: Role::Main }) };
}

/// Ids of allocations that were passed to an autograd node as its incoming gradients.
type Handed = SmallVec<[AllocId; 2]>;

thread_local! {
    static HANDED: RefCell<Handed> = RefCell::default();
}

/// Clears the list of the node's incoming gradients when dropped.
pub(crate) struct HandedGuard(Handed);

impl Drop for HandedGuard {
    fn drop(&mut self) {
        HANDED.replace(std::mem::take(&mut self.0));
    }
}

/// While the guard lives, frees of these allocations are attributed to the engine: a node's incoming gradients are not
/// values of its function.
pub(crate) fn handed(allocations: Handed) -> HandedGuard {
    HandedGuard(HANDED.replace(allocations))
}

/// Restores the thread's previous context when dropped.
#[must_use = "the context is restored when the guard is dropped"]
pub struct ContextGuard(Context);

impl Drop for ContextGuard {
    fn drop(&mut self) {
        CONTEXT.set(self.0);
    }
}

fn enter(change: impl FnOnce(&mut Context)) -> ContextGuard {
    let before = CONTEXT.get();
    let mut context = before;
    change(&mut context);
    CONTEXT.set(context);
    ContextGuard(before)
}

/// Attributes allocations to a module until the guard is dropped.
pub fn scope(scope: ScopeId) -> ContextGuard {
    enter(|c| c.scope = scope)
}

/// Attributes allocations to an operator until the guard is dropped. Names are those of a profiler: inside another
/// operator, `outer>inner`; for what the engine does around a node, `.>name`. An empty name keeps the current operator.
pub fn op(name: &'static str) -> ContextGuard {
    enter(|c| {
        if name.is_empty() {
            return;
        }
        let outermost = c.op.is_empty() || c.node == Some(c.op) || name.starts_with('.');
        c.op = if outermost { name } else { nested(c.op, name) };
    })
}

/// Runs `make` and attributes its allocations to an operator.
pub(crate) fn within<T>(name: &'static str, make: impl FnOnce() -> T) -> T {
    let _op = op(name);
    make()
}

/// The name of an operator with the autograd node that it ran in, as a profiler shows it: `AddmmBackward0>mm`, or
/// `AddmmBackward0.>sum` for what the engine did around the node.
#[doc(hidden)]
pub fn label(node: Option<&str>, op: &str) -> String {
    match node {
        Some(node) if node == op => node.to_string(),
        Some(node) if op.starts_with('.') => format!("{node}{op}"),
        Some(node) => format!("{node}>{op}"),
        None => op.to_string(),
    }
}

thread_local! {
    /// Paths, by the addresses and lengths of their two parts.
    static PATHS: RefCell<FxHashMap<[usize; 4], &'static str>> = RefCell::default();
}

/// Returns `outer>inner`. A program has few such pairs: each is created once and kept.
fn nested(outer: &'static str, inner: &'static str) -> &'static str {
    let key = [outer.as_ptr() as usize, outer.len(), inner.as_ptr() as usize, inner.len()];
    PATHS.with_borrow_mut(|paths| *paths.entry(key).or_insert_with(|| interned(format!("{outer}>{inner}"))))
}

fn interned(path: String) -> &'static str {
    static ALL: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(path.clone()).or_insert_with(|| Box::leak(path.into_boxed_str()))
}

/// Attributes allocations to an autograd node and the module that recorded it, in autograd's role.
pub(crate) fn node(name: &'static str, scope: ScopeId) -> ContextGuard {
    enter(|c| {
        c.node = Some(name);
        c.op = name;
        c.scope = scope;
        c.role = Role::Autograd;
    })
}

/// Attributes allocations to the node's own function, whichever operator runs in it.
pub(crate) fn function() -> ContextGuard {
    enter(|c| c.op = c.node.unwrap_or_default())
}

/// The thread's current module.
pub(crate) fn current_scope() -> ScopeId {
    CONTEXT.get().scope
}

/// The thread's current role.
pub(crate) fn current_role() -> Role {
    CONTEXT.get().role
}

/// The origin to record for a free of this allocation now, in `phase`.
pub(crate) fn origin_of_free(id: AllocId, phase: PhaseId) -> Origin {
    let origin = origin(phase);
    let of_engine = HANDED.try_with(|handed| handed.borrow().contains(&id)).unwrap_or(false);
    if of_engine { Origin { op: AROUND, ..origin } } else { origin }
}

/// The operator name of what the engine does around a node.
pub(crate) const AROUND: &str = ".";

/// The origin to record for an event now, in `phase`.
pub(crate) fn origin(phase: PhaseId) -> Origin {
    let c = CONTEXT.get();
    Origin { scope: c.scope, op: c.op, node: c.node, phase }
}
