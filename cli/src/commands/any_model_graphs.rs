//! Graphs of networks that the user's Python builds, kept in a folder: made after the second question, they answer the next ones without Python.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lab::any_model::{Asked, Compared, Driver, Entry, key, options};
use lab::bytes::ByteSize;
use lab::python::{Python, of_process};
use lab::results::TrainResult;
use lab::run::{DryRunner, KnowsWorkspaces, RunSpec};
use serde_json::Value;

use super::plan::dry_runner;
use crate::cache;
use crate::exit::Result;
use crate::file_lock::FileLock;
use crate::interrupt;
use crate::ui::Ui;
use crate::whole_file::WholeFile;

/// Most networks that are kept, and the largest entry that is read. Bytes.
const MOST_KEPT: usize = 100;
const MOST_BYTES: u64 = 1 << 20;

/// What a plan of cuDNN takes for attention, as the wheels of PyTorch 2.11 answered. Bytes.
const CUDNN_BYTES: u64 = 256;

/// What is kept of one network.
pub(super) struct Kept {
    folder: PathBuf,
    key: Value,
}

impl Kept {
    /// `None` for a run that no graph answers, for a network of which nothing is kept, and without a folder.
    pub(super) fn of_network(word: &str, spec: &RunSpec, python: Option<&Path>) -> Option<Self> {
        let python = Python::find(python, &of_process).ok().flatten()?;
        Some(Self { folder: cache::folder()?.join("networks"), key: key(word, spec, &python)? })
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", Entry::name(&self.key)))
    }

    /// What is written down of the network. What is damaged, or of another network, counts as nothing.
    fn entry(&self) -> Option<Entry> {
        let path = self.path("json");
        let is_file = path.metadata().is_ok_and(|file| file.is_file() && file.len() <= MOST_BYTES);
        let entry: Entry = if is_file { serde_json::from_slice(&fs::read(path).ok()?).ok()? } else { return None };
        (entry.key == self.key).then_some(entry)
    }

    /// Returns the run that the graph answers, and a sentence on where the answer comes from; `None`, too, if its convolutions have workspaces that
    /// nobody names now.
    pub(super) fn run(&self, spec: &RunSpec, runner: &DryRunner<'_>) -> Option<(RunSpec, String)> {
        let entry = self.entry().filter(Entry::answers)?;
        let path = Some(self.path("graph")).filter(|path| path.is_file())?;
        let run = with_graph(spec, path, &entry);
        let run = if entry.convolutions { named(&run, runner).ok()? } else { run };
        Some((run, entry.in_words()))
    }

    /// Remembers a rehearsal. The second time the network is exported for further questions. What goes wrong costs only time.
    pub(super) fn remember(
        &self,
        word: &str,
        spec: &RunSpec,
        (python, workspaces): (&Path, &dyn KnowsWorkspaces),
        rehearsal: &TrainResult,
        ui: &Ui,
    ) {
        let asked = asked(spec, rehearsal);
        let made = match self.entry() {
            None => self.write(&Entry { key: self.key.clone(), first: Some(asked), ..Entry::default() }, None),
            Some(entry) if self.is_to_be_made(&entry, spec) => {
                ui.tell_after(format!("exporting {word} for the next questions (Ctrl-C leaves it)"));
                let first = entry.first.filter(|first| *first != asked);
                let questions: Vec<Asked> = first.into_iter().chain([asked]).collect();
                self.export(word, (spec, &questions), (python, workspaces), rehearsal, ui)
            }
            Some(_) => Ok(()),
        };
        if let Err(failure) = made {
            ui.tell_after(format!("no graph is kept of {word}: {:#}", failure.error));
        }
    }

    /// True if the graph of an entry is missing: not made yet, or damaged.
    fn is_to_be_made(&self, entry: &Entry, spec: &RunSpec) -> bool {
        let is_damaged = || spec.model.reads.kept_graph(&self.path("graph"), "graph", None).is_err();
        entry.compared.is_empty() && entry.failed.is_none() || entry.answers() && is_damaged()
    }

    /// Exports the network and compares its graph with what was rehearsed of it.
    fn export(
        &self,
        word: &str,
        (spec, questions): (&RunSpec, &[Asked]),
        (python, workspaces): (&Path, &dyn KnowsWorkspaces),
        rehearsal: &TrainResult,
        ui: &Ui,
    ) -> Result<()> {
        let driver = Driver::make(options(word, spec)?)?;
        let chosen = rehearsal.chosen.as_ref();
        let tokens = chosen.and_then(|chosen| chosen.tokens).and_then(|tokens| usize::try_from(tokens).ok());
        let mut entry = Entry { key: self.key.clone(), recorded: now(), tokens, ..Entry::default() };
        let runner = dry_runner().with_workspaces_of(workspaces);
        let exported = driver
            .export(python, &interrupt::asked)
            .and_then(|file| Ok((nearest(spec, questions, &file, &entry, &runner)?, file)));
        match exported {
            Ok((nearest, file)) => {
                entry = nearest;
                let told = match entry.answers() {
                    true => format!("the next questions about {word} are answered from its graph"),
                    false => format!(
                        "the graph of {word} differs by {} from a rehearsal and is not used",
                        entry.difference()
                    ),
                };
                self.write(&entry, Some(file.as_path()).filter(|_| entry.answers()))?;
                ui.tell_after(told);
                Ok(())
            }
            Err(lab::Error::Interrupted) => Ok(()),
            Err(error) => {
                entry.failed = Some(error.to_string());
                self.write(&entry, None)?;
                Err(error.into())
            }
        }
    }

    /// Writes an entry, with its graph. Another process may have written more: then that stays.
    fn write(&self, entry: &Entry, graph: Option<&Path>) -> Result<()> {
        let path = self.path("json");
        fs::create_dir_all(&self.folder).map_err(|error| cannot(&self.folder, &error))?;
        let _lock = FileLock::acquire(&path)?;
        if entry.compared.is_empty() && entry.failed.is_none() && self.entry().is_some() {
            return Ok(());
        }
        if let Some(graph) = graph {
            let bytes = fs::read(graph).map_err(|error| cannot(graph, &error))?;
            whole(&self.path("graph"), &bytes)?;
        }
        whole(&path, serde_json::to_string(entry).unwrap_or_default().as_bytes())?;
        self.forget_the_oldest();
        Ok(())
    }

    /// Removes what was written first of too many.
    fn forget_the_oldest(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json"))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        found.sort();
        for (_, path) in found.iter().rev().skip(MOST_KEPT) {
            let _ = fs::remove_file(path.with_extension("graph"));
            let _ = fs::remove_file(path);
        }
    }
}

fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = WholeFile::beside(path).and_then(|mut file| {
        file.file().write_all(bytes)?;
        file.appear(path)
    });
    Ok(written.map_err(|error| cannot(path, &error))?)
}

fn cannot(path: &Path, error: &std::io::Error) -> lab::Error {
    lab::Error::host(path.display().to_string(), error.to_string())
}

/// The run with a graph in place of the network.
fn with_graph(spec: &RunSpec, graph: PathBuf, entry: &Entry) -> RunSpec {
    let mut spec = spec.clone();
    spec.model.graph = Some(graph);
    spec.model.sequence = spec.model.sequence.or(entry.tokens);
    spec.profile.cudnn_workspace = entry.cudnn.map(ByteSize);
    spec.training.batch = spec.training.batch.or(Some(1));
    spec
}

/// A rehearsed question with its answer.
fn asked(spec: &RunSpec, rehearsal: &TrainResult) -> Asked {
    let fits = rehearsal.prediction.as_ref().is_some_and(|prediction| prediction.fits == Some(true));
    let peak = rehearsal.peak.as_ref().map_or((0, 0), |peak| (peak.bytes, peak.reserved_bytes));
    let mut fields = spec.said();
    // A dry run goes on until memory is flat, which may be later than the rehearsal ended.
    if let Some(steps) = rehearsal.settings.get("steps").filter(|_| !fields.contains_key("steps")) {
        fields.insert("steps".into(), steps.clone());
    }
    Asked { fields, peak, fits }
}

/// Compares a graph with the rehearsals of these questions, and returns the entry of what is nearest: with the workspaces that cuDNN names for its
/// convolutions, if it has any, and with cuDNN's attention, or without either.
fn nearest(
    spec: &RunSpec,
    questions: &[Asked],
    graph: &Path,
    entry: &Entry,
    runner: &DryRunner<'_>,
) -> lab::Result<Entry> {
    let with = |(convolutions, cudnn): (bool, Option<u64>)| {
        let entry = Entry { convolutions, cudnn, ..entry.clone() };
        let each = questions.iter().map(|asked| compared(spec, asked, graph.into(), &entry, runner)).collect();
        Ok::<_, lab::Error>(Entry { compared: in_bounds(each)?, ..entry })
    };
    let (mut best, mut failed): (Option<Entry>, _) = (None, None);
    for way in [(true, None), (true, Some(CUDNN_BYTES)), (false, None), (false, Some(CUDNN_BYTES))] {
        match with(way) {
            Ok(other) if best.as_ref().is_none_or(|best| other.away() < best.away()) => best = Some(other),
            Err(lab::Error::Interrupted) => return Err(lab::Error::Interrupted),
            // A graph that cannot be run with cuDNN is run without.
            Err(error) if way == (false, None) => failed = Some(error),
            _ => {}
        }
        if best.as_ref().is_some_and(|best| best.away() == 0.0) {
            break;
        }
    }
    best.ok_or_else(|| failed.unwrap_or_else(|| lab::Error::usage("graph", "it could not be compared")))
}

/// Compares a dry run of a graph with the rehearsal of the same run.
fn compared(
    spec: &RunSpec,
    asked: &Asked,
    graph: PathBuf,
    entry: &Entry,
    runner: &DryRunner<'_>,
) -> lab::Result<Compared> {
    let run = RunSpec::default().with(asked.fields.iter().map(|(name, value)| (name.as_str(), value)))?;
    let mut run = with_graph(&run, graph, entry);
    run.model.reads = spec.model.reads.clone();
    if entry.convolutions {
        run = named(&run, runner)?;
    }
    let figures = runner.figures(&run)?;
    let in_room = figures.room.and_then(|room| room.reserved_bytes).filter(|_| asked.fits);
    Ok(Compared {
        batch: run.training.batch.unwrap_or(1),
        tokens: run.model.sequence,
        graph: (figures.allocated_bytes, in_room.unwrap_or(figures.reserved_bytes)),
        rehearsal: asked.peak,
    })
}

/// The run with the workspaces that cuDNN names for all of its convolutions.
fn named(run: &RunSpec, runner: &DryRunner<'_>) -> lab::Result<RunSpec> {
    let named = runner.with_named_workspaces(run)?;
    named.ok_or_else(|| lab::Error::usage("cudnn", "it names no workspaces for the network's convolutions"))
}

/// Leaves out the questions beyond the sizes that a graph holds for, if it answers any: they say nothing about the others.
fn in_bounds(mut each: Vec<lab::Result<Compared>>) -> lab::Result<Vec<Compared>> {
    let is_of_the_size =
        |error: &lab::Error| matches!(error, lab::Error::Usage { what, .. } if what == "sequence" || what == "batch");
    if each.iter().any(Result::is_ok) {
        each.retain(|compared| !compared.as_ref().is_err_and(is_of_the_size));
    }
    each.into_iter().collect()
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use lab::run::{NamedWorkspaces, WorkspaceTable};
    use memcore::profile::ConvolutionCase;
    use serde_json::json;

    use super::*;

    /// A recorded graph, as the driver writes them.
    const GRAPH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/imports/zoo/olmo-2-7b.json.gz");

    /// A network with convolutions, as `vramlab.export` writes it.
    const WITH_CONVOLUTIONS: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/imports/tests/golden/exported/whisper.pt2.gz");

    /// Names this many bytes for every convolution, or nothing, and knows what it named.
    struct Names(Option<u64>, Mutex<Option<WorkspaceTable>>);

    impl Names {
        fn new(bytes: Option<u64>) -> Self {
            Self(bytes, Mutex::default())
        }
    }

    impl KnowsWorkspaces for Names {
        fn known(&self, _: u32) -> Option<WorkspaceTable> {
            self.1.lock().unwrap().clone()
        }

        fn asks(&self, _: bool) -> bool {
            self.0.is_some()
        }

        fn ask(&self, _: u32, cases: &[ConvolutionCase]) -> lab::Result<Option<WorkspaceTable>> {
            let Some(bytes) = self.0 else { return Ok(None) };
            let rows = cases.iter().map(|case| (case.clone(), NamedWorkspaces::new([bytes; 3], 0)));
            let table = WorkspaceTable::new(91900, 0, rows.collect());
            *self.1.lock().unwrap() = Some(table.clone());
            Ok(Some(table))
        }
    }

    fn kept(folder: &Path) -> Kept {
        Kept { folder: folder.join("networks"), key: json!(["a network"]) }
    }

    fn entry(kept: &Kept, graph: (u64, u64)) -> Entry {
        let compared = Compared { batch: 2, tokens: Some(512), graph, rehearsal: (1_000_000, 2_000_000) };
        Entry { key: kept.key.clone(), tokens: Some(512), compared: vec![compared], ..Entry::default() }
    }

    fn spec() -> RunSpec {
        RunSpec::default().with([("model-file", &json!("olmo.json"))]).unwrap()
    }

    #[test]
    fn a_graph_answers_what_the_network_takes() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path());
        assert!(kept.run(&spec(), &dry_runner()).is_none(), "nothing is kept");
        kept.write(&entry(&kept, (1_000_000, 2_000_000)), Some(Path::new(GRAPH))).unwrap();
        let (run, origin) = kept.run(&spec(), &dry_runner()).unwrap();
        assert!(origin.contains("that of a rehearsal at batch 2 × 512 tokens"), "{origin}");
        let zoo = RunSpec::default()
            .with([("model", &json!("olmo-2-7b")), ("sequence", &json!(512)), ("batch", &json!(1))])
            .unwrap();
        let figures =
            |spec| dry_runner().figures(spec).map(|found| (found.allocated_bytes, found.reserved_bytes)).unwrap();
        assert_eq!(figures(&run), figures(&zoo));
    }

    #[test]
    fn a_graph_with_convolutions_has_the_workspaces_that_cudnn_names() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path());
        let mut graph = Vec::new();
        let packed = fs::File::open(WITH_CONVOLUTIONS).unwrap();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut graph).unwrap();
        let path = folder.path().join("whisper.pt2");
        fs::write(&path, graph).unwrap();
        let near = Entry { convolutions: true, tokens: None, ..entry(&kept, (1_000_000, 2_000_000)) };
        kept.write(&near, Some(&path)).unwrap();
        let allocated = |names: Names| {
            let runner = dry_runner().with_workspaces_of(&names);
            let (run, _) = kept.run(&spec(), &runner)?;
            let figures = runner.figures(&run).unwrap();
            assert!(figures.with_cudnn.is_some(), "what cuDNN takes beside tensors is counted");
            Some(figures.allocated_bytes)
        };
        let (small, large) = (allocated(Names::new(Some(0))).unwrap(), allocated(Names::new(Some(1 << 30))).unwrap());
        assert!(small < 1 << 30 && large >= 1 << 30, "{small} {large}");
        assert_eq!(allocated(Names::new(None)), None, "nobody names them");
    }

    /// A rehearsal ends when a step repeats the one before; later steps of a graph would be compared with nothing.
    #[test]
    fn a_graph_is_compared_over_as_many_steps_as_were_rehearsed() {
        let mut rehearsal = TrainResult::default();
        rehearsal.settings.insert("steps".into(), json!(16));
        assert_eq!(asked(&spec(), &rehearsal).fields["steps"], json!(16));
        let three = spec().with([("steps", &json!(3))]).unwrap();
        assert_eq!(asked(&three, &rehearsal).fields["steps"], json!(3), "those that the user named");
    }

    #[test]
    fn a_question_beyond_the_sizes_of_a_graph_is_not_compared() {
        let beyond = || Err(lab::Error::usage("sequence", "384: the graph holds from 512 tokens on"));
        let near = || Ok(Compared { batch: 2, ..Compared::default() });
        assert_eq!(in_bounds(vec![beyond(), near()]).unwrap().len(), 1);
        assert!(in_bounds(vec![beyond()]).is_err(), "nothing is compared");
        assert!(in_bounds(vec![near(), Err(lab::Error::usage("graph", "damaged"))]).is_err());
    }

    #[test]
    fn what_is_damaged_or_differs_answers_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path());
        kept.write(&entry(&kept, (1_001_000, 2_000_000)), None).unwrap();
        assert!(kept.run(&spec(), &dry_runner()).is_none(), "it differs from the rehearsal");
        let near = entry(&kept, (1_000_000, 2_000_000));
        kept.write(&near, Some(Path::new(GRAPH))).unwrap();
        assert!(kept.run(&spec(), &dry_runner()).is_some() && !kept.is_to_be_made(&near, &spec()));
        fs::write(kept.path("graph"), "half").unwrap();
        let (run, _) = kept.run(&spec(), &dry_runner()).unwrap();
        assert!(matches!(dry_runner().figures(&run), Err(lab::Error::Usage { .. })), "rehearsed instead");
        assert!(kept.is_to_be_made(&near, &spec()), "made anew");
        fs::write(kept.path("json"), "{").unwrap();
        assert!(kept.run(&spec(), &dry_runner()).is_none() && kept.entry().is_none());
        let other = Kept { key: json!(["another"]), folder: kept.folder.clone() };
        fs::write(kept.path("json"), serde_json::to_string(&entry(&other, (1, 1))).unwrap()).unwrap();
        assert!(kept.entry().is_none(), "of another network under the same name");
    }

    #[test]
    fn a_first_question_takes_no_graph_away_and_few_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path());
        kept.write(&entry(&kept, (1_000_000, 2_000_000)), Some(Path::new(GRAPH))).unwrap();
        let first = Entry { key: kept.key.clone(), ..Entry::default() };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| kept.write(&first, None).unwrap())));
        });
        assert!(kept.run(&spec(), &dry_runner()).is_some());
        for number in 0..MOST_KEPT {
            let other = Kept { key: json!([number]), folder: kept.folder.clone() };
            other.write(&Entry { key: other.key.clone(), ..Entry::default() }, None).unwrap();
        }
        let left = fs::read_dir(&kept.folder).unwrap().count();
        assert_eq!(left, MOST_KEPT, "{left}");
        assert!(kept.run(&spec(), &dry_runner()).is_none(), "the oldest is forgotten");
    }
}
