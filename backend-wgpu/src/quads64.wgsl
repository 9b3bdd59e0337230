// Eight, four and two words as they lie in memory, moved by 64 bits.
alias Oct = vec4<u64>;
alias Quad = vec2<u64>;
alias Pair = u64;

fn pair_words(q: Pair) -> vec2<u32> { return vec2<u32>(u32(q), u32(q >> 32u)); }
fn pair_of(w: vec2<u32>) -> Pair { return u64(w.x) | (u64(w.y) << 32u); }
fn quad_words(q: Quad) -> vec4<u32> { return vec4<u32>(pair_words(q.x), pair_words(q.y)); }
fn quad_of(w: vec4<u32>) -> Quad { return Quad(pair_of(w.xy), pair_of(w.zw)); }
