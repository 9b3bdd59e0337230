//! `vramlab list`

use lab::results::ListResult;

use crate::args::ListArgs;
use crate::exit::{Code, Result};
use crate::output;
use crate::ui::Ui;

/// Lists the experiments with their questions and claims; with `--full` also the sizes that can be set.
pub(super) fn run(args: &ListArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    output::deliver_findings(ui, &args.output, None, &ListResult::default())?;
    Ok(Code::Done)
}
