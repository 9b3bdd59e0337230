//! What a loop does between its steps, and what it holds from one to the next.

use std::fmt;
use std::str::FromStr;

use lab_base::error::{Error, Result};
use lab_base::{as_text, named};
use memcore::autograd::{KeptOp, KeptOps, KeptOpsGuard, SavedHooksGuard, save_on_cpu};
use memcore::device::HostKind;
use serde::Serialize;

/// An evaluation after every few steps: some batches under `torch.no_grad()` and `model.eval()`, in a function of its own.
///
/// ```python
/// def evaluate():
///     model.eval()
///     with torch.no_grad():
///         for _ in range(batches):
///             x = inputs(); y = targets(); out = model(x); loss = criterion(out, y); total += loss.item()
///     model.train()
/// ```
///
/// The names of the loop keep their values meanwhile; those of the function end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    /// Steps from one evaluation to the next.
    pub every: usize,
    /// Examples of each batch.
    pub batch: usize,
    /// Number of batches.
    pub batches: usize,
    /// True if the results of all batches live until the evaluation ends.
    pub keeps_results: bool,
}

impl Evaluation {
    /// # Errors
    /// [`Error::Usage`] for an evaluation of nothing.
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [("eval-every", self.every), ("eval-batch", self.batch), ("eval-steps", self.batches)];
        match sizes.into_iter().find(|(_, size)| *size == 0) {
            Some((field, _)) => Err(Error::usage(field, "must be at least 1")),
            None => Ok(()),
        }
    }
}

/// Memory of the host that keeps what forward saves for backward: `torch.autograd.graph.save_on_cpu` around a forward pass and its loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedOn {
    /// `pin_memory=False`
    Pageable,
    /// `pin_memory=True`
    Pinned,
}

named!(SavedOn, "memory of the host", { Pageable = "pageable", Pinned = "pinned" });

impl SavedOn {
    /// Begins a forward pass whose saved values go to the host until this is dropped.
    pub(super) fn enter(self) -> SavedHooksGuard {
        save_on_cpu(match self {
            Self::Pageable => HostKind::Pageable,
            Self::Pinned => HostKind::Pinned,
        })
    }
}

/// The operators whose results blocks keep that are computed again: `create_selective_checkpoint_contexts(OPERATORS)` as `context_fn` of
/// `torch.utils.checkpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSave(KeptOps);

impl CheckpointSave {
    /// Begins a forward pass whose blocks keep these results.
    pub fn enter(&self) -> KeptOpsGuard {
        self.0.enter()
    }

    /// The operators in the order of this list, with the words that name them.
    const WORDS: [(&'static str, KeptOp); 5] = [
        ("mm", KeptOp::Mm),
        ("addmm", KeptOp::Addmm),
        ("bmm", KeptOp::Bmm),
        ("attention", KeptOp::Attention),
        ("convolution", KeptOp::Convolution),
    ];

    /// `aten`'s names of these operators, as a policy compares them, and whether every second `mm` is computed again.
    pub fn operators(&self) -> (Vec<&'static str>, bool) {
        let names = |op: &KeptOp| match op {
            KeptOp::Mm => &["mm"][..],
            KeptOp::Addmm => &["addmm"],
            KeptOp::Bmm => &["bmm"],
            KeptOp::Attention => &[
                "_scaled_dot_product_flash_attention",
                "_scaled_dot_product_efficient_attention",
                "_scaled_dot_product_cudnn_attention",
            ],
            KeptOp::Convolution => &["convolution"],
        };
        (self.0.ops.iter().flat_map(names).copied().collect(), self.0.alternates_mm)
    }
}

impl FromStr for CheckpointSave {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut kept = KeptOps::default();
        for word in text.split(',').map(str::trim) {
            let ops = match word {
                "matmuls" => vec![KeptOp::Mm, KeptOp::Addmm, KeptOp::Bmm],
                "mm:2" => vec![KeptOp::Mm],
                _ => match Self::WORDS.iter().find(|(known, _)| *known == word) {
                    Some((_, op)) => vec![*op],
                    None => {
                        return Err(format!(
                            "{text:?}: expected some of mm, mm:2 (every second one), addmm, bmm, matmuls (these three), attention, convolution, as in mm,attention"
                        ));
                    }
                },
            };
            if let Some(op) = ops.iter().find(|op| kept.ops.contains(op)) {
                let word = Self::WORDS.iter().find(|(_, known)| known == op).map_or("", |(word, _)| word);
                return Err(format!("{text:?}: {word} is named twice"));
            }
            kept.ops.extend(ops);
            kept.alternates_mm |= word == "mm:2";
        }
        kept.ops.sort_by_key(|op| *op as usize);
        Ok(Self(kept))
    }
}

impl fmt::Display for CheckpointSave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops = &self.0.ops;
        let all = [KeptOp::Mm, KeptOp::Addmm, KeptOp::Bmm].iter().all(|op| ops.contains(op)) && !self.0.alternates_mm;
        let rest = ops.iter().filter(|op| !all || matches!(op, KeptOp::Attention | KeptOp::Convolution));
        let word = |op: &KeptOp| match op {
            KeptOp::Mm if self.0.alternates_mm => "mm:2",
            _ => Self::WORDS.iter().find(|(_, known)| known == op).map_or("", |(word, _)| word),
        };
        let words: Vec<&str> = all.then_some("matmuls").into_iter().chain(rest.map(word)).collect();
        f.write_str(&words.join(","))
    }
}

as_text!(CheckpointSave);

/// The names that keep their values from the end of a step until they are bound again. The others are deleted after the step, as by a function that
/// takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The batch with its targets.
    pub inputs: bool,
    /// The network's result.
    pub outputs: bool,
    /// The loss.
    pub loss: bool,
}

impl Hold {
    /// Nothing.
    const NONE: Self = Self { inputs: false, outputs: false, loss: false };
}

/// As a loop that deletes nothing.
impl Default for Hold {
    fn default() -> Self {
        Self { inputs: true, outputs: true, loss: true }
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut hold = Self::NONE;
        for word in text.split(',').map(str::trim) {
            match word {
                "none" if text.trim() == "none" => {}
                "inputs" => hold.inputs = true,
                "outputs" => hold.outputs = true,
                "loss" => hold.loss = true,
                _ => {
                    return Err(format!(
                        "{text:?}: expected none, or some of inputs, outputs, loss, as in inputs,loss"
                    ));
                }
            }
        }
        Ok(hold)
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [("inputs", self.inputs), ("outputs", self.outputs), ("loss", self.loss)];
        let held: Vec<&str> = names.iter().filter(|(_, held)| *held).map(|(name, _)| *name).collect();
        f.write_str(&if held.is_empty() { "none".into() } else { held.join(",") })
    }
}

as_text!(Hold);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_read_and_shown() {
        for text in ["mm", "mm:2,attention", "matmuls,attention,convolution", "addmm,bmm"] {
            assert_eq!(text.parse::<CheckpointSave>().unwrap().to_string(), text);
        }
        assert_eq!("attention, bmm,mm,addmm".parse::<CheckpointSave>().unwrap().to_string(), "matmuls,attention");
        assert_eq!("mm:2,bmm".parse::<CheckpointSave>().unwrap().operators(), (vec!["mm", "bmm"], true));
        for (text, problem) in
            [("", "expected some of"), ("linear", "expected some of"), ("mm,mm:2", "mm is named twice")]
        {
            assert!(text.parse::<CheckpointSave>().unwrap_err().contains(problem), "{text}");
        }
    }

    #[test]
    fn names_are_read_and_shown() {
        for text in ["none", "loss", "inputs,loss", "inputs,outputs,loss"] {
            assert_eq!(text.parse::<Hold>().unwrap().to_string(), text);
        }
        assert_eq!("loss, inputs".parse::<Hold>().unwrap().to_string(), "inputs,loss");
        assert_eq!(Hold::default().to_string(), "inputs,outputs,loss");
        for text in ["", "none,loss", "logits"] {
            assert!(text.parse::<Hold>().unwrap_err().contains("expected none, or some of"), "{text}");
        }
    }
}
