//! A network as a chain of pieces, which may lie on several devices: the embeddings, each block, the output.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lab_models::Places;
use memcore::memory::ScopeId;
use memcore::nn::Module;
use memcore::{Error, Result, Tensor, context};

use super::blocks::{self, Block, BlockInputs};
use super::inputs::Said;
use super::network::{EmbeddingOutput, InputEmbeddings, OutputHead, Parts, Variables};
use super::stage::Stage;

/// Shared state of the pieces on one device: the inputs of its blocks, from the first piece there to the last.
struct OpenStage {
    stage: Stage,
    open: Mutex<Option<Arc<StageInputs>>>,
}

/// Freed as a whole: inputs first, then variables.
struct StageInputs {
    blocks: BlockInputs,
    _variables: Variables,
}

impl OpenStage {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<StageInputs>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, context: BlockInputs, variables: Variables) {
        *self.slot() = Some(Arc::new(StageInputs { blocks: context, _variables: variables }));
    }

    fn inputs(&self) -> Result<Arc<StageInputs>> {
        self.slot().clone().ok_or_else(|| Error::invalid("piece", "a block ran before the first piece of its device"))
    }

    fn close(&self) {
        let inputs = self.slot().take();
        drop(inputs);
    }
}

/// Makes the pieces of parts that were made through `at`: the embeddings, the blocks, the output.
pub(super) fn all_pieces(parts: Parts, at: &Places<'_>) -> Vec<Box<dyn Module>> {
    let Parts { embeddings, blocks, output, stages, body } = parts;
    let last = blocks.len() + 1;
    let mut stages = stages.into_iter().map(|stage| Arc::new(OpenStage { stage, open: Mutex::default() }));
    let device = |piece: usize| at(piece).device().clone();
    let same = |a: usize, b: usize| device(a).is_same(&device(b));
    let scope = |piece: usize| at(piece).at(body).scope();
    let mut stage = stages.next();
    let embeddings = EmbeddingsPiece { scope: scope(0), embeddings, stage: stage.clone().filter(|_| same(0, 1)) };
    let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(embeddings)];
    for (piece, block) in (1..).zip(blocks) {
        let opens = !same(piece - 1, piece);
        if piece > 1 && opens {
            stage = stages.next();
        }
        if let Some(stage) = stage.clone() {
            let block = BlockPiece { block, number: piece - 1, stage, opens, closes: !same(piece, piece + 1) };
            pieces.push(Box::new(block));
        }
    }
    let stage = stage.filter(|_| same(last - 1, last));
    pieces.push(Box::new(OutputPiece { scope: scope(last), output, stage }));
    pieces
}

struct EmbeddingsPiece {
    scope: ScopeId,
    embeddings: Box<dyn InputEmbeddings>,
    /// Set if the first block is on the same device.
    stage: Option<Arc<OpenStage>>,
}

impl Module for EmbeddingsPiece {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let stage = self.stage.as_ref().map(|open| &open.stage);
        let EmbeddingOutput { hidden, context, variables } = self.embeddings.forward(input, Said::default(), stage)?;
        if let Some(stage) = &self.stage {
            stage.open(context, variables);
        }
        Ok(hidden)
    }
}

struct BlockPiece {
    block: Arc<dyn Block>,
    /// Its number among the network's blocks.
    number: usize,
    stage: Arc<OpenStage>,
    /// True for the first piece on its device.
    opens: bool,
    /// True for the last piece on its device.
    closes: bool,
}

impl Module for BlockPiece {
    fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        if self.opens {
            let context = self.stage.stage.block_inputs(hidden, Said::default())?;
            self.stage.open(context, Variables::default());
        }
        let inputs = self.stage.inputs()?;
        let checkpoint = self.stage.stage.recomputes_block(self.number);
        let hidden = blocks::through(&self.block, hidden.clone(), &inputs.blocks, checkpoint)?;
        if self.closes {
            self.stage.close();
        }
        Ok(hidden)
    }
}

struct OutputPiece {
    scope: ScopeId,
    output: Box<dyn OutputHead>,
    /// Set if the last block is on the same device.
    stage: Option<Arc<OpenStage>>,
}

impl Module for OutputPiece {
    fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        let hidden = {
            let _scope = context::scope(self.scope);
            self.output.norm(hidden.clone())?
        };
        if let Some(stage) = &self.stage {
            stage.close();
        }
        Ok(self.output.scores(&hidden)?.scores)
    }
}
