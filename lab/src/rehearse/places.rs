//! Places in the script's files, as they are shown.

/// Returns the folder in which the command was started; empty if unknown.
pub(super) fn working_folder() -> String {
    std::env::current_dir().ok().and_then(|folder| folder.to_str().map(String::from)).unwrap_or_default()
}

/// Folders of installed packages: what follows is enough to find a file.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

/// Returns a place as it is shown: relative to `folder` if it lies there, a file of an installed package from the package on, otherwise unchanged.
pub(super) fn within(place: &str, folder: &str) -> String {
    let inside = (!folder.is_empty()).then(|| place.strip_prefix(folder)?.strip_prefix('/')).flatten();
    let installed = || PACKAGES.iter().find_map(|packages| place.rsplit_once(packages)).map(|(_, file)| file);
    // A virtual environment may lie in the folder.
    installed().or(inside).unwrap_or(place).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_are_relative_and_those_of_packages_short() {
        assert_eq!(within("/home/me/run/train.py:7", "/home/me/run"), "train.py:7");
        assert_eq!(within("/home/me/running/train.py:7", "/home/me/run"), "/home/me/running/train.py:7");
        let package = "/home/me/run/.venv/lib/python3.12/site-packages/torchtitan/models/model.py:343";
        assert_eq!(within(package, "/home/me/run"), "torchtitan/models/model.py:343");
        assert_eq!(within("?", ""), "?");
    }
}
