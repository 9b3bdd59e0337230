//! Who tells a prediction the workspaces of cuDNN: a file of earlier answers, and the cuDNN of the user's PyTorch.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::python::{Python, of_process};
use lab::run::{KnowsWorkspaces, WorkspaceTable, built_in_workspaces};
use memcore::profile::ConvolutionCase;

use crate::args::{AskCudnn, ONLY_BUILT_IN};
use crate::cache;
use crate::exit::Result;
use crate::file_lock::FileLock;
use crate::ui::Ui;
use crate::whole_file::WholeFile;

/// Largest file of answers that is read.
const MAX_BYTES: u64 = 64 << 20;

/// What a command knows of cuDNN, and whom it asks.
pub(crate) struct Workspaces<'a> {
    asks: AskCudnn,
    /// True if no process may be started.
    starts_nothing: bool,
    /// The Python that `--python` names.
    named: Option<&'a Path>,
    /// The release of PyTorch that is installed for the Python that would be used.
    torch: Option<String>,
    ui: &'a Ui,
    /// True once somebody was asked and did not answer.
    failed: AtomicBool,
    /// What the file has, and what was answered since, by compute capability.
    answered: Mutex<BTreeMap<u32, Option<WorkspaceTable>>>,
}

impl<'a> Workspaces<'a> {
    /// Finds the PyTorch that would be asked; none is started. `named`: the Python that a flag names.
    ///
    /// # Errors
    /// A name that does not lead to a Python.
    pub(crate) fn new(asks: AskCudnn, named: Option<&'a Path>, ui: &'a Ui) -> Result<Self> {
        let torch = Python::find(named, &of_process)?.and_then(|python| python.version_of("torch"));
        let starts_nothing = std::env::var_os(ONLY_BUILT_IN).is_some();
        Ok(Self { asks, starts_nothing, named, torch, ui, failed: AtomicBool::new(false), answered: Mutex::default() })
    }

    /// What tables and the file of earlier answers know, which is all without a process.
    ///
    /// # Errors
    /// A variable of the environment that does not lead to a Python.
    pub(crate) fn without_a_process(ui: &'a Ui) -> Result<Self> {
        Ok(Self { starts_nothing: true, ..Self::new(AskCudnn::Auto, None, ui)? })
    }

    /// The file of what this PyTorch's cuDNN answered for a compute capability; `None` without a PyTorch or a folder for such files.
    fn file(&self, sm: u32) -> Option<PathBuf> {
        let torch = self.torch.as_ref()?;
        Some(cache::folder()?.join(format!("cudnn-torch-{torch}-sm{sm}.json")))
    }

    fn read(&self, sm: u32) -> Option<WorkspaceTable> {
        let path = self.file(sm)?;
        let is_file = path.metadata().is_ok_and(|file| file.is_file() && file.len() <= MAX_BYTES);
        let text = if is_file { fs::read_to_string(path).ok()? } else { return None };
        WorkspaceTable::read(&text)
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<u32, Option<WorkspaceTable>>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds answers to those of this command and of the file. A file that cannot be written loses nothing but time.
    fn keep(&self, sm: u32, answers: WorkspaceTable) {
        let mut tables = self.tables();
        let path = self.file(sm);
        let lock = path.as_ref().and_then(|path| {
            path.parent().map(fs::create_dir_all);
            FileLock::acquire(path).ok()
        });
        // Another command may have added to it.
        let mut table = self.read(sm).unwrap_or_default();
        tables.remove(&sm).flatten().into_iter().chain([answers]).for_each(|more| table.add(more));
        if let (Some(path), Some(_)) = (path, &lock) {
            let written = WholeFile::beside(&path).and_then(|mut file| {
                file.file().write_all(table.write().as_bytes())?;
                file.appear(&path)
            });
            let _ = written;
        }
        tables.insert(sm, Some(table));
    }
}

impl KnowsWorkspaces for Workspaces<'_> {
    fn known(&self, sm: u32) -> Option<WorkspaceTable> {
        if self.asks == AskCudnn::None {
            return None;
        }
        let answered = self.tables().entry(sm).or_insert_with(|| self.read(sm)).clone();
        let built_in = built_in_workspaces(sm);
        match (answered, built_in) {
            (Some(answered), Some(mut table)) if answered.cudnn == table.cudnn => {
                table.add(answered);
                Some(table)
            }
            (answered, built_in) => answered.or(built_in),
        }
    }

    fn asks(&self, decides: bool) -> bool {
        match self.asks {
            AskCudnn::None => false,
            AskCudnn::Ask => true,
            AskCudnn::Auto => {
                let may = cfg!(target_os = "linux") && !self.starts_nothing;
                may && decides && self.torch.is_some() && !self.failed.load(Ordering::Relaxed)
            }
        }
    }

    fn ask(&self, sm: u32, cases: &[ConvolutionCase]) -> lab::Result<Option<WorkspaceTable>> {
        if self.starts_nothing {
            return Err(lab::Error::usage(
                "cudnn",
                format!("ask starts a Python, which {ONLY_BUILT_IN} forbids; leave it out"),
            ));
        }
        let answered = lab::python::interpreter(self.named, &of_process).and_then(|python| {
            self.ui.tell(format!("asking cuDNN of {} about {} convolutions", python.display(), cases.len()));
            ask(&python, sm, cases)
        });
        match answered {
            Ok(answers) => {
                let unnamed = cases.iter().filter(|case| answers.named(case).is_none()).count();
                if unnamed > 0 {
                    self.ui.tell(format!(
                        "cuDNN plans {unnamed} of them only on a card, so the answer has a bound instead"
                    ));
                }
                self.keep(sm, answers);
                Ok(self.known(sm))
            }
            Err(error) if self.asks == AskCudnn::Ask || matches!(error, lab::Error::Interrupted) => Err(error),
            Err(error) => {
                self.failed.store(true, Ordering::Relaxed);
                self.ui.tell(format!("cuDNN was not asked: {error}"));
                Ok(None)
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn ask(python: &Path, sm: u32, cases: &[ConvolutionCase]) -> lab::Result<WorkspaceTable> {
    use lab::rehearse::{RequestedCard, ask_cudnn};

    // Cards of one capability share an answer; the one with the most multiprocessors has the widest range.
    ask_cudnn(python, &RequestedCard::of_capability(sm), cases)
}

#[cfg(not(target_os = "linux"))]
fn ask(python: &Path, _: u32, _: &[ConvolutionCase]) -> lab::Result<WorkspaceTable> {
    Err(lab::Error::host(python.display().to_string(), "rehearsals need Linux"))
}
