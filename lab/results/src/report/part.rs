//! Parts of a page: a result, a history of memory, or both, each as an article.

use std::borrow::Cow;
use std::fmt::Write;

use lab_base::error::{Error, Result};
use lab_base::figures::short;
use lab_base::section::Section;
use serde_json::Value;

use super::compare::Taken;
use super::headline::Headline;
use super::payload::Payload;
use super::recording::Recording;
use super::sections;
use super::steps::kind;
use super::text::{bytes, counted, escaped, heading};
use super::timeline::Timeline;

/// A part of a page.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A history of memory without a result.
    Recording(&'a Recording),
    /// A result as it was written, with the history of its run if there is one.
    Result {
        /// The result, with its schema.
        result: &'a Value,
        /// The history. If the run ran out of memory, it may be that of the same run with enough memory.
        recording: Option<&'a Recording>,
    },
    /// A result, given by its sections.
    Sections {
        /// Title.
        title: &'a str,
        /// Sections.
        sections: &'a [Section],
        /// History of its memory.
        recording: Option<&'a Recording>,
    },
}

/// A part that is ready to be written.
pub(super) struct Shown<'a> {
    pub(super) title: String,
    pub(super) sections: Cow<'a, [Section]>,
    timeline: Option<Timeline<'a>>,
    headline: Option<Headline>,
    /// Figures for a comparison, if it is a run.
    pub(super) taken: Option<Taken>,
    /// True if the result's run ran out of memory.
    failed: bool,
}

impl<'a> Shown<'a> {
    pub(super) fn from_part(part: &Part<'a>) -> Result<Self> {
        let history = match *part {
            Part::Recording(recording) => Some(recording),
            Part::Result { recording, .. } | Part::Sections { recording, .. } => recording,
        };
        let timeline = history.map(Timeline::from_recording);
        let shown = |title: String, sections| Self {
            title,
            sections,
            timeline: None,
            headline: None,
            taken: None,
            failed: false,
        };
        Ok(match *part {
            Part::Recording(recording) => {
                let taken = timeline.as_ref().map(Taken::of_timeline);
                Self { timeline, taken, ..shown(recording.name.clone(), Cow::Borrowed(&[])) }
            }
            Part::Sections { title, sections, .. } => Self { timeline, ..shown(title.into(), Cow::Borrowed(sections)) },
            Part::Result { result, .. } => {
                let (title, sections) = crate::read(result)?;
                Self {
                    timeline,
                    headline: Headline::from_result(result),
                    taken: Taken::of_result(result),
                    failed: !result["out_of_memory"].is_null(),
                    ..shown(title, Cow::Owned(sections))
                }
            }
        })
    }

    /// Writes the answer, the changes to try, the picture, the details. Charts that repeat the picture are left out.
    pub(super) fn write(&self, out: &mut String, index: usize, level: usize) -> Result<()> {
        out.push_str("<header>\n");
        heading(out, level, &self.title);
        if let Some(Headline { text: Some(text), limit: (name, _) }) = &self.headline {
            let _ = writeln!(out, "<p class=\"need fails\"><b>{}</b> on {}</p>", escaped(text), escaped(name));
        }
        out.push_str("</header>\n");
        let Some(history) = &self.timeline else {
            self.sections.iter().for_each(|section| sections::one(out, level, section));
            return Ok(());
        };
        let drawn =
            |section: &&Section| matches!(section, Section::Drawing(chart) | Section::Chart(chart) if chart.bytes);
        let kept: Vec<&Section> = self.sections.iter().filter(|section| !drawn(section)).collect();
        let head = kept.iter().position(|section| !is_words(section)).unwrap_or(kept.len());
        let (head, rest) = kept.split_at(head);
        let of_a_moment = |section: &&&Section| matches!(section, Section::Failure(_));
        let (failures, head): (Vec<&Section>, Vec<&Section>) = head.iter().partition(of_a_moment);
        let (tries, rest): (Vec<&Section>, Vec<&Section>) =
            rest.iter().partition(|section| matches!(section, Section::Try(_)));
        head.into_iter().chain(tries).for_each(|section| sections::one(out, level, section));
        self.drawing(out, index, level, history)?;
        rest.into_iter().for_each(|section| sections::one(out, level, section));
        peaks(out, history);
        // PyTorch's message is of one moment, and long.
        if !failures.is_empty() {
            sections::folded(out, level, "When memory ran out", &failures);
        }
        Ok(())
    }

    /// Writes the place of the drawing, its data, and a text for readers without a script.
    fn drawing(&self, out: &mut String, index: usize, level: usize, history: &Timeline<'_>) -> Result<()> {
        if self.sections.is_empty() {
            let events = counted(history.recording.events().len(), "event");
            let most = bytes(history.peak.allocated_bytes);
            let _ = writeln!(out, "<p class=\"lead\">{events}; at most {most} were allocated at once.</p>");
        }
        let named = self.headline.as_ref().map(|headline| &headline.limit);
        let limit = named.or(history.recording.limit.as_ref());
        let payload = Payload::from_timeline(history, limit).script();
        let payload = payload.map_err(|error| Error::usage("report", error.to_string()))?;
        let _ = writeln!(out, "<section class=\"run\" data-run=\"run-{index}\" aria-label=\"Timeline of memory\">");
        heading(out, level + 1, "Live memory, event by event");
        if self.failed {
            out.push_str(match history.failures.is_empty() {
                true => "<p class=\"note\">Drawn with enough memory. On the card the run ends where reserved passes the red line.</p>\n",
                false => "<p class=\"note\">Drawn until memory ran out.</p>\n",
            });
        }
        out.push_str(
            "<noscript><p class=\"note\">The drawing needs JavaScript. The peaks are in the table below.</p></noscript>\n\
             <div class=\"stage\"></div>\n</section>\n",
        );
        let _ = writeln!(out, "<script type=\"application/json\" id=\"run-{index}\">{payload}</script>");
        Ok(())
    }
}

fn is_words(section: &Section) -> bool {
    matches!(section, Section::Answer(_) | Section::Note(_) | Section::Warning(_) | Section::Failure(_))
}

/// Writes the highest moment of each kind of phase.
fn peaks(out: &mut String, history: &Timeline<'_>) {
    let peak = &history.peak;
    if history.phase_peaks.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"note\">Highest of all: {} at event {}.</p>",
            short(peak.allocated_bytes),
            peak.at
        );
        return;
    }
    out.push_str(
        "<details><summary>The highest moment of each phase</summary>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Peaks by phase\"><table>\n<thead><tr><th scope=\"col\">phase</th>\
         <th scope=\"col\" class=\"r\">times</th><th scope=\"col\" class=\"r\">highest</th>\
         <th scope=\"col\" class=\"r\">share of the peak</th><th scope=\"col\">at event</th></tr></thead>\n<tbody>\n",
    );
    for highest in &history.phase_peaks {
        let share = 100.0 * highest.bytes as f64 / peak.allocated_bytes.max(1) as f64;
        let name = kind(history.recording.text(highest.name));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td class=\"r\">{}</td><td class=\"r\">{share:.1} %</td>\
             <td>{}</td></tr>",
            escaped(if name.is_empty() { "(none)" } else { name }),
            highest.times,
            bytes(highest.bytes),
            highest.at
        );
    }
    let _ = writeln!(
        out,
        "</tbody></table></div>\n<p class=\"note\">Highest of all: {} at event {}.</p>\n</details>",
        short(peak.allocated_bytes),
        peak.at
    );
}
