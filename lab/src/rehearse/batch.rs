//! Finds the word of a command that sets the batch.

use std::ffi::OsString;

/// Names of the batch without the word "batch" in them.
const SHORT: [&str; 3] = ["b", "bs", "bsz"];

/// Parts of names that count something else: batches of an evaluation, batches in a row.
const OTHER: [&str; 8] = ["eval", "val", "test", "infer", "batches", "accum", "num", "prefetch"];

/// Batches above this number are not taken for one.
const LARGEST: u64 = 1 << 20;

/// Word of a command that gives the batch: `--batch-size 16`, `-b 16`, `--batch_size=16`, `train.batch_size=16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BatchWord {
    /// Position of the word with the number.
    at: usize,
    /// What stands before the number in this word.
    before: String,
    /// Name, as in the command.
    pub(super) name: String,
    /// The batch.
    pub(super) value: u64,
}

impl BatchWord {
    /// Finds the word. Returns `None` unless exactly one word names a batch.
    pub(super) fn from_command(command: &[OsString]) -> Option<Self> {
        let words: Vec<&str> = command.iter().map(|word| word.to_str().unwrap_or_default()).collect();
        let mut found = (0..words.len()).filter_map(|at| Self::at(&words, at));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    fn at(words: &[&str], at: usize) -> Option<Self> {
        let word = words[at];
        if let Some((name, number)) = word.split_once('=') {
            let (long, plain) = (name.starts_with('-'), name.trim_start_matches(['-', '+']));
            let names_it = is_batch(plain, long);
            return names_it.then(|| Self::new(at, format!("{name}="), name, number)).flatten();
        }
        let name = words.get(at.checked_sub(1)?).filter(|name| name.starts_with('-') && !name.contains('='))?;
        is_batch(name.trim_start_matches('-'), true).then(|| Self::new(at, String::new(), name, word)).flatten()
    }

    fn new(at: usize, before: String, name: &str, number: &str) -> Option<Self> {
        let value = number.parse().ok().filter(|value| (1..=LARGEST).contains(value))?;
        Some(Self { at, before, name: name.into(), value })
    }

    /// Returns the command with another batch.
    pub(super) fn with(&self, command: &[OsString], value: u64) -> Vec<OsString> {
        let mut command = command.to_vec();
        command[self.at] = self.written(value).into();
        command
    }

    /// Returns the command with the mark of a scan in place of the batch.
    pub(super) fn with_mark(&self, command: &[OsString]) -> Vec<OsString> {
        let mut command = command.to_vec();
        command[self.at] = format!("{}{{batch}}", self.before).into();
        command
    }

    fn written(&self, value: u64) -> String {
        format!("{}{value}", self.before)
    }

    /// Returns the batch as it is written in a command: `--batch-size 8`, `batch_size=8`.
    pub(super) fn in_words(&self, value: u64) -> String {
        if self.before.is_empty() { format!("{} {value}", self.name) } else { self.written(value) }
    }
}

/// True if an argument's name means the batch. `flag`: only flags have short names.
fn is_batch(name: &str, flag: bool) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase().replace('-', "_");
    let short = flag && SHORT.contains(&name.as_str());
    short || name.contains("batch") && !OTHER.iter().any(|other| name.contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &str) -> Option<(String, u64)> {
        let command: Vec<OsString> = words.split(' ').map(Into::into).collect();
        let word = BatchWord::from_command(&command)?;
        let smaller = word.with(&command, 1).join(std::ffi::OsStr::new(" ")).into_string().unwrap();
        Some((smaller, word.value))
    }

    #[test]
    fn the_one_word_that_gives_the_batch_is_found() {
        let cases = [
            ("python train.py --batch-size 16 --lr 1", "python train.py --batch-size 1 --lr 1", 16),
            ("python train.py --batch_size=24", "python train.py --batch_size=1", 24),
            ("python main.py -a resnet50 -b 256", "python main.py -a resnet50 -b 1", 256),
            ("python main.py --batchSize 64 --niter 3", "python main.py --batchSize 1 --niter 3", 64),
            ("python run.py train.batch_size=8 epochs=2", "python run.py train.batch_size=1 epochs=2", 8),
            (
                "python hf.py --per_device_train_batch_size 4 --per_device_eval_batch_size 8",
                "python hf.py --per_device_train_batch_size 1 --per_device_eval_batch_size 8",
                4,
            ),
        ];
        for (words, smaller, value) in cases {
            assert_eq!(found(words), Some((smaller.into(), value)), "{words}");
        }
        let without = [
            "python unet.py 24 512",
            "python train.py --batch-size big",
            "python -b train.py",
            "python train.py --micro_batch_size 4 --global_batch_size 64",
            "python train.py --num_batches 40 --batches=3 --gradient_accumulation_steps 8",
            "python train.py b=16",
            "--batch-size",
        ];
        for words in without {
            assert_eq!(found(words), None, "{words}");
        }
    }
}
