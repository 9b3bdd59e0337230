// Four and two words as they lie in memory.
alias Quad = vec4<u32>;
alias Pair = vec2<u32>;

fn quad_words(q: Quad) -> vec4<u32> { return q; }
fn quad_of(w: vec4<u32>) -> Quad { return w; }
fn pair_words(q: Pair) -> vec2<u32> { return q; }
fn pair_of(w: vec2<u32>) -> Pair { return w; }
