// The places of elements, and the scores of four queries or four keys at once, one in each lane of a vector. Those beyond the last one are
// computed too, on whatever lies at the last, and not stored.

fn place(b: u32, h: u32, row: u32, column: u32, strides: vec4<u32>) -> u32 {
    return dot(vec4<u32>(b, h, row, column), strides);
}

// What is added to the product of query i and key j, after scaling; -inf hides.
fn biased(product: f32, b: u32, h: u32, i: u32, j: u32) -> f32 {
    if ($CAUSAL) { return -infinity(); }
    return p.scale * product$MASK;
}

// e^(score - logsumexp); 0 in a row that sees nothing, or all of whose scores are too low (see `AttentionGrad`).
fn probability_of(score: f32, lse: f32) -> f32 {
    if (score == -infinity() || lse < -16777216.0) { return 0.0; }
    return exp(score - lse);
}
