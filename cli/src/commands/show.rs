//! `vramlab show`

use lab::results::NetworkResult;
use lab::run::RunSpec;

use super::{plan, warnings};
use crate::args::NetworkArgs;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;
use crate::{interrupt, output};

/// Makes a dry run of the forward pass, and shows the network from the inside.
///
/// # Errors
/// Settings that cannot work, files that cannot be written.
pub(super) fn run(args: &NetworkArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    if spec.model.by_trainer() {
        return Err(Failure::usage("--loop trainer: show runs the forward pass alone, outside of any loop"));
    }
    output::check(args.output.destinations().chain(&args.page.html))?;
    let session = plan::session(spec, ui)?;
    session.warnings().iter().for_each(|warning| ui.tell(warning));
    let (found, deviations) = session.inside(&interrupt::asked)?;
    warnings::tell(deviations, ui);
    let found = NetworkResult { notes: warnings::all(&found.notes, deviations), ..found };
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &found)?;
    Ok(Code::Done)
}
