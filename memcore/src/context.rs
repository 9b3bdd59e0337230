//! What the current thread is doing: which module, which operator, which autograd node, on whose behalf.
//!
//! Allocations are attributed by it. It is a `Copy` value in a thread-local cell, set and restored by guards: no
//! allocation, no lock and no string work per operator.

use std::cell::Cell;

use crate::memory::{Origin, PhaseId, ScopeId};

/// Which of PyTorch's threads an operator stands for: the user's, or autograd's. cuBLAS handles, and so their
/// workspaces, belong to a thread there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

/// Restores what the thread was doing before, when dropped.
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

/// Attributes what follows to a module.
pub fn scope(scope: ScopeId) -> ContextGuard {
    enter(|c| c.scope = scope)
}

/// Attributes what follows to an operator.
pub fn op(name: &'static str) -> ContextGuard {
    enter(|c| c.op = name)
}

/// Attributes what follows to an autograd node and the module that recorded it, on autograd's behalf.
pub(crate) fn node(name: &'static str, scope: ScopeId) -> ContextGuard {
    enter(|c| {
        c.node = Some(name);
        c.op = name;
        c.scope = scope;
        c.role = Role::Autograd;
    })
}

/// The module that the thread is in.
pub(crate) fn current_scope() -> ScopeId {
    CONTEXT.get().scope
}

/// On whose behalf the thread works.
pub(crate) fn current_role() -> Role {
    CONTEXT.get().role
}

/// Who an event of this moment, in `phase`, is attributed to.
pub(crate) fn origin(phase: PhaseId) -> Origin {
    let c = CONTEXT.get();
    Origin { scope: c.scope, op: c.op, node: c.node, phase }
}
