//! A network as a chain of pieces, which may lie on several devices: the embeddings, each block, the output.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memcore::memory::ScopeId;
use memcore::nn::Module;
use memcore::{Error, Result, Tensor, context};

use super::blocks::{self, Block, Context};
use super::guide::Guide;
use super::network::{Back, Begun, Front, Parts, Variables};
use crate::models::Places;

/// What the pieces of one device share: what its blocks are given, from the first piece there to the last.
struct Desk {
    guide: Guide,
    open: Mutex<Option<Arc<Given>>>,
}

/// Let go as a whole: what is given first, then the variables.
struct Given {
    context: Context,
    _variables: Variables,
}

impl Desk {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<Given>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, context: Context, variables: Variables) {
        *self.slot() = Some(Arc::new(Given { context, _variables: variables }));
    }

    fn given(&self) -> Result<Arc<Given>> {
        self.slot().clone().ok_or_else(|| Error::invalid("piece", "a block ran before the first piece of its device"))
    }

    fn close(&self) {
        let given = self.slot().take();
        drop(given);
    }
}

/// The pieces of parts that were made through `at`: the front, the blocks, the back.
pub(super) fn of(parts: Parts, at: &Places<'_>) -> Vec<Box<dyn Module>> {
    let Parts { front, blocks, back, guides, body } = parts;
    let last = blocks.len() + 1;
    let mut desks = guides.into_iter().map(|guide| Arc::new(Desk { guide, open: Mutex::default() }));
    let device = |piece: usize| at(piece).device().clone();
    let same = |a: usize, b: usize| device(a).is_same(&device(b));
    let scope = |piece: usize| at(piece).at(body).scope();
    let mut desk = desks.next();
    let front = FrontPiece { scope: scope(0), front, desk: desk.clone().filter(|_| same(0, 1)) };
    let mut pieces: Vec<Box<dyn Module>> = vec![Box::new(front)];
    for (piece, block) in (1..).zip(blocks) {
        let opens = !same(piece - 1, piece);
        if piece > 1 && opens {
            desk = desks.next();
        }
        if let Some(desk) = desk.clone() {
            let block = BlockPiece { block, desk, opens, closes: !same(piece, piece + 1) };
            pieces.push(Box::new(block));
        }
    }
    let desk = desk.filter(|_| same(last - 1, last));
    pieces.push(Box::new(BackPiece { scope: scope(last), back, desk }));
    pieces
}

struct FrontPiece {
    scope: ScopeId,
    front: Box<dyn Front>,
    /// Where the first block lies on the same device.
    desk: Option<Arc<Desk>>,
}

impl Module for FrontPiece {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _scope = context::scope(self.scope);
        let guide = self.desk.as_ref().map(|desk| &desk.guide);
        let Begun { hidden, context, variables } = self.front.forward(input, None, guide)?;
        if let Some(desk) = &self.desk {
            desk.open(context, variables);
        }
        Ok(hidden)
    }
}

struct BlockPiece {
    block: Arc<dyn Block>,
    desk: Arc<Desk>,
    /// Whether it is the first piece on its device.
    opens: bool,
    /// Whether it is the last one there.
    closes: bool,
}

impl Module for BlockPiece {
    fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        if self.opens {
            let context = self.desk.guide.context(hidden, None)?;
            self.desk.open(context, Variables::default());
        }
        let given = self.desk.given()?;
        let checkpoint = self.desk.guide.options.checkpoint;
        let hidden = blocks::through(&self.block, hidden.clone(), &given.context, checkpoint)?;
        if self.closes {
            self.desk.close();
        }
        Ok(hidden)
    }
}

struct BackPiece {
    scope: ScopeId,
    back: Box<dyn Back>,
    /// Where the last block lies on the same device.
    desk: Option<Arc<Desk>>,
}

impl Module for BackPiece {
    fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        let hidden = {
            let _scope = context::scope(self.scope);
            self.back.norm(hidden.clone())?
        };
        if let Some(desk) = &self.desk {
            desk.close();
        }
        Ok(self.back.scores(&hidden)?.scores)
    }
}
