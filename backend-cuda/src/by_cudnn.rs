//! Work that cuDNN may compute instead of the own kernels: planned, timed once, collected or run.

use memcore::Result;

use crate::cudnn::Call;
use crate::graphs::Work;
use crate::kernel::Family;
use crate::launch::Context;

/// What the library's time is compared with: the card, and the own kernels of this family.
pub(crate) fn names<'a>(ctx: &'a Context<'_>, family: Family) -> [&'a str; 2] {
    [ctx.properties.name.as_str(), family.source().1]
}

/// Queues the call, by the library or, where they are faster, by the `own` kernels, which are of this family. `begin` queues what must
/// lie in memory before the library runs, `end` what mends its result. Returns false if the library does not accept the call; the result is still to be
/// written then.
///
/// # Errors
/// [`Error::Backend`](memcore::Error::Backend) if the library fails at a call that it had accepted; those of the closures.
pub(crate) fn computes(
    ctx: &Context<'_>,
    family: Family,
    call: Call,
    [begin, end]: [&dyn Fn() -> Result<()>; 2],
    own: &dyn Fn() -> Result<()>,
) -> Result<bool> {
    let Some(dnn) = ctx.libraries.dnn else { return Ok(false) };
    let names = names(ctx, family);
    let Some(planned) = dnn.plan(ctx.queue, names, &call.task) else { return Ok(false) };
    let again = || {
        begin()?;
        if !ctx.collected(Work::Dnn(call))? {
            dnn.run(&call)?;
        }
        end()
    };
    if planned.ran {
        return again().map(|()| true);
    }
    // As with products: whether the library accepts it shows only when it runs. Then the device is timed.
    ctx.at_once(|| {
        begin()?;
        let accepted = dnn.try_first(ctx.queue, &call)?;
        if accepted {
            end()?;
            dnn.choose(ctx.queue, names, &call.task, [&again, own])?;
        }
        Ok(accepted)
    })
}
