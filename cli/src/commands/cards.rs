//! `vramlab cards`

use lab::cards::Card;
use lab::results::{CardResult, Cards};
use lab::run::Gpu;

use crate::args::CardsArgs;
use crate::exit::{Code, Failure, Result};
use crate::output;
use crate::ui::Ui;

/// Lists the cards that `--gpu` knows; with `--full`, or if they are named, also where each figure is from.
///
/// # Errors
/// Names of no card, with what may be meant; files that cannot be written.
pub(super) fn run(args: &CardsArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations().chain(&args.page.html))?;
    if args.names.is_empty() {
        output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &Cards::default())?;
        return Ok(Code::Done);
    }
    let of_name = |name: &String| Card::named(name).ok_or_else(|| unknown(name));
    let cards = args.names.iter().map(of_name).collect::<Result<Vec<_>>>()?;
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &Cards::chosen(&cards))?;
    Ok(Code::Done)
}

/// The error of a name of no card.
fn unknown(name: &str) -> Failure {
    match name.parse::<Gpu>() {
        Err(problem) => Failure::usage(problem),
        Ok(_) => Failure::usage(format!("{name}: an amount of memory, no card (vramlab info cards)")),
    }
}

/// Returns the card for results; `None` for a plain size.
pub(crate) fn of_gpu(gpu: Option<Gpu>) -> Option<CardResult> {
    gpu.and_then(Gpu::card).map(CardResult::from)
}
