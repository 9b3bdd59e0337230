//! Explanations of special words: those of `docs/glossary.md`, their only source.

use std::fmt::Write;

use super::text::escaped;

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");

/// A word, or several with the same meaning, and the explanation.
struct Entry<'a> {
    words: Vec<&'a str>,
    means: &'a str,
}

fn entries() -> impl Iterator<Item = Entry<'static>> {
    GLOSSARY.lines().filter_map(|line| {
        let (word, means) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        let words = word.split(", ").map(|word| word.trim_matches('`')).collect();
        (word != "word").then_some(Entry { words, means })
    })
}

/// Writes the words, folded at the end of a page. The page's script shows them at each word; they are readable without it.
pub(super) fn words(out: &mut String) {
    out.push_str("<details id=\"words\"><summary>What the words mean</summary>\n<dl class=\"words\">\n");
    for (i, Entry { words, means }) in entries().enumerate() {
        let all = words.iter().map(|word| escaped(word)).collect::<Vec<_>>().join(", ");
        let means = escaped(means).replace('`', "");
        let _ = writeln!(out, "<dt>{all}</dt><dd id=\"word-{i}\">{means}</dd>");
    }
    out.push_str("</dl>\n</details>\n");
}

#[cfg(test)]
mod tests {
    use memcore::memory::Category;

    use super::*;

    #[test]
    fn every_category_and_every_word_of_a_drawing_is_explained() {
        let known: Vec<&str> = entries().flat_map(|entry| entry.words).collect();
        assert!(known.len() > 60, "{}", known.len());
        let categories = Category::ALL.map(|category| category.name().replace('_', " "));
        let drawn = ["requested", "allocated", "reserved", "cached", "fragmented", "segment", "block", "peak", "phase"];
        for word in categories.iter().map(String::as_str).chain(drawn) {
            assert!(known.contains(&word), "{word}");
        }
        let mut out = String::new();
        words(&mut out);
        assert!(out.contains("<dt>autocast, AMP</dt><dd id=\"word-") && !out.contains('`'), "{out}");
    }
}
