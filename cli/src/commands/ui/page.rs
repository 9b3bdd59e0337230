//! The page: its frame, the style and the drawings of reports, and scripts of its own. It loads nothing else.

use lab::report::{DRAWING, STYLE, glossary};

const FRAME: &str = include_str!("page/page.html");
const OWN_STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 4] = [
    include_str!("page/settings.js"),
    include_str!("page/answer.js"),
    include_str!("page/files.js"),
    include_str!("page/page.js"),
];

/// The policy of an answer other than the page.
pub(super) const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the page may do: run its own scripts, and ask its own server.
pub(super) fn policy(nonce: &str) -> String {
    format!("{POLICY}; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:")
}

/// The page. `nonce`: what marks its scripts.
pub(super) fn html(nonce: &str) -> String {
    let script = [&DRAWING[..], &SCRIPTS[..]].concat().concat();
    // The last first: nothing that was put in is searched again.
    let (head, rest) = FRAME.split_once("{style}").unwrap_or_default();
    let (body, rest) = rest.split_once("{words}").unwrap_or_default();
    let (before, after) = rest.split_once("{script}").unwrap_or_default();
    let before = before.replace("{nonce}", nonce);
    let words = glossary();
    let version = env!("VRAMLAB_VERSION");
    let body = body.replace("{version}", version);
    [head, STYLE, OWN_STYLE, &body, &words, &before, "(() => {\n\"use strict\";\n", &script, "})();\n", after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let html = html("n0nce");
        for part in
            ["<!DOCTYPE html>", "--surface:", "class TimelineView", "id=\"words\"", "nonce=\"n0nce\"", "</html>"]
        {
            assert!(html.contains(part), "{part}");
        }
        for wrong in ["{style}", "{words}", "{script}", "{nonce}", "{version}", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(wrong), "{wrong}");
        }
    }
}
