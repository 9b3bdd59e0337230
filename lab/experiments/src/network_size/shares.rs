//! Shares of a step's memory: activations against the rest, products and convolutions against the rest.

use lab_base::figures::both as bytes;
use memcore::Device;
use memcore::memory::{Category, PeakComposition, ScopeId};

use crate::{Claim, JudgedClaim, Verdict};

/// Modules whose operator is a product of matrices or a convolution.
const PRODUCTS: [&str; 2] = ["conv", "fc"];

/// A part and its whole, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) part: u64,
    pub(super) whole: u64,
}

impl Share {
    fn percent(self) -> f64 {
        100.0 * self.part as f64 / self.whole.max(1) as f64
    }

    fn most(self) -> bool {
        2 * self.part > self.whole
    }

    fn words(self) -> String {
        format!("{} of {} ({:.1} %)", bytes(self.part), bytes(self.whole), self.percent())
    }
}

/// Share of bytes that convolutions and linear layers made, at a peak. Libraries' workspaces are in neither part nor
/// whole.
pub(super) fn of_products(device: &Device, peak: &PeakComposition) -> Share {
    let without = |bytes: &[u64]| -> u64 { bytes.iter().sum::<u64>() - bytes[Category::Workspace as usize] };
    let part = device.with_ledger(|ledger| {
        let scopes = peak.by_scope.iter().enumerate();
        let of = |id: usize| ledger.scope_path(ScopeId(id as u32)).split('.').any(|name| PRODUCTS.contains(&name));
        scopes.filter(|(id, _)| of(*id)).map(|(_, bytes)| without(&bytes[..])).sum()
    });
    Share { part, whole: without(&peak.by_category[..]) }
}

/// Judges a claim that a share is more than half, for each of these networks with each batch.
pub(super) fn judge(claim: Claim, what: &str, shares: &[(String, Share)], number: String) -> JudgedClaim {
    let most = shares.iter().filter(|(_, share)| share.most()).count();
    let verdict = match most {
        0 => Verdict::Fails,
        n if n == shares.len() => Verdict::Holds,
        _ => Verdict::Depends,
    };
    let each: Vec<String> = shares.iter().map(|(name, share)| format!("{name}: {}", share.words())).collect();
    JudgedClaim {
        lead: "for some of the networks",
        claim,
        verdict,
        number,
        condition: format!("{what}: {}", each.join("; ")),
    }
}
