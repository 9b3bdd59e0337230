//! Access to elements from WGSL: accessor functions for an operand, generated for its type.
//!
//! Every operand is bound as an array of words. Elements smaller than a word share one. A thread that writes such an
//! element changes only the element's bits, by an atomic exclusive-or with the difference. (Only the owner changes
//! those bits, so the value that it read is still current.) *Quads* of four elements that begin at a multiple of four
//! own their words and need no atomics.
//!
//! For an operand `x` these functions are declared, where `i` counts elements from its first one and `q` counts quads:
//! `x_at(i)`, `x_put(i, value)`; in a kernel of quads `x_at4(q)`, `x_put4(q, values)` and, if the operand repeats,
//! `x_at(i)`. In a kernel of two quads at once, `q` counts quads from the beginning of the binding: `x_first8()`,
//! `x_at8(q)`, `x_put8(q, quads)`. All positions can then be computed before anything is read, which is a tenth faster
//! on llvmpipe.

use memcore::DType;

/// Interpretation of an element's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elem {
    F32,
    F16,
    BF16,
    I64,
    I32,
    I8,
    U8,
    Bool,
    /// Bits that are moved but not computed with, by size in bytes.
    B1,
    B2,
    B4,
    B8,
}

impl Elem {
    /// The element for arithmetic on `dtype`.
    pub(crate) fn from_dtype(dtype: DType) -> Elem {
        match dtype {
            DType::F32 => Elem::F32,
            DType::F16 => Elem::F16,
            DType::BF16 => Elem::BF16,
            DType::I64 => Elem::I64,
            DType::I32 => Elem::I32,
            DType::I8 => Elem::I8,
            DType::U8 => Elem::U8,
            DType::Bool => Elem::Bool,
            // No backend has complex numbers.
            DType::F64 | DType::C64 => Elem::B8,
        }
    }

    /// The element for moving the bits of `dtype`.
    pub(crate) fn bits(dtype: DType) -> Elem {
        match dtype.size() {
            1 => Elem::B1,
            2 => Elem::B2,
            4 => Elem::B4,
            _ => Elem::B8,
        }
    }

    pub(crate) fn code(self) -> u64 {
        self as u64
    }

    pub(crate) fn size(self) -> u32 {
        match self {
            Elem::I8 | Elem::U8 | Elem::Bool | Elem::B1 => 1,
            Elem::F16 | Elem::BF16 | Elem::B2 => 2,
            Elem::F32 | Elem::I32 | Elem::B4 => 4,
            Elem::I64 | Elem::B8 => 8,
        }
    }

    /// The WGSL type of a value: f32, i32, or words.
    pub(crate) fn wgsl(self) -> &'static str {
        match self {
            Elem::F32 | Elem::F16 | Elem::BF16 => "f32",
            Elem::I32 | Elem::I8 | Elem::U8 | Elem::Bool => "i32",
            Elem::B1 | Elem::B2 | Elem::B4 => "u32",
            Elem::I64 | Elem::B8 => "vec2<u32>",
        }
    }

    /// WGSL that decodes a value from the low bits of `h` (both words for 8 bytes).
    pub(crate) fn decode(self, h: &str) -> String {
        match self {
            Elem::F32 => format!("bitcast<f32>({h})"),
            Elem::F16 => format!("f16_value({h})"),
            Elem::BF16 => format!("bitcast<f32>(({h}) << 16u)"),
            Elem::I32 => format!("bitcast<i32>({h})"),
            Elem::I8 => format!("extractBits(bitcast<i32>({h}), 0u, 8u)"),
            Elem::U8 | Elem::Bool => format!("bitcast<i32>(({h}) & 0xffu)"),
            Elem::B1 => format!("(({h}) & 0xffu)"),
            Elem::B2 => format!("(({h}) & 0xffffu)"),
            Elem::B4 | Elem::I64 | Elem::B8 => h.to_string(),
        }
    }

    /// WGSL that encodes a value as bits; the bits above them are 0.
    pub(crate) fn encode(self, v: &str) -> String {
        match self {
            Elem::F32 | Elem::I32 => format!("bitcast<u32>({v})"),
            Elem::F16 => format!("f16_bits({v})"),
            Elem::BF16 => format!("bf16_bits({v})"),
            Elem::I8 | Elem::U8 => format!("(bitcast<u32>({v}) & 0xffu)"),
            Elem::Bool => format!("select(0u, 1u, {v} != 0)"),
            Elem::B1 | Elem::B2 | Elem::B4 | Elem::I64 | Elem::B8 => v.to_string(),
        }
    }
}

/// Number of elements per access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    One,
    Four,
    /// Used if quads are moved by 64 bits and the operand does not repeat.
    Eight,
}

impl Width {
    pub(crate) fn count(self) -> usize {
        match self {
            Width::One => 1,
            Width::Four => 4,
            Width::Eight => 8,
        }
    }

    /// Suffix of the accessors' names.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Width::One => "",
            Width::Four => "4",
            Width::Eight => "8",
        }
    }
}

/// An operand as a kernel declares it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) name: &'static str,
    pub(crate) elem: Elem,
    pub(crate) width: Width,
    /// True if the kernel writes it.
    pub(crate) writes: bool,
}

impl Slot {
    pub(crate) fn read(name: &'static str, elem: Elem) -> Slot {
        Slot { name, elem, width: Width::One, writes: false }
    }

    pub(crate) fn write(name: &'static str, elem: Elem) -> Slot {
        Slot { name, elem, width: Width::One, writes: true }
    }

    #[must_use]
    pub(crate) fn wide(self, width: Width) -> Slot {
        Slot { width, ..self }
    }
}

const BF16: &str = include_str!("bf16.wgsl");

/// True if a source converts 16-bit floats; it is then preceded by what does that on its device (see `Halves`).
pub(crate) fn has_halves(source: &str) -> bool {
    source.contains("f16_value(") || source.contains("f16_bits(")
}

/// Returns the declarations of a kernel: common functions, `Params` with the offsets followed by these fields, operands
/// with their accessors. A field is written as in WGSL, `name: type`.
pub(crate) fn declare(slots: &[Slot], fields: &str) -> String {
    let mut out = String::from(include_str!("common.wgsl"));
    if slots.iter().any(|slot| slot.elem == Elem::BF16) {
        out += BF16;
    }
    out += &format!(
        "struct Params {{ first: array<vec4<u32>, 2>, {fields} }}\n@group(1) @binding(0) var<uniform> p: Params;\n"
    );
    for (i, slot) in slots.iter().enumerate() {
        match slot.width {
            Width::One => declare_one(&mut out, i, slot),
            Width::Four => declare_four(&mut out, i, slot),
            Width::Eight => declare_eight(&mut out, i, slot),
        }
    }
    out
}

/// WGSL for the position of operand `i`'s first element.
fn first(i: usize) -> String {
    format!("p.first[{}].{}", i / 4, ["x", "y", "z", "w"][i % 4])
}

fn declare_one(out: &mut String, i: usize, slot: &Slot) {
    let Slot { name, elem, writes, .. } = *slot;
    let (first, size, t) = (first(i), elem.size(), elem.wgsl());
    let atomic = writes && size < 4;
    let word = if atomic { "atomic<u32>" } else { "u32" };
    *out += &format!("@group(0) @binding({i}) var<storage, read_write> {name}_buf: array<{word}>;\n");
    let load = |at: &str| if atomic { format!("atomicLoad(&{name}_buf[{at}])") } else { format!("{name}_buf[{at}]") };
    let (at, put) = match size {
        8 => (
            format!("let k = 2u * ({first} + i); return vec2<u32>({name}_buf[k], {name}_buf[k + 1u]);"),
            format!("let k = 2u * ({first} + i); {name}_buf[k] = v.x; {name}_buf[k + 1u] = v.y;"),
        ),
        4 => (
            format!("return {};", elem.decode(&format!("{name}_buf[{first} + i]"))),
            format!("{name}_buf[{first} + i] = {};", elem.encode("v")),
        ),
        _ => {
            // 1 or 2 bytes: the word, and the shift of the element in it.
            let (log, lanes, bits, mask) = if size == 2 { (1, 1, 16, "0xffffu") } else { (2, 3, 8, "0xffu") };
            let place = format!("let k = {first} + i; let w = k >> {log}u; let s = (k & {lanes}u) * {bits}u;");
            (
                format!("{place} return {};", elem.decode(&format!("({} >> s)", load("w")))),
                format!(
                    "{place} let was = {}; atomicXor(&{name}_buf[w], (was ^ ({} << s)) & ({mask} << s));",
                    load("w"),
                    elem.encode("v")
                ),
            )
        }
    };
    *out += &format!("fn {name}_at(i: u32) -> {t} {{ {at} }}\n");
    if writes {
        *out += &format!("fn {name}_put(i: u32, v: {t}) {{ {put} }}\n");
    }
}

/// Declares the conversion between four elements and their words: `x_of4` unpacks them, `x_bits4` packs them.
fn declare_quad(out: &mut String, slot: &Slot) {
    let Slot { name, elem, .. } = *slot;
    let t = elem.wgsl();
    let lanes = ["x", "y", "z", "w"];
    let bits = |lane: &str| elem.encode(&format!("v.{lane}"));
    let (words, four, put) = match elem.size() {
        4 => {
            let four = match elem {
                Elem::F32 => "bitcast<vec4<f32>>(w)",
                Elem::I32 => "bitcast<vec4<i32>>(w)",
                _ => "w",
            };
            let put = if elem == Elem::B4 { "v" } else { "bitcast<vec4<u32>>(v)" };
            ("vec4<u32>", four.to_string(), put.to_string())
        }
        2 => {
            let part = |lane: usize| elem.decode(&format!("({} >> {}u)", ["w.x", "w.y"][lane / 2], 16 * (lane % 2)));
            let four = format!("vec4<{t}>({}, {}, {}, {})", part(0), part(1), part(2), part(3));
            let put =
                format!("vec2<u32>({} | ({} << 16u), {} | ({} << 16u))", bits("x"), bits("y"), bits("z"), bits("w"));
            ("vec2<u32>", four, put)
        }
        _ => {
            let part = |lane: usize| elem.decode(&format!("(w >> {}u)", 8 * lane));
            let four = format!("vec4<{t}>({}, {}, {}, {})", part(0), part(1), part(2), part(3));
            let put: Vec<String> =
                lanes.iter().enumerate().map(|(i, lane)| format!("({} << {}u)", bits(lane), 8 * i)).collect();
            ("u32", four, put.join(" | "))
        }
    };
    *out += &format!("fn {name}_of4(w: {words}) -> vec4<{t}> {{ return {four}; }}\n");
    if slot.writes {
        *out += &format!("fn {name}_bits4(v: vec4<{t}>) -> {words} {{ return {put}; }}\n");
    }
}

fn declare_four(out: &mut String, i: usize, slot: &Slot) {
    declare_quad(out, slot);
    let Slot { name, elem, writes, .. } = *slot;
    let (first, t) = (first(i), elem.wgsl());
    let (words, get, set, one) = match elem.size() {
        4 => ("Quad", "quad_words", "quad_of", format!("quad_words({name}_buf[k >> 2u])[k & 3u]")),
        2 => {
            let word = format!("pair_words({name}_buf[k >> 2u])[(k >> 1u) & 1u]");
            ("Pair", "pair_words", "pair_of", format!("({word} >> ((k & 1u) * 16u))"))
        }
        _ => ("u32", "", "", format!("({name}_buf[k >> 2u] >> ((k & 3u) * 8u))")),
    };
    let one = elem.decode(&one);
    *out += &format!(
        "@group(0) @binding({i}) var<storage, read_write> {name}_buf: array<{words}>;\n\
         fn {name}_at4(q: u32) -> vec4<{t}> {{ return {name}_of4({get}({name}_buf[({first} >> 2u) + q])); }}\n\
         fn {name}_at(i: u32) -> {t} {{ let k = {first} + i; return {one}; }}\n"
    );
    if writes {
        *out += &format!(
            "fn {name}_put4(q: u32, v: vec4<{t}>) {{ {name}_buf[({first} >> 2u) + q] = {set}({name}_bits4(v)); }}\n"
        );
    }
}

fn declare_eight(out: &mut String, i: usize, slot: &Slot) {
    declare_quad(out, slot);
    let Slot { name, elem, writes, .. } = *slot;
    let (first, t) = (first(i), elem.wgsl());
    let (words, low, high, put) = match elem.size() {
        4 => ("Oct", "quad_words(w.xy)", "quad_words(w.zw)", "Oct(quad_of(low), quad_of(high))"),
        2 => ("Quad", "pair_words(w.x)", "pair_words(w.y)", "Quad(pair_of(low), pair_of(high))"),
        _ => ("Pair", "pair_words(w).x", "pair_words(w).y", "pair_of(vec2<u32>(low, high))"),
    };
    *out += &format!(
        "@group(0) @binding({i}) var<storage, read_write> {name}_buf: array<{words}>;\n\
         fn {name}_first8() -> u32 {{ return {first} >> 3u; }}\n\
         fn {name}_at8(q: u32) -> array<vec4<{t}>, 2> {{\n    let w = {name}_buf[q];\n    \
         return array<vec4<{t}>, 2>({name}_of4({low}), {name}_of4({high}));\n}}\n"
    );
    if writes {
        *out += &format!(
            "fn {name}_put8(q: u32, v: array<vec4<{t}>, 2>) {{\n    let low = {name}_bits4(v[0]);\n    \
             let high = {name}_bits4(v[1]);\n    {name}_buf[q] = {put};\n}}\n"
        );
    }
}

/// WGSL type of a quad in memory: four words, or with `by_64` two words of twice the width. llvmpipe assembles a
/// subgroup's load lane by lane, at some 7 ns for each part of each lane, whatever its width: so wide parts are better.
pub(crate) fn quads(by_64: bool) -> &'static str {
    if by_64 { include_str!("quads64.wgsl") } else { include_str!("quads.wgsl") }
}

/// Replaces each `$NAME` of a template by its text. Longer names go first, so that no name is mistaken for the
/// beginning of another.
pub(crate) fn fill_in(template: &str, texts: &[(&str, &str)]) -> String {
    let mut texts = texts.to_vec();
    texts.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    texts.iter().fold(template.to_string(), |out, (name, text)| out.replace(name, text))
}
