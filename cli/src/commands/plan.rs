//! A run that is ready, with the outputs to be written.

use lab::record::RowsKept;
use lab::run::{DryRunner, RunSpec, Session, resolve};

use super::snapshot::format_of;
use super::weights::{self, Weights};
use crate::args::{ExportArgs, HtmlArgs, OutputArgs, PredictArgs, RecordArgs, SnapshotFormat, TrainArgs};
use crate::backends;
use crate::destination::Destination;
use crate::exit::Result;
use crate::interrupt;
use crate::ui::Ui;

pub(super) struct Plan {
    /// Settings as requested.
    pub spec: RunSpec,
    /// Session made from the settings.
    pub session: Session,
    /// Destination of the events.
    pub events: Option<Destination>,
    /// Destination of the snapshot, and its format.
    pub snapshot: Option<(Destination, SnapshotFormat)>,
    /// True if PyTorch's table is requested.
    pub summary: bool,
    /// True if PyTorch's counters are requested.
    pub stats: bool,
    /// Exports of the history for other programs.
    pub exports: ExportArgs,
    /// Destination of the page.
    pub page: HtmlArgs,
    /// Files of weights and state to begin with and to save.
    pub weights: Weights,
}

/// Makes a session on the devices of this build, and prints remarks on what was chosen.
///
/// # Errors
/// Settings that cannot work; an absent device.
pub(super) fn session(spec: &RunSpec, ui: &Ui) -> Result<Session> {
    let session = resolve(spec, backends::all())?;
    session.remarks.iter().for_each(|remark| ui.remark(remark));
    Ok(session)
}

/// Makes a dry run, until Ctrl-C.
pub(super) fn dry_runner() -> DryRunner<'static> {
    DryRunner::new(backends::all(), &interrupt::asked)
}

impl Plan {
    /// Plans `train`; `spec` is its run, or a point of its scan.
    ///
    /// # Errors
    /// Settings that cannot work; an absent device.
    pub(super) fn train(args: &TrainArgs, spec: RunSpec, ui: &Ui) -> Result<Self> {
        weights::check(&args.save)?;
        let (spec, note) = weights::under_its_profile(spec)?;
        let mut plan = Self::from_spec(&spec, &args.record, ui)?;
        plan.session.notes.extend(note);
        Ok(Self { weights: Weights::new(&spec, &args.save), ..plan })
    }

    /// Plans `predict`; `spec` is its run, or a point of its scan.
    pub(super) fn predict(args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Self> {
        Self::from_spec(spec, &args.record, ui)
    }

    /// Plans a dry run without further outputs.
    pub(super) fn dry(spec: &RunSpec, ui: &Ui) -> Result<Self> {
        Ok(Self::from_spec(spec, &RecordArgs::default(), ui)?.rows_for(&OutputArgs::default()))
    }

    fn from_spec(spec: &RunSpec, record: &RecordArgs, ui: &Ui) -> Result<Self> {
        let RecordArgs { events, snapshot, summary, stats, exports } = record.clone();
        let kept = events.is_some() || snapshot.is_some() || exports.any();
        let session = session(spec, ui)?;
        let session = if kept { session.with_history() } else { session };
        let snapshot = match snapshot {
            Some(out) => Some((out.clone(), format_of(&out, None)?)),
            None => None,
        };
        let (page, weights) = (HtmlArgs::default(), Weights::default());
        Ok(Self { spec: spec.clone(), session, events, snapshot, summary, stats, exports, page, weights })
    }

    /// Keeps every event of the run.
    pub(super) fn with_history(self) -> Self {
        Self { session: self.session.with_history(), ..self }
    }

    /// Keeps what a page needs.
    pub(super) fn for_page(self, page: &HtmlArgs) -> Self {
        let plan = Self { page: page.clone(), ..self };
        if plan.page.html.is_some() { plan.with_history() } else { plan }
    }

    /// Keeps the figures of every step only if they are to be written: those of a long run take more memory than all else.
    pub(super) fn rows_for(mut self, output: &OutputArgs) -> Self {
        self.session.run.rows = if self.writes_steps(output) { RowsKept::Every } else { RowsKept::Ends };
        self
    }

    /// True if a file is to contain every step, or the events in it.
    pub(super) fn writes_steps(&self, output: &OutputArgs) -> bool {
        let further =
            self.events.is_some() || self.snapshot.is_some() || self.exports.any() || self.page.html.is_some();
        further || output.destinations().next().is_some()
    }
}
