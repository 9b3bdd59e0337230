//! Holder of an allocation: the path from the program to the memory.

use std::collections::HashMap;

use memcore::Device;
use memcore::memory::{AllocId, Category, Live};
use memcore::tape::TapeEntry;
use serde::{Deserialize, Serialize};

/// The most nodes of a path that are named; if there are more, those in the middle are only counted.
const MAX_NODES: usize = 4;

/// One link of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Name: `a tensor that the program keeps`, `MseLossBackward0`, `saved input`.
    pub what: String,
    /// Path of the module; empty if there is none.
    pub scope: String,
}

/// A path, and the facts that advice needs.
pub(super) struct Path {
    pub(super) links: Vec<Link>,
    /// Node that the program holds, if a graph holds the memory.
    pub(super) root: Option<&'static str>,
}

fn link(what: impl Into<String>) -> Link {
    Link { what: what.into(), scope: String::new() }
}

/// Finds the path to an allocation: through the graph if a live node saved it; otherwise the program holds it directly.
pub(super) fn path(device: &Device, id: AllocId, live: &Live) -> Path {
    let entries = device.tape().entries();
    let memory = link(format!("{} bytes of memory", live.bytes));
    let holders = entries.iter().filter_map(|e| Some((e, e.allocations.iter().position(|a| *a == Some(id))?)));
    let Some((holder, place)) = holders.min_by_key(|(e, _)| e.seq) else {
        return Path { links: vec![link(direct(live)), memory], root: None };
    };
    let chain = chain(&entries, holder);
    let root = chain.first().map(|entry| entry.name);
    let mut links = vec![link(format!("a tensor that the program keeps: the result of {}", root.unwrap_or("a node")))];
    let node = |entry: &TapeEntry| Link {
        what: entry.name.to_string(),
        scope: device.with_ledger(|ledger| ledger.scope_path(entry.scope).to_string()),
    };
    if chain.len() <= MAX_NODES {
        links.extend(chain.iter().map(|entry| node(entry)));
    } else {
        let ends = MAX_NODES / 2;
        links.extend(chain[..ends].iter().map(|entry| node(entry)));
        links.push(link(format!("{} more nodes", chain.len() - 2 * ends)));
        links.extend(chain[chain.len() - ends..].iter().map(|entry| node(entry)));
    }
    links.push(link(format!("saved {}", holder.saved.get(place).map_or("value", |(role, _)| role))));
    links.push(memory);
    Path { links, root }
}

/// Returns the nodes from one that no other node leads to, down to `holder`.
fn chain<'a>(entries: &'a [TapeEntry], holder: &'a TapeEntry) -> Vec<&'a TapeEntry> {
    let mut users: HashMap<u64, &TapeEntry> = HashMap::new();
    for entry in entries {
        for next in &entry.next {
            // If there are several users, the one made last: it is nearest to the loss.
            users.insert(*next, entry);
        }
    }
    let mut chain = vec![holder];
    let mut at = holder;
    // Consumers are made after what they consume, so this ends.
    while let Some(user) = users.get(&at.seq).filter(|user| user.seq > at.seq) {
        chain.push(user);
        at = user;
    }
    chain.reverse();
    chain
}

fn direct(live: &Live) -> &'static str {
    match live.category {
        Category::Gradient => "a leaf's gradient",
        Category::OptimizerState => "an optimizer's state",
        Category::Parameter => "a parameter that the program keeps",
        Category::Input => "a batch that the program keeps",
        _ => "a tensor that the program keeps",
    }
}
