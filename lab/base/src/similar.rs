//! Names that may have been meant.

/// Least similarity of two words that may be confused, from 0 to 1.
const ALIKE: f64 = 0.8;

/// Returns the known name most like `name`: one that differs only in case, blanks and hyphens, the shortest that it begins, or one that is spelt
/// alike.
pub fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    all_similar(name, known).first().copied()
}

/// Returns all known names like `name`, the most alike first.
pub fn all_similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = plain(name);
    let likeness = |known: &str| match plain(known) {
        known if known == wanted => 1.0,
        known if wanted.len() > 2 && known.starts_with(&wanted) => 0.99 - 1e-4 * known.len() as f64,
        known => strsim::jaro_winkler(&known, &wanted),
    };
    let mut scored: Vec<(f64, &str)> = known.into_iter().map(|known| (likeness(known), known)).collect();
    scored.retain(|(score, _)| *score >= ALIKE);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().map(|(_, known)| known).collect()
}

/// Returns how many letters of a word are wrong, missing, too many or swapped.
pub fn slips(known: &str, typed: &str) -> usize {
    strsim::osa_distance(known, typed)
}

/// Returns `; did you mean "batch-size"?`, or nothing if no known name is similar.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    similar(name, known).map_or(String::new(), |known| format!("; did you mean {known:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_meant_is_offered() {
        let known = ["batch-size", "steady-state", "leak", "fit"];
        let meant = ["batchsize", "Batch Size", "steady", "leaks", "batch_sise", "zebra", ""];
        let found = meant.map(|name| similar(name, known));
        let [batch, steady, leak] = ["batch-size", "steady-state", "leak"].map(Some);
        assert_eq!(found, [batch, batch, steady, leak, batch, None, None]);
        assert_eq!(similar("check", ["checkpointing", "checkpointing-in-vain"]), Some("checkpointing"));
        assert_eq!(did_you_mean("leek", known), "; did you mean \"leak\"?");
        assert_eq!(did_you_mean("zebra", known), "");
    }
}
