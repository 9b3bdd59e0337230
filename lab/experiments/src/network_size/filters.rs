//! Convolutions with filters of several sizes, with and without a padding that keeps the size of the picture.

use lab_base::error::{Error, Result};
use lab_base::figures::both as bytes;
use lab_imports::model_file;
use lab_training::{OptimizerKind, OptimizerSettings};
use memcore::memory::Category;

use crate::columns::Columns;
use crate::session::Session;
use crate::tables::text;
use crate::{Claim, JudgedClaim, Setup, Verdict, in_bytes};

/// Sides of the filters. They are odd, so that a padding can keep the picture's size.
pub(super) const SIDES: [usize; 3] = [1, 3, 5];

/// Figures of the article's network with filters of one size, in one training step.
pub(super) struct Filters {
    side: usize,
    padded: bool,
    parameters: u64,
    activation_bytes: u64,
    peak_bytes: u64,
}

/// Takes a step with filters of `side` × `side`. If `padded`, a border keeps the picture's size.
pub(super) fn attempt(setup: &Setup<'_>, side: usize, padded: bool) -> Result<Filters> {
    let padding = if padded { side / 2 } else { 0 };
    let layer = |kind: &str, keys: &str| format!("[[layer]]\ntype = \"{kind}\"\n{keys}\n");
    let layers = [
        layer("conv2d", &format!("out = 16\nkernel = {side}\npadding = {padding}")),
        layer("relu", ""),
        layer("flatten", ""),
        layer("linear", "out = 10"),
    ];
    let text = format!("[input]\nshape = [3, 32, 32]\n{}[loss]\ntype = \"cross-entropy\"\n", layers.concat());
    let network = model_file::parse("filters", &text)?.architecture;
    let device = (setup.open)()?;
    device.set_history(true);
    let mut session =
        Session::in_f32(&device, &*network, &OptimizerSettings::new(OptimizerKind::Sgd, 1e-3), setup.seed)?;
    let step = session.whole_step("s0", 1)?;
    let asked = step.moments[3].requested.ok_or_else(|| Error::usage("network-size", "a device without a history"))?;
    Ok(Filters {
        side,
        padded,
        parameters: session.network.model.parameter_count(),
        activation_bytes: asked[Category::Activation as usize],
        peak_bytes: step.peak.requested_bytes - step.peak.by_category[Category::Workspace as usize],
    })
}

pub(super) const TITLE: &str = "Filters by size, in bytes asked for but for libraries' workspaces, batch 1";

pub(super) fn columns() -> Columns<'static, Filters> {
    let counted = |f: &Filters| {
        let side = if f.padded { 32 } else { 33 - f.side } as u64;
        16 * (3 * (f.side * f.side) as u64 + 1) + 10 * (16 * side * side + 1)
    };
    Columns::new()
        .set("filter", |f: &Filters| f.side)
        .cell("filter", |f| text(format!("{0} × {0}", f.side)))
        .words("padding", "padding", |f| if f.padded { "keeps the picture" } else { "none" })
        .count("parameters", "parameters", |f| f.parameters)
        .predicted("parameters", move |f| Some(counted(f)))
        .bytes("requested_activation_bytes", "activations", |f| f.activation_bytes)
        .bytes("requested_peak_without_workspaces_bytes", "peak", |f| f.peak_bytes)
}

/// Compares smaller filters with larger ones, with and without a padding that keeps the picture's size.
pub(super) fn judge(claim: Claim, all: &[Filters]) -> JudgedClaim {
    let with = |padded: bool| all.iter().filter(move |f| f.padded == padded);
    let falls = |padded: bool| {
        let peaks: Vec<u64> = with(padded).map(|f| f.peak_bytes).collect();
        peaks.windows(2).all(|pair| pair[0] < pair[1])
    };
    let verdict = match (falls(false), falls(true)) {
        (true, true) => Verdict::Holds,
        (false, false) => Verdict::Fails,
        _ => Verdict::Depends,
    };
    let words = |padded: bool| {
        let each = with(padded).map(|f| format!("{} with {} × {}", bytes(f.peak_bytes), f.side, f.side));
        each.collect::<Vec<_>>().join(", ")
    };
    let condition = format!(
        "the step peaks (in bytes asked for, without libraries' workspaces) at {} as in the article, without padding: a smaller filter leaves a larger picture, and the \
         linear layer after it more inputs; with a padding that keeps the picture at {}",
        words(false),
        words(true)
    );
    let unpadded: Vec<&Filters> = with(false).collect();
    let number = match unpadded[..] {
        [least, .., most] => {
            let labels = [least, most].map(|f| format!("{0} × {0}", f.side));
            in_bytes([(&format!("peak, {}", labels[0]), least.peak_bytes), (&labels[1], most.peak_bytes)])
        }
        _ => String::new(),
    };
    JudgedClaim {
        lead: if falls(true) { "where padding keeps the picture" } else { "without padding" },
        claim,
        verdict,
        number,
        condition,
    }
}
