//! `--shard`: one part of many runs, for one machine of several.

use std::str::FromStr;

/// Part `index` of `count`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub index: usize,
    pub count: usize,
}

/// Largest number of parts: more is a mistake in typing.
const MOST: usize = 10_000;

impl Part {
    /// True if this part has the run at a position of the whole, from 0.
    pub(crate) fn has(self, position: usize) -> bool {
        position % self.count + 1 == self.index
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        part(text, &|name| std::env::var(name).ok())
    }
}

/// Parses a part from a text, with these variables of the environment.
fn part(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Part, String> {
    let (index, count) = match text.split_once('/') {
        Some(("auto", count)) => (None, Some(number("N", count)?)),
        Some((index, count)) => (Some(number("I", index)?), Some(number("N", count)?)),
        None if text == "auto" => (None, None),
        None => return Err("expected I/N, as 3/16, or auto".into()),
    };
    let part = match (index, count) {
        (Some(index), Some(count)) => Part { index, count },
        (_, count) => scheduled(count, variable)?,
    };
    if part.index == 0 || part.index > part.count || part.count > MOST {
        return Err(format!(
            "there is no part {} of {}: parts are counted from 1, up to {MOST}",
            part.index, part.count
        ));
    }
    Ok(part)
}

/// Returns the part that a scheduler assigned to this process.
fn scheduled(count: Option<usize>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Part, String> {
    let told = |name: &str| variable(name).map(|text| number(name, &text)).transpose();
    if let Some(id) = told("SLURM_ARRAY_TASK_ID")? {
        let from = told("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let step = told("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let tasks = told("SLURM_ARRAY_TASK_COUNT")?.ok_or("SLURM_ARRAY_TASK_COUNT is not set")?;
        let spread = told("SLURM_ARRAY_TASK_MAX")?.is_some_and(|last| last < from || (last - from) / step + 1 != tasks);
        // Otherwise two tasks would run the same part, and no task another part.
        if spread || id < from || (id - from) % step != 0 || count.is_some_and(|count| count != tasks) {
            return Err(format!("the array's {tasks} tasks are not numbered one after the other: say --shard I/N"));
        }
        return Ok(Part { index: (id - from) / step + 1, count: tasks });
    }
    match (told("JOB_COMPLETION_INDEX")?, count) {
        (Some(index), Some(count)) => Ok(Part { index: index.saturating_add(1), count }),
        (Some(_), None) => Err("JOB_COMPLETION_INDEX does not say of how many: auto/N".into()),
        (None, _) => Err("auto: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set".into()),
    }
}

fn number(name: &str, text: &str) -> Result<usize, String> {
    text.trim().parse().map_err(|_| format!("{name}: {text:?} is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, variables: &[(&str, &str)]) -> Result<Part, String> {
        part(text, &|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn parts_divide_all_runs_among_themselves() {
        let parts: Vec<Part> = (1..=3).map(|index| with(&format!("{index}/3"), &[]).unwrap()).collect();
        let of = |part: &Part| (0..8).filter(|position| part.has(*position)).collect::<Vec<_>>();
        assert_eq!(parts.iter().map(of).collect::<Vec<_>>(), [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
    }

    #[test]
    fn schedulers_number_their_tasks_from_anywhere() {
        let slurm = |id, from, last, step, count| {
            [
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_MIN", from),
                ("SLURM_ARRAY_TASK_MAX", last),
                ("SLURM_ARRAY_TASK_STEP", step),
                ("SLURM_ARRAY_TASK_COUNT", count),
            ]
        };
        assert_eq!(with("auto", &slurm("0", "0", "15", "1", "16")), Ok(Part { index: 1, count: 16 }));
        assert_eq!(with("auto", &slurm("5", "1", "7", "2", "4")), Ok(Part { index: 3, count: 4 }));
        assert!(with("auto", &slurm("3", "1", "7", "1", "3")).unwrap_err().contains("one after the other"));
        assert!(with("auto/8", &slurm("0", "0", "15", "1", "16")).is_err());
        let kubernetes = [("JOB_COMPLETION_INDEX", "0")];
        assert_eq!(with("auto/4", &kubernetes), Ok(Part { index: 1, count: 4 }));
        assert!(with("auto", &kubernetes).unwrap_err().contains("auto/N"));
        assert!(with("auto", &[]).unwrap_err().contains("SLURM_ARRAY_TASK_ID"));
    }

    #[test]
    fn what_is_not_a_part_is_refused() {
        for text in ["", "3", "0/4", "5/4", "1/0", "1/10001", "a/4", "1/b", "-1/4", "1/2/3"] {
            assert!(with(text, &[]).is_err(), "{text}");
        }
    }
}
