//! Moving through a history: the cursor, the range of events that is shown, a search.

use lab_base::figures::{counted, grouped, short};

use super::found::Found;
use super::history::{History, Marks};
use super::moment::Moment;

/// Minimum number of events that are shown.
const FEWEST: u32 = 16;

/// An action of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Move by events.
    By(i64),
    /// Move by hundredths of what is shown, and at least by one event.
    ByPercent(i64),
    /// To the beginning of the next step (`true`), or of this or the previous one; of phases where there are no steps.
    Step(bool),
    /// To the next peak that stands out, or the previous one.
    Peak(bool),
    /// To the next request that failed, or the previous one.
    Failure(bool),
    /// To the highest moment.
    Highest,
    /// To the first event.
    First,
    /// To the last event.
    Last,
    /// Show half as many events (`true`), or twice as many.
    Zoom(bool),
    /// Search, and go to the first hit from the cursor on; an empty text ends a search.
    Find(String),
    /// To the next hit, or the previous one.
    Hit(bool),
}

/// A cursor in a history.
#[derive(Debug)]
pub struct Browser {
    /// What is looked at.
    pub history: History,
    cursor: u32,
    from: u32,
    shown: u32,
    found: Option<Found>,
    said: Option<String>,
    /// Memory after the event under the cursor.
    moment: Moment,
}

impl Browser {
    /// Opens a history where memory first ran out, else at its highest moment, with all events shown. It must not be empty.
    pub fn new(history: History) -> Self {
        let (highest, shown) = (history.highest(), history.len().max(1));
        let cursor = history.failures.first().copied().unwrap_or(highest);
        let moment = Moment::at_event(&history, cursor, None);
        Self { history, cursor, from: 0, shown, found: None, said: None, moment }
    }

    /// The event under the cursor.
    pub fn cursor(&self) -> u32 {
        self.cursor
    }

    /// First event that is shown.
    pub fn from(&self) -> u32 {
        self.from
    }

    /// Number of events that are shown.
    pub fn shown(&self) -> u32 {
        self.shown
    }

    /// Returns the search, if there is one.
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// Returns the message of the last action, if it has one.
    pub fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// Memory after the event under the cursor.
    pub fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Performs an action. A move beyond an end stops there; if there is nothing to go to, [`said`](Self::said) tells it.
    pub fn apply(&mut self, action: &Action) {
        self.said = None;
        let last = self.last();
        let to = |at: i64| at.clamp(0, i64::from(last)) as u32;
        let here = i64::from(self.cursor);
        match action {
            Action::By(events) => self.go(to(here.saturating_add(*events))),
            Action::ByPercent(percent) => {
                let each = (i64::from(self.shown) / 100).max(1);
                self.go(to(here.saturating_add(percent.saturating_mul(each))));
            }
            Action::Step(next) => self.step(*next),
            Action::Peak(next) => self.visit(|history| &history.peaks, *next, "peak"),
            Action::Failure(next) => self.visit(|history| &history.failures, *next, "request that failed"),
            Action::Highest => self.go(self.history.highest()),
            Action::First => self.go(0),
            Action::Last => self.go(last),
            Action::Zoom(nearer) => self.zoom(*nearer),
            Action::Find(text) => self.find(text),
            Action::Hit(next) => self.hit(*next),
        }
    }

    fn last(&self) -> u32 {
        self.history.len().saturating_sub(1)
    }

    /// Puts the cursor on an event, and shows the events around it if it is outside the range shown.
    fn go(&mut self, at: u32) {
        if at != self.cursor {
            self.cursor = at;
            self.moment = Moment::at_event(&self.history, at, self.found.as_ref());
        }
        if at < self.from || at - self.from >= self.shown {
            self.center();
        }
    }

    /// Shows the events around the cursor.
    fn center(&mut self) {
        let most = self.history.len().saturating_sub(self.shown);
        self.from = self.cursor.saturating_sub(self.shown / 2).min(most);
    }

    fn zoom(&mut self, nearer: bool) {
        let all = self.history.len().max(1);
        self.shown = if nearer { (self.shown / 2).max(FEWEST) } else { self.shown.saturating_mul(2) }.min(all);
        self.center();
    }

    fn step(&mut self, next: bool) {
        let begins = match &self.history.marks {
            Marks::Steps(begins) | Marks::Phases(begins) => begins,
            Marks::None => return self.say("the recording has neither steps nor phases"),
        };
        let to = neighbour(begins, self.cursor, next);
        let to = to.unwrap_or(if next { self.last() } else { 0 });
        self.go(to);
    }

    fn visit(&mut self, places: impl Fn(&History) -> &[u32], next: bool, what: &str) {
        let places = places(&self.history);
        let to = neighbour(places, self.cursor, next);
        match to {
            Some(to) => {
                let number = places.partition_point(|&place| place <= to);
                let said = format!("{what} {} of {}", grouped(number as u64, ' '), grouped(places.len() as u64, ' '));
                self.go(to);
                self.say(&said);
            }
            None if places.is_empty() => self.say(&format!("the recording has no {what}")),
            None => self.say(&format!("no {what} {}", if next { "after this event" } else { "before this event" })),
        }
    }

    fn find(&mut self, text: &str) {
        if text.trim().is_empty() {
            self.found = None;
            self.moment = Moment::at_event(&self.history, self.cursor, None);
            return;
        }
        let found = Found::search(&self.history, text);
        let to = found.events.iter().copied().find(|&at| at >= self.cursor).or(found.events.first().copied());
        let nothing = format!("no line, module or operator has {:?}", found.text);
        self.found = to.map(|_| found);
        self.moment = Moment::at_event(&self.history, self.cursor, self.found.as_ref());
        match to {
            Some(to) => {
                self.go(to);
                self.say_hit();
            }
            None => self.say(&nothing),
        }
    }

    fn hit(&mut self, next: bool) {
        let Some(found) = &self.found else { return self.say("nothing was searched for: / begins a search") };
        let wrapped = if next { found.events.first() } else { found.events.last() };
        if let Some(to) = neighbour(&found.events, self.cursor, next).or(wrapped.copied()) {
            self.go(to);
        }
        self.say_hit();
    }

    fn say_hit(&mut self) {
        let Some(found) = &self.found else { return };
        let number = found.events.partition_point(|&at| at <= self.cursor);
        let of = counted(found.events.len() as u64, "allocation");
        let held = short(self.moment.found_bytes);
        self.say(&format!("{:?}: {} of {of}, {held} held here", found.text, grouped(number as u64, ' ')));
    }

    fn say(&mut self, text: &str) {
        self.said = Some(text.to_string());
    }
}

/// Returns the next place after an event, or the previous one before it; places are in order.
fn neighbour(places: &[u32], at: u32, next: bool) -> Option<u32> {
    let found = if next {
        places.get(places.partition_point(|&place| place <= at))
    } else {
        places.get(places.partition_point(|&place| place < at).wrapping_sub(1))
    };
    found.copied()
}
