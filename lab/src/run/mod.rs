//! A run: its fields ([`RunSpec`]), the checked and complete form of them ([`resolve()`] → [`Session`]), and changes to it ([`techniques()`]).
//!
//! ```text
//! flags, TOML, lock files, scans → RunSpec → resolve → Session { network, settings, source, target } → train
//! ```

mod changes;
mod choices;
mod devices;
mod divided;
mod drawn;
mod dry_runner;
mod fields;
mod figures;
#[cfg(feature = "flags")]
pub mod flags;
mod flat;
mod gpu;
mod hand_over;
mod inside;
mod locked;
mod network;
mod plan;
mod premises;
mod profile;
mod release;
mod request_cache;
mod requests;
mod resolve;
mod search;
mod session;
mod spec;
mod target;
mod techniques;
mod tries;
mod variants;
mod with_cudnn;
mod workspaces;

pub use choices::{
    AllocatorName, AttentionName, EvalKeep, LossChoice, OptimizerForm, SizeList, Tf32Choice, Variable, ZeroGrad,
};
pub use devices::{CutList, DeviceList, DeviceName};
pub use divided::Divided;
pub use drawn::Drawn;
pub use dry_runner::DryRunner;
pub use fields::RIVALS;
pub use figures::{Figures, Room};
pub use gpu::Gpu;
pub use hand_over::{HandOver, PythonArguments};
pub use network::Network;
pub use plan::{Allowed, CheckpointChoice, LengthsPlan, LengthsPlanner, OrderRun, Plan, Planned, Planner};
pub use release::UsualRelease;
pub use request_cache::{MadeRun, PlaceKept, RequestsPlace};
pub use resolve::{resolve, target};
pub use search::{Largest, Quantity, Search, WithCudnn, maximum};
pub use session::{OnStep, Session, flow};
pub use spec::{
    AllocatorSpec, BeginSpec, CardSpec, DeviceSpec, KernelSpec, LoopSpec, ModelSpec, ParallelSpec, ProfileSpec,
    RanksSpec, RunSpec, SplitSpec, TrainingSpec,
};
pub use target::Target;
pub use techniques::{Technique, all as techniques};
pub use tries::TrySearch;
pub use variants::DEFAULT_PROFILE;
pub use workspaces::{
    BuiltInWorkspaces, KnowsWorkspaces, NamedWorkspaces, WorkspaceTable, built_in_workspaces, case_numbers,
    packed_workspaces, range_bytes, shares_answers,
};
