//! Rehearses a network that the user's Python builds, and what makes it fit.

use std::ffi::OsString;
use std::path::Path;

use lab::Error;
use lab::any_model::{Driver, Told, answer, environment, file_of, options, with_phases};
use lab::cards::Card;
use lab::changes::CHECKPOINTING;
use lab::models::Recompute;
use lab::rehearse::{Rehearsed, Request, RequestedCard, Stop, rehearse};
use lab::results::{TrainResult, command};
use lab::run::{Gpu, RunSpec};
use lab::section::{Tries, Try};

use super::any_model_graphs::Kept;
use super::rehearse_progress::Teller;
use super::workspaces::Workspaces;
use crate::args::PredictArgs;
use crate::exit::{Code, Failure, Result};
use crate::ui::Ui;
use crate::{interrupt, output};

/// The card whose kernels count if none is named, as for other predictions; its memory is then more than any card has.
const CARD: &str = "h100";
const ENDLESS: u64 = 8 << 40;

/// Rehearses the network and writes the answer.
///
/// # Errors
/// Flags of files that a rehearsal does not write; a network that cannot be built or trained; those of a rehearsal.
pub(super) fn rehearsed(word: &str, python: &Path, args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Code> {
    only_plain_outputs(args)?;
    output::check(args.output.destinations().chain(&args.page.html))?;
    interrupt::answer("stopping the rehearsal");
    ui.tell(format!("{word} is built by {} and rehearsed, without weights", python.display()));
    let named = args.dry_run.model.python.as_deref();
    let training = Training { word, python, named, phases: args.any.phases, ui };
    let found = training.once(spec, true)?;
    let mut result = training.judged(&found, spec)?;
    if result.prediction.as_ref().and_then(|prediction| prediction.fits) == Some(false) {
        result.tries = Some(training.tries(&found, spec)?);
    }
    result.warnings.iter().for_each(|warning| ui.tell_after(warning));
    output::deliver_findings(ui, &args.output, args.page.html.as_ref(), &result)?;
    if let Some(kept) = Kept::of_network(word, spec, named)
        .filter(|_| !args.any.no_cache && args.any.phases.is_none() && !result.interrupted)
    {
        let workspaces = Workspaces::new(args.workspaces.cudnn, named, ui)?;
        kept.remember(word, spec, (python, &workspaces), &result, ui);
    }
    Ok(if result.tries.is_some() { Code::Check } else { Code::Done })
}

/// Refuses files that only a dry run of this program writes.
fn only_plain_outputs(args: &PredictArgs) -> Result<()> {
    let record = &args.record;
    let files = [("--events", record.events.is_some()), ("--snapshot", record.snapshot.is_some())];
    let others = [("--summary", record.summary), ("--stats", record.stats), ("an export", record.exports.any())];
    match files.into_iter().chain(others).find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failure::usage(format!(
            "{flag}: of a network that your Python builds, `vramlab predict` of its program (--script) writes it"
        ))),
        None => Ok(()),
    }
}

/// Trainings of one network under rehearsals.
struct Training<'a> {
    word: &'a str,
    python: &'a Path,
    /// The same, if a flag named it.
    named: Option<&'a Path>,
    /// New tokens of the phase that generates, if the phases are asked for.
    phases: Option<u32>,
    ui: &'a Ui,
}

impl Training<'_> {
    /// Rehearses once. `needs`: whether a network that does not fit is rehearsed again with enough memory.
    fn once(&self, spec: &RunSpec, needs: bool) -> Result<Rehearsed> {
        let driver = Driver::make(with_phases(options(self.word, spec)?, spec, self.phases))?;
        let mut request = Request { needs, ..request(driver.train(self.python, &file_of(self.word))?, spec) };
        if self.phases.is_some() {
            (request.phases, request.stop) = (true, Stop::default());
        }
        let mut teller = Teller::new(self.ui, &request.stop);
        let found = rehearse(&request, &mut |progress| teller.tell(progress))?;
        match found.interrupted {
            true => {
                Err(Failure::new(Code::Interrupted, anyhow::anyhow!("interrupted before the end of the rehearsal")))
            }
            false => Ok(found),
        }
    }

    /// Makes the result, or says why there is none.
    fn judged(&self, found: &Rehearsed, spec: &RunSpec) -> Result<TrainResult> {
        match found.told("model.plan").as_deref().and_then(Told::read) {
            Some(Told::Chosen(chosen)) => Ok(answer(*chosen, found, spec)?),
            Some(Told::Refused(refusal)) => Err(Failure::usage(refusal.in_words())),
            None => {
                if let Some(without) = found.without_torch() {
                    let word = command::quoted(self.word);
                    let again = |python: &str, _: &str| format!("vramlab predict {word} --python {python}");
                    return Err(Failure::usage(without.sentence(again)));
                }
                let problem = found.result.exception.as_ref().or(found.result.problems.first());
                let why = problem.cloned().unwrap_or_else(|| "it gave no answer".into());
                Err(Error::host(format!("{} in {}", self.word, self.python.display()), why).into())
            }
        }
    }

    /// Rehearses what may make it fit: checkpointing, a smaller batch, and both.
    fn tries(&self, found: &Rehearsed, spec: &RunSpec) -> Result<Tries> {
        let mut tries = Tries { order: "Try (each was rehearsed)".into(), ..Tries::default() };
        if let Some(states) = found.result.states_beyond_the_card() {
            tries.order = format!("Nothing here makes it fit: {states}");
            tries.not_here = lab::section::NOT_HERE.into();
            return Ok(tries);
        }
        let mut failed = Vec::new();
        for change in changes(spec, found.result.share_that_fits()) {
            self.ui.tell(format!("it does not fit: rehearsing it with {}", change.words));
            let again = self.once(&change.spec, false)?;
            match self.judged(&again, &change.spec) {
                Ok(result) if again.result.fits == Some(true) => {
                    tries.entries.push(entry(&change, &result, self.named))
                }
                _ => failed.push(change.words),
            }
        }
        if !failed.is_empty() {
            tries.search = format!("Not enough: {}.", failed.join("; "));
        }
        tries.not_here = lab::section::NOT_HERE.into();
        Ok(tries)
    }
}

/// A change that may make a network fit.
struct Change {
    words: String,
    script: String,
    flags: String,
    spec: RunSpec,
}

/// Returns the changes that a run can have. `share`: how much of the batch may fit.
fn changes(spec: &RunSpec, share: Option<f64>) -> Vec<Change> {
    let mut found = Vec::new();
    if spec.model.checkpoint.as_ref().is_none_or(|what| *what == Recompute::None) {
        let mut changed = spec.clone();
        changed.model.checkpoint = Some(Recompute::Blocks);
        found.push(Change {
            words: CHECKPOINTING.words.into(),
            script: CHECKPOINTING.script.into(),
            flags: "--checkpoint blocks".into(),
            spec: changed,
        });
    }
    if let Some(batch) = spec.training.batch.filter(|batch| *batch > 1) {
        let smaller = share.map_or(batch / 2, |share| (batch as f64 * share) as usize).clamp(1, batch - 1);
        let bases: Vec<(String, String, RunSpec)> = found
            .iter()
            .map(|change| (format!("{} + ", change.words), format!("{} ", change.flags), change.spec.clone()))
            .collect();
        for (words, flags, base) in std::iter::once((String::new(), String::new(), spec.clone())).chain(bases) {
            let mut changed = base;
            changed.training.batch = Some(smaller);
            found.push(Change {
                words: format!("{words}batch {smaller}"),
                script: format!("batch_size={smaller}"),
                flags: format!("{flags}--batch {smaller}"),
                spec: changed,
            });
        }
    }
    found
}

/// Makes the entry of a change with which the network fits. `python`: what `--python` named, which its command names too.
fn entry(change: &Change, result: &TrainResult, python: Option<&Path>) -> Try {
    let mut fields = change.spec.said();
    fields.extend(python.map(|python| ("python".to_string(), python.display().to_string().into())));
    let needs = result.prediction.as_ref().map(|prediction| (prediction.needs, prediction.budget_bytes));
    let reserved = needs.and_then(|(needs, _)| needs.reserved_here_bytes);
    let left = needs.and_then(|(_, budget)| Some(budget?.saturating_sub(reserved?)));
    Try {
        change: change.words.clone(),
        script: change.script.clone(),
        flags: change.flags.clone(),
        command: Some(command::again(&["predict"], &fields)),
        checked: true,
        peak_bytes: needs.map(|(needs, _)| needs.allocated_bytes),
        reserved_bytes: reserved,
        left_bytes: left,
        ..Try::default()
    }
}

/// Rehearses the driver's program on the card of a run.
fn request(command: Vec<OsString>, spec: &RunSpec) -> Request {
    let card = match spec.card.gpu {
        Some(Gpu::Card { card, .. }) => RequestedCard::from(card),
        Some(Gpu::Bytes(bytes)) => RequestedCard::of_bytes(bytes),
        None => {
            let card = Card::named(CARD).map(RequestedCard::from);
            RequestedCard { total_bytes: ENDLESS, ..card.unwrap_or_else(|| RequestedCard::of_bytes(ENDLESS)) }
        }
    };
    // As a script: until memory is flat, unless the run says how many steps.
    let stop = Stop { settled: spec.training.steps.is_none(), ..Stop::default() };
    Request { environment: environment(spec), stop, enough: Some(ENDLESS), ..Request::new(command, card) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_the_python_that_was_named() {
        let change = &changes(&RunSpec::default(), None)[0];
        let command = |python| entry(change, &TrainResult::default(), python).command.unwrap();
        assert_eq!(
            command(Some(Path::new("my env/python"))),
            "vramlab predict --checkpoint blocks --python 'my env/python'"
        );
        assert_eq!(command(None), "vramlab predict --checkpoint blocks");
    }

    #[test]
    fn changes_are_the_smallest_first_and_never_the_run_itself() {
        let mut spec = RunSpec::default();
        spec.training.batch = Some(8);
        let words =
            |spec: &RunSpec, share| changes(spec, share).into_iter().map(|change| change.words).collect::<Vec<_>>();
        assert_eq!(words(&spec, Some(0.6)), ["checkpointing", "batch 4", "checkpointing + batch 4"]);
        assert_eq!(words(&spec, None), ["checkpointing", "batch 4", "checkpointing + batch 4"]);
        spec.model.checkpoint = Some(Recompute::Blocks);
        assert_eq!(words(&spec, Some(0.99)), ["batch 7"]);
        spec.training.batch = Some(1);
        assert!(words(&spec, None).is_empty(), "nothing smaller");
    }
}
