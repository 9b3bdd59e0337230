//! Top of a page with several results: its title, links to them, and all verdicts in one table.

use std::fmt::Write;

use lab_base::section::{Judged, Section};

use super::part::Shown;
use super::sections::{class, sign};
use super::text::{counted, escaped, heading};

/// Title of the page; with one part, that part's title.
pub(super) fn title(shown: &[Shown<'_>]) -> String {
    match shown {
        [] => String::new(),
        [one] => one.title.clone(),
        [a, b] => format!("{} and {}", a.title, b.title),
        several => {
            let judged = several.iter().filter(|part| !verdicts(part).is_empty()).count();
            counted(several.len(), if judged == several.len() { "experiment" } else { "result" })
        }
    }
}

fn verdicts<'s>(shown: &'s Shown<'_>) -> Vec<&'s Judged> {
    let judged = |section: &'s Section| match section {
        Section::Verdicts(claims) => Some(claims),
        _ => None,
    };
    shown.sections.iter().filter_map(judged).flatten().collect()
}

/// Links to all parts, then their verdicts.
pub(super) fn write(out: &mut String, shown: &[Shown<'_>]) {
    out.push_str("<nav aria-label=\"Contents\">\n<ol class=\"contents\">\n");
    for (i, part) in shown.iter().enumerate() {
        let answer = part.sections.iter().find_map(|section| match section {
            Section::Answer(text) => Some(text.lines().next().unwrap_or_default()),
            _ => None,
        });
        let _ = writeln!(
            out,
            "<li><a href=\"#part-{i}\">{}</a> {}</li>",
            escaped(&part.title),
            escaped(answer.unwrap_or_default())
        );
    }
    out.push_str("</ol>\n</nav>\n");
    let judged: Vec<(usize, &Judged)> = shown
        .iter()
        .enumerate()
        .flat_map(|(i, part)| verdicts(part).into_iter().map(move |judged| (i, judged)))
        .collect();
    if judged.is_empty() {
        return;
    }
    heading(out, 2, "Verdicts");
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Verdicts\">\n<table aria-label=\"Verdicts\">\n\
         <thead><tr><th scope=\"col\">claim</th><th scope=\"col\">verdict</th><th scope=\"col\">number</th>\
         <th scope=\"col\">experiment</th></tr></thead>\n<tbody>\n",
    );
    for (i, Judged { text, verdict, number, .. }) in judged {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"k {}\"><b><span aria-hidden=\"true\">{}</span> {}</b></td><td>{}</td>\
             <td class=\"k\"><a href=\"#part-{i}\">{}</a></td></tr>",
            escaped(text),
            class(*verdict),
            sign(*verdict),
            verdict.name(),
            escaped(number),
            escaped(&shown[i].title)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}
