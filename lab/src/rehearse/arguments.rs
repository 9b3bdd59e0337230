//! Arguments that a script does not read: with them it does what it does without.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What stands in a file that may read arguments, in small letters: Python's own ways and usual libraries.
const READS: [&str; 20] = [
    "argv",
    "parse",
    "click",
    "fire",
    "typer",
    "hydra",
    "absl",
    "docopt",
    "tyro",
    "getopt",
    "exec(",
    "omegaconf",
    "from_cli",
    "lightningcli",
    "import_module",
    "runpy",
    "gin",
    "draccus",
    "sacred",
    "plac",
];

/// Files that are read at most; a script with more is taken to read its arguments.
const MOST_FILES: usize = 40;

/// Largest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Says that a script reads no arguments, where a command has some: neither its file nor a file beside it that it imports can.
pub(super) fn unread(command: &[OsString]) -> Option<String> {
    let is_script = |word: &&OsString| Path::new(word).extension().is_some_and(|ending| ending == "py");
    let at = command.iter().position(|word| is_script(&word)).filter(|at| *at <= 1)?;
    let arguments: Vec<_> = command[at + 1..].iter().map(|word| word.to_string_lossy()).collect();
    let script = Path::new(&command[at]);
    if arguments.is_empty() || reads(script) {
        return None;
    }
    let name = script.file_name()?.to_string_lossy();
    Some(format!("{name} reads no arguments, so {} changes nothing; change the value in the file", arguments.join(" ")))
}

/// True if the script of a command may read arguments, as far as its file and those beside it tell.
pub fn reads_arguments(command: &[OsString]) -> bool {
    let script = command.iter().take(2).find(|word| Path::new(word).extension().is_some_and(|ending| ending == "py"));
    script.is_none_or(|script| reads(Path::new(script)))
}

fn reads(script: &Path) -> bool {
    let folder = script.parent().unwrap_or(Path::new("")).to_path_buf();
    let (mut seen, mut open) = (HashSet::new(), vec![script.to_path_buf()]);
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let size = path.metadata().map(|metadata| metadata.len());
        let text = size.ok().filter(|size| *size <= MOST_BYTES).and_then(|_| std::fs::read_to_string(&path).ok());
        let Some(text) = text.filter(|_| seen.len() <= MOST_FILES) else { return true };
        let small = text.to_ascii_lowercase();
        if READS.iter().any(|word| small.contains(word)) {
            return true;
        }
        match imported(&text, &folder) {
            Some(files) => open.extend(files),
            None => return true,
        }
    }
    false
}

/// The files in a folder that a text imports; `None` if one is a package, whose files are many.
fn imported(text: &str, folder: &Path) -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    for line in text.lines().map(str::trim_start) {
        let Some(names) = line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")) else { continue };
        let names = if line.starts_with("from ") { names.split(' ').next().unwrap_or_default() } else { names };
        for name in names.split(',') {
            let first = name.trim().split(['.', ' ']).next().unwrap_or_default();
            if first.is_empty() || folder.join(first).is_dir() {
                return None;
            }
            files.extend(Some(folder.join(format!("{first}.py"))).filter(|path| path.is_file()));
        }
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_file_can_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("plain.py", "import torch\nimport model\nBATCH = 8\n");
        write("model.py", "import torch.nn as nn\n");
        write("own.py", "import settings\n");
        write("settings.py", "import sys\nBATCH = int(sys.argv[1])\n");
        write("packed.py", "from package import train\ntrain()\n");
        std::fs::create_dir(folder.path().join("package")).unwrap();
        let said = |script: &str, arguments: &[&str]| {
            let script = folder.path().join(script).into_os_string();
            let words = ["python".into(), script].into_iter().chain(arguments.iter().map(OsString::from));
            unread(&words.collect::<Vec<_>>())
        };
        let expected = "plain.py reads no arguments, so --batch 32 changes nothing; change the value in the file";
        assert_eq!(said("plain.py", &["--batch", "32"]).as_deref(), Some(expected));
        assert_eq!(said("plain.py", &[]), None);
        assert_eq!(said("own.py", &["32"]), None, "a file beside it does");
        assert_eq!(said("packed.py", &["32"]), None, "a package may");
        assert_eq!(unread(&["torchrun".into(), "--nproc".into(), "2".into()]), None);
        assert!(!reads_arguments(&["python".into(), folder.path().join("plain.py").into_os_string()]));
    }
}
