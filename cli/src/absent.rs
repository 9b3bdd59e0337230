//! Files that are not there.

use std::path::Path;

use lab::similar::slips;

/// Files of a folder among which one may have been meant.
const FILES: usize = 1000;

/// Says that a file is absent, and which one of its folder may have been meant.
pub(crate) fn absent(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(FILES);
    let there: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let typed = path.file_name().unwrap_or_default().to_string_lossy();
    let near = there.iter().filter(|name| !name.contains(char::is_control)).min_by_key(|name| slips(name, &typed));
    let near = near.filter(|name| slips(name, &typed) <= typed.len().div_ceil(8).min(2));
    let meant = near.map_or(String::new(), |name| format!("; did you mean {}?", path.with_file_name(name).display()));
    format!("{}: there is no such file{meant}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_nearly_that_name_may_have_been_meant() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lora.yaml"), "").unwrap();
        for (typed, meant) in [("lora.yml", true), ("lra.yaml", true), ("other.yaml", false), ("x", false)] {
            let said = absent(&folder.path().join(typed));
            assert_eq!(said.ends_with("lora.yaml?"), meant, "{said}");
        }
        assert_eq!(absent(Path::new("no/such/folder")), "no/such/folder: there is no such file");
    }
}
