//! `beliefs`: which common beliefs about GPU memory are true?

mod scaling;
mod shown;
mod spare;
mod testbed;

use lab_base::error::{Error, Result};
use testbed::{Batches, Judged, Testbed};

use super::progress::Progress;
use super::{About, Claim, Experiment, JudgedClaim, Outcome, Setup, ShortAnswer, Size, Verdict};

pub(super) struct Beliefs;

const SOURCE: &str = "widely said";

const CLAIMS: &[Claim] = &[
    Claim { text: "empty_cache gives a program more memory.", source: SOURCE },
    Claim { text: "nvidia-smi shows what a model needs.", source: SOURCE },
    Claim { text: "A bigger model needs proportionally more memory.", source: SOURCE },
];

impl Experiment for Beliefs {
    fn about(&self) -> &'static About {
        const {
            &About {
                name: "beliefs",
                question: "What is widely said about GPU memory, and is it so?",
                claims: CLAIMS,
                sizes: &[Size::many("batch", "examples per step, the larger and the smaller number; 128 and 32")],
                takes_model: false,
            }
        }
    }

    fn run(&self, setup: &Setup<'_>, outcome: &mut Outcome) -> Result<()> {
        let sizes = setup.sizes("batch", &[128, 32]);
        let &[large, small] = &sizes[..] else {
            return Err(Error::usage("batch", "two numbers of examples, the larger and the smaller one"));
        };
        if small == 0 || large <= small || large > 1024 {
            return Err(Error::usage("batch", "the first at most 1024 and above the second, which is at least 1"));
        }
        let batches = Batches { large, small };
        let mut progress = Progress::new(setup, CLAIMS.len());
        let testbed = Testbed::from_setup(setup)?;
        type Part = fn(&Testbed, &Setup<'_>, Batches, &mut Outcome) -> Result<Judged>;
        let parts: [(&str, Part); 3] = [
            ("emptying the cache", spare::measure),
            ("what the driver shows", shown::measure),
            ("bigger models", scaling::measure),
        ];
        for ((name, part), claim) in parts.into_iter().zip(CLAIMS) {
            progress.next(name)?;
            let (verdict, number, condition) = part(&testbed, setup, batches, outcome)?;
            outcome.claims.push(JudgedClaim { lead: "", claim: *claim, verdict, number, condition });
        }
        outcome.answer = answer(&outcome.claims);
        Ok(())
    }
}

/// States how many beliefs hold, and the figures of each.
fn answer(claims: &[JudgedClaim]) -> ShortAnswer {
    let so = claims.iter().filter(|judged| judged.verdict == Verdict::Holds).count();
    let each = claims.iter().map(|judged| format!("{}: {}.", judged.claim.text.trim_end_matches('.'), judged.number));
    ShortAnswer { word: format!("{so} of {} are so", claims.len()), figures: each.collect() }
}
