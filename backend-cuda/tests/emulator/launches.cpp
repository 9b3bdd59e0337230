// Launches of the stand-in driver: at once, or written down and launched as a graph.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "runtime.h"

namespace {
// A kernel with a copy of its argument, or a library's work.
struct Node {
    const emu::Kernel* kernel = nullptr;
    emu::Index grid;
    unsigned threads = 0;
    size_t shared_bytes = 0;
    std::vector<char> argument;
    void (*library)(void*) = nullptr;
    std::shared_ptr<void> data;

    void run() const {
        emu::settle();
        if (kernel == nullptr) return library(data.get());
        emu::launch(*kernel, grid, threads, shared_bytes, argument.data());
    }
};
struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
};
// What was made of a graph: nodes of its own, in the graph's order.
struct Ready {
    const Graph* graph;
    std::vector<Node> nodes;
    size_t bytes;
};

std::unique_ptr<Graph> capturing;
// What the device was given: kernels, a library's work and graphs, one each.
size_t launches = 0;

int submit(Node&& node) {
    if (capturing != nullptr) {
        capturing->nodes.push_back(std::make_unique<Node>(std::move(node)));
        return SUCCESS;
    }
    launches++;
    node.run();
    return SUCCESS;
}

// Dynamic shared memory that a function may be given: more than the usual only if that was said.
constexpr size_t USUAL_SHARED_BYTES = 48 << 10, MOST_SHARED_BYTES = 99 << 10;
std::map<const emu::Kernel*, size_t> allowed;

bool fits(const emu::Kernel& kernel, emu::Index grid, emu::Index block, size_t shared_bytes) {
    // Compiled for such a device they do nothing.
    const bool has_tensors = emu::capability() >= 80 || std::strstr(kernel.name, "_f16");
    if (!has_tensors && std::strstr(kernel.name, "_tensor")) emu::fail("before 8.0 tensor cores take f16 alone");
    const bool blocks = grid.x > 0 && grid.x <= 0x7fffffff && grid.y > 0 && grid.y <= 65535 && grid.z > 0 && grid.z <= 65535;
    return blocks && block.y == 1 && block.z == 1 && block.x > 0 && block.x <= kernel.threads && shared_bytes <= std::max(USUAL_SHARED_BYTES, allowed[&kernel]);
}

std::vector<char> copy(const emu::Kernel& kernel, void** arguments) {
    const char* at = static_cast<const char*>(arguments[0]);
    return std::vector<char>(at, at + kernel.argument_bytes);
}
}  // namespace

bool emu::is_capturing() { return capturing != nullptr; }

API cuFuncSetAttribute(void* function, int attribute, int value) {
    ALONE;
    const int most_dynamic_shared = 8;
    if (attribute != most_dynamic_shared || value < 0 || static_cast<size_t>(value) > MOST_SHARED_BYTES) return INVALID_VALUE;
    allowed[static_cast<const emu::Kernel*>(function)] = static_cast<size_t>(value);
    return SUCCESS;
}
API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, void*, void** arguments, void**) {
    ALONE;
    const emu::Kernel& kernel = *static_cast<emu::Kernel*>(function);
    const emu::Index grid{gx, gy, gz};
    if (!fits(kernel, grid, emu::Index{bx, by, bz}, shared_bytes)) return INVALID_VALUE;
    Node node;
    node.kernel = &kernel;
    node.grid = grid;
    node.threads = bx;
    node.shared_bytes = shared_bytes;
    node.argument = copy(kernel, arguments);
    return submit(std::move(node));
}

// Work of another library's, with its data and what frees that.
extern "C" __attribute__((visibility("default"))) void emulator_submit(void (*run)(void*), void (*drop)(void*), void* data) {
    ALONE;
    Node node;
    node.library = run;
    node.data = std::shared_ptr<void>(data, drop);
    submit(std::move(node));
}

extern "C" __attribute__((visibility("default"))) size_t emulator_launches() {
    ALONE;
    return launches;
}

// ---- graphs ----

API cuStreamBeginCapture_v2(void*, int mode) {
    ALONE;
    if (capturing != nullptr || mode != 2) return INVALID_VALUE;
    capturing = std::make_unique<Graph>();
    return SUCCESS;
}
API cuStreamEndCapture(void*, void** graph) {
    ALONE;
    if (capturing == nullptr) return INVALID_VALUE;
    return *graph = capturing.release(), SUCCESS;
}
API cuStreamGetCaptureInfo_v2(void*, int* status, unsigned long long* id, void** graph, void* const** nodes, size_t* count) {
    static void* newest;
    ALONE;
    if (capturing == nullptr) return *status = 0, SUCCESS;
    *status = 1;
    *id = 1;
    *graph = capturing.get();
    *count = capturing->nodes.empty() ? 0 : 1;
    newest = capturing->nodes.empty() ? nullptr : capturing->nodes.back().get();
    return *nodes = &newest, SUCCESS;
}
API cuGraphInstantiateWithFlags(void** ready, void* graph, unsigned long long flags) {
    ALONE;
    const Graph& g = *static_cast<Graph*>(graph);
    const size_t bytes = (64 << 10) + g.nodes.size() * 512;
    if (flags != 0) return INVALID_VALUE;
    if (!emu::take("graphs", bytes)) return OUT_OF_MEMORY;
    auto made = std::make_unique<Ready>(Ready{&g, {}, bytes});
    for (const auto& node : g.nodes) made->nodes.push_back(*node);
    return *ready = made.release(), SUCCESS;
}

// As the driver's, version 2.
struct Parameters {
    void* function;
    unsigned grid[3], block[3], shared_bytes;
    void** arguments;
    void** extra;
    void* kernel;
    void* context;
};
API cuGraphExecKernelNodeSetParams_v2(void* ready, void* node, const Parameters* p) {
    ALONE;
    Ready& r = *static_cast<Ready*>(ready);
    const emu::Kernel& kernel = *static_cast<emu::Kernel*>(p->function);
    const emu::Index grid{p->grid[0], p->grid[1], p->grid[2]};
    if (!fits(kernel, grid, emu::Index{p->block[0], p->block[1], p->block[2]}, p->shared_bytes)) return INVALID_VALUE;
    for (size_t i = 0; i < r.nodes.size(); i++) {
        if (r.graph->nodes[i].get() != node) continue;
        Node& own = r.nodes[i];
        if (own.kernel != &kernel) return INVALID_VALUE;
        own.grid = grid;
        own.threads = p->block[0];
        own.shared_bytes = p->shared_bytes;
        own.argument = copy(kernel, p->arguments);
        return SUCCESS;
    }
    return INVALID_VALUE;
}
API cuGraphLaunch(void* ready, void*) {
    ALONE;
    if (capturing != nullptr) return CAPTURED;
    launches++;
    for (const Node& node : static_cast<Ready*>(ready)->nodes) node.run();
    return SUCCESS;
}
API cuGraphExecDestroy(void* ready) {
    ALONE;
    Ready* r = static_cast<Ready*>(ready);
    emu::give("graphs", r->bytes);
    delete r;
    return SUCCESS;
}
API cuGraphDestroy(void* graph) {
    ALONE;
    delete static_cast<Graph*>(graph);
    return SUCCESS;
}
