//! A training of PyTorch that was watched: what it tells of itself while it runs (`vramlab-watched-1`), and the whole (`vramlab-watch-1`).

use lab_base::figures::{counted, grouped, percent, short};
use lab_base::section::{Cell, Section, Table};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::ByCategory;
use super::{Findings, RehearsalResult, SnapshotResult, TrainResult};

/// A process that trains, as the watch inside it tells. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watched {
    /// `vramlab-watched-1`.
    pub schema: String,
    /// Process id.
    pub pid: u32,
    /// Its rank; null if the environment names none.
    pub rank: Option<u64>,
    /// The script with its arguments.
    pub script: String,
    /// The release of PyTorch.
    pub torch: String,
    /// The card; null until it is used.
    pub card: Option<String>,
    /// Index of the card.
    pub device: usize,
    /// When PyTorch was imported: milliseconds since 1970.
    pub started_ms: u64,
    /// When this was written, in the same unit.
    pub updated_ms: u64,
    /// Steps of the optimizer.
    pub steps: u64,
    /// Median of the last steps' seconds; null before the second step.
    pub step_seconds: Option<f64>,
    /// Allocated at the end of the last step.
    pub allocated: u64,
    /// Reserved at the end of the last step.
    pub reserved: u64,
    /// Allocated at most.
    pub peak_allocated: u64,
    /// Step in which that was.
    pub peak_step: u64,
    /// Reserved at most.
    pub peak_reserved: u64,
    /// Bytes that PyTorch may reserve on the card; null until it is used.
    pub room: Option<u64>,
    /// How often PyTorch gave its cache back because memory ran short.
    pub retries: u64,
    /// Allocated at the end of the last step, by category. `other`: what no module or optimizer has.
    pub by_category: ByCategory,
    /// Growth from step to step; null if there is none.
    pub growth: Option<WatchedGrowth>,
    /// The last request that failed; null if none did.
    pub out_of_memory: Option<WatchedOom>,
    /// Steps that PyTorch recorded whole, with lines. Short steps are recorded now and then.
    pub recorded_steps: u64,
    /// The last of them; 0 if there is none.
    pub last_recorded_step: u64,
    /// Share of the time since the first step that the watch took.
    pub own_share: Option<f64>,
    /// Why there are no figures; null if there are.
    pub problem: Option<String>,
    /// True if the process has ended by itself.
    pub ended: bool,
    /// Folder in which `PID.ask` is a request for a snapshot.
    pub folder: String,
    /// The last snapshot; null if there is none.
    pub snapshot: Option<String>,
    /// Step after which it was written.
    pub snapshot_step: u64,
    /// What went wrong with a snapshot; null if nothing did.
    pub note: Option<String>,
}

/// Growth of the memory at the ends of steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedGrowth {
    /// Bytes that a step adds, on average.
    pub bytes_per_step: u64,
    /// Step from which it was seen.
    pub since_step: u64,
    /// Step at which the peak fills the card if it goes on so; null if the room is not known.
    pub runs_out_at_step: Option<u64>,
}

/// A request that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchedOom {
    /// Step in which it failed.
    pub step: u64,
    /// Bytes requested.
    pub requested: u64,
    /// Bytes free on the card.
    pub free: u64,
    /// Allocated then.
    pub allocated: u64,
    /// Reserved then.
    pub reserved: u64,
    /// Number of requests that failed so far.
    pub count: u64,
    /// True if the step was recorded, with lines.
    pub recorded: bool,
    /// Line of the script that requested; null in the backward pass.
    pub line: Option<String>,
}

impl Watched {
    /// Schema of the status.
    pub const SCHEMA: &'static str = "vramlab-watched-1";

    /// True if it has figures of steps on a card.
    pub fn has_figures(&self) -> bool {
        self.card.is_some() && (self.steps > 0 || self.out_of_memory.is_some())
    }

    /// Its figures on one line.
    pub fn line(&self) -> String {
        let rank = self.rank.map_or(String::new(), |rank| format!("rank {rank}, "));
        let room = self.room.map_or(String::new(), |room| format!(" of {}", short(room)));
        let mut line = format!(
            "{rank}step {}: {} allocated (peak {}), reserved {}{room}",
            grouped(self.steps, ' '),
            short(self.allocated),
            short(self.peak_allocated),
            short(self.reserved),
        );
        line += &self.step_seconds.map_or(String::new(), |seconds| format!(", {}", in_time(seconds)));
        line += &self.growth.as_ref().map_or(String::new(), |growth| format!("; {}", growth.in_words()));
        line
    }

    fn cells(&self) -> Vec<Cell> {
        let step = |step: Option<u64>| step.map_or_else(Cell::unknown, Cell::Count);
        vec![
            Cell::Text(self.rank.map_or_else(|| self.pid.to_string(), |rank| format!("rank {rank}"))),
            Cell::Text(self.script.clone()),
            Cell::Count(self.steps),
            Cell::Bytes(self.allocated),
            Cell::Bytes(self.reserved),
            Cell::Bytes(self.peak_allocated),
            step(self.growth.as_ref().and_then(|growth| growth.runs_out_at_step)),
        ]
    }

    /// A row for each of these processes.
    pub(crate) fn table(title: &str, all: &[Self]) -> Section {
        let columns = ["process", "script", "step", "allocated", "reserved", "peak", "full at step"];
        Section::List(Table::new(title, &columns, all.iter().map(Self::cells).collect()))
    }

    /// Which steps were recorded; `None` if all were.
    fn recorded(&self) -> Option<String> {
        if let Some(oom) = self.out_of_memory.as_ref().filter(|oom| !oom.recorded) {
            let step = grouped(oom.step, ' ');
            let asked = oom.line.as_ref().map_or(String::new(), |line| format!(", {line} asked for it"));
            return Some(format!("Step {step} was not recorded{asked}: only what recorded steps left has lines."));
        }
        let (recorded, last) = (self.recorded_steps, grouped(self.last_recorded_step, ' '));
        match recorded {
            0 => Some("vramlab recorded no whole step.".into()),
            // The last one may have been interrupted.
            _ if recorded + 1 >= self.steps => None,
            _ => Some(format!(
                "vramlab recorded {} of {} steps with their lines, step {last} last: each costs some percent of a step.",
                grouped(recorded, ' '),
                grouped(self.steps, ' ')
            )),
        }
    }

    fn categories(&self) -> String {
        let held = self.by_category.iter().filter(|(_, bytes)| **bytes > 0);
        let held: Vec<String> =
            held.map(|(name, bytes)| format!("{} {}", name.replace('_', " "), short(*bytes))).collect();
        format!("At the end of step {}: {}.", grouped(self.steps, ' '), held.join(", "))
    }
}

impl WatchedGrowth {
    fn in_words(&self) -> String {
        let ends = self
            .runs_out_at_step
            .map_or(String::new(), |step| format!(", the card is full at about step {}", grouped(step, ' ')));
        format!("grows by {} a step{ends}", short(self.bytes_per_step))
    }
}

fn in_time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Peaks that a prediction or a rehearsal named. Bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictedPeaks {
    /// The file.
    pub file: String,
    /// Allocated at most.
    pub allocated: u64,
    /// Reserved at most.
    pub reserved: u64,
}

impl PredictedPeaks {
    /// Reads them from a result of `predict`; `None` for another result.
    pub fn read(file: &str, result: &Value) -> Option<Self> {
        let (allocated, reserved) = match result.get("schema")?.as_str()? {
            TrainResult::SCHEMA => {
                let needs = serde_json::from_value::<TrainResult>(result.clone()).ok()?.prediction?.needs;
                (needs.allocated_bytes, needs.reserved_here_bytes.unwrap_or(needs.reserved_bytes))
            }
            RehearsalResult::SCHEMA => {
                let found: RehearsalResult = serde_json::from_value(result.clone()).ok()?;
                match found.with_memory_enough {
                    Some(needs) => (needs.peak_allocated, needs.peak_reserved),
                    None => {
                        let fullest = found.ranks.iter().max_by_key(|rank| rank.peak_reserved)?;
                        (fullest.peak_allocated, fullest.peak_reserved)
                    }
                }
            }
            _ => return None,
        };
        Some(Self { file: file.into(), allocated, reserved })
    }
}

/// A command that was watched.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WatchResult {
    /// The command.
    pub command: Vec<String>,
    /// Its exit code; 128 plus the signal if a signal ended it.
    pub script_exit: i32,
    /// Every process of it that trained on a card, by rank.
    pub processes: Vec<Watched>,
    /// What had been predicted; null if nothing was named.
    pub predicted: Option<PredictedPeaks>,
    /// Who held the memory of the fullest process: when it ran out, else at the peak of its last events. Null if no snapshot was written.
    pub snapshot: Option<SnapshotResult>,
    /// Where the snapshot of running out lies; null if memory did not run out.
    pub kept: Option<String>,
}

impl WatchResult {
    /// The process that ran out of memory, or else reserved most.
    pub fn fullest(processes: &[Watched]) -> Option<&Watched> {
        processes.iter().max_by_key(|one| (one.out_of_memory.is_some(), one.peak_reserved))
    }

    /// True if memory ran out, and the command failed.
    pub fn ran_out(&self) -> bool {
        self.script_exit != 0 && self.processes.iter().any(|one| one.out_of_memory.is_some())
    }

    fn course(&self, watched: &Watched) -> String {
        let time = watched.step_seconds.map_or(String::new(), |seconds| format!(" of {}", in_time(seconds)));
        let growth = match &watched.growth {
            Some(growth) => format!("Memory {}.", growth.in_words()),
            None => "The ends of its steps show no growth.".into(),
        };
        let share = watched.own_share.map_or(String::new(), |share| {
            format!(" The watch took {} of the time since the first step.", percent(share))
        });
        format!("{}{time}. {growth}{share}", counted(watched.steps, "step"))
    }

    fn measured(&self, watched: &Watched) -> Option<Section> {
        let predicted = self.predicted.as_ref()?;
        let row = |name: &str, said: u64, seen: u64| {
            let off = if said == 0 { 0.0 } else { (seen as f64 - said as f64) / said as f64 * 100.0 };
            let off = if seen == said { "the same".into() } else { format!("{off:+.2} %") };
            vec![Cell::Text(name.into()), Cell::Bytes(said), Cell::Bytes(seen), Cell::Text(off)]
        };
        let rows = vec![
            row("allocated at most", predicted.allocated, watched.peak_allocated),
            row("reserved at most", predicted.reserved, watched.peak_reserved),
        ];
        Some(Section::List(Table::new("Predicted and measured", &["", "predicted", "measured", "measured is"], rows)))
    }
}

impl Findings for WatchResult {
    const SCHEMA: &'static str = "vramlab-watch-1";

    fn title(&self) -> String {
        let Some(watched) = Self::fullest(&self.processes) else { return "watched: no training on a card".into() };
        let card = watched.card.as_deref().unwrap_or("the card");
        match &watched.out_of_memory {
            Some(oom) if self.ran_out() => format!(
                "Out of memory in step {}: {} requested, {} free on the {card}",
                grouped(oom.step, ' '),
                short(oom.requested),
                short(oom.free)
            ),
            _ => {
                let room = watched.room.map_or(String::new(), |room| format!(" of {}", short(room)));
                format!(
                    "{} allocated at most (step {}), {} reserved{room} on the {card}",
                    short(watched.peak_allocated),
                    grouped(watched.peak_step, ' '),
                    short(watched.peak_reserved)
                )
            }
        }
    }

    fn sections(&self) -> Vec<Section> {
        let Some(watched) = Self::fullest(&self.processes) else { return Vec::new() };
        let mut sections = vec![Section::Answer(self.course(watched)), Section::Note(watched.categories())];
        sections.extend(watched.recorded().map(Section::Note));
        sections.extend(watched.note.clone().map(Section::Warning));
        if self.processes.len() > 1 {
            sections.push(Watched::table("Processes", &self.processes));
        }
        sections.extend(self.measured(watched));
        if let Some(snapshot) = &self.snapshot {
            sections.extend(snapshot.sections());
        }
        sections.extend(self.kept.as_ref().map(|kept| Section::Note(format!("The snapshot: vramlab open {kept}"))));
        sections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> Watched {
        Watched {
            card: Some("NVIDIA T4".into()),
            steps: 1200,
            allocated: 3 << 20,
            reserved: 5 << 20,
            peak_allocated: 4 << 20,
            peak_step: 7,
            peak_reserved: 6 << 20,
            room: Some(64 << 20),
            step_seconds: Some(0.0125),
            growth: Some(WatchedGrowth { bytes_per_step: 1024, since_step: 9, runs_out_at_step: Some(9000) }),
            ..Watched::default()
        }
    }

    #[test]
    fn a_line_has_step_figures_time_and_growth() {
        let expected = "step 1 200: 3 MiB allocated (peak 4 MiB), reserved 5 MiB of 64 MiB, 12.5 ms; \
                        grows by 1 KiB a step, the card is full at about step 9 000";
        assert_eq!(watched().line(), expected);
    }

    #[test]
    fn what_ran_out_stands_before_what_took_more() {
        let full = Watched { peak_reserved: 9 << 30, ..watched() };
        let out = Watched { out_of_memory: Some(WatchedOom::default()), ..watched() };
        let result = WatchResult { processes: vec![full, out], script_exit: 1, ..WatchResult::default() };
        assert!(WatchResult::fullest(&result.processes).unwrap().out_of_memory.is_some());
        assert!(result.title().starts_with("Out of memory in step 0"));
        assert!(WatchResult { script_exit: 0, ..result }.title().starts_with("4 MiB allocated at most (step 7)"));
    }

    #[test]
    fn steps_without_lines_are_named() {
        assert_eq!(Watched { recorded_steps: 1199, ..watched() }.recorded(), None);
        let some = Watched { recorded_steps: 18, last_recorded_step: 1190, ..watched() };
        assert!(
            some.recorded()
                .unwrap()
                .starts_with("vramlab recorded 18 of 1 200 steps with their lines, step 1 190 last")
        );
        let oom = |recorded| Some(WatchedOom { step: 1201, recorded, ..WatchedOom::default() });
        let unknown = Watched { out_of_memory: oom(false), ..some.clone() };
        assert!(unknown.recorded().unwrap().starts_with("Step 1 201 was not recorded"));
        assert_eq!(Watched { out_of_memory: oom(true), ..some.clone() }.recorded(), some.recorded());
    }

    #[test]
    fn predictions_stand_beside_what_was_measured() {
        let predicted = PredictedPeaks { file: "p.json".into(), allocated: 4 << 20, reserved: 8 << 20 };
        let result = WatchResult { processes: vec![watched()], predicted: Some(predicted), ..WatchResult::default() };
        let tables: Vec<String> = result.sections().iter().map(|section| format!("{section:?}")).collect();
        assert!(tables.concat().contains("the same") && tables.concat().contains("-25.00 %"), "{tables:?}");
        assert_eq!(PredictedPeaks::read("p.json", &serde_json::json!({ "schema": "vramlab-fit-1" })), None);
    }
}
