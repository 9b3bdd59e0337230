//! What a run does otherwise than the program that it stands for, and what to do about it.

use memcore::{Departure, Departures, Device};

use crate::ui::Ui;

/// Where figures, or results, may not be what was asked for: of what the network's file says and nobody here knows, then of what a run did.
pub(super) fn all(of_file: &[String], departures: Departures) -> Vec<String> {
    of_file.iter().cloned().chain(of(departures)).collect()
}

/// Of a run on several devices.
pub(super) fn of_all(devices: &[Device]) -> Departures {
    devices.iter().fold(Departures::default(), |all, device| all.union(device.departures()))
}

/// Says what a run did; what is known before it is said before it.
pub(super) fn tell(departures: Departures, ui: &Ui) {
    of(departures).for_each(|warning| ui.tell(warning));
}

fn of(departures: Departures) -> impl Iterator<Item = String> {
    departures.iter().map(|departure| format!("warning: {}", of_one(departure)))
}

/// What is otherwise, and what to do about it.
pub(crate) fn of_one(departure: Departure) -> String {
    format!("{departure}{}", advice(departure))
}

fn advice(departure: Departure) -> &'static str {
    match departure {
        Departure::WithoutCudnn => concat!(
            ". cuDNN's workspaces are not known without a card: of convolutional networks that others measured on an RTX 3060 (the public artifact of xMem, torch 2.6), ",
            "the median is 4.5 to 9.3 % off; with 64 MiB for every plan, ResNet-50 at batch 32 allocates 1.2 % more. With --cudnn-workspace BYTES it is counted as with ",
            "cuDNN (BYTES: what a call's plan takes; 0 is a start)"
        ),
        Departure::AttentionWithoutCudnn => {
            ". With --cudnn-workspace BYTES it is counted as with cuDNN (BYTES: what a call's plan takes, which only a card tells; 0 is a start)"
        }
        Departure::ChannelsLast => ". Bytes allocated and reserved of recorded networks were the same",
        Departure::ConvertedOperand => "",
        Departure::NoAttentionDropout => ". With --attention eager weights are dropped",
    }
}
