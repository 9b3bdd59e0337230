// Reductions over any axes: a thread, a warp or a block per result; long groups in chunks, merged in order.
#include "arguments.cuh"
#include "walk.cuh"

enum Reduction { SUM, MEAN, SUM_SQUARES, MAX, MIN };

// Elements that a thread adds up before it adds their sum to its total: the error of a long sum stays that of a short one.
#define RUN 64

// What a group came to so far: value, and the place of an extremum (-1: none yet).
struct Partial {
    union {
        float real;
        i64 integer;
    };
    i64 place;
};

DEVICE Partial* partials(const ReduceArgs& a) { return static_cast<Partial*>(a.partial); }
DEVICE void put(Partial& p, float x) { p.real = x; }
DEVICE void put(Partial& p, i64 x) { p.integer = x; }
DEVICE void get(const Partial& p, float& x) { x = p.real; }
DEVICE void get(const Partial& p, i64& x) { x = p.integer; }

// The type of sums of elements of T.
template <typename T>
struct Sum {
    typedef i64 type;
};
template <>
struct Sum<float> {
    typedef float type;
};
template <>
struct Sum<f16> {
    typedef float type;
};
template <>
struct Sum<bf16> {
    typedef float type;
};

// Whether (b, j) comes before (a, i): NaN wins, then the extremum, then the first.
template <typename C>
DEVICE bool better(u32 op, C a, i64 i, C b, i64 j) {
    if (j < 0) return false;
    if (i < 0) return true;
    const bool a_nan = is_nan(a), b_nan = is_nan(b);
    if (a_nan || b_nan) return b_nan && (!a_nan || j < i);
    if (a == b) return j < i;
    return op == MAX ? b > a : b < a;
}

template <typename C>
DEVICE void merge(u32 op, C& a, i64& i, C b, i64 j) {
    if (op <= SUM_SQUARES) {
        a += b;
    } else if (better(op, a, i, b, j)) {
        a = b;
        i = j;
    }
}

template <typename T>
DEVICE void finish(const ReduceArgs& a, u64 result, const i64* at, typename Sum<T>::type value, i64 place) {
    typedef typename Sum<T>::type C;
    if (a.op == MEAN) value = value / static_cast<C>(a.group.elements);
    if (a.unrounded) {
        static_cast<C*>(a.out)[at[0]] = value;
    } else {
        static_cast<T*>(a.out)[at[0]] = narrow<T>(value);
    }
    if (a.indices != nullptr) a.indices[result] = place;
}

// Elements that a thread has on their way at once.
#define AHEAD 8

// The sum of one thread's share of a group that lies evenly: elements `first`, `first + step`, … below `end`.
template <typename T>
DEVICE typename Sum<T>::type sum_evenly(const ReduceArgs& a, const T* x, u64 first, u64 end, u64 step) {
    typedef typename Sum<T>::type C;
    const i64 stride = a.group.strides[0][0];
    C value = 0, run = 0;
    u32 length = 0;
    for (u64 e = first; e < end; e += AHEAD * step) {
        C v[AHEAD];
        UNROLL for (int p = 0; p < AHEAD; p++) {
            const u64 i = e + p * step;
            v[p] = 0;
            if (i < end) v[p] = widen(x[static_cast<i64>(i) * stride]);
        }
        UNROLL for (int p = 0; p < AHEAD; p++) run += a.op == SUM_SQUARES ? v[p] * v[p] : v[p];
        if ((length += AHEAD) == RUN) {
            value += run;
            run = 0;
            length = 0;
        }
    }
    return value + run;
}

// The same of `length` elements side by side that begin at 16 aligned bytes, which a team reads 16 bytes at a time.
template <bool Squares, typename T>
DEVICE float sum_side_by_side(const T* x, u64 length, u64 rank, u64 step) {
    static const int V = Wide<T>::N, PACKS = RUN / V;
    const u64 packs = length / V;
    float value = 0.0f;
    auto add = [](float& run, T e) {
        const float v = widen(e);
        run += Squares ? v * v : v;
    };
    for (u64 first = rank; first < packs; first += PACKS * step) {
        // Zeros beyond the end: they add nothing, and nothing is asked while adding.
        Pack<T, V> read[PACKS];
        UNROLL for (int p = 0; p < PACKS; p++) {
            read[p] = Pack<T, V>{};
            if (first + p * step < packs) read[p] = load_pack<V>(x + (first + p * step) * V);
        }
        // Two runs, so that one need not wait for the other.
        float run[2] = {};
        UNROLL for (int p = 0; p < PACKS; p++) {
            UNROLL for (int j = 0; j < V; j++) add(run[j % 2], read[p].e[j]);
        }
        value += run[0] + run[1];
    }
    float rest = 0.0f;
    for (u64 i = packs * V + rank; i < length; i += step) add(rest, x[i]);
    return value + rest;
}

// The share of the thread `rank` of a team of so many, of elements `begin` to `end` of a group, however it lies.
template <typename T, int Group>
DEVICE void gather(const ReduceArgs& a, i64 base, u64 begin, u64 end, u64 rank, typename Sum<T>::type& value, i64& place) {
    typedef typename Sum<T>::type C;
    const T* x = static_cast<const T*>(a.x) + base;
    const u64 first = begin + rank, step = Group;
    place = -1;
    if (a.op <= SUM_SQUARES && a.group.rank <= 1) {
        if constexpr (Group > 1 && sizeof(T) == 2) {
            if (a.group.strides[0][0] == 1 && reinterpret_cast<u64>(x + begin) % 16 == 0) {
                value = a.op == SUM_SQUARES ? sum_side_by_side<true>(x + begin, end - begin, rank, step)
                                            : sum_side_by_side<false>(x + begin, end - begin, rank, step);
                return;
            }
        }
        value = sum_evenly(a, x, first, end, step);
        return;
    }
    value = 0;
    C run = 0;
    u32 length = 0;
    for (u64 e = first; e < end; e += step) {
        i64 at[1];
        places(a.group, e, at);
        const C v = widen(x[at[0]]);
        if (a.op > SUM_SQUARES) {
            if (better(a.op, value, place, v, static_cast<i64>(e))) {
                value = v;
                place = static_cast<i64>(e);
            }
            continue;
        }
        run += a.op == SUM_SQUARES ? v * v : v;
        if (++length == RUN) {
            value += run;
            run = 0;
            length = 0;
        }
    }
    value += run;
}

// The best of a team's values, known to its first thread.
template <typename C, int Group>
DEVICE void choose(const ReduceArgs& a, C& value, i64& place) {
    UNROLL for (int offset = WARP / 2; offset > 0; offset /= 2) {
        const C other = __shfl_xor_sync(ALL_LANES, value, offset);
        const i64 there = __shfl_xor_sync(ALL_LANES, place, offset);
        merge(a.op, value, place, other, there);
    }
    if constexpr (Group > WARP) {
        SHARED(C, values, Group / WARP);
        SHARED(i64, spots, Group / WARP);
        __syncthreads();
        if (lane() == 0) {
            values[threadIdx.x / WARP] = value;
            spots[threadIdx.x / WARP] = place;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int w = 1; w < Group / WARP; w++) merge(a.op, value, place, values[w], spots[w]);
        }
    }
}

template <typename T, int Group>
DEVICE void reduce(const ReduceArgs& a) {
    typedef typename Sum<T>::type C;
    const u64 results = a.results.packs, all = results * a.chunks;
    const u64 teams = Group == 1 ? thread_count() : Group == WARP ? thread_count() / WARP : gridDim.x;
    const u64 team = Group == 1 ? thread_index() : Group == WARP ? thread_index() / WARP : blockIdx.x;
    const u64 rank = Group == 1 ? 0 : Group == WARP ? lane() : threadIdx.x;
    for (u64 i = team; i < all; i += teams) {
        const u64 chunk = a.chunks == 1 ? 0 : i / results, result = i - chunk * results;
        const u64 begin = chunk * a.chunk_length, end = least(begin + a.chunk_length, a.group.elements);
        i64 at[2];
        places(a.results, result, at);
        C value;
        i64 place;
        gather<T, Group>(a, at[1], begin, end, rank, value, place);
        if constexpr (Group > 1) {
            // Sums have no place to tell each other.
            if (a.op <= SUM_SQUARES) {
                SHARED(C, sums, WARP);
                value = Group == WARP ? warp_sum(value) : block_sum(value, sums);
            } else {
                choose<C, Group>(a, value, place);
            }
        }
        if (rank != 0) continue;
        if (a.partial == nullptr) {
            finish<T>(a, result, at, value, place);
        } else {
            put(partials(a)[i], value);
            partials(a)[i].place = place;
        }
    }
}

// Sums of rows whose elements lie side by side and begin at 16 aligned bytes, a warp for each. What `reduce` asks for other groups takes
// registers and instructions: without it a processor has room for four blocks, and adding takes as many instructions as it must.
template <bool Squares, typename T>
DEVICE void sum_rows(const ReduceArgs& a) {
    const T* x = static_cast<const T*>(a.x);
    for (u64 i = thread_index() / WARP; i < a.results.packs; i += thread_count() / WARP) {
        i64 at[2];
        places(a.results, i, at);
        const float sum = warp_sum(sum_side_by_side<Squares>(x + at[1], a.group.elements, lane(), WARP));
        if (lane() == 0) finish<T>(a, i, at, sum, -1);
    }
}

// Merges the chunks of each result.
template <typename T>
DEVICE void reduce_chunks(const ReduceArgs& a) {
    typedef typename Sum<T>::type C;
    for (u64 result = thread_index(); result < a.results.packs; result += thread_count()) {
        i64 at[2];
        places(a.results, result, at);
        C value = 0;
        i64 place = -1;
        for (u64 c = 0; c < a.chunks; c += AHEAD) {
            // All of these are on their way before the first is waited for: there are too few threads to hide that.
            Partial parts[AHEAD];
            UNROLL for (int p = 0; p < AHEAD; p++) {
                if (c + p < a.chunks) parts[p] = partials(a)[(c + p) * a.results.packs + result];
            }
            UNROLL for (int p = 0; p < AHEAD; p++) {
                if (c + p >= a.chunks) break;
                C part;
                get(parts[p], part);
                merge(a.op, value, place, part, parts[p].place);
            }
        }
        finish<T>(a, result, at, value, place);
    }
}

#define INSTANCES(T, tag)                                                       \
    FLAT_KERNEL(reduce_##tag##_thread, ReduceArgs, THREADS, reduce<T, 1>)       \
    BLOCK_KERNEL(reduce_##tag##_warp, ReduceArgs, THREADS, reduce<T, WARP>)     \
    BLOCK_KERNEL(reduce_##tag##_block, ReduceArgs, THREADS, reduce<T, THREADS>) \
    FLAT_KERNEL(reduce_##tag##_chunks, ReduceArgs, THREADS, reduce_chunks<T>)
FLOAT_TYPES(INSTANCES)
INSTANCES(i64, i64)
INSTANCES(i32, i32)

#define ROW_INSTANCES(T, tag)                                                              \
    BUSY_BLOCK_KERNEL(sum_rows_##tag##_sums, ReduceArgs, THREADS, 4, sum_rows<false, T>)   \
    BUSY_BLOCK_KERNEL(sum_rows_##tag##_squares, ReduceArgs, THREADS, 4, sum_rows<true, T>)
ROW_INSTANCES(f16, f16)
ROW_INSTANCES(bf16, bf16)
