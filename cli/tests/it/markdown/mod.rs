//! Reads the part of Markdown that the documents use.

/// Fenced block of code.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
    /// First line, counted from 1.
    pub(crate) line: usize,
    /// Reason not to run the commands: `<!-- not-run: REASON -->` in the line before the block.
    pub(crate) not_run: Option<String>,
}

impl Block {
    /// Commands of the block, without comments; lines that `\` continues are joined.
    pub(crate) fn commands(&self) -> impl Iterator<Item = String> {
        let text = self.text.replace("\\\n", " ");
        let lines: Vec<String> = text.lines().map(|line| line.split(" #").next().unwrap_or("").trim().into()).collect();
        lines.into_iter().filter(|line| !line.is_empty() && !line.starts_with('#'))
    }
}

/// Returns all blocks of code.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    let (mut inside, mut before) = (false, "");
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), inside) {
            (Some(language), false) => {
                let reason = before.trim().strip_prefix("<!-- not-run:").and_then(|rest| rest.strip_suffix("-->"));
                let (language, not_run) = (language.trim().to_string(), reason.map(|reason| reason.trim().to_string()));
                out.push(Block { language, text: String::new(), line: index + 1, not_run });
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                let block = out.last_mut().expect("a fence began");
                block.text += line;
                block.text.push('\n');
            }
            (None, false) => {}
        }
        before = line;
    }
    assert!(!inside, "a fence does not end");
    out
}

/// Returns the lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// Returns the targets of links and images.
pub(crate) fn links(text: &str) -> Vec<String> {
    let of_line = |line: &str| -> Vec<String> {
        line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_string()).collect()
    };
    prose(text).flat_map(of_line).collect()
}

/// Returns the anchors of headings.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let slug = |heading: &str| -> String {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    prose(text).filter(|line| line.starts_with('#')).map(|line| slug(line.trim_start_matches('#'))).collect()
}

/// Returns the cells of a table's row.
pub(crate) fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|');
    row.split(" | ").map(|cell| cell.trim().to_string()).collect()
}
