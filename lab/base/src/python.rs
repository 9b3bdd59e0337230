//! What is installed for the Python that a user would start, read from its folders: no interpreter is started.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Largest `pyvenv.cfg` that is read, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Reads a variable of the environment.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Reason why a Python is the one that would be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `--python` names it.
    Named,
    /// It is that of an activated environment.
    VirtualEnv,
    /// It is that of an activated environment of conda.
    Conda,
    /// It is the first `python3` on `PATH`.
    Path,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named => "--python",
            Self::VirtualEnv => "VIRTUAL_ENV",
            Self::Conda => "CONDA_PREFIX",
            Self::Path => "python3 on PATH",
        })
    }
}

/// A Python, by the folders that it imports packages from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Why this one would be used.
    pub origin: Origin,
    /// Folders of packages, the first that has a package wins.
    folders: Vec<PathBuf>,
}

impl Python {
    /// Returns the Python that would be used: the interpreter or environment `named`, else that of `VIRTUAL_ENV`, of `CONDA_PREFIX`, or the
    /// first `python3` on `PATH`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Usage`] for a name that is neither a folder nor a file.
    pub fn find(named: Option<&Path>, variable: Variable<'_>) -> Result<Option<Self>> {
        if let Some(path) = named {
            let place = Place::at(path, variable).ok_or_else(|| {
                let problem = "is neither an interpreter nor the folder of an environment";
                Error::usage("python", format!("{} {problem}", path.display()))
            })?;
            return Ok(Some(place.python(Origin::Named, variable)));
        }
        let of_variable = |(name, origin)| {
            let folder = variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)?;
            folder.is_dir().then(|| Place::of_environment(folder).python(origin, variable))
        };
        let activated = [("VIRTUAL_ENV", Origin::VirtualEnv), ("CONDA_PREFIX", Origin::Conda)];
        Ok(activated.into_iter().find_map(of_variable).or_else(|| {
            let path = on_path("python3", variable)?;
            Some(Place::at(&path, variable)?.python(Origin::Path, variable))
        }))
    }

    /// Returns the version of an installed package, from the name of its `NAME-VERSION.dist-info`.
    pub fn version_of(&self, package: &str) -> Option<String> {
        self.folders.iter().find_map(|folder| {
            let versions = names(folder).into_iter().filter_map(|name| {
                let (found, version) = name.strip_suffix(".dist-info")?.rsplit_once('-')?;
                (found.eq_ignore_ascii_case(package)).then(|| version.to_string())
            });
            versions.max()
        })
    }
}

/// Programs of an environment.
const IN_ENVIRONMENT: [&str; 3] = ["bin/python", "Scripts/python.exe", "python.exe"];

/// Returns the interpreter to start, by the same rule as [`Python::find`]: `named` (a program, or the folder of an environment), else that of
/// `VIRTUAL_ENV`, of `CONDA_PREFIX`, or the first `python3` or `python` on `PATH`. An activated folder without an interpreter is passed over.
///
/// # Errors
/// [`Error::Usage`] for a name that does not lead to an interpreter, and if none is found.
pub fn interpreter(named: Option<&Path>, variable: Variable<'_>) -> Result<PathBuf> {
    if let Some(path) = named {
        let found = match path.to_str() {
            _ if path.is_dir() => of_environment(path.to_path_buf()),
            _ if path.is_file() => Some(path.to_path_buf()),
            Some(name) if path.components().count() == 1 => on_path(name, variable),
            _ => None,
        };
        let problem = "is neither an interpreter nor the folder of an environment that has one";
        return found.ok_or_else(|| Error::usage("python", format!("{} {problem}", path.display())));
    }
    let folders = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).filter(|value| !value.is_empty());
    let activated = folders.map(PathBuf::from).find_map(of_environment);
    activated.or_else(|| on_path("python3", variable)).or_else(|| on_path("python", variable)).ok_or_else(|| {
        let problem = "none was found: neither VIRTUAL_ENV, CONDA_PREFIX nor python3 on PATH has one";
        Error::usage("python", problem)
    })
}

/// Environments in the folder of a project, and Pythons and environments in a home folder; those behind a slash are all below it.
const OF_PROJECTS: [&str; 4] = [".venv", "venv", "env", ".env"];
const OF_HOMES: [&str; 14] = [
    ".venv",
    "venv",
    "miniconda3",
    "miniconda3/envs/",
    "anaconda3",
    "anaconda3/envs/",
    "miniforge3",
    "miniforge3/envs/",
    "mambaforge",
    "mambaforge/envs/",
    ".conda/envs/",
    ".virtualenvs/",
    ".pyenv/versions/",
    ".local/share/uv/python/",
];

/// Returns an interpreter that has a package: of an activated environment, of one in the working folder or a folder around it, of `PATH`, or
/// of the usual places in the home folder, the first one.
pub fn with_package(package: &str, working: &Path, variable: Variable<'_>) -> Option<PathBuf> {
    let activated = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from);
    let around = working.ancestors().flat_map(|folder| OF_PROJECTS.map(|name| folder.join(name)));
    let home = variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let homes = home.iter().flat_map(|home| OF_HOMES.map(|name| home.join(name)));
    let below = |folder: PathBuf| match folder.to_str().is_some_and(|path| path.ends_with('/')) {
        true => names(&folder).into_iter().map(|name| folder.join(name)).collect(),
        false => vec![folder],
    };
    let path = variable("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).flat_map(|folder| ["python3", "python"].map(|name| folder.join(name)));
    let programs = activated
        .chain(around)
        .filter_map(of_environment)
        .chain(on_path.filter(|program| program.is_file()))
        .chain(homes.flat_map(below).filter_map(of_environment));
    let has_it = |program: &PathBuf| {
        let place = Place::at(program, variable);
        place.is_some_and(|place| place.python(Origin::Path, variable).version_of(package).is_some())
    };
    programs.into_iter().find(has_it)
}

/// Returns the interpreter of an environment; `None` if the folder is none.
fn of_environment(folder: PathBuf) -> Option<PathBuf> {
    IN_ENVIRONMENT.iter().map(|name| folder.join(name)).find(|program| program.is_file())
}

/// Place of an interpreter.
struct Place {
    /// The folder of an environment or an installation.
    prefix: PathBuf,
    /// The folder under `lib` with its packages (`python3.12`), if the interpreter's name says it.
    version: Option<String>,
}

impl Place {
    /// Returns the place of an interpreter, or of an environment by its folder; `None` if there is nothing.
    fn at(path: &Path, variable: Variable<'_>) -> Option<Self> {
        if path.is_dir() {
            return Some(Self::of_environment(path.to_path_buf()));
        }
        let program = match path.components().count() {
            1 if !path.is_file() => on_path(path.to_str()?, variable)?,
            _ => path.to_path_buf(),
        };
        let prefix = |program: &Path| Some(program.parent()?.parent()?.to_path_buf());
        // An interpreter of an environment is a link: the environment is where the link lies.
        if let Some(prefix) = prefix(&program).filter(|prefix| prefix.join(CONFIGURATION).is_file()) {
            return Some(Self::of_environment(prefix));
        }
        let real = fs::canonicalize(&program).ok()?;
        let version = real.file_name()?.to_str().filter(|name| name.starts_with("python3.")).map(String::from);
        Some(Self { prefix: prefix(&real)?, version })
    }

    fn of_environment(prefix: PathBuf) -> Self {
        Self { prefix, version: None }
    }

    /// Returns the Python there, with every folder that it imports from: `PYTHONPATH`, the user's own packages, its own, and those of the Python
    /// that an environment is made of, if it shows them.
    fn python(self, origin: Origin, variable: Variable<'_>) -> Python {
        let listed = variable("PYTHONPATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> =
            std::env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).collect();
        let configuration = self.configuration();
        let shows_others = configuration.as_ref().is_none_or(|text| {
            setting(text, "include-system-site-packages").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        });
        let own = self.packages();
        if configuration.is_some() {
            folders.extend(own);
            let base = configuration.as_deref().and_then(|text| setting(text, "home")).filter(|_| shows_others);
            let base = base.and_then(|home| Self::at(&Path::new(home).join("python3"), variable));
            folders.extend(of_user(variable, self.version.as_deref()).into_iter().filter(|_| shows_others));
            folders.extend(base.iter().flat_map(Self::packages));
        } else {
            folders.extend(of_user(variable, self.version.as_deref()));
            folders.extend(own);
        }
        Python { origin, folders }
    }

    /// Returns the text of `pyvenv.cfg`, which an environment has.
    fn configuration(&self) -> Option<String> {
        crate::files::text(&self.prefix.join(CONFIGURATION), MAX_BYTES, "an environment").ok()
    }

    /// The folders of packages below the prefix; below `/usr/local`, too, if the prefix is `/usr`.
    fn packages(&self) -> Vec<PathBuf> {
        let local = (self.prefix == Path::new("/usr")).then(|| self.prefix.join("local"));
        let roots = local.iter().chain([&self.prefix]);
        roots.flat_map(|root| below(root, self.version.as_deref())).collect()
    }
}

/// The file that makes a folder an environment.
const CONFIGURATION: &str = "pyvenv.cfg";

/// The folders of packages of every Python below a prefix, or of one version.
fn below(root: &Path, version: Option<&str>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"].map(|name| root.join(name)) {
        let pythons = names(&lib).into_iter().filter(|name| match version {
            Some(version) => name == version,
            None => name.starts_with("python3."),
        });
        let with_debian = pythons.chain([String::from("python3")]);
        found.extend(
            with_debian.flat_map(|python| ["site-packages", "dist-packages"].map(|name| lib.join(&python).join(name))),
        );
    }
    // Windows
    found.push(root.join("Lib").join("site-packages"));
    found
}

/// The folders of packages that a user installed for themselves.
fn of_user(variable: Variable<'_>, version: Option<&str>) -> Vec<PathBuf> {
    let home = variable("HOME").filter(|home| !home.is_empty());
    home.map(|home| below(&Path::new(&home).join(".local"), version)).unwrap_or_default()
}

/// The first program of this name on `PATH`.
fn on_path(name: &str, variable: Variable<'_>) -> Option<PathBuf> {
    let path = variable("PATH")?;
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&path).map(|folder| folder.join(&file)).find(|program| program.is_file())
}

/// The value of a line `key = value`.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.trim(), value.trim())).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Names of a folder's entries that are text, in order; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().to_str().map(String::from)).collect();
    names.sort();
    names
}

/// Returns a variable of this process, for [`Python::find`].
pub fn of_process(name: &str) -> Option<OsString> {
    std::env::var_os(OsStr::new(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A made-up machine below a folder.
    struct Machine {
        folder: tempfile::TempDir,
        variables: HashMap<&'static str, OsString>,
    }

    impl Machine {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), variables: HashMap::new() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn file(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Installs a package into a folder of packages.
        fn install(&self, site: &str, name: &str) {
            self.file(&format!("{site}/{name}.dist-info/METADATA"), "");
        }

        fn set(&mut self, name: &'static str, place: &str) {
            self.variables.insert(name, self.path(place).into_os_string());
        }

        fn found(&self, named: Option<&str>) -> Option<(Origin, Option<String>)> {
            let variable = |name: &str| self.variables.get(name).cloned();
            let named = named.map(|name| self.path(name));
            let python = Python::find(named.as_deref(), &variable).unwrap()?;
            Some((python.origin, python.version_of("transformers")))
        }
    }

    fn some(origin: Origin, version: &str) -> Option<(Origin, Option<String>)> {
        Some((origin, Some(version.into())))
    }

    #[test]
    fn the_interpreter_is_that_of_the_same_python() {
        let machine = Machine::new();
        machine.file("env/bin/python", "");
        machine.file("empty/pyvenv.cfg", "");
        machine.file("bin/python3", "");
        let path = |name: &str| machine.path(name);
        let started = |named: Option<&Path>, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| path(value).into_os_string())
            };
            interpreter(named, &variable)
        };
        assert_eq!(started(Some(&path("env")), &[]).unwrap(), path("env/bin/python"));
        assert_eq!(started(Some(&path("bin/python3")), &[]).unwrap(), path("bin/python3"));
        assert_eq!(started(Some(Path::new("python3")), &[("PATH", "bin")]).unwrap(), path("bin/python3"));
        assert_eq!(started(None, &[("VIRTUAL_ENV", "env"), ("PATH", "bin")]).unwrap(), path("env/bin/python"));
        assert_eq!(started(None, &[("VIRTUAL_ENV", "empty"), ("PATH", "bin")]).unwrap(), path("bin/python3"));
        for wrong in
            [started(Some(&path("empty")), &[("PATH", "bin")]), started(Some(&path("none")), &[]), started(None, &[])]
        {
            assert!(wrong.unwrap_err().to_string().starts_with("python: "));
        }
    }

    #[test]
    fn a_python_with_a_package_is_found_where_people_have_them() {
        let mut machine = Machine::new();
        machine.file("bin/python3", "");
        machine.set("PATH", "bin");
        machine.set("HOME", "home");
        let found = |machine: &Machine| {
            let variable = |name: &str| machine.variables.get(name).cloned();
            with_package("torch", &machine.path("home/project/src"), &variable)
        };
        assert_eq!(found(&machine), None);
        machine.file("home/miniconda3/envs/other/bin/python", "");
        machine.file("home/miniconda3/envs/train/bin/python", "");
        machine.install("home/miniconda3/envs/train/lib/python3.12/site-packages", "torch-2.11.0+cu130");
        assert_eq!(found(&machine), Some(machine.path("home/miniconda3/envs/train/bin/python")));
        machine.file("home/project/.venv/bin/python", "");
        machine.file("home/project/.venv/pyvenv.cfg", "");
        assert_eq!(found(&machine), Some(machine.path("home/miniconda3/envs/train/bin/python")), "it has none");
        machine.install("home/project/.venv/lib/python3.12/site-packages", "torch-2.11.0");
        assert_eq!(found(&machine), Some(machine.path("home/project/.venv/bin/python")));
        machine.install("home/project/.venv/lib/python3.12/site-packages", "torchvision-0.26.0");
    }

    #[test]
    fn the_environment_that_is_named_or_activated_comes_first() {
        let mut machine = Machine::new();
        assert_eq!(machine.found(None), None);
        machine.file("bin/python3", "");
        machine.install("lib/python3.11/site-packages", "transformers-4.40.1");
        machine.set("PATH", "bin");
        assert_eq!(machine.found(None), some(Origin::Path, "4.40.1"));
        machine.install("conda/lib/python3.12/site-packages", "transformers-4.51.3");
        machine.set("CONDA_PREFIX", "conda");
        assert_eq!(machine.found(None), some(Origin::Conda, "4.51.3"));
        machine.install("venv/lib/python3.12/site-packages", "Transformers-5.17.0");
        machine.install("venv/lib/python3.12/site-packages", "transformers_stream_generator-0.0.5");
        machine.set("VIRTUAL_ENV", "venv");
        assert_eq!(machine.found(None), some(Origin::VirtualEnv, "5.17.0"));
        machine.set("VIRTUAL_ENV", "not-there");
        assert_eq!(machine.found(None), some(Origin::Conda, "4.51.3"), "a folder that is gone");
        machine.file("empty/pyvenv.cfg", "home = /nowhere\n");
        machine.set("VIRTUAL_ENV", "empty");
        assert_eq!(machine.found(None), Some((Origin::VirtualEnv, None)), "its packages are those that count");
        assert_eq!(machine.found(Some("venv")), some(Origin::Named, "5.17.0"));
        let wrong = Python::find(Some(&machine.path("nothing")), &|_| None).unwrap_err().to_string();
        assert!(wrong.contains("neither an interpreter"), "{wrong}");
    }

    #[test]
    fn folders_that_come_before_and_behind_an_environment() {
        let mut machine = Machine::new();
        machine.file("base/bin/python3", "");
        machine.install("base/lib/python3.12/site-packages", "transformers-4.57.0");
        let home = machine.path("base/bin").display().to_string();
        machine.file("venv/pyvenv.cfg", &format!("home = {home}\ninclude-system-site-packages = false\n"));
        machine.file("venv/bin/python3", "");
        machine.set("VIRTUAL_ENV", "venv");
        assert_eq!(machine.found(None), Some((Origin::VirtualEnv, None)));
        machine.install("home/.local/lib/python3.12/site-packages", "transformers-5.0.0");
        machine.set("HOME", "home");
        assert_eq!(machine.found(None), Some((Origin::VirtualEnv, None)), "an environment hides a user's own packages");
        machine.file("venv/pyvenv.cfg", &format!("home = {home}\ninclude-system-site-packages = true\n"));
        assert_eq!(machine.found(None), some(Origin::VirtualEnv, "5.0.0"));
        assert_eq!(machine.found(Some("venv/bin/python3")), some(Origin::Named, "5.0.0"));
        assert_eq!(machine.found(Some("base/bin/python3")), some(Origin::Named, "5.0.0"));
        machine.set("HOME", "nobody");
        assert_eq!(machine.found(None), some(Origin::VirtualEnv, "4.57.0"));
        machine.install("mine", "transformers-5.24.0.dev0");
        machine.set("PYTHONPATH", "mine");
        assert_eq!(machine.found(None), some(Origin::VirtualEnv, "5.24.0.dev0"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_on_the_path_leads_to_the_version_that_it_starts() {
        let mut machine = Machine::new();
        machine.file("usr/bin/python3.12", "");
        machine.file("usr/bin/python3.9", "");
        std::os::unix::fs::symlink("python3.12", machine.path("usr/bin/python3")).unwrap();
        machine.install("usr/lib/python3.9/site-packages", "transformers-4.30.0");
        machine.set("PATH", "usr/bin");
        assert_eq!(machine.found(None), Some((Origin::Path, None)));
        machine.install("usr/lib/python3/dist-packages", "transformers-4.46.0");
        assert_eq!(machine.found(None), some(Origin::Path, "4.46.0"));
        machine.install("usr/lib/python3.12/site-packages", "transformers-5.23.0");
        assert_eq!(machine.found(None), some(Origin::Path, "5.23.0"));
    }
}
