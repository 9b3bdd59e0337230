//! Runs that need more memory than a dry run counts.

use lab::figures::short;
use lab::run::{Gpu, RunSpec};
use memcore::backend::DeviceProfile;

use super::cards;
use crate::args::PredictArgs;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;

/// Memory of the device of a dry run, which is the most that is counted.
fn counted() -> String {
    short(DeviceProfile::default().total_bytes)
}

/// Turns the end of a dry run for lack of memory into an answer: No on a card or with a limit.
///
/// # Errors
/// All others; without a card, a sentence that says that so much is not counted; the No itself where standard output is for programs.
pub(super) fn answered(answer: Result<Code>, args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    match answer {
        Err(failure) if failure.is_out_of_memory() || failure.is_too_large() => match sentence(&failure, spec) {
            None => {
                let problem = format!("this run needs more than {}, the most that vramlab counts", counted());
                Err(Failure::new(failure.code, anyhow::Error::msg(problem)))
            }
            Some(sentence) if args.output.takes_stdout() => {
                Err(Failure::new(Code::Check, anyhow::Error::msg(sentence)))
            }
            Some(sentence) => {
                ui.print(&ui.view.heading(&sentence, 2))?;
                Ok(Code::Check)
            }
        },
        answer => answer,
    }
}

/// Says No on the card or within the limit of a run; `None` without both.
fn sentence(failure: &Failure, spec: &RunSpec) -> Option<String> {
    let limit = spec.allocator.memory_limit.map(|limit| limit.0);
    let has = match (cards::of_gpu(spec.card.gpu), spec.card.gpu, limit) {
        (Some(card), ..) => format!("the {} has {}", card.title, short(card.total_bytes)),
        (None, Some(Gpu::Bytes(bytes)), _) | (None, None, Some(bytes)) => format!("{} available", short(bytes)),
        _ => return None,
    };
    let said = format!("{:#}", failure.error);
    let alone = said.strip_prefix("out of memory: ").filter(|_| failure.is_too_large());
    Some(alone.map_or_else(|| format!("No: more than {} needed, {has}", counted()), |alone| format!("No: {alone}")))
}
