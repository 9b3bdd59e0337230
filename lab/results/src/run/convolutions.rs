//! What convolutions take where cuDNN computes them, and who says so.

use lab_base::bands::{Basis, Range};
use lab_base::figures::short;
use serde::{Deserialize, Serialize};

/// Where the workspaces of a prediction are from, the surest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceSource {
    /// A card with as many multiprocessors was measured.
    Measured,
    /// cuDNN named them without a card. Of 9,013 on an H200 all were those of the card.
    Asked,
    /// cuDNN named them, and a card may take more for some.
    AskedInARange,
    /// Nobody named them; they are only bounded.
    #[default]
    Bounded,
}

/// What convolutions take besides on a card, where cuDNN computes them: workspaces and a part of the context. Either cuDNN named its
/// workspaces, or they are only bounded. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvolutionBound {
    /// Most that a plan's workspace may take; what cuDNN named, if it did.
    pub workspace_bytes: u64,
    /// Memory that cuDNN takes in the context when it is first used.
    pub context_bytes: u64,
    /// Reserved memory with both, and with what lies free between them.
    pub upper_bytes: u64,
    /// Reserved memory with the workspaces that cuDNN named, and its part of the context; null if it was not asked.
    #[serde(default)]
    pub expected_bytes: Option<u64>,
    /// The cuDNN that named them, as it counts: 91900 is 9.19.0.
    #[serde(default)]
    pub cudnn_version: Option<u32>,
    /// Where the workspaces are from.
    #[serde(default)]
    pub source: WorkspaceSource,
    /// What PyTorch reserves, with how far a card may be from it.
    #[serde(skip)]
    pub reserved: Range,
    /// What decides that.
    #[serde(skip)]
    pub basis: Basis,
}

/// The name of a version of cuDNN as it counts them: 91900 is cuDNN 9.19.
pub(crate) fn cudnn(version: u32) -> String {
    format!("cuDNN {}.{}", version / 10_000, version / 100 % 100)
}

impl ConvolutionBound {
    /// The bound of a run whose workspaces nobody named: it reserves `reserved` bytes without cuDNN, and `copying` if each convolution takes its operands and its
    /// result once more.
    pub fn of_run(workspace_bytes: u64, context_bytes: u64, [reserved, copying]: [u64; 2]) -> Self {
        let (expected_bytes, cudnn_version, source) = (None, None, WorkspaceSource::Bounded);
        let basis = Basis::WorkspacesBounded;
        let band = basis.band();
        let reserved = Range { lower: band.lower(reserved), expected: copying, upper: band.upper(copying) };
        let upper_bytes = reserved.upper.saturating_add(context_bytes);
        Self { workspace_bytes, context_bytes, upper_bytes, expected_bytes, cudnn_version, source, reserved, basis }
    }

    /// The figures of a run with workspaces that cuDNN of a version named: it reserves `expected` bytes, and `most` with all that a card may take for them.
    pub fn of_named(
        (cudnn_version, source, basis): (u32, WorkspaceSource, Basis),
        workspace_bytes: u64,
        context: Range,
        [expected, most]: [u64; 2],
    ) -> Self {
        let (reserved, context_bytes) = (basis.range(expected, most), context.upper);
        let upper_bytes = reserved.upper.saturating_add(context_bytes);
        let expected_bytes = Some(expected.saturating_add(context.expected));
        let cudnn_version = Some(cudnn_version);
        Self { workspace_bytes, context_bytes, upper_bytes, expected_bytes, cudnn_version, source, reserved, basis }
    }

    /// Says what the upper figure consists of.
    pub(super) fn in_words(&self) -> String {
        let context = match self.context_bytes {
            0 => String::new(),
            bytes => format!(", and {} in the CUDA context", short(bytes)),
        };
        if let Some(version) = self.cudnn_version {
            let needed = match self.source {
                WorkspaceSource::Measured => format!("{} on an H200 needed", cudnn(version)),
                _ => format!("{} says that it needs", cudnn(version)),
            };
            return format!("{needed} up to {} for a convolution{context}.", short(self.workspace_bytes));
        }
        format!(
            "Nobody asked cuDNN what it needs: up to {} for a convolution, pieces that its workspaces leave free{context}. `--cudnn ask` asks the cuDNN of your PyTorch, without a card.",
            short(self.workspace_bytes)
        )
    }
}
