//! `vramlab devices`

use lab::backends::Entry;
use lab::results::{DeviceInfo, Devices, SeenDevice};

use crate::args::DevicesArgs;
use crate::backends;
use crate::exit::{Code, Result};
use crate::output;
use crate::ui::Ui;

/// Lists every device of every backend; one that fails is an entry with its reason.
///
/// # Errors
/// When a result cannot be written; never because of a driver.
pub(super) fn run(args: &DevicesArgs, ui: &Ui) -> Result<Code> {
    output::check(args.output.destinations())?;
    let found = Devices { devices: backends::all().iter().flat_map(look).collect() };
    output::deliver_findings(ui, &args.output, None, &found)?;
    Ok(Code::Done)
}

fn look(entry: &Entry) -> Vec<SeenDevice> {
    let absent =
        |index, reason| SeenDevice { backend: entry.name.into(), index, reason: Some(reason), ..SeenDevice::default() };
    let count = match (entry.count)() {
        Ok(0) => return vec![absent(None, "it sees no device".into())],
        Ok(count) => count,
        Err(error) => return vec![absent(None, error.to_string())],
    };
    let device = |index| {
        let seen = match (entry.open)(index) {
            Ok(backend) => SeenDevice::opened(DeviceInfo::from_backend(&*backend, index)),
            Err(error) => absent(Some(index), error.to_string()),
        };
        let about = (entry.about)(index);
        let kind = Some(about.kind).filter(|kind| !kind.is_empty()).map(String::from);
        SeenDevice { kind, features: about.features.into_iter().map(String::from).collect(), ..seen }
    };
    (0..count).map(device).collect()
}
