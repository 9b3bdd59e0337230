//! `vramlab cards`

use lab::results::{CardResult, Cards};
use lab::run::Gpu;

use crate::args::CardsArgs;
use crate::exit::{Code, Result};
use crate::output;
use crate::ui::Ui;

/// Lists the cards that `--gpu` knows; with `--full` also where each figure is from.
pub(super) fn run(args: &CardsArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &Cards::default())?;
    Ok(Code::Done)
}

/// Returns the card for results; `None` for a plain size.
pub(crate) fn of_gpu(gpu: Option<Gpu>) -> Option<CardResult> {
    gpu.and_then(Gpu::card).map(CardResult::from)
}
