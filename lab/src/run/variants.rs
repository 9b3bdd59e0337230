//! Variants of a run on other devices, and the profile that follows from the device.

use lab_base::backends::Entry;
use lab_base::bands::Basis;
use lab_base::beside::Uses;
use lab_base::cards::Card;
use lab_imports::exported;
use lab_models::Recompute;
use memcore::Profile;
use memcore::profile::{ConvolutionWorkspaces, Release};

use super::devices::DeviceName;
use super::gpu::Gpu;
use super::spec::{
    BeginSpec, Convolutions, DeviceSpec, KernelSpec, ModelSpec, ParallelSpec, ProfileSpec, RanksSpec, RunSpec,
};

/// Profile of every run that names neither a card nor a profile.
pub const DEFAULT_PROFILE: &str = "torch-2.11-sm90";

/// Name of the profile of this program's own kernels; a backend's name follows after a colon.
const NATIVE: &str = "native";

/// Note on torch.compile, which no dry run counts. Measured: nanoGPT of 124 million parameters on the real PyTorch 2.11 allocated 9298 MiB compiled and
/// 12757 MiB eager.
const EAGER: &str = "These figures are without torch.compile. With it, nanoGPT needed 27 % less.";

/// Note on adapters of quantized weights without checkpointing (`peft/utils/other.py`).
const PREPARED: &str = "PEFT's prepare_model_for_kbit_training makes activations float32, and turns checkpointing on unless you forbid it: \
    --checkpoint blocks counts it.";

/// Note on checkpointing of 8-bit weights. Rehearsed with peft 0.21 and bitsandbytes 0.50, 8 layers of 1024, batch 4 x 1024: 3,773 MB with
/// `use_reentrant=False`, 2,704 MB with `True`. 4-bit weights take the same either way.
const REENTRANT: &str = "vramlab counts checkpointing with use_reentrant=False, as transformers 5 does it. prepare_model_for_kbit_training alone \
    sets True, which needs less with 8-bit weights (28 % less in a small Llama): vramlab predict train.py counts yours.";

/// Note on a size in place of a card, with the range of all known cards (`CONTEXT` of `lab_base::cards`).
const NO_CONTEXT: &str = "vramlab takes a size as free memory, after a CUDA context (104 to 919 MiB). A card's name counts it: --gpu rtx4090.";

/// Note on a name that two networks have.
const OWN_GPT2: &str = "gpt2 is vramlab's own network (vramlab info gpt2). Hugging Face's is gpt2-small.";

impl RunSpec {
    /// Default profile: in a dry run the card's, of the release that exported the network, if it has one.
    fn default_like(&self) -> &'static str {
        let usual = self.usual_like();
        let of_file = self.model.exporter().and_then(|exporter| {
            let name = format!("torch-{}-sm{}", exporter.counted, sm_of(usual));
            Profile::NAMES.into_iter().find(|known| *known == name)
        });
        of_file.unwrap_or(usual)
    }

    /// Default profile of a network that names no release: in a dry run the card's.
    pub(super) fn usual_like(&self) -> &'static str {
        let card = self.card.gpu.and_then(Gpu::card);
        card.and_then(Card::profile).unwrap_or(DEFAULT_PROFILE)
    }

    /// The profile in force; for a release that is named alone, its profile on the card.
    pub fn like(&self) -> String {
        self.profile.named(self.default_like())
    }

    /// True if the run stands for one of PyTorch.
    pub fn is_torch(&self) -> bool {
        self.like().starts_with("torch-")
    }

    /// What the figures of a dry run include, and what they do not.
    pub fn notes(&self) -> Vec<&'static str> {
        let prepared = self.training.lora.is_some() && (self.model.load_in_4bit || self.model.load_in_8bit);
        let checkpoints = self.model.checkpoint.clone().unwrap_or_default() != Recompute::None;
        let reentrant = self.model.load_in_8bit && checkpoints;
        let is_gpt2 = self.model.model.as_deref() == Some("gpt2");
        let is_size = matches!(self.card.gpu, Some(Gpu::Bytes(_)));
        let notes = [
            (is_gpt2, OWN_GPT2),
            (prepared && !checkpoints, PREPARED),
            (reentrant, REENTRANT),
            (is_size, NO_CONTEXT),
            (self.is_torch(), EAGER),
        ];
        notes.into_iter().filter_map(|(holds, note)| holds.then_some(note)).collect()
    }

    /// Number of the card's multiprocessors, if it is known.
    pub fn multiprocessors(&self) -> Option<u16> {
        let of_card = self.card.gpu.and_then(Gpu::card).map(|card| card.multiprocessors);
        self.profile.multiprocessors.or(of_card)
    }

    /// Returns the run with the smallest context that the card may have; by default the largest counts.
    #[must_use]
    pub fn with_least_context(mut self) -> Self {
        if let Some(Gpu::Card { least_context, .. }) = &mut self.card.gpu {
            *least_context = true;
        }
        self
    }

    /// A dry run of the same with enough memory, still in the card's profile.
    #[must_use]
    pub fn endless(&self) -> Self {
        let mut spec = self.clone();
        spec.profile.like = Some(self.like());
        spec.profile.multiprocessors = self.multiprocessors();
        spec.card.gpu = None;
        (spec.allocator.memory_limit, spec.allocator.memory_fraction) = (None, None);
        spec
    }

    /// Returns the run with the most that cuDNN may need for each convolution besides.
    #[must_use]
    pub(super) fn with_copying_convolutions(mut self) -> Self {
        self.profile.convolutions = Convolutions::Copying;
        self
    }

    /// Returns the run with cuDNN and the workspaces that it named.
    #[must_use]
    pub(super) fn with_workspaces(mut self, workspaces: ConvolutionWorkspaces) -> Self {
        self.profile.convolutions = Convolutions::Named(workspaces);
        self
    }

    /// Returns the run without the workspaces that cuDNN named, which are those of its own sizes alone: a change may have others.
    #[must_use]
    pub(super) fn of_any_sizes(mut self) -> Self {
        if matches!(self.profile.convolutions, Convolutions::Named(_)) {
            self.profile.convolutions = Convolutions::AsProfiled;
        }
        self
    }

    /// A dry run of the same from the beginning, with this much memory, counted as the device would.
    #[must_use]
    pub fn on_paper_in(mut self, bytes: u64) -> Self {
        let mut like = self.like();
        if let (NATIVE, Some(backend)) = (like.as_str(), &self.device.backend) {
            like = format!("{NATIVE}:{backend}");
        }
        (self.profile.like, self.profile.multiprocessors) = (Some(like), self.multiprocessors());
        (self.allocator.memory_limit, self.allocator.memory_fraction) = (None, None);
        self.card.gpu = Some(Gpu::Bytes(bytes));
        (self.device, self.kernels, self.begin) = (DeviceSpec::default(), KernelSpec::default(), BeginSpec::default());
        self
    }

    /// Returns the run on one device; of ranks that communicate, one of them.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { parallel: ParallelSpec::default(), ..self.as_a_rank() }
    }

    /// Returns the run on a card that holds what its ranks need to communicate.
    #[must_use]
    fn as_a_rank(&self) -> Self {
        let mut spec = self.clone();
        if let (true, Some(Gpu::Card { ranks, .. })) = (spec.parallel.has_ranks(), &mut spec.card.gpu) {
            *ranks = true;
        }
        spec
    }

    /// Returns the form on one device, or split over some, of a rank's run.
    #[must_use]
    pub(super) fn undivided(&self) -> Self {
        let split = self.parallel.split.clone();
        Self { parallel: ParallelSpec { split, ranks: RanksSpec::default() }, ..self.as_a_rank() }
    }

    /// The libraries of the run that take memory of their own. `cudnn`: it has convolutions.
    pub fn uses(&self, cudnn: bool) -> Uses {
        let of_rank = matches!(self.card.gpu, Some(Gpu::Card { ranks: true, .. }));
        Uses { cudnn, communicators: (of_rank || self.parallel.has_ranks()).into(), ..Uses::default() }
    }

    /// What decides how far a card may be from the run's figures, if it has no convolutions.
    pub(super) fn basis(&self) -> Basis {
        match self.is_torch() {
            true if self.uses(false).communicators > 0 => Basis::Ranks,
            true => Basis::of_requests(Profile::named(&self.like()).and_then(|profile| profile.compute_capability)),
            false => Basis::Own,
        }
    }

    /// Returns the run on this device alone.
    #[must_use]
    pub fn on(&self, name: &DeviceName, backends: &[Entry]) -> Self {
        let mut spec = self.alone();
        (spec.device.backend, spec.device.device) = (Some(name.backend.clone()), Some(name.number(backends)));
        spec
    }
}

/// The release of PyTorch that exported a network.
pub(super) struct Exporter {
    /// Its version, as the file says it: `2.15.0+cu132`.
    pub version: String,
    /// The release whose rules count: that one, or the newest known one for a newer file.
    pub counted: Release,
}

impl Exporter {
    /// Reads a version; `None` for one that no known release is near.
    fn from_version(version: String) -> Option<Self> {
        let minor: u32 = version.strip_prefix("2.")?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let known = Release::ALL.into_iter().rev().find(|release| release.minor <= minor)?;
        Some(Self { version, counted: known })
    }

    /// True if the release is known itself.
    pub(super) fn is_known(&self) -> bool {
        self.version.starts_with(&format!("{}.", self.counted))
    }
}

impl ModelSpec {
    /// The release that exported the network; `None` for a network that is not an export, or of a file that does not say.
    pub(super) fn exporter(&self) -> Option<Exporter> {
        if let Some(graph) = &self.graph {
            return Exporter::from_version(self.reads.torch_of_graph(graph, &self.shown_name())?);
        }
        let path = self.model_file.as_deref().filter(|path| exported::is_export(path))?;
        Exporter::from_version(self.reads.torch(path)?)
    }
}

/// The digits of a profile's compute capability.
fn sm_of(profile: &str) -> &str {
    profile.rsplit_once("-sm").map_or("90", |(_, sm)| sm)
}

impl From<RanksSpec> for ParallelSpec {
    fn from(ranks: RanksSpec) -> Self {
        Self { ranks, ..Self::default() }
    }
}

impl ParallelSpec {
    /// True if several ranks communicate.
    pub fn has_ranks(&self) -> bool {
        self.ranks.data_parallel.is_some_and(|ranks| ranks > 1)
    }
}

impl ProfileSpec {
    /// The profile's name; `unless` is the default, and gives the card for a release that is named alone.
    fn named(&self, unless: &str) -> String {
        match &self.like {
            None => unless.into(),
            Some(name) if Release::named(name).is_some() => format!("{name}-sm{}", sm_of(unless)),
            Some(name) => name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_counts_no_context_and_says_so() {
        assert!(NO_CONTEXT.contains(&lab_base::cards::CONTEXT.range()), "{}", lab_base::cards::CONTEXT.range());
        let notes = |gpu: &str| {
            let mut spec = RunSpec::default();
            spec.card.gpu = Some(gpu.parse().unwrap());
            spec.notes()
        };
        assert!(notes("24GiB").contains(&NO_CONTEXT));
        assert!(!notes("rtx4090").contains(&NO_CONTEXT));
    }
}
