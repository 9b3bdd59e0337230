//! Results of the commands, as data: a struct for each schema, which defines its sections once.
//!
//! This crate makes results of the findings of the crates below it. The JSON of a result is the struct's fields after the schema; its
//! sections are shown on a terminal, on a page, in Markdown and in CSV. [`report`] makes pages of sections and of histories of allocations, and exports for
//! other programs.

mod bench;
mod cards;
mod check;
mod chosen;
mod claims;
pub mod command;
mod device;
mod estimate;
mod experiment;
mod experiment_picture;
mod experiment_scan;
mod explain;
mod findings;
mod fit;
mod list;
mod merge;
mod models;
mod monitor;
mod network;
mod on_card;
mod other_devices;
mod plan;
mod plan_cards;
mod plan_hand_over;
mod plan_lengths;
mod premise;
mod rehearsal;
mod rehearsal_exactness;
mod rehearsal_files;
mod rehearsal_growth;
mod rehearsal_growth_words;
mod rehearsal_on_card;
mod rehearsal_out_of_memory;
mod rehearsal_phases;
mod rehearsal_scan;
mod rehearsal_sections;
mod replay;
pub mod report;
mod requests_diff;
mod run;
mod scan;
mod self_check;
mod shard;
mod snapshot;
mod snapshot_diff;
mod technique_words;
mod tune;
pub mod view;
mod watch;
mod what_if;

pub use bench::{BenchResult, BenchedAllocator, BenchedDevice, BenchedKernel, DeviceFigures};
pub use cards::{CardResult, Cards, room};
pub use check::{CheckResult, CheckedRun};
pub use chosen::{ChosenInput, ChosenNetwork};
pub use claims::ClaimsResult;
pub use device::{DeviceInfo, Devices, SeenDevice};
pub use estimate::{EstimateResult, EstimatedRange};
pub use experiment::ExperimentResult;
pub use experiment_scan::{ExperimentPoint, ExperimentScanResult};
pub use explain::ExplainResult;
pub use findings::{Findings, Settings};
pub use fit::FitResult;
pub use list::{ListResult, ListedClaim, ListedExperiment};
pub use merge::{Merged, Whole, merge};
pub use models::{ListedModel, ModelsResult};
pub use monitor::{MonitorResult, RunStatus};
pub use network::{ModuleResult, NetworkResult, OperatorResult};
pub use on_card::{Held, OnCard, PartOnCard};
pub use other_devices::{ChosenDevice, OtherDevice};
pub use plan::{PlannedResult, TrainingPlan, plan_settings};
pub use plan_cards::{CardPlan, CardPlans};
pub use plan_hand_over::{HandedFile, HandedOver, NotHanded};
pub use plan_lengths::{LengthOrder, LengthsPlanResult};
pub use premise::{Premise, line as premise_line};
pub use rehearsal::{
    ASKED_IN_A_RANGE, ASKED_OF_ONE_CAPABILITY, AtPeak, Inexact, LATE_EVENTS, NotAsOnACard, PeakShares, RehearsalResult,
    RehearsedGpu, RehearsedNeeds, RehearsedOom, RehearsedPhase, RehearsedProtection, RehearsedRank, RehearsedWorld,
    TOGETHER, UnknownRead,
};
pub use rehearsal_growth::{GrowingLine, RehearsedGrowth, SeldomLine};
pub use rehearsal_growth_words::open_growth;
pub use rehearsal_scan::{LargestValue, LawPiece, RehearsalPoint, RehearsalScanResult};
pub use replay::{PolicyResult, ReplayResult};
pub use requests_diff::{LivesLonger, PlaceResult, RequestResult, RequestsDiff};
pub use run::{
    AS_IT_IS, AccuracyResult, ByCategory, CheckpointRow, Checkpoints, ConvolutionBound, DataParallelFigures,
    FailedRequest, Needed, NeedsResult, OutOfMemoryResult, OverheadPart, OverheadsResult, PeakResult, Prediction,
    RankResult, RingBytes, ScopeBytes, SentBytes, StageResult, StatesResult, TIGHT, TechniqueResult, TopScope,
    TrainResult, WorkspaceSource, by_category,
};
pub use scan::{Point, PointOnCard, Predicted, ScanResult};
pub use self_check::SelfCheck;
pub use shard::Shard;
pub use snapshot::{
    CategoryResult, GrowingStack, HeldResult, HeldSum, LineResult, Looked, MomentResult, NamedRange, OperatorBytes,
    PeakOfTrace, SegmentResult, SnapshotOom, SnapshotResult, TotalsResult,
};
pub use snapshot_diff::{ChangedStack, SnapshotDiff};
pub use tune::TuneResult;
pub use watch::{PredictedPeaks, WatchResult, Watched, WatchedGrowth, WatchedOom};
pub use what_if::WhatIfResult;

use lab_base::error::{Error, Result};
use lab_base::section::Section;
use serde_json::Value;

/// Reads a result and returns its title and sections.
type Reader = fn(&Value) -> serde_json::Result<(String, Vec<Section>)>;

/// Readers for every kind of result that can be read back.
const READERS: &[(&str, Reader)] = &[
    (BenchResult::SCHEMA, shown::<BenchResult>),
    (Cards::SCHEMA, shown::<Cards>),
    (CardPlans::SCHEMA, shown::<CardPlans>),
    (LengthsPlanResult::SCHEMA, shown::<LengthsPlanResult>),
    (CheckResult::SCHEMA, shown::<CheckResult>),
    (ClaimsResult::SCHEMA, shown::<ClaimsResult>),
    (Devices::SCHEMA, shown::<Devices>),
    (EstimateResult::SCHEMA, shown::<EstimateResult>),
    (ExperimentResult::SCHEMA, shown::<ExperimentResult>),
    (ExperimentScanResult::SCHEMA, shown::<ExperimentScanResult>),
    (ExplainResult::SCHEMA, shown::<ExplainResult>),
    (FitResult::SCHEMA, shown::<FitResult>),
    (ListResult::SCHEMA, shown::<ListResult>),
    (ModelsResult::SCHEMA, shown::<ModelsResult>),
    (NetworkResult::SCHEMA, shown::<NetworkResult>),
    (TrainingPlan::SCHEMA, shown::<TrainingPlan>),
    (RehearsalResult::SCHEMA, shown::<RehearsalResult>),
    (RehearsalScanResult::SCHEMA, shown::<RehearsalScanResult>),
    (ReplayResult::SCHEMA, shown::<ReplayResult>),
    (ScanResult::SCHEMA, shown::<ScanResult>),
    (SnapshotResult::SCHEMA, shown::<SnapshotResult>),
    (SnapshotDiff::SCHEMA, shown::<SnapshotDiff>),
    (TrainResult::SCHEMA, shown::<TrainResult>),
];

fn shown<F: Findings>(value: &Value) -> serde_json::Result<(String, Vec<Section>)> {
    let found = F::deserialize(value)?;
    Ok((found.title(), found.sections()))
}

/// Names of the schemas that can be read back.
pub fn schemas() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(schema, _)| *schema)
}

/// Title and sections of a result that was written to a file.
///
/// # Errors
/// [`Error::Usage`] naming a missing field, or an unknown schema.
pub fn read(value: &Value) -> Result<(String, Vec<Section>)> {
    let schema = value["schema"].as_str().unwrap_or_default();
    let reader = READERS.iter().find(|(known, _)| *known == schema).map(|(_, reader)| reader);
    let reader = reader.ok_or_else(|| Error::usage("report", format!("results of kind {schema:?} are not shown")))?;
    reader(value).map_err(|error| Error::usage(schema, error.to_string()))
}
