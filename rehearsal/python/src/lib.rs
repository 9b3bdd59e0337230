//! The Python that runs inside the processes of a rehearsal: one package, `_vramlab_rehearsal`, as text.
//!
//! Each program here begins with `importer.py`, which imports the package from the texts that follow it. So the package lies in no folder,
//! and cannot stand in the way of a script's own modules.

use std::fmt::Write;

/// Imports the package from memory.
const IMPORTER: &str = include_str!("../importer.py");

/// Program that stands in for `nvidia-smi`.
pub const NVIDIA_SMI: &str = include_str!("../nvidia_smi.py");

macro_rules! modules {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../_vramlab_rehearsal/", $name, ".py")))),+]
    };
}

/// The parts that both programs need: path in the package without `.py`, and text.
const COMMON: &[(&str, &str)] = modules!["__init__", "libraries"];

/// The part that waits for `torch`, counts steps and writes the answers.
const BOOT: &[(&str, &str)] = modules![
    "boot/__init__",
    "boot/answer",
    "boot/endings",
    "boot/growth",
    "boot/holding",
    "boot/hooks",
    "boot/lines",
    "boot/made_up",
    "boot/made_up_data",
    "boot/made_up_hub",
    "boot/made_up_pictures",
    "boot/made_up_readers",
    "boot/periods",
    "boot/phases",
    "boot/places",
    "boot/report",
    "boot/roles",
    "boot/schema",
    "boot/script",
    "boot/settings",
    "boot/start",
    "boot/steps",
    "boot/watch",
    "boot/withhold",
    "boot/world",
];

/// The layer that computes small tensors.
const VALUES: &[(&str, &str)] = modules![
    "values/__init__",
    "values/branches",
    "values/counted",
    "values/kernels",
    "values/known",
    "values/nonzero",
    "values/operators",
    "values/put_off",
    "values/quick",
    "values/raising",
    "values/ranks",
    "values/reads",
    "values/short",
    "values/start",
    "values/stored",
    "values/statistics",
    "values/tables",
    "values/vectors",
    "values/values",
];

/// What each Python of a rehearsal runs at its start, as a program in whose variables `__file__` is a file beside `settings.json`.
pub fn boot() -> String {
    program(&[COMMON, BOOT, VALUES], "from _vramlab_rehearsal.boot import start\n\nstart.run(__file__)\n")
}

/// The layer that computes small tensors, as a program that defines `install(torch)`.
pub fn values() -> String {
    program(&[COMMON, VALUES], "from _vramlab_rehearsal.values.start import install\n")
}

fn program(parts: &[&[(&str, &str)]], end: &str) -> String {
    let mut text = format!("{IMPORTER}\n\nadd({{\n");
    for (path, source) in parts.iter().copied().flatten() {
        let name = path.strip_suffix("/__init__").unwrap_or(path);
        let name = if name == "__init__" { String::new() } else { format!(".{}", name.replace('/', ".")) };
        let _ = writeln!(text, "    \"_vramlab_rehearsal{name}\": {},", literal(source));
    }
    text + "})\n" + end
}

/// A text as a literal of Python.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + text.len() / 16);
    literal.push('"');
    for character in text.chars() {
        match character {
            '\\' => literal.push_str("\\\\"),
            '"' => literal.push_str("\\\""),
            '\n' => literal.push_str("\\n"),
            ' '..='~' => literal.push(character),
            other => {
                let _ = write!(literal, "\\U{:08x}", u32::from(other));
            }
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    #[test]
    fn every_file_of_the_package_is_in_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("_vramlab_rehearsal");
        let mut found = BTreeSet::new();
        for folder in ["", "boot", "values"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "py") {
                    found.insert(path.strip_prefix(&root).unwrap().with_extension("").to_str().unwrap().to_string());
                }
            }
        }
        let listed: BTreeSet<_> =
            [COMMON, BOOT, VALUES].iter().copied().flatten().map(|(name, _)| name.to_string()).collect();
        assert_eq!(listed, found);
    }

    #[test]
    fn a_literal_is_the_text() {
        let text = "a\\n\t\"\"\" …\n\u{1f600}'\r";
        let script = format!("import sys; sys.stdout.buffer.write({}.encode())", literal(text));
        let output = Command::new("python3").args(["-c", &script]).output().expect("python3 is there");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    }

    #[test]
    fn the_layer_alone_has_an_install() {
        let script = "import sys; layer = {}; exec(compile(sys.stdin.read(), '<vramlab>', 'exec'), layer); \
                      assert callable(layer['install']); assert layer['install'].__module__ == '_vramlab_rehearsal.values.start'";
        let mut command = Command::new("python3");
        command.args(["-I", "-c", script]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), values().as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
