//! Removes the folder of a run, whatever modes its folders were given.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a folder with everything in it, as far as this user may.
pub(in crate::rehearse) fn remove_folder(path: &Path) {
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    open_folders(path);
    // The user finds in the folder for temporary files what cannot be removed.
    let _left = fs::remove_dir_all(path);
}

/// Lets this user change all folders below a folder: an overlay's own folder has no rights, and a script may take away others.
fn open_folders(folder: &Path) {
    // A script may put a link in place of the run's folder.
    if !fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
        return;
    }
    let _not_ours = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_folders(&entry.path());
        }
    }
}
