//! Rehearses changes to a script that ran out of memory, or fits only perhaps: a setting of the allocator, and a smaller batch.

use std::ffi::OsString;

use lab_base::changes::alloc_conf;
use lab_base::error::Result;
use lab_base::section::{Tries, Try};
use lab_results::RehearsalResult;

use super::arguments::reads_arguments;
use super::batch::BatchWord;
use super::collect::Rehearsed;
use super::progress::{Progress, Watch};
use super::rehearsal::rehearse;
use super::request::Request;
use super::scan::at_point;
use super::tries::{ORDER, entry, scan_command, setting_point};

/// Adds changes that make the script fit, each of them rehearsed. Does nothing if the script fits surely, was interrupted, ran out of memory
/// outside of PyTorch, or is not to be run again. A script that fits perhaps is tried with a smaller batch alone.
///
/// # Errors
/// Those of a rehearsal.
pub fn try_changes(request: &Request, found: &mut Rehearsed, watch: &mut Watch) -> Result<()> {
    let only_perhaps = found.result.fits == Some(true) && found.result.fits_perhaps();
    if !(found.result.ran_out() || only_perhaps) || !request.needs || found.interrupted {
        return Ok(());
    }
    let mut again = Again { request, watch, interrupted: false, said: Vec::new() };
    // The setting stands first, since it changes least; sentences about it stand last, since a batch helps more often.
    let setting = if only_perhaps { None } else { again.setting(&found.result)? };
    let about_setting = std::mem::take(&mut again.said);
    let batch = again.smaller_batch(&found.result)?;
    again.said.extend(about_setting);
    let entries = setting.into_iter().chain(batch).collect();
    let (interrupted, search) = (again.interrupted, again.said.join(" "));
    found.interrupted |= interrupted;
    found.result.tries = Some(Tries { order: ORDER.into(), entries, search, ..Tries::default() });
    Ok(())
}

struct Again<'a, 'w> {
    request: &'a Request,
    watch: &'a mut Watch<'w>,
    interrupted: bool,
    /// Sentences about what did not help, or was not tried.
    said: Vec<String>,
}

impl Again<'_, '_> {
    /// Rehearses the setting that a replay prefers, if the replay ends well with it, or memory was fragmented.
    fn setting(&mut self, found: &RehearsalResult) -> Result<Option<Try>> {
        let Some(what_if) = found.what_if.as_ref().filter(|_| !found.holds_more_than_there_is()) else {
            return Ok(None);
        };
        let best = what_if.another().filter(|_| found.is_fragmented() || what_if.best().is_some());
        let Some(conf) = best.map(|best| best.alloc_conf.clone()) else {
            self.said.push(what_if.why_nothing());
            return Ok(None);
        };
        let change = what_if.as_change(&conf);
        let point = [setting_point(&conf)];
        let Some(fitting) = self.once(&at_point(self.request, &point)?, &change)? else {
            self.said.push(what_if.does_not_help(&conf, "it"));
            return Ok(None);
        };
        let change = if fitting.fits_perhaps() { format!("{change}, which fits perhaps") } else { change };
        Ok(Some(Try { script: alloc_conf(&conf), ..entry(change, self.request, &point, &fitting) }))
    }

    /// Rehearses a smaller batch: the estimated one if there is an estimate, else a half of it; if that does not fit, smaller ones.
    fn smaller_batch(&mut self, found: &RehearsalResult) -> Result<Option<Try>> {
        if let Some(states) = found.states_beyond_the_card() {
            self.said.push(format!(
                "no batch is small enough, since {states}. Weights of 16 bits, an optimizer with smaller states, adapters (LoRA) or several \
                 cards (FSDP) make these smaller."
            ));
            return Ok(None);
        }
        let Some(word) = self.batch_word(found) else { return Ok(None) };
        let (mut too_large, mut may_be_largest) = (word.value, None);
        for value in candidates(word.value, found.share_that_fits()) {
            let change = word.in_words(value);
            let command: Vec<OsString> = word.with(&self.request.command, value);
            let changed = Request { command, ..self.request.clone() };
            let fitting = self.once(&changed, &change)?;
            let only_perhaps = fitting.as_ref().is_some_and(RehearsalResult::fits_perhaps);
            if let Some(fitting) = fitting.filter(|_| !only_perhaps) {
                let scanned = word.with_mark(&self.request.command);
                let command = scan_command(&Request { command: scanned, ..self.request.clone() }, value, too_large);
                self.said.push(format!("The largest that fits: `{command}`."));
                return Ok(Some(entry(format!("{change} instead of {}", word.value), &changed, &[], &fitting)));
            }
            if self.interrupted {
                break;
            }
            let how = match (only_perhaps, found.fits) {
                (false, _) => "does not fit either",
                (true, Some(true)) => "fits perhaps, too",
                (true, _) => "fits perhaps",
            };
            self.said.push(format!("{change} {how}."));
            // The largest that fits may lie above one that fits perhaps.
            if only_perhaps {
                may_be_largest = Some(value);
            } else {
                too_large = value;
            }
        }
        if let Some(value) = may_be_largest.filter(|_| !self.interrupted) {
            let scanned = Request { command: word.with_mark(&self.request.command), ..self.request.clone() };
            self.said.push(format!(
                "The largest that fits surely: `{}`.",
                scan_command(&scanned, (value / 2).max(1), too_large)
            ));
        }
        Ok(None)
    }

    /// Returns the word of the command that gives a batch above 1; says why there is none.
    fn batch_word(&mut self, found: &RehearsalResult) -> Option<BatchWord> {
        let word = BatchWord::from_command(&self.request.command);
        if let Some(word) = word.as_ref().filter(|word| word.value == 1) {
            self.said.push(format!("{} is the smallest batch.", word.in_words(1)));
            return None;
        }
        if word.is_none() {
            let share = found
                .share_that_fits()
                .map_or(String::new(), |share| format!(", and about {:.0} % of it may fit", 100.0 * share));
            let how = match reads_arguments(&self.request.command) {
                true => "Name it, as in `--batch-size N`, and the answer has one that fits.",
                false => {
                    "The script reads no arguments: with one for the batch (argparse), and that named, the answer has one that fits."
                }
            };
            self.said.push(format!("the command names no batch{share}. {how}"));
        }
        word
    }

    /// Rehearses a change. Returns the result if the script fits with it. Does nothing after an interruption.
    fn once(&mut self, request: &Request, change: &str) -> Result<Option<RehearsalResult>> {
        if self.interrupted || (self.watch)(Some(Progress::Change { words: change.into() })).is_break() {
            self.interrupted = true;
            return Ok(None);
        }
        let request = Request { needs: false, keep_outputs: None, silent: true, ..request.clone() };
        let rehearsed = rehearse(&request, self.watch)?;
        self.interrupted |= rehearsed.interrupted;
        Ok((rehearsed.result.fits == Some(true) && !rehearsed.interrupted).then_some(rehearsed.result))
    }
}

/// Batches to rehearse, below the one that does not fit.
fn candidates(batch: u64, share: Option<f64>) -> Vec<u64> {
    let first = share.map_or(batch / 2, |share| (batch as f64 * share) as u64).clamp(1, batch - 1);
    // Memory may be no straight line: a convolution has other workspaces at another batch.
    let eighths: &[u64] = if share.is_some() { &[8, 6, 3] } else { &[8, 4] };
    let mut values: Vec<u64> = eighths.iter().map(|part| first * part / 8).filter(|value| *value > 0).collect();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_batch_is_always_smaller() {
        assert_eq!(candidates(24, Some(0.6)), [14, 10, 5]);
        assert_eq!(candidates(24, None), [12, 6]);
        assert_eq!(candidates(2, Some(0.99)), [1]);
        assert_eq!(candidates(2, None), [1]);
        assert_eq!(candidates(3, Some(0.02)), [1]);
    }
}
