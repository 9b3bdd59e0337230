//! Graphs: their nodes, and executable graphs.

use std::ffi::c_int;

use super::{Graph, HostFunction, Node, Work};
use crate::answer::{Answer, Code};
use crate::handles;

impl Work {
    /// Adds a graph under a new handle.
    pub(crate) fn create_graph(&mut self, graph: Graph) -> usize {
        let handle = handles::new();
        self.graphs.insert(handle, graph);
        handle
    }

    /// Copies a graph, with nodes of its own.
    pub(crate) fn clone_graph(&mut self, graph: usize) -> Answer<usize> {
        let original = self.graph(graph)?.clone();
        let copy = self.create_graph(Graph::default());
        let mut copies = std::collections::HashMap::new();
        for (handle, mut node) in original.nodes {
            node.after = node.after.iter().filter_map(|before| copies.get(before).copied()).collect();
            copies.insert(handle, self.add_node(copy, node)?);
        }
        Ok(copy)
    }

    /// Destroys a graph and its nodes.
    pub(crate) fn destroy_graph(&mut self, graph: usize) -> Answer {
        let removed = self.graphs.remove(&graph).ok_or(Code::INVALID_VALUE)?;
        for (node, _) in removed.nodes {
            self.graph_of.remove(&node);
        }
        Ok(())
    }

    /// Returns a node by its handle.
    pub(crate) fn node(&mut self, node: usize) -> Answer<Node> {
        let graph = *self.graph_of.get(&node).ok_or(Code::INVALID_VALUE)?;
        let nodes = &self.graph(graph)?.nodes;
        nodes.iter().find(|(handle, _)| *handle == node).map(|(_, node)| node.clone()).ok_or(Code::INVALID_VALUE)
    }

    /// Returns the nodes that wait for a node.
    pub(crate) fn dependents(&mut self, node: usize) -> Answer<Vec<usize>> {
        let graph = *self.graph_of.get(&node).ok_or(Code::INVALID_VALUE)?;
        let waits = |other: &&(usize, Node)| other.1.after.contains(&node);
        Ok(self.graph(graph)?.nodes.iter().filter(waits).map(|(handle, _)| *handle).collect())
    }

    /// Removes a node from its graph.
    pub(crate) fn destroy_node(&mut self, node: usize) -> Answer {
        let graph = self.graph_of.remove(&node).ok_or(Code::INVALID_VALUE)?;
        let nodes = &mut self.graph(graph)?.nodes;
        nodes.retain(|(handle, _)| *handle != node);
        nodes.iter_mut().for_each(|(_, other)| other.after.retain(|before| *before != node));
        Ok(())
    }

    /// Adds or removes edges between two nodes of a graph.
    pub(crate) fn connect(&mut self, graph: usize, from: usize, to: usize, add: bool) -> Answer {
        if self.graph_of.get(&from) != Some(&graph) {
            return Err(Code::INVALID_VALUE);
        }
        let nodes = &mut self.graph(graph)?.nodes;
        let (_, node) = nodes.iter_mut().find(|(handle, _)| *handle == to).ok_or(Code::INVALID_VALUE)?;
        match (add, node.after.contains(&from)) {
            (true, false) => node.after.push(from),
            (false, true) => node.after.retain(|before| *before != from),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// Makes an executable graph.
    pub(crate) fn instantiate(&mut self, graph: usize) -> Answer<usize> {
        let hosts = self.graph(graph)?.nodes.iter().filter_map(|(_, node)| node.host).collect();
        let handle = handles::new();
        self.executables.insert(handle, hosts);
        Ok(handle)
    }

    /// Returns the functions that a launch calls. A launch on a captured stream becomes a node.
    pub(crate) fn launch_graph(&mut self, executable: usize, stream: usize) -> Answer<Vec<HostFunction>> {
        let hosts = self.executables.get(&executable).cloned().ok_or(Code::INVALID_VALUE)?;
        let is_captured = self.capture_node(stream, super::kind::GRAPH, None)?;
        Ok(if is_captured { Vec::new() } else { hosts })
    }

    /// Destroys an executable graph.
    pub(crate) fn destroy_executable(&mut self, executable: usize) -> Answer {
        self.executables.remove(&executable).map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    /// Returns the handles of a graph's nodes; if `roots`, only of those that wait for no other.
    pub(crate) fn nodes(&mut self, graph: usize, roots: bool) -> Answer<Vec<usize>> {
        let nodes = &self.graph(graph)?.nodes;
        let wanted = nodes.iter().filter(|(_, node)| !roots || node.after.is_empty());
        Ok(wanted.map(|(handle, _)| *handle).collect())
    }

    /// Returns pairs of nodes; the second node of a pair waits for the first.
    pub(crate) fn edges(&mut self, graph: usize) -> Answer<Vec<(usize, usize)>> {
        let nodes = &self.graph(graph)?.nodes;
        Ok(nodes.iter().flat_map(|(to, node)| node.after.iter().map(|from| (*from, *to))).collect())
    }

    /// Returns the kind of a node.
    pub(crate) fn node_kind(&mut self, node: usize) -> Answer<c_int> {
        Ok(self.node(node)?.kind)
    }
}
