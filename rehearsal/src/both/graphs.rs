//! Graphs. Only the number of nodes and their dependencies are kept, and the functions of host nodes.

use std::ffi::{c_int, c_uint};
use std::io::Write as _;

use crate::answer::{Answer, Code};
use crate::argument::{In, Out, Text};
use crate::exports::exports;
use crate::work::{Graph, HostFunction, Node, kind, work};
use crate::{handles, told, values, wheel};

/// Adds a node of a kind to a graph.
fn add(
    out: Out<usize>,
    graph: usize,
    (after, count): (In<usize>, usize),
    kind: c_int,
    host: Option<HostFunction>,
) -> Answer {
    let after = (0..count).map(|index| after.get_at(index)).collect::<Answer<_>>()?;
    let node = work().add_node(graph, Node { kind, after, host })?;
    out.set(node)
}

/// `cudaHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostParameters {
    function: Option<extern "C" fn(usize)>,
    argument: usize,
}

/// Adds a node whose parameters begin with its kind. A conditional node also gives the address for the graphs of its
/// branches, which are made here and never run.
fn add_any(node: Out<usize>, graph: usize, after: (In<usize>, usize), parameters: usize) -> Answer {
    const CONDITIONAL: c_int = 13;
    // In `cudaGraphNodeParams` the parameters begin after four ints. Those of a conditional node are a handle, a kind,
    // the number of graphs, and the address for their array.
    const SIZE: usize = 16 + 12;
    const ARRAY: usize = 16 + 16;
    let kind = In::<c_int>::at(parameters).get()?;
    if kind == CONDITIONAL {
        let count = In::<c_uint>::at(parameters + SIZE).get().unwrap_or(0).min(16);
        let branches: Vec<usize> = (0..count).map(|_| work().create_graph(Graph::default())).collect();
        // The array lives until the end, because the program may ask for its graphs at any time.
        let array = Box::leak(branches.into_boxed_slice());
        Out::at(parameters + ARRAY).offer(array.as_ptr() as usize);
    }
    add(node, graph, after, kind, None)
}

/// Writes as many handles as there is room for, and their number.
fn list(found: &[usize], room: Out<usize>, count: Out<usize>) -> Answer {
    if !room.is_null() {
        let capacity = count.get()?;
        for index in 0..capacity {
            room.set_at(index, found.get(index).copied().unwrap_or(0))?;
        }
        return count.set(found.len().min(capacity));
    }
    count.set(found.len())
}

fn edges(graph: usize, from: Out<usize>, to: Out<usize>, count: usize) -> Answer {
    let found = work().edges(graph)?;
    let (froms, tos): (Vec<usize>, Vec<usize>) = found.into_iter().unzip();
    let capacity = Out::<usize>::at(count).get()?;
    list(&froms, from, Out::at(count))?;
    if to.is_null() {
        return Ok(());
    }
    Out::at(count).set(capacity)?;
    list(&tos, to, Out::at(count))
}

fn before(node: usize, room: Out<usize>, count: usize) -> Answer {
    let found = work().node(node)?.after;
    list(&found, room, Out::at(count))
}

fn behind(node: usize, room: Out<usize>, count: usize) -> Answer {
    let found = work().dependents(node)?;
    list(&found, room, Out::at(count))
}

fn connect(graph: usize, (from, to): (In<usize>, In<usize>), count: usize, add: bool) -> Answer {
    (0..count).try_for_each(|index| work().connect(graph, from.get_at(index)?, to.get_at(index)?, add))
}

/// The later of two arguments that follow each other, or the earlier one if the program's CUDA lacks the data of edges
/// before them.
fn after_data(earlier: usize, later: usize) -> usize {
    if wheel::is_cuda_12() { earlier } else { later }
}

/// Defines functions that add a node: name and kind. The arguments that follow are ignored.
macro_rules! adds {
    ($($interface:ident $name:ident = $kind:expr;)*) => {
        exports! {$(
            $interface $name(node: Out<usize>, graph: usize, after: In<usize>, count: usize) {
                add(node, graph, (after, count), $kind, None)
            }
        )*}
    };
}

adds! {
    runtime cudaGraphAddEmptyNode = kind::EMPTY;
    runtime cudaGraphAddKernelNode = kind::KERNEL;
    runtime cudaGraphAddMemcpyNode = kind::MEMCPY;
    runtime cudaGraphAddMemcpyNode1D = kind::MEMCPY;
    runtime cudaGraphAddMemsetNode = kind::MEMSET;
    runtime cudaGraphAddChildGraphNode = kind::GRAPH;
    runtime cudaGraphAddEventRecordNode = kind::RECORD_EVENT;
    runtime cudaGraphAddEventWaitNode = kind::WAIT_EVENT;
}

exports! {
    runtime cudaGraphCreate(graph: Out<usize>, _flags: c_uint) {
        let created = work().create_graph(Graph::default());
        graph.set(created)
    }

    runtime cudaGraphClone(copy: Out<usize>, graph: usize) {
        let cloned = work().clone_graph(graph)?;
        copy.set(cloned)
    }

    driver cuGraphDestroy, runtime cudaGraphDestroy(graph: usize) {
        work().destroy_graph(graph)
    }

    runtime cudaGraphDestroyNode(node: usize) {
        work().destroy_node(node)
    }

    runtime cudaGraphAddHostNode(
        node: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<HostParameters>,
    ) {
        let HostParameters { function, argument } = parameters.get()?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        add(node, graph, (after, count), kind::HOST, Some(HostFunction { function, argument }))
    }

    /// CUDA 13 has the data of edges as fourth argument.
    runtime cudaGraphAddNode(
        node: Out<usize>, graph: usize, after: In<usize>, fourth: usize, fifth: usize, sixth: usize,
    ) {
        add_any(node, graph, (after, after_data(fourth, fifth)), after_data(fifth, sixth))
    }

    runtime cudaGraphAddNode_v2(
        node: Out<usize>, graph: usize, after: In<usize>, _edges: usize, count: usize, parameters: usize,
    ) {
        add_any(node, graph, (after, count), parameters)
    }

    runtime cudaGraphConditionalHandleCreate(handle: Out<u64>, _graph: usize, _value: c_uint, _flags: c_uint) {
        handle.set(handles::new() as u64)
    }

    driver cuGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) {
        let found = work().nodes(graph, false)?;
        if !nodes.is_null() {
            let capacity = count.get()?;
            found.iter().take(capacity).enumerate().try_for_each(|(index, node)| nodes.set_at(index, *node))?;
        }
        count.set(found.len())
    }

    runtime cudaGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) {
        let found = work().nodes(graph, false)?;
        list(&found, nodes, count)
    }

    runtime cudaGraphGetRootNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) {
        let found = work().nodes(graph, true)?;
        list(&found, nodes, count)
    }

    /// CUDA 13 has the data of edges as fourth argument.
    runtime cudaGraphGetEdges(graph: usize, from: Out<usize>, to: Out<usize>, fourth: usize, fifth: usize) {
        edges(graph, from, to, after_data(fourth, fifth))
    }

    runtime cudaGraphGetEdges_v2(graph: usize, from: Out<usize>, to: Out<usize>, _data: usize, count: usize) {
        edges(graph, from, to, count)
    }

    /// CUDA 13 has the data of edges as third argument.
    runtime cudaGraphNodeGetDependencies(node: usize, nodes: Out<usize>, third: usize, fourth: usize) {
        before(node, nodes, after_data(third, fourth))
    }

    runtime cudaGraphNodeGetDependencies_v2(node: usize, nodes: Out<usize>, _edges: usize, count: usize) {
        before(node, nodes, count)
    }

    /// CUDA 13 has the data of edges as third argument.
    runtime cudaGraphNodeGetDependentNodes(node: usize, nodes: Out<usize>, third: usize, fourth: usize) {
        behind(node, nodes, after_data(third, fourth))
    }

    runtime cudaGraphNodeGetDependentNodes_v2(node: usize, nodes: Out<usize>, _edges: usize, count: usize) {
        behind(node, nodes, count)
    }

    /// CUDA 13 has the data of edges as fourth argument.
    runtime cudaGraphAddDependencies(graph: usize, from: In<usize>, to: In<usize>, fourth: usize, fifth: usize) {
        connect(graph, (from, to), after_data(fourth, fifth), true)
    }

    /// CUDA 13 has the data of edges as fourth argument.
    runtime cudaGraphRemoveDependencies(graph: usize, from: In<usize>, to: In<usize>, fourth: usize, fifth: usize) {
        connect(graph, (from, to), after_data(fourth, fifth), false)
    }

    runtime cudaGraphNodeGetType(node: usize, kind: Out<c_int>) {
        let found = work().node_kind(node)?;
        kind.set(found)
    }

    /// The last argument holds flags since CUDA 12, or is the address of parameters.
    driver cuGraphInstantiateWithFlags, runtime cudaGraphInstantiateWithFlags,
    runtime cudaGraphInstantiate, runtime cudaGraphInstantiateWithParams(
        executable: Out<usize>, graph: usize, _flags: u64,
    ) {
        let made = work().instantiate(graph)?;
        executable.set(made)
    }

    driver cuGraphExecDestroy, runtime cudaGraphExecDestroy(executable: usize) {
        work().destroy_executable(executable)
    }

    driver cuGraphLaunch, runtime cudaGraphLaunch(executable: usize, stream: usize) {
        let hosts = work().launch_graph(executable, stream)?;
        values::launched();
        told::anything_written();
        hosts.iter().for_each(|host| (host.function)(host.argument));
        Ok(())
    }

    /// Writes the graph in Graphviz's format: numbers for nodes, without their work.
    runtime cudaGraphDebugDotPrint(graph: usize, path: Text, _flags: c_uint) {
        let nodes = work().nodes(graph, false)?;
        let edges = work().edges(graph)?;
        let number = |node: &usize| nodes.iter().position(|other| other == node).unwrap_or(0);
        let mut text = "digraph graph_of_cuda {\n".to_string();
        nodes.iter().for_each(|node| text += &format!("  node_{};\n", number(node)));
        edges.iter().for_each(|(from, to)| text += &format!("  node_{} -> node_{};\n", number(from), number(to)));
        let mut file = std::fs::File::create(path.get()?).map_err(|_| Code(304))?;
        file.write_all((text + "}\n").as_bytes()).map_err(|_| Code(304))
    }

    /// Its destructor is never called, because a graph may be launched again at any time.
    runtime cudaUserObjectCreate(
        object: Out<usize>, _value: usize, _destroy: usize, _references: c_uint, _flags: c_uint,
    ) {
        object.set(handles::new())
    }

    /// Memory of graphs' own allocations: none is kept apart.
    runtime cudaDeviceGetGraphMemAttribute(_card: c_int, _attribute: c_int, value: Out<u64>) {
        value.set(0)
    }

    runtime cudaDeviceGraphMemTrim(_card: c_int) {
        Ok(())
    }

    runtime cudaDeviceSetGraphMemAttribute(_card: c_int, _attribute: c_int, _value: usize) {
        Ok(())
    }

    runtime cudaGraphUpload(_executable: usize, _stream: usize) {
        Ok(())
    }

    runtime cudaGraphRetainUserObject(_graph: usize, _object: usize, _count: c_uint, _flags: c_uint) {
        Ok(())
    }

    runtime cudaUserObjectRelease(_object: usize, _count: c_uint) {
        Ok(())
    }
}
