// A tile of scores and what is made of it (see tile.rs). Eight threads share a row, and each of them has four adjacent columns of it; a
// thread's rows are eight apart.

// A step of the rows' heads, then the weights of the tile: eight quads of each row, and one between rows, so that reads of eight rows
// meet in no bank.
var<workgroup> own: array<Quad, $OWN_QUADS>;
// A step of the columns' heads, then of what the weights multiply.
var<workgroup> other: array<Quad, 288>;

fn four_of(q: Quad) -> vec4<f32> { return bitcast<vec4<f32>>(quad_words(q)); }
fn quad(v: vec4<f32>) -> Quad { return quad_of(bitcast<vec4<u32>>(v)); }

fn plus(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

fn place(b: u32, h: u32, row: u32, column: u32, strides: vec4<u32>) -> u32 {
    return dot(vec4<u32>(b, h, row, column), strides);
}

// What is added to the product of query i and key j, after scaling; -inf hides.
fn biased(product: f32, b: u32, h: u32, i: u32, j: u32) -> f32 {
    if ($CAUSAL) { return -infinity(); }
    return p.scale * product$MASK;
}

// e^(score - largest), and 0 where nothing was seen yet.
fn weight_of(score: f32, largest: f32) -> f32 {
    if (score == -infinity()) { return 0.0; }
    return exp(score - largest);
}

// e^(score - logsumexp); 0 in a row that sees nothing, or all of whose scores are too low (see `AttentionGrad`).
fn probability_of(score: f32, lse: f32) -> f32 {
    if (score == -infinity() || lse < -16777216.0) { return 0.0; }
    return exp(score - lse);
}

