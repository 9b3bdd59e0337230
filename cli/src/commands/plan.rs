//! A run that is ready, and what is to be written of it.

use lab::record::RowsKept;
use lab::run::{Paper, RunSpec, Session, resolve};

use super::snapshot::format_of;
use super::weights;
use crate::args::{ExportArgs, HtmlArgs, OutputArgs, PredictArgs, RecordArgs, SnapshotFormat, TrainArgs, WeightsArgs};
use crate::backends;
use crate::destination::Destination;
use crate::exit::Result;
use crate::interrupt;
use crate::ui::Ui;

pub(super) struct Plan {
    /// What was asked for.
    pub spec: RunSpec,
    /// What that comes to.
    pub session: Session,
    /// Where the events go.
    pub events: Option<Destination>,
    /// Where the snapshot goes, and how.
    pub snapshot: Option<(Destination, SnapshotFormat)>,
    /// Whether PyTorch's table is wanted.
    pub summary: bool,
    /// Whether PyTorch's counters are wanted.
    pub stats: bool,
    /// What happened to memory, for other programs.
    pub exports: ExportArgs,
    /// Where the page goes.
    pub page: HtmlArgs,
    /// Where it begins, and where it leaves its state.
    pub weights: WeightsArgs,
}

/// A run on the devices of this build. Says what should be said of the choice.
///
/// # Errors
/// Settings that cannot work; a device that is absent.
pub(super) fn session(spec: &RunSpec, ui: &Ui) -> Result<Session> {
    let session = resolve(spec, backends::all())?;
    session.remarks.iter().for_each(|remark| ui.remark(remark));
    Ok(session)
}

/// Runs on paper, until Ctrl-C.
pub(super) fn on_paper() -> Paper<'static> {
    Paper { backends: backends::all(), stop: &interrupt::asked }
}

impl Plan {
    /// `train`; `spec` is its run, or a point of its scan.
    ///
    /// # Errors
    /// Settings that cannot work; a device that is absent.
    pub(super) fn train(args: &TrainArgs, spec: RunSpec, ui: &Ui) -> Result<Self> {
        weights::check(&args.weights)?;
        let (spec, note) = weights::under_its_profile(spec)?;
        let mut plan = Self::of(&spec, &args.record, ui)?;
        plan.session.notes.extend(note);
        Ok(Self { weights: weights::of(&spec, &args.weights), ..plan })
    }

    /// `predict`; `spec` is its run, or a point of its scan.
    pub(super) fn predict(args: &PredictArgs, spec: &RunSpec, ui: &Ui) -> Result<Self> {
        Self::of(spec, &args.record, ui)
    }

    fn of(spec: &RunSpec, record: &RecordArgs, ui: &Ui) -> Result<Self> {
        let RecordArgs { events, snapshot, summary, stats, exports } = record.clone();
        let kept = events.is_some() || snapshot.is_some() || exports.any();
        let session = session(spec, ui)?;
        let session = if kept { session.with_history() } else { session };
        let snapshot = match snapshot {
            Some(out) => Some((out.clone(), format_of(&out, None)?)),
            None => None,
        };
        let (page, weights) = (HtmlArgs::default(), WeightsArgs::default());
        Ok(Self { spec: spec.clone(), session, events, snapshot, summary, stats, exports, page, weights })
    }

    /// The same, keeping every event on the way.
    pub(super) fn with_history(self) -> Self {
        Self { session: self.session.with_history(), ..self }
    }

    /// The same, shown on a page.
    pub(super) fn for_page(self, page: &HtmlArgs) -> Self {
        let plan = Self { page: page.clone(), ..self };
        if plan.page.html.is_some() { plan.with_history() } else { plan }
    }

    /// Keeps the figures of every step only where they are to be written: those of a long run take more memory than all else.
    pub(super) fn rows_for(mut self, output: &OutputArgs) -> Self {
        self.session.run.rows = if self.writes_steps(output) { RowsKept::Every } else { RowsKept::Ends };
        self
    }

    /// Whether a file is to have every step, or what happened in it.
    pub(super) fn writes_steps(&self, output: &OutputArgs) -> bool {
        let further =
            self.events.is_some() || self.snapshot.is_some() || self.exports.any() || self.page.html.is_some();
        further || output.destinations().next().is_some()
    }
}
