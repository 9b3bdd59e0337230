//! The product behind matrix multiplication and convolution: `out[z, m, n] = Σ_k a(z, m, k)·b(z, k, n)`. The caller's
//! functions define `a`, `b` and `out`.
//!
//! On a card a workgroup computes a tile of the result (`tile.rs`); the size of tile is chosen by trial for each kind
//! of product (`tune.rs`). On software adapters a subgroup computes a block (`lanes.rs`). The code is generated for the
//! size of tile or block. Cooperative matrices are not used: in wgpu 30 they are an experimental feature that requires
//! unsafe code when the device is opened, and most Vulkan drivers that have them lack the one form that wgpu has for
//! f32, 8×8; llvmpipe has none.
//!
//! If the result is small and the inner size long, the inner size is cut into parts. Their products are stored in the
//! fixed scratch, and a second launch adds them up in order.

mod lanes;
mod product;
mod tile;
mod tune;

use memcore::error::Result;

use crate::choice::{Sizes, Tile};
use crate::element::{Elem, Slot, declare, fill_in};
use crate::job::{Context, Job, SCRATCH_BYTES};
use crate::key::Variant;
use lanes::Block;
use product::Stage;
pub(crate) use product::{Digits, Gemm};

/// Threads of a workgroup, if each thread computes one element.
const THREADS: usize = 64;
/// A result with at most this many rows and this many columns is not tiled, if its inner size is at most `SHORTEST`.
const SMALL: usize = 8;
/// Lengths of parts are multiples of this.
const DEPTH: usize = 16;
/// Number of tiles that keeps a device busy.
const ENOUGH: usize = 64;
/// Minimum length of a part of the inner size.
const SHORTEST: usize = 512;
/// Maximum length of a part: some drivers stop a thread's loops after 65 535 rounds.
const LONGEST: usize = 1 << 15;

/// The way in which the result is computed, with its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Tile(Tile),
    Block(Block),
}

impl Form {
    /// Rows and columns of the result that a workgroup computes.
    fn extent(self) -> [usize; 2] {
        match self {
            Form::Tile(tile) => [tile.height(), tile.width()],
            Form::Block(block) => [block.rows, block.width()],
        }
    }

    /// Number of tiles in each direction.
    fn tiles(self, sizes: &Sizes) -> [usize; 2] {
        let [height, width] = self.extent();
        [sizes.m.div_ceil(height), sizes.n.div_ceil(width)]
    }

    fn rounds(self, length: usize) -> usize {
        match self {
            Form::Tile(tile) => tile.rounds(length),
            Form::Block(block) => block.rounds(length),
        }
    }

    /// Adds the eight bits that a source depends on.
    fn add_to(self, variant: Variant) -> Variant {
        let [kind, rows, columns] = match self {
            Form::Tile(tile) => [u64::from(tile.side == 16), tile.rows as u64, tile.columns as u64],
            Form::Block(block) => [2, block.rows as u64, block.columns as u64],
        };
        variant.with(2, kind).with(3, rows.ilog2().into()).with(3, columns.ilog2().into())
    }

    fn source(self, gemm: &Gemm, stage: Stage) -> String {
        match self {
            Form::Tile(tile) => tile.source(gemm, stage),
            Form::Block(block) => block.source(gemm, stage),
        }
    }
}

impl Gemm {
    /// Launches the product. The job has its operands bound, at most seven. `more` pushes parameters after the sizes,
    /// declared as `fields`. `code` returns the operands' slots and WGSL with `a_value(z, m, k)`, `b_value(z, k, n)`
    /// and `store(z, m, n, value)`, which are called only with indices inside the sizes.
    pub(crate) fn run(
        &self,
        cx: &mut Context<'_>,
        mut job: Job,
        more: impl FnOnce(&mut Job),
        fields: &str,
        code: impl Fn() -> (Vec<Slot>, String),
    ) -> Result<()> {
        let Sizes { batch, m, n, k } = self.sizes;
        let results = batch * m * n;
        if results == 0 {
            return Ok(());
        }
        let block = if cx.gpu.has_lanes { Block::for_gemm(self) } else { None };
        let usual = block.map_or_else(|| Form::Tile(Tile::for_sizes(&self.sizes)), Form::Block);
        // Computed from the usual tile, so that sums do not depend on the chosen one.
        let (parts, length) = parts(k, batch * usual.tiles(&self.sizes).iter().product::<usize>(), results);
        cx.gpu.check_rounds(self.name, usual.rounds(length))?;
        job.bind_scratch();
        let tiles_at = job.u(m).u(n).u(k).u(batch).len();
        job.u(0).u(0).u(parts).u(length);
        more(&mut job);
        let variant = self.variant.with(1, self.a_along_k.into()).with(1, self.b_along_k.into());
        let variant =
            variant.with(1, self.quads[0].into()).with(1, self.quads[1].into()).with(1, self.is_ragged().into());
        let mut launch = |cx: &mut Context<'_>, form: Form, stage: Stage| {
            let tiles = form.tiles(&self.sizes);
            job.set(tiles_at, tiles[0]).set(tiles_at + 1, tiles[1]);
            let groups = match stage {
                Stage::Whole | Stage::Parts => batch * tiles[0] * tiles[1] * parts,
                Stage::Join | Stage::Alone => results.div_ceil(THREADS),
            };
            let key = form.add_to(variant).with(2, stage as u64).key(self.name);
            cx.run(&job, key, groups as u64, || self.source(form, stage, fields, code()))
        };
        if m <= SMALL && n <= SMALL && k <= SHORTEST {
            return launch(cx, usual, Stage::Alone);
        }
        let stage = if parts == 1 { Stage::Whole } else { Stage::Parts };
        let form = match usual {
            Form::Tile(_) => {
                Form::Tile(tune::choose(cx, self, variant, |cx, tile| launch(cx, Form::Tile(tile), stage))?)
            }
            Form::Block(_) => usual,
        };
        launch(cx, form, stage)?;
        if parts == 1 {
            return Ok(());
        }
        launch(cx, usual, Stage::Join)
    }

    /// The source of a launch, on the caller's operands and functions.
    fn source(&self, form: Form, stage: Stage, fields: &str, (mut slots, code): (Vec<Slot>, String)) -> String {
        slots.push(Slot::write("scratch", Elem::F32));
        let fields = format!(
            "m: u32, n: u32, k: u32, batch: u32, tiles_m: u32, tiles_n: u32, parts: u32, length: u32, {fields}"
        );
        let main = match stage {
            Stage::Join => JOIN.to_string(),
            Stage::Alone => self.alone(),
            Stage::Whole | Stage::Parts => form.source(self, stage),
        };
        let digits = if self.digits.is_some() { include_str!("digits.wgsl") } else { "" };
        declare(&slots, &fields) + digits + &code + &main
    }

    /// Kernel in which each thread computes one sum.
    fn alone(&self) -> String {
        let (mut begin, mut after, mut a, mut b) = (String::new(), String::new(), "z, m, k", "z, k, n");
        if let Some(digits) = self.digits {
            let (k, n) = (digits.k, digits.n);
            begin = format!(
                "let n_digits = digits(n, {n});\n    var k_digits = vec3<u32>();\n    let k_by = digits(1u, {k});"
            );
            after = format!("k_digits = advance(k_digits, k_by, {k});");
            a = if digits.in_a { "z, m, k_digits" } else { a };
            b = "z, k_digits, n_digits";
        }
        fill_in(ALONE, &[("$BEGIN", &begin), ("$AFTER", &after), ("$A", a), ("$B", b)])
    }
}

/// Kernel that adds up the parts.
const JOIN: &str = "@compute @workgroup_size(64)
fn main(grid: Grid) {
    let at = group_of(grid) * 64u + grid.lane;
    let size = p.batch * p.m * p.n;
    if (at >= size) { return; }
    var sum = 0.0;
    for (var part = 0u; part < p.parts; part += 1u) { sum += scratch_at(part * size + at); }
    store(at / (p.m * p.n), at / p.n % p.m, at % p.n, sum);
}
";

/// Kernel in which each thread computes one sum; see [`Gemm::alone`].
const ALONE: &str = "@compute @workgroup_size(64)
fn main(grid: Grid) {
    let at = group_of(grid) * 64u + grid.lane;
    if (at >= p.batch * p.m * p.n) { return; }
    let z = at / (p.m * p.n);
    let m = at / p.n % p.m;
    let n = at % p.n;
    var sum = 0.0;
    $BEGIN
    for (var k = 0u; k < p.k; k += 1u) {
        sum += a_value($A) * b_value($B);
        $AFTER
    }
    store(z, m, n, sum);
}
";

/// Number of parts into which the inner size is cut, and their length.
fn parts(k: usize, tiles: usize, results: usize) -> (usize, usize) {
    let wanted = (ENOUGH / tiles).max(k.div_ceil(LONGEST)).min(k / SHORTEST);
    let fitting = SCRATCH_BYTES as usize / 4 / results;
    let parts = wanted.min(fitting).max(1);
    let length = k.div_ceil(parts).next_multiple_of(DEPTH).max(DEPTH);
    (k.div_ceil(length).max(1), length)
}
