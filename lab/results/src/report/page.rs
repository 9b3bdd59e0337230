//! The page: a frame, a part for each result, style and scripts inside.

use std::fmt::Write;

use lab_base::error::Result;

use super::part::{Part, Shown};
use super::pieces::{DRAWING, STYLE};
use super::text::{escaped, heading};
use super::{compare, contents, glossary, sections};

/// The script of a report, after those that draw.
const REPORT: &str = include_str!("report.js");

/// Makes one self-contained HTML file.
///
/// # Errors
/// A result of an unknown kind.
pub fn html(parts: &[Part<'_>]) -> Result<String> {
    let mut shown: Vec<Shown<'_>> = parts.iter().map(Shown::from_part).collect::<Result<_>>()?;
    let mut body = String::new();
    let several = shown.len() > 1;
    let level = if several { 2 } else { 1 };
    let beside = match shown.as_mut_slice() {
        [a, b] if a.taken.is_some() && b.taken.is_some() => {
            [a.title, b.title] = compare::titles(&a.title, &b.title);
            true
        }
        _ => false,
    };
    let title = contents::title(&shown);
    if several {
        heading(&mut body, 1, &title);
    }
    if beside {
        let titles = [shown[0].title.clone(), shown[1].title.clone()];
        let taken = [&shown[0].taken, &shown[1].taken].map(|taken| taken.clone().unwrap_or_default());
        compare::sections(&titles, &taken[0], &taken[1])
            .iter()
            .for_each(|section| sections::one(&mut body, 1, section));
        body.push_str("<div class=\"beside\">\n");
    } else if several {
        contents::write(&mut body, &shown);
    }
    for (index, part) in shown.iter().enumerate() {
        let _ = writeln!(body, "<article id=\"part-{index}\">");
        part.write(&mut body, index, level)?;
        body.push_str("</article>\n");
    }
    if beside {
        body.push_str("</div>\n");
    }
    glossary::words(&mut body);
    Ok(frame(&title, &body))
}

fn frame(title: &str, body: &str) -> String {
    let title = escaped(title);
    let script = DRAWING.concat() + REPORT;
    // A body has megabytes: it is copied once.
    let mut page = String::with_capacity(body.len() + STYLE.len() + script.len() + 2048);
    // The page's policy forbids loading anything, whatever the data contain.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · vramlab</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n{body}</main>\n\
         <footer>vramlab {} · this file is complete: it loads nothing</footer>\n\
         <div id=\"tip\" class=\"tip\" hidden></div>\n\
         <script>\n(() => {{\n\"use strict\";\n{script}}})();\n</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    page
}
