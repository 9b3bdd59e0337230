//! Matrix products that the library takes: they are queued, or collected, as launches are.

use memcore::Result;
use memcore::backend::Tf32;
use memcore::backend::kernel::Matmul;

use super::BlasLt;
use super::shape::Places;
use crate::graphs::Work;
use crate::launch::{Context, Scratch};

impl BlasLt {
    /// Queues the product. False where the library does not take it; nothing was queued then.
    ///
    /// # Errors
    /// [`Error::Backend`](memcore::Error::Backend) when the library fails at what it had promised.
    pub(crate) fn matmul(&self, ctx: &Context<'_>, k: &Matmul) -> Result<bool> {
        let workspace = match &k.workspace {
            Some(own) => Scratch { address: ctx.at(own)?, bytes: own.region.len },
            None => ctx.scratch,
        };
        let (a, b, out) = (ctx.at(&k.a)?, ctx.at(&k.b)?, ctx.at(&k.out)?);
        let places = Places { a, b, bias: ctx.at_optional(&k.bias)?, out, workspace };
        let Some((product, ran)) = self.product(k, places, ctx.tf32 == Some(Tf32::All)) else { return Ok(false) };
        if !ran {
            // Whether the library takes it shows only when it runs: now, behind what is collected, not with it.
            ctx.hand_over()?;
            return self.try_first(ctx.queue, &product);
        }
        if !ctx.collected(Work::Product(product))? {
            self.run(ctx.queue, &product)?;
        }
        Ok(true)
    }
}
