//! Activation checkpointing: which blocks of a network are recomputed in backward instead of being kept.

use std::fmt;
use std::iter;
use std::str::FromStr;
use std::sync::Arc;

use lab_base::as_text;
use lab_base::error::{Error, Result};
use memcore::Tensor;
use memcore::autograd::checkpoint;
use memcore::nn::{Checkpoint, Module, Sequential};

/// What is recomputed. A network's blocks are numbered from 0, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing: everything that backward needs is kept.
    #[default]
    None,
    /// Each block by itself; only its input is kept.
    Blocks,
    /// Segments of about √n of the n blocks: fewer inputs are kept, but more is held at once while a segment is recomputed.
    Sqrt,
    /// Every so many-th block by itself: of 2 the blocks 1, 3, 5, as torchtitan counts them.
    Every(usize),
    /// The blocks with these numbers, each by itself; the others are kept.
    These(Vec<usize>),
    /// The modules of an exported network that these patterns of paths name, each by itself.
    Modules(Vec<String>),
}

/// Adjacent blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    blocks: usize,
    again: bool,
}

impl Recompute {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "blocks" => Ok(Self::Blocks),
            "sqrt" => Ok(Self::Sqrt),
            _ if text.starts_with("blocks:") => match text["blocks:".len()..].parse() {
                Ok(every @ 1..) => Ok(Self::Every(every)),
                _ => Err(format!("{text:?}: blocks:N recomputes every N-th block, with N from 1")),
            },
            list => {
                let words = || list.split(',').map(str::trim);
                let numbers = words().map(|word| word.parse::<usize>().ok()).collect::<Option<Vec<usize>>>();
                let Some(mut these) = numbers else {
                    if words().all(is_pattern) {
                        return Ok(Self::Modules(words().map(ToString::to_string).collect()));
                    }
                    return Err(format!(
                        "{text:?}: none, blocks, blocks:N, sqrt, numbers of blocks such as 0,2,3, or paths of an export's modules such as h.*"
                    ));
                };
                these.sort_unstable();
                match these.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(format!("block {} is named twice", pair[0])),
                    None => Ok(Self::These(these)),
                }
            }
        }
    }

    /// Fails if a network of `blocks` blocks does not have what is to be recomputed.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the model.
    pub fn check(&self, model: &str, blocks: usize) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Modules(_) => {
                let problem = format!(
                    "{self}: only a model.pt2 has modules by path; {model} has numbers of blocks such as 0,2,3"
                );
                Err(Error::usage("checkpoint", problem))
            }
            _ if blocks == 0 => Err(Error::usage("checkpoint", format!("this {model} has no blocks"))),
            Self::Every(every) if *every > blocks => {
                Err(Error::usage("checkpoint", format!("{self}: {model} has {blocks} blocks")))
            }
            Self::Blocks | Self::Sqrt | Self::Every(_) => Ok(()),
            Self::These(these) => match these.iter().find(|block| **block >= blocks) {
                Some(block) => {
                    let problem = format!("{model} has no block {block}; its blocks are 0 to {}", blocks - 1);
                    Err(Error::usage("checkpoint", problem))
                }
                None => Ok(()),
            },
        }
    }

    /// The part of this that concerns the `n` blocks from number `first` on, which are numbered from 0 in a chain of their own.
    pub(super) fn part(&self, first: usize, n: usize) -> Self {
        match self {
            Self::These(these) => {
                let inside = these.iter().filter(|block| (first..first + n).contains(block));
                Self::These(inside.map(|block| block - first).collect())
            }
            Self::Every(_) => Self::These((0..n).filter(|block| self.covers(first + block)).collect()),
            whole => whole.clone(),
        }
    }

    /// True if the block of this number is recomputed by itself.
    pub fn covers(&self, block: usize) -> bool {
        match self {
            Self::None | Self::Modules(_) | Self::Sqrt => false,
            Self::Blocks => true,
            Self::Every(every) => (block + 1).is_multiple_of(*every),
            Self::These(these) => these.contains(&block),
        }
    }

    /// Number of blocks in each segment of [`Recompute::Sqrt`] but the last, of `n` blocks: √n, rounded.
    pub fn segment_length(n: usize) -> usize {
        ((n as f64).sqrt().round() as usize).max(1)
    }

    /// Cuts `n` blocks into segments that are recomputed at once, and segments that are kept.
    fn segments(&self, n: usize) -> Vec<Segment> {
        if *self == Self::Sqrt {
            let long = Self::segment_length(n);
            return (0..n).step_by(long).map(|start| Segment { blocks: long.min(n - start), again: true }).collect();
        }
        // No network of this program has modules by path: `check` refuses them.
        (0..n).map(|block| Segment { blocks: 1, again: self.covers(block) }).collect()
    }

    /// Appends blocks to a chain.
    pub(super) fn chain(&self, chain: &mut Sequential, blocks: Vec<Sequential>) {
        let segments = self.segments(blocks.len());
        let mut blocks = blocks.into_iter();
        for segment in segments {
            let mut inside = Sequential::new();
            blocks.by_ref().take(segment.blocks).for_each(|block| inside.append(block));
            if segment.again {
                chain.push(Checkpoint::new(inside));
            } else {
                chain.append(inside);
            }
        }
    }

    /// Builds `n` blocks as pieces of a split network, numbered from `first` on. Blocks that are recomputed together are one piece. `build` makes one
    /// block of a piece.
    pub(super) fn pieces(
        &self,
        first: usize,
        n: usize,
        mut build: impl FnMut(usize, usize) -> memcore::Result<Sequential>,
    ) -> memcore::Result<Vec<Box<dyn Module>>> {
        let (mut pieces, mut block): (Vec<Box<dyn Module>>, usize) = (Vec::new(), 0);
        for segment in self.segments(n) {
            let mut inside = Sequential::new();
            for _ in 0..segment.blocks {
                inside.append(build(first + pieces.len(), block)?);
                block += 1;
            }
            pieces.push(if segment.again { Box::new(Checkpoint::new(inside)) } else { Box::new(inside) });
        }
        Ok(pieces)
    }
}

/// True for the path of a module, in which a `*` stands for any part of one name.
fn is_pattern(word: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '*'));
    word.split('.').all(is_name)
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Blocks => f.write_str("blocks"),
            Self::Sqrt => f.write_str("sqrt"),
            Self::Every(every) => write!(f, "blocks:{every}"),
            Self::These(these) => {
                let numbers: Vec<String> = these.iter().map(usize::to_string).collect();
                f.write_str(&numbers.join(","))
            }
            Self::Modules(patterns) => f.write_str(&patterns.join(",")),
        }
    }
}

impl FromStr for Recompute {
    type Err = String;

    /// Reads `none`, `blocks`, `blocks:N`, `sqrt`, numbers of blocks separated by commas, each at most once, or paths of modules separated by commas.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

as_text!(Recompute);

/// A network's blocks, one after the other, in segments.
pub(super) struct Blocks<B> {
    segments: Vec<BlocksOf<B>>,
}

/// Blocks of a segment, and whether they are computed again.
type BlocksOf<B> = (Arc<[B]>, bool);

/// Runs one block of a [`Blocks`]: takes the result of the block before, and the inputs that all blocks share.
type Forward<B> = fn(&B, &Tensor, &[Tensor]) -> memcore::Result<Tensor>;

impl<B: Send + Sync + 'static> Blocks<B> {
    pub(crate) fn new(blocks: Vec<B>, recompute: &Recompute) -> Self {
        let segments = recompute.segments(blocks.len());
        let mut blocks = blocks.into_iter();
        let segments = segments.into_iter().map(|s| (blocks.by_ref().take(s.blocks).collect(), s.again)).collect();
        Self { segments }
    }

    /// Builds each segment by itself, from blocks that `build` makes: pieces of a split network, numbered from `first` on.
    pub(super) fn pieces(
        recompute: &Recompute,
        first: usize,
        n: usize,
        mut build: impl FnMut(usize, usize) -> memcore::Result<B>,
    ) -> memcore::Result<Vec<Self>> {
        let (mut pieces, mut next) = (Vec::new(), 0..n);
        for segment in recompute.segments(n) {
            let piece = first + pieces.len();
            let blocks: memcore::Result<Arc<[B]>> =
                next.by_ref().take(segment.blocks).map(|block| build(piece, block)).collect();
            pieces.push(Self { segments: vec![(blocks?, segment.again)] });
        }
        Ok(pieces)
    }

    /// Runs all blocks, and returns the result of the last one.
    pub(super) fn forward(&self, mut x: Tensor, given: &[Tensor], block: Forward<B>) -> memcore::Result<Tensor> {
        for segment in &self.segments {
            x = run(segment, x, given, block)?;
        }
        Ok(x)
    }

    /// As [`forward`](Self::forward), where so many blocks each are a module of their own: its input is held until its result exists.
    pub(super) fn forward_by_stages(
        &self,
        mut x: Tensor,
        stages: &[usize],
        block: Forward<B>,
    ) -> memcore::Result<Tensor> {
        let mut ends = stages.iter().scan(0, |end, blocks| {
            *end += blocks;
            Some(*end)
        });
        let (mut held, mut end, mut done) = (x.clone(), ends.next(), 0);
        for segment in &self.segments {
            x = run(segment, x, &[], block)?;
            done += segment.0.len();
            while end.is_some_and(|end| end <= done) {
                held = x.clone();
                end = ends.next();
            }
        }
        drop(held);
        Ok(x)
    }
}

/// The blocks of one device of a split network.
pub(super) struct Middle<B> {
    blocks: Blocks<B>,
    forward: Forward<B>,
}

impl<B> Middle<B> {
    pub(crate) fn new(blocks: Blocks<B>, forward: Forward<B>) -> Self {
        Self { blocks, forward }
    }
}

impl<B: Send + Sync + 'static> Module for Middle<B> {
    fn forward(&self, x: &Tensor) -> memcore::Result<Tensor> {
        self.blocks.forward(x.clone(), &[], self.forward)
    }
}

/// Runs a segment.
fn run<B: Send + Sync + 'static>(
    (blocks, again): &BlocksOf<B>,
    x: Tensor,
    given: &[Tensor],
    block: Forward<B>,
) -> memcore::Result<Tensor> {
    if !again {
        return through(blocks, x, given, block);
    }
    let inputs: Vec<Tensor> = iter::once(&x).chain(given).cloned().collect();
    let blocks = blocks.clone();
    checkpoint(&inputs, move |inputs| {
        let (x, given) = (inputs[0].clone(), &inputs[1..]);
        through(&blocks, x, given, block)
    })
}

fn through<B>(blocks: &[B], mut x: Tensor, given: &[Tensor], forward: Forward<B>) -> memcore::Result<Tensor> {
    for block in blocks {
        x = forward(block, &x, given)?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_and_shown() {
        for text in ["none", "blocks", "blocks:3", "sqrt", "0", "0,2,11", "h.*", "layer1,layer3.block_*.conv"] {
            assert_eq!(Recompute::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Recompute::parse("3, 1").unwrap(), Recompute::These(vec![1, 3]));
        let modules = Recompute::parse("layer3, h.*").unwrap();
        assert_eq!(modules, Recompute::Modules(vec!["layer3".into(), "h.*".into()]));
        let error = modules.check("mlp", 3).unwrap_err().to_string();
        assert_eq!(
            error,
            "checkpoint: layer3,h.*: only a model.pt2 has modules by path; mlp has numbers of blocks such as 0,2,3"
        );
        for (text, problem) in [
            ("h.", "numbers of blocks"),
            ("", "numbers"),
            ("1,-2", "numbers"),
            ("2,2", "twice"),
            ("blocks:0", "from 1"),
        ] {
            let error = Recompute::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn segments_cover_every_block_once() {
        let lengths = |recompute: &str, n| -> Vec<(usize, bool)> {
            let segments = Recompute::parse(recompute).unwrap().segments(n);
            segments.into_iter().map(|s| (s.blocks, s.again)).collect()
        };
        assert_eq!(lengths("sqrt", 12), [(3, true); 4]);
        assert_eq!(lengths("sqrt", 8), [(3, true), (3, true), (2, true)]);
        assert_eq!(lengths("sqrt", 1), [(1, true)]);
        assert_eq!(lengths("blocks", 2), [(1, true); 2]);
        assert_eq!(lengths("1", 3), [(1, false), (1, true), (1, false)]);
        let part = Recompute::parse("1,3,4,7").unwrap().part(3, 4);
        assert_eq!((part, Recompute::Sqrt.part(3, 4)), (Recompute::These(vec![0, 1]), Recompute::Sqrt));
        assert_eq!(lengths("blocks:2", 3), [(1, false), (1, true), (1, false)]);
        assert_eq!(Recompute::Every(2).part(1, 3), Recompute::These(vec![0, 2]));
        assert!(Recompute::Every(4).check("mlp", 3).is_err());
        for n in 0..200 {
            assert_eq!(lengths("sqrt", n).iter().map(|(blocks, _)| blocks).sum::<usize>(), n);
        }
    }
}
