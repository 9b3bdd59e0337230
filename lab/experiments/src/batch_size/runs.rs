//! Runs of the first article's network, with their predictions.

use lab_analysis::predict::Network;
use lab_base::error::Result;
use memcore::Profile;

use crate::session::{Sample, Session, StepRecord, moment};
use crate::{Measurement, Setup};

/// A program for one device.
pub(super) struct Plan {
    /// Name in tables and rows.
    pub(super) name: String,
    /// Batches of the steps; one list for each model.
    pub(super) stages: Vec<Vec<usize>>,
}

impl Plan {
    pub(super) fn fresh(batch: usize, steps: usize) -> Self {
        Self { name: format!("{batch}"), stages: vec![vec![batch; steps]] }
    }

    /// One batch size after the other; each size builds the model anew.
    pub(super) fn stages(batches: &[usize], steps: usize) -> Self {
        let names: Vec<String> = batches.iter().map(usize::to_string).collect();
        Self { name: names.join("→"), stages: batches.iter().map(|&batch| vec![batch; steps]).collect() }
    }

    /// One model whose epochs end with a smaller batch.
    pub(super) fn changing(large: usize, small: usize, epochs: usize) -> Self {
        Self {
            name: format!("({large},{large},{small})×{epochs}"), stages: vec![[large, large, small].repeat(epochs)]
        }
    }

    /// One pass over `examples` examples. The last batch has the remaining examples.
    pub(super) fn epoch(batch: usize, examples: usize) -> Self {
        let mut batches = vec![batch; examples / batch];
        batches.extend(Some(examples % batch).filter(|&rest| rest > 0));
        Self { name: format!("epoch of {examples} in {batch}"), stages: vec![batches] }
    }
}

/// Measurements of a run.
pub(super) struct Run {
    /// Name in tables and rows.
    pub(super) name: String,
    /// True if the network is the experiment's own.
    own: bool,
    /// Steps of each stage.
    pub(super) stages: Vec<Vec<StepRecord>>,
    /// All samples in order, including those between the stages.
    pub(super) moments: Vec<Sample>,
    /// Sample at the end of each stage, before the model is dropped.
    pub(super) ends: Vec<Sample>,
    /// Sample after everything was dropped.
    pub(super) dropped: Sample,
    profile: Profile,
}

impl Run {
    /// Most allocated bytes.
    pub(super) fn peak(&self) -> u64 {
        self.steps().map(|step| step.peak.allocated_bytes).max().unwrap_or(0)
    }

    /// Most reserved bytes.
    pub(super) fn reserved(&self) -> u64 {
        self.steps().map(|step| step.reserved_peak).max().unwrap_or(0)
    }

    /// Bytes that are reserved but not allocated at the end.
    pub(super) fn cached(&self) -> u64 {
        self.ends.last().map_or(0, |end| end.row.reserved - end.row.allocated)
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &StepRecord> {
        self.stages.iter().flatten()
    }

    /// Number of graph nodes made in all steps: each step makes its graph anew.
    pub(super) fn nodes_made(&self) -> u64 {
        self.steps().map(|step| step.nodes).sum()
    }

    /// Most graph nodes of one step, which are alive at one time.
    pub(super) fn nodes_alive(&self) -> u64 {
        self.steps().map(|step| step.nodes).max().unwrap_or(0)
    }

    /// Bytes requested and held after a step with this batch; `None` without a closed form.
    fn held(&self, batch: usize) -> Option<u64> {
        Some(Network::SIMPLE_CNN.held(batch, &self.profile).filter(|_| self.own)?.total())
    }

    /// Host memory of the graph nodes that are alive at one time.
    pub(super) fn graph_bytes(&self) -> u64 {
        self.steps().map(|step| step.graph_host_bytes).max().unwrap_or(0)
    }
}

/// Runs a plan on a fresh device.
pub(super) fn run(setup: &Setup<'_>, plan: &Plan) -> Result<Run> {
    let device = (setup.open)()?;
    let mut stages = Vec::new();
    let mut ends = Vec::new();
    let mut moments = Vec::new();
    for (k, batches) in plan.stages.iter().enumerate() {
        let tag = if plan.stages.len() > 1 { format!("{k}:b{}.", batches[0]) } else { String::new() };
        device.reset_peak_stats();
        let mut session = Session::asked(&device, setup)?;
        moments.push(session.moment(format!("{tag}model")));
        let mut steps = Vec::new();
        for (i, &batch) in batches.iter().enumerate() {
            let step = session.whole_step(&format!("{tag}e{i}"), batch)?;
            moments.extend(step.moments.iter().cloned());
            steps.push(step);
        }
        ends.push(session.moment(format!("{tag}trained")));
        stages.push(steps);
        drop(session);
        moments.push(moment(&device, format!("{tag}dropped")));
    }
    let dropped = moment(&device, "dropped");
    let profile = device.profile().clone();
    Ok(Run { name: plan.name.clone(), own: setup.model.is_none(), stages, moments, ends, dropped, profile })
}

/// Returns the row of the whole run.
pub(super) fn summary(run: &Run) -> Measurement {
    let mut m = Measurement::with_setting([("run", run.name.clone().into())]);
    let end = &run.ends[run.ends.len() - 1].row;
    m.measure("peak_bytes", run.peak());
    m.measure("reserved_bytes", run.reserved());
    m.measure("allocated_bytes", end.allocated);
    m.measure("cached_bytes", run.cached());
    m.measure("inactive_split_bytes", end.inactive_split);
    m.measure("dropped_allocated_bytes", run.dropped.row.allocated);
    m.measure("dropped_reserved_bytes", run.dropped.row.reserved);
    m.measure("graph_nodes_alive", run.nodes_alive());
    m.measure("graph_nodes_made", run.nodes_made());
    m.measure("graph_host_bytes", run.graph_bytes());
    m.measure("requested_bytes", end.requested);
    if run.own {
        let nodes = Network::SIMPLE_CNN.nodes;
        m.predict("graph_nodes_alive", nodes);
        m.predict("graph_nodes_made", nodes * run.steps().count() as u64);
    }
    if let Some(bytes) = run.steps().last().and_then(|last| run.held(last.batch)) {
        m.predict("requested_bytes", bytes);
    }
    m
}

/// Returns a row for every step: bytes allocated after each phase, peak of the step, graph nodes.
pub(super) fn by_step(run: &Run) -> Vec<Measurement> {
    let mut rows = Vec::new();
    for (stage, steps) in run.stages.iter().enumerate() {
        for (i, step) in steps.iter().enumerate() {
            let setting = [
                ("run", run.name.clone().into()),
                ("stage", stage.into()),
                ("step", i.into()),
                ("batch", step.batch.into()),
            ];
            let mut m = Measurement::with_setting(setting);
            for moment in &step.moments {
                let phase = moment.row.label.rsplit('.').next().unwrap_or("");
                m.measure(&format!("after_{phase}_bytes"), moment.row.allocated);
            }
            m.measure("requested_bytes", step.moments.last().map_or(0, |moment| moment.row.requested));
            run.held(step.batch).into_iter().for_each(|bytes| m.predict("requested_bytes", bytes));
            m.measure("peak_bytes", step.peak.allocated_bytes);
            m.measure("reserved_bytes", step.reserved_peak);
            m.measure("graph_host_bytes", step.graph_host_bytes);
            rows.push(m);
        }
    }
    rows
}
