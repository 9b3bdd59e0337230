//! Warnings: deviations of a run from the program that it stands for, and what to do about each.

use memcore::{Deviation, Deviations, Device};

use crate::ui::Ui;

/// Returns warnings about figures, or results, that may differ from the request: first unknown keys of the network's file, then the run's deviations.
pub(super) fn all(of_file: &[String], deviations: Deviations) -> Vec<String> {
    of_file.iter().cloned().chain(sentences(deviations)).collect()
}

/// Returns the deviations of a run on several devices.
pub(super) fn of_all(devices: &[Device]) -> Deviations {
    devices.iter().fold(Deviations::default(), |all, device| all.union(device.deviations()))
}

/// Prints warnings that are known before a run: before a training, which takes long, and after the answer of a dry run.
pub(super) fn tell_first(warnings: &[String], dry_runner: bool, ui: &Ui) {
    warnings.iter().for_each(|warning| if dry_runner { ui.tell_after(warning) } else { ui.tell(warning) });
}

/// Prints the deviations of a run, after its answer.
pub(super) fn tell(deviations: Deviations, ui: &Ui) {
    sentences(deviations).for_each(|warning| ui.tell_after(warning));
}

fn sentences(deviations: Deviations) -> impl Iterator<Item = String> {
    deviations.iter().map(|deviation| format!("warning: {}", of_one(deviation)))
}

/// Returns the text of one deviation: what differs, and what to do about it.
pub(crate) fn of_one(deviation: Deviation) -> String {
    format!("{deviation}{}", advice(deviation))
}

fn advice(deviation: Deviation) -> &'static str {
    match deviation {
        Deviation::WithoutCudnn => concat!(
            ". vramlab does not count cuDNN's workspaces: --cudnn ask asks the cuDNN of your PyTorch, ",
            "and --cudnn-workspace BYTES counts so much for each call (0 is a start)"
        ),
        Deviation::RecurrentWithoutCudnn => ". --cudnn-workspace BYTES counts them with cuDNN",
        Deviation::AttentionWithoutCudnn => {
            ". --cudnn-workspace 256 counts cuDNN's, as cuDNN 9.19 of PyTorch 2.11 has it"
        }
        Deviation::ConvertedOperand => "",
        Deviation::NoAttentionDropout => ". With --attention eager weights are dropped",
    }
}
