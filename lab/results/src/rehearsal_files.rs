//! What a rehearsal says of the user's files and of the network, in words.

use lab_base::figures::counted;
use lab_base::section::Section;

use super::rehearsal::RehearsalResult;

/// Number of names that are shown; the JSON has all of them.
const FIRST: usize = 5;

/// Beginning of what was asked of neither the hub nor GitHub (`made_up.py`).
const SERVER: &str = "a server: ";

/// How requests for data sets begin.
const DATA_SET: &str = "the data set ";

/// Returns the sections on what was withheld, what changed all the same, and who was contacted.
pub(super) fn sections(found: &RehearsalResult) -> Vec<Section> {
    [made_up(found), withheld(found), changed(found), refused(found), contacted(found)].into_iter().flatten().collect()
}

fn made_up(found: &RehearsalResult) -> Option<Section> {
    let names = (!found.made_up.is_empty()).then(|| first(&found.made_up))?;
    Some(Section::Note(format!("vramlab made up what is not on this machine: {names}.")))
}

/// Says what the script wanted from a network and did not get, and what helps.
pub(super) fn asked(found: &RehearsalResult) -> Option<Section> {
    let names = (!found.asked.is_empty()).then(|| first(&found.asked))?;
    // A model is asked of the hub or of GitHub.
    let all = |begin: &str| found.asked.iter().all(|asked| asked.starts_with(begin));
    let has_data = found.asked.iter().any(|asked| asked.starts_with(DATA_SET));
    let helps = match has_data {
        _ if all(SERVER) => {
            "Downloads are not made up: put the files where the script looks for them. --make-data makes up files of data that it opens"
        }
        true if all(DATA_SET) => "vramlab predict --make-data, before the same script, makes data up",
        true => "vramlab predict --make-data SCRIPT makes data up; of a model only config.json is needed",
        false => {
            "Of a model only config.json is needed here: put it into the hub's cache, or name a folder with it; weights and tokenizer are made up"
        }
    };
    let wished = found.asked.iter().find_map(|asked| asked.strip_prefix("the hub: config.json of "));
    let command = wished.map_or(String::new(), |name| format!(". With a network: hf download {name} config.json"));
    Some(Section::Warning(format!("the script asked a network and got nothing: {names}. {helps}{command}")))
}

fn withheld(found: &RehearsalResult) -> Option<Section> {
    if found.withheld_count == 0 {
        return None;
    }
    let first: Vec<&str> = found.withheld.iter().take(FIRST).map(String::as_str).collect();
    let more = if found.withheld_count as usize > first.len() { ", …" } else { "" };
    let place = match &found.kept_in {
        Some(folder) => format!("vramlab kept them in {folder}."),
        None => "vramlab threw them away (--keep-outputs DIR keeps files).".into(),
    };
    let count = counted(found.withheld_count, "output");
    Some(Section::Note(format!("The script wrote {count}: {}{more}. {place}", first.join(", "))))
}

/// Joins the first names.
fn first(names: &[String]) -> String {
    let more = if names.len() > FIRST { ", …" } else { "" };
    format!("{}{more}", names.iter().take(FIRST).map(String::as_str).collect::<Vec<_>>().join(", "))
}

fn changed(found: &RehearsalResult) -> Option<Section> {
    let names = (!found.changed.is_empty()).then(|| first(&found.changed))?;
    Some(Section::Note(format!("Changed while the script ran: {names}.")))
}

fn refused(found: &RehearsalResult) -> Option<Section> {
    let (aims, paths): (Vec<String>, Vec<String>) = found.refused.iter().cloned().partition(|one| is_aim(one));
    let changes = (!paths.is_empty())
        .then(|| format!("vramlab could make no copy, and did not allow changes of {}", first(&paths)));
    let aims = (!aims.is_empty()).then(|| format!("vramlab did not let this leave the run: {}", first(&aims)));
    let all: Vec<String> = [changes, aims].into_iter().flatten().collect();
    (!all.is_empty()).then(|| Section::Note(format!("{}.", all.join(". "))))
}

/// True for what a script aimed at processes outside of the run, or at other machines (`--offline`). Paths begin with a slash.
fn is_aim(refused: &str) -> bool {
    ["signal ", "limits of ", "connection to "].iter().any(|aim| refused.starts_with(aim))
}

fn contacted(found: &RehearsalResult) -> Option<Section> {
    let names = (!found.contacted.is_empty()).then(|| first(&found.contacted))?;
    Some(Section::Note(format!("The script contacted others: {names}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_no_change_of_a_file() {
        let said = |names: &[&str]| {
            let refused = names.iter().map(|name| name.to_string()).collect();
            match super::refused(&RehearsalResult { refused, ..RehearsalResult::default() }) {
                Some(Section::Note(text)) => text,
                other => format!("{other:?}"),
            }
        };
        let (path, signal) = ("/home/me/model.pt", "signal 9 to process 7 (python)");
        assert_eq!(said(&[path]), "vramlab could make no copy, and did not allow changes of /home/me/model.pt.");
        assert_eq!(said(&[signal]), "vramlab did not let this leave the run: signal 9 to process 7 (python).");
        assert_eq!(
            said(&[path, signal]),
            "vramlab could make no copy, and did not allow changes of /home/me/model.pt. vramlab did not let this leave the run: signal 9 to process 7 (python)."
        );
        assert_eq!(said(&[]), "None");
    }

    #[test]
    fn what_helps_is_of_what_was_asked() {
        let said = |names: &[&str]| {
            let asked = names.iter().map(|name| name.to_string()).collect();
            match super::asked(&RehearsalResult { asked, ..RehearsalResult::default() }) {
                Some(Section::Warning(text)) => text,
                other => panic!("{other:?}"),
            }
        };
        let (data, model) = ("a server: https://example.org/digits.gz", "the hub: config.json of org/model");
        assert!(said(&[data]).contains("digits.gz. Downloads are not made up"));
        assert!(
            said(&["the data set org/texts", "the hub: README.md of org/texts"])
                .contains("--make-data SCRIPT makes data up")
        );
        assert!(
            said(&["the data set MNIST"])
                .ends_with("MNIST. vramlab predict --make-data, before the same script, makes data up")
        );
        assert!(said(&[data, model]).contains("only config.json is needed"));
        assert!(said(&[model]).ends_with("hf download org/model config.json"));
    }
}
