//! Variants of a run on other devices, and the profile that follows from the device.

use lab_base::backends::Entry;
use lab_base::cards::Card;
use memcore::profile::Release;

use super::devices::DeviceName;
use super::gpu::Gpu;
use super::spec::{BeginSpec, DeviceSpec, ParallelSpec, ProfileSpec, RunSpec};

/// Profile of every run that names neither a card nor a profile.
pub const DEFAULT_PROFILE: &str = "torch-2.11-sm90";

/// What this program's own kernels take; of a backend, with a colon between.
const NATIVE: &str = "native";

/// What is not represented, and by how much it may differ: nanoGPT of 124 million parameters on the real PyTorch 2.11, compiled, allocated 9298 MiB where it
/// allocates 12757 MiB otherwise.
const EAGER: &str = "Eager PyTorch; torch.compile is not represented (nanoGPT took 27 % less).";

impl RunSpec {
    /// Default profile: the card's, on paper.
    fn default_like(&self) -> &'static str {
        let card = self.device.gpu.and_then(Gpu::card);
        card.and_then(Card::profile).unwrap_or(DEFAULT_PROFILE)
    }

    /// The profile in force; of a release that is named without a card, that card's.
    pub fn like(&self) -> String {
        self.profile.named(self.default_like())
    }

    /// Whether the run stands for one of PyTorch.
    pub fn is_torch(&self) -> bool {
        self.like().starts_with("torch-")
    }

    /// What the figures of a run on paper include, and what they do not.
    pub fn notes(&self) -> Vec<&'static str> {
        if self.is_torch() { vec![EAGER] } else { Vec::new() }
    }

    /// Number of the card's multiprocessors, if it is known.
    pub fn multiprocessors(&self) -> Option<u16> {
        let of_card = self.device.gpu.and_then(Gpu::card).map(|card| card.multiprocessors);
        self.profile.multiprocessors.or(of_card)
    }

    /// Returns the run with the smallest context that the card may have; by default the largest counts.
    #[must_use]
    pub fn with_least_context(mut self) -> Self {
        if let Some(Gpu::Card { least_context, .. }) = &mut self.device.gpu {
            *least_context = true;
        }
        self
    }

    /// The same on paper with memory enough, in the card's profile all the same.
    #[must_use]
    pub fn endless(&self) -> Self {
        let mut spec = self.clone();
        spec.profile.like = Some(self.like());
        spec.profile.multiprocessors = self.multiprocessors();
        spec.device.gpu = None;
        (spec.allocator.memory_limit, spec.allocator.memory_fraction) = (None, None);
        spec
    }

    /// The same from the beginning on paper, with so much memory, as the device would count it.
    #[must_use]
    pub fn on_paper_in(mut self, bytes: u64) -> Self {
        let mut like = self.like();
        if let (NATIVE, Some(backend)) = (like.as_str(), &self.device.backend) {
            like = format!("{NATIVE}:{backend}");
        }
        (self.profile.like, self.profile.multiprocessors) = (Some(like), self.multiprocessors());
        (self.allocator.memory_limit, self.allocator.memory_fraction) = (None, None);
        (self.device, self.begin) =
            (DeviceSpec { gpu: Some(Gpu::Bytes(bytes)), ..DeviceSpec::default() }, BeginSpec::default());
        self
    }

    /// Returns the run on one device.
    #[must_use]
    pub fn alone(&self) -> Self {
        Self { parallel: ParallelSpec::default(), ..self.clone() }
    }

    /// Returns the run on this device alone.
    #[must_use]
    pub fn on(&self, name: &DeviceName, backends: &[Entry]) -> Self {
        let mut spec = self.alone();
        (spec.device.backend, spec.device.device) = (Some(name.backend.clone()), Some(name.number(backends)));
        spec
    }
}

impl ProfileSpec {
    /// The profile's name; `unless` said, and of a release that is named without a card that one's.
    fn named(&self, unless: &str) -> String {
        match &self.like {
            None => unless.into(),
            Some(name) if Release::named(name).is_some() => {
                let sm = unless.rsplit_once("-sm").map_or("90", |(_, sm)| sm);
                format!("{name}-sm{sm}")
            }
            Some(name) => name.clone(),
        }
    }
}
