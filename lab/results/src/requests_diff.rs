//! Where the requests of two recordings begin to differ, and what follows.

use lab_base::figures::{both, grouped, short, signed};
use lab_base::section::{Cell, Section, Table};
use lab_traces::stacks::{Differences, First, Request};
use serde::{Deserialize, Serialize};

/// How the requests of two recordings differ. The first of each pair is the earlier one. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestsDiff {
    /// Number of requests before the first difference: equal in size, and in who asked if both recordings name any place alike.
    pub equal: u64,
    /// The request of each that differs; `null` for a recording that ends there. Absent if the first difference is in how long memory lives, or if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<[Option<RequestResult>; 2]>,
    /// The equal request whose memory one of them frees earlier; absent if the first difference is a request, or if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_longer: Option<LivesLonger>,
    /// Number of requests.
    pub requests: [u64; 2],
    /// Bytes that were requested and not freed at the peak.
    pub peak_bytes: [u64; 2],
    /// Most bytes reserved.
    pub reserved_bytes: [u64; 2],
    /// Who holds more or less at the peak, or asks more or less often; those that differ most first.
    pub places: Vec<PlaceResult>,
}

/// A request for memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestResult {
    /// Its size.
    pub bytes: u64,
    /// The line and operator that asked.
    pub by: String,
    /// The part of the step; `null` if the stack does not tell.
    pub phase: Option<String>,
}

/// Memory that is freed later in one recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LivesLonger {
    /// The request for it.
    pub request: RequestResult,
    /// Number of further requests until it is freed; `null`: it is not freed in this recording.
    pub requests: [Option<u64>; 2],
}

/// Who holds more or less at the peak, or asks more or less often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceResult {
    /// The line and operator.
    pub by: String,
    /// Bytes at the peak.
    pub at_peak: [u64; 2],
    /// Number of requests.
    pub requests: [u64; 2],
}

impl From<&Request> for RequestResult {
    fn from(request: &Request) -> Self {
        let phase = request.phase.map(|phase| phase.in_words().to_string());
        Self { bytes: request.bytes, by: request.place.with_operator(), phase }
    }
}

/// A number with its digits in groups.
fn in_groups(number: u64) -> String {
    grouped(number, ' ')
}

impl From<&Differences> for RequestsDiff {
    fn from(found: &Differences) -> Self {
        let (equal, asked, lives_longer) = match &found.first {
            None => (found.requests[0], None, None),
            Some(First::Request { equal, asked }) => {
                (*equal, Some(asked.each_ref().map(|request| request.as_ref().map(RequestResult::from))), None)
            }
            Some(First::Life { before, request, requests }) => {
                let requests = requests.map(|number| number.map(|number| number as u64));
                (*before, None, Some(LivesLonger { request: request.into(), requests }))
            }
        };
        let places = found.places.iter().map(|place| PlaceResult {
            by: place.place.with_operator(),
            at_peak: place.at_peak,
            requests: place.requests.map(|number| number as u64),
        });
        Self {
            equal: equal as u64,
            asked,
            lives_longer,
            requests: found.requests.map(|number| number as u64),
            peak_bytes: found.peak_bytes,
            reserved_bytes: found.reserved_bytes,
            places: places.collect(),
        }
    }
}

impl RequestsDiff {
    /// The first difference, what follows, and who holds more.
    pub(super) fn sections(&self, top: usize) -> Vec<Section> {
        let [one, two] = self.requests.map(in_groups);
        let bytes = |what: &str, [before, after]: [u64; 2]| {
            let difference = signed((after as i64).saturating_sub(before as i64));
            format!("{what}: {} → {} ({difference})", both(before), both(after))
        };
        let mut sections: Vec<Section> = [
            self.first_difference(),
            bytes("At the peak", self.peak_bytes),
            bytes("Most reserved", self.reserved_bytes),
            format!("Requests: {one} → {two}"),
        ]
        .map(Section::Note)
        .into();
        if !self.places.is_empty() {
            sections.push(Section::List(self.table(top)));
        }
        sections
    }

    fn first_difference(&self) -> String {
        let words = |RequestResult { bytes, by, phase }: &RequestResult| {
            let phase = phase.as_ref().map_or(String::new(), |phase| format!(", {phase}"));
            format!("{} by {by}{phase}", short(*bytes))
        };
        let place = in_groups(self.equal + 1);
        match (&self.asked, &self.lives_longer) {
            (Some(asked), _) => {
                let [one, two] =
                    asked.each_ref().map(|request| request.as_ref().map_or_else(|| "the recording ends".into(), words));
                format!("The first difference is request {place}: {one} → {two}.")
            }
            (None, Some(LivesLonger { request, requests })) => {
                let [one, two] = requests.map(|number| match number {
                    Some(0) => "at once".into(),
                    Some(1) => "1 request later".into(),
                    Some(number) => format!("{} requests later", in_groups(number)),
                    None => "not at all".into(),
                });
                format!("The first difference is when request {place} is freed ({}): {one} → {two}.", words(request))
            }
            (None, None) => "The requests are equal, and so is what lives.".into(),
        }
    }

    fn table(&self, top: usize) -> Table {
        let row = |place: &PlaceResult| {
            let [before, after] = place.at_peak;
            let [one, two] = place.requests;
            vec![
                Cell::Bytes(before),
                Cell::Bytes(after),
                Cell::Difference((after as i64).saturating_sub(before as i64)),
                Cell::Text(if one == two {
                    in_groups(one)
                } else {
                    format!("{} → {}", in_groups(one), in_groups(two))
                }),
                Cell::Text(place.by.clone()),
            ]
        };
        let columns = ["before", "after", "difference", "requests", "by"];
        Table::new("Who holds more at the peak, or less", &columns, self.places.iter().take(top).map(row).collect())
    }
}
