//! Graphs. Only the number of nodes and their dependencies are kept, and the functions of host nodes.

use std::ffi::{c_int, c_uint};
use std::io::Write as _;

use crate::answer::{Answer, Code, runtime};
use crate::argument::{In, Out, Text};
use crate::work::{Graph, HostFunction, Node, kind, work};
use crate::{handles, told, values, wheel};

#[unsafe(no_mangle)]
extern "C" fn cudaGraphCreate(graph: Out<usize>, _flags: c_uint) -> c_int {
    let created = work().create_graph(Graph::default());
    runtime(graph.set(created))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphClone(copy: Out<usize>, graph: usize) -> c_int {
    let cloned = work().clone_graph(graph);
    runtime(cloned.and_then(|cloned| copy.set(cloned)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphDestroy(graph: usize) -> c_int {
    runtime(work().destroy_graph(graph))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphDestroyNode(node: usize) -> c_int {
    runtime(work().destroy_node(node))
}

/// Adds a node of a kind to a graph.
fn add(
    out: Out<usize>,
    graph: usize,
    (after, count): (In<usize>, usize),
    kind: c_int,
    host: Option<HostFunction>,
) -> c_int {
    let added = || -> Answer {
        let after = (0..count).map(|index| after.get_at(index)).collect::<Answer<_>>()?;
        let node = work().add_node(graph, Node { kind, after, host })?;
        out.set(node)
    };
    runtime(added())
}

/// Defines functions that add a node: name and kind. The arguments that follow are ignored.
macro_rules! adds {
    ($($name:ident = $kind:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(node: Out<usize>, graph: usize, after: In<usize>, count: usize) -> c_int {
            add(node, graph, (after, count), $kind, None)
        }
    )*};
}

// For build.rs: exported_names!(cudaGraphAddEmptyNode, cudaGraphAddKernelNode, cudaGraphAddMemcpyNode,
// cudaGraphAddMemcpyNode1D, cudaGraphAddMemsetNode, cudaGraphAddChildGraphNode, cudaGraphAddEventRecordNode,
// cudaGraphAddEventWaitNode)
adds! {
    cudaGraphAddEmptyNode = kind::EMPTY;
    cudaGraphAddKernelNode = kind::KERNEL;
    cudaGraphAddMemcpyNode = kind::MEMCPY;
    cudaGraphAddMemcpyNode1D = kind::MEMCPY;
    cudaGraphAddMemsetNode = kind::MEMSET;
    cudaGraphAddChildGraphNode = kind::GRAPH;
    cudaGraphAddEventRecordNode = kind::RECORD_EVENT;
    cudaGraphAddEventWaitNode = kind::WAIT_EVENT;
}

/// `cudaHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostParameters {
    function: Option<extern "C" fn(usize)>,
    argument: usize,
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphAddHostNode(
    node: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<HostParameters>,
) -> c_int {
    let host = parameters
        .get()
        .ok()
        .and_then(|HostParameters { function, argument }| Some(HostFunction { function: function?, argument }));
    if host.is_none() {
        return runtime(Err(Code::INVALID_VALUE));
    }
    add(node, graph, (after, count), kind::HOST, host)
}

/// CUDA 13 has the data of edges as fourth argument. The node's parameters begin with its kind. A conditional node also
/// gives the address for the graphs of its branches, which are made here and never run.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphAddNode(
    node: Out<usize>,
    graph: usize,
    after: In<usize>,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_int {
    let (count, parameters) = if wheel::is_cuda_12() { (fourth, fifth) } else { (fifth, sixth) };
    add_any(node, graph, (after, count), parameters)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphAddNode_v2(
    node: Out<usize>,
    graph: usize,
    after: In<usize>,
    _edges: usize,
    count: usize,
    parameters: usize,
) -> c_int {
    add_any(node, graph, (after, count), parameters)
}

fn add_any(node: Out<usize>, graph: usize, after: (In<usize>, usize), parameters: usize) -> c_int {
    const CONDITIONAL: c_int = 13;
    // In `cudaGraphNodeParams` the parameters begin after four ints. Those of a conditional node are a handle, a kind,
    // the number of graphs, and the address for their array.
    const SIZE: usize = 16 + 12;
    const ARRAY: usize = 16 + 16;
    let Ok(kind) = In::<c_int>::at(parameters).get() else { return runtime(Err(Code::INVALID_VALUE)) };
    if kind == CONDITIONAL {
        let count = In::<c_uint>::at(parameters + SIZE).get().unwrap_or(0).min(16);
        let branches: Vec<usize> = (0..count).map(|_| work().create_graph(Graph::default())).collect();
        // The array lives until the end, because the program may ask for its graphs at any time.
        let array = Box::leak(branches.into_boxed_slice());
        Out::at(parameters + ARRAY).offer(array.as_ptr() as usize);
    }
    add(node, graph, after, kind, None)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphConditionalHandleCreate(
    handle: Out<u64>,
    _graph: usize,
    _value: c_uint,
    _flags: c_uint,
) -> c_int {
    runtime(handle.set(handles::new() as u64))
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

#[unsafe(no_mangle)]
extern "C" fn cudaGraphGetNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> c_int {
    let found = work().nodes(graph, false);
    runtime(found.and_then(|found| list(&found, nodes, count)))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphGetRootNodes(graph: usize, nodes: Out<usize>, count: Out<usize>) -> c_int {
    let found = work().nodes(graph, true);
    runtime(found.and_then(|found| list(&found, nodes, count)))
}

fn edges(graph: usize, from: Out<usize>, to: Out<usize>, count: usize) -> c_int {
    let write = || -> Answer {
        let found = work().edges(graph)?;
        let (froms, tos): (Vec<usize>, Vec<usize>) = found.into_iter().unzip();
        let capacity = Out::<usize>::at(count).get()?;
        list(&froms, from, Out::at(count))?;
        if to.is_null() {
            return Ok(());
        }
        Out::at(count).set(capacity)?;
        list(&tos, to, Out::at(count))
    };
    runtime(write())
}

/// CUDA 13 has the data of edges as fourth argument.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphGetEdges(graph: usize, from: Out<usize>, to: Out<usize>, fourth: usize, fifth: usize) -> c_int {
    edges(graph, from, to, if wheel::is_cuda_12() { fourth } else { fifth })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphGetEdges_v2(
    graph: usize,
    from: Out<usize>,
    to: Out<usize>,
    _data: usize,
    count: usize,
) -> c_int {
    edges(graph, from, to, count)
}

fn neighbours(node: usize, before: bool, room: Out<usize>, count: usize) -> c_int {
    let found = if before { work().node(node).map(|node| node.after) } else { work().dependents(node) };
    runtime(found.and_then(|found| list(&found, room, Out::at(count))))
}

/// CUDA 13 has the data of edges as third argument.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphNodeGetDependencies(node: usize, nodes: Out<usize>, third: usize, fourth: usize) -> c_int {
    neighbours(node, true, nodes, if wheel::is_cuda_12() { third } else { fourth })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphNodeGetDependencies_v2(node: usize, nodes: Out<usize>, _edges: usize, count: usize) -> c_int {
    neighbours(node, true, nodes, count)
}

/// CUDA 13 has the data of edges as third argument.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphNodeGetDependentNodes(node: usize, nodes: Out<usize>, third: usize, fourth: usize) -> c_int {
    neighbours(node, false, nodes, if wheel::is_cuda_12() { third } else { fourth })
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphNodeGetDependentNodes_v2(node: usize, nodes: Out<usize>, _edges: usize, count: usize) -> c_int {
    neighbours(node, false, nodes, count)
}

fn connect(graph: usize, (from, to): (In<usize>, In<usize>), count: usize, add: bool) -> c_int {
    let each = |index| work().connect(graph, from.get_at(index)?, to.get_at(index)?, add);
    runtime((0..count).try_for_each(each))
}

/// CUDA 13 has the data of edges as fourth argument.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphAddDependencies(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    fourth: usize,
    fifth: usize,
) -> c_int {
    connect(graph, (from, to), if wheel::is_cuda_12() { fourth } else { fifth }, true)
}

/// CUDA 13 has the data of edges as fourth argument.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphRemoveDependencies(
    graph: usize,
    from: In<usize>,
    to: In<usize>,
    fourth: usize,
    fifth: usize,
) -> c_int {
    connect(graph, (from, to), if wheel::is_cuda_12() { fourth } else { fifth }, false)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphNodeGetType(node: usize, kind: Out<c_int>) -> c_int {
    let found = work().node_kind(node);
    runtime(found.and_then(|found| kind.set(found)))
}

fn instantiate(executable: Out<usize>, graph: usize) -> c_int {
    let made = work().instantiate(graph);
    runtime(made.and_then(|made| executable.set(made)))
}

/// The last argument holds flags since CUDA 12.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphInstantiate(executable: Out<usize>, graph: usize, _flags: u64) -> c_int {
    instantiate(executable, graph)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, _flags: u64) -> c_int {
    instantiate(executable, graph)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphInstantiateWithParams(executable: Out<usize>, graph: usize, _parameters: usize) -> c_int {
    instantiate(executable, graph)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphExecDestroy(executable: usize) -> c_int {
    runtime(work().destroy_executable(executable))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphUpload(_executable: usize, _stream: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphLaunch(executable: usize, stream: usize) -> c_int {
    let hosts = work().launch_graph(executable, stream);
    runtime(hosts.map(|hosts| {
        values::launched();
        told::anything_written();
        hosts.iter().for_each(|host| (host.function)(host.argument));
    }))
}

/// Writes the graph in Graphviz's format: numbers for nodes, without their work.
#[unsafe(no_mangle)]
extern "C" fn cudaGraphDebugDotPrint(graph: usize, path: Text, _flags: c_uint) -> c_int {
    let write = || -> Answer {
        let (nodes, edges) = (work().nodes(graph, false)?, work().edges(graph)?);
        let number = |node: &usize| nodes.iter().position(|other| other == node).unwrap_or(0);
        let mut text = "digraph graph_of_cuda {\n".to_string();
        nodes.iter().for_each(|node| text += &format!("  node_{};\n", number(node)));
        edges.iter().for_each(|(from, to)| text += &format!("  node_{} -> node_{};\n", number(from), number(to)));
        let mut file = std::fs::File::create(path.get()?).map_err(|_| Code(304))?;
        file.write_all((text + "}\n").as_bytes()).map_err(|_| Code(304))
    };
    runtime(write())
}

#[unsafe(no_mangle)]
extern "C" fn cudaUserObjectCreate(
    object: Out<usize>,
    _value: usize,
    _destroy: usize,
    _references: c_uint,
    _flags: c_uint,
) -> c_int {
    // Its destructor is never called, because a graph may be launched again at any time.
    runtime(object.set(handles::new()))
}

#[unsafe(no_mangle)]
extern "C" fn cudaGraphRetainUserObject(_graph: usize, _object: usize, _count: c_uint, _flags: c_uint) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaUserObjectRelease(_object: usize, _count: c_uint) -> c_int {
    0
}

/// Memory of graphs' own allocations: none is kept apart.
#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetGraphMemAttribute(_card: c_int, _attribute: c_int, value: Out<u64>) -> c_int {
    runtime(value.set(0))
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceSetGraphMemAttribute(_card: c_int, _attribute: c_int, _value: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGraphMemTrim(_card: c_int) -> c_int {
    0
}
