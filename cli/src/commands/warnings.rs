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
    departures.iter().map(|departure| format!("warning: {departure}{}", advice(departure)))
}

fn advice(departure: Departure) -> &'static str {
    match departure {
        Departure::WithoutCudnn | Departure::AttentionWithoutCudnn => {
            ". With --cudnn-workspace BYTES it is counted as with cuDNN (BYTES: what a call's plan takes, which only a card tells; 0 is a start)"
        }
        Departure::ChannelsLast => ". Bytes allocated and reserved of recorded networks were the same",
        Departure::ConvertedOperand => "",
        Departure::NoAttentionDropout => ". With --attention eager weights are dropped",
    }
}
