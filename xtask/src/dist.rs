//! Release archives (program, library, manual pages, completions, licences) and wheels for Python.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};

use crate::environment::Environment;
use crate::{artifact, licences};

/// Oldest glibc that a zig build supports.
const GLIBC: &str = "2.28";

/// Package of the library in cargo, and the library's folder in a wheel.
const LIBRARY: &str = "libvramlab_rehearsal.so";
const IN_WHEEL: &str = "python/vramlab.data/data/lib/vramlab";

/// The largest wheel, in bytes.
const LARGEST: u64 = 30_000_000;

/// PyPI packages that make a wheel, and that link against an older glibc.
const MATURIN: &str = "maturin";
const ZIG: [&str; 2] = ["cargo-zigbuild", "ziglang"];

/// Files that are copied unchanged.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Options of `dist` and `wheel`.
#[derive(Args)]
pub(crate) struct DistArgs {
    /// Target triple.
    #[arg(long, default_value = "x86_64-unknown-linux-gnu")]
    target: String,
    /// Link with zig against glibc 2.28: `cargo-zigbuild` and `ziglang` are installed from PyPI into target/wheel-tools. Without it, the build
    /// needs this machine's glibc or a newer one.
    #[arg(long)]
    zig: bool,
}

impl DistArgs {
    fn is_linux(&self) -> bool {
        self.target.contains("linux")
    }

    fn program(&self) -> &'static str {
        if self.target.contains("windows") { "vramlab.exe" } else { "vramlab" }
    }
}

/// Installs the PyPI tools that a build needs, if they are missing.
fn tools(root: &Path, packages: &[&str]) -> anyhow::Result<Environment> {
    Environment::with(root, "wheel-tools", packages)
}

/// Builds the program and the library for a target; returns their folder.
fn build(root: &Path, args: &DistArgs) -> anyhow::Result<PathBuf> {
    let mut packages = vec!["vramlab-cli"];
    packages.extend(args.is_linux().then_some("rehearsal"));
    // Separate builds, as in maturin: one build of both would select other features.
    for package in packages {
        let mut command = if args.zig { tools(root, &ZIG)?.command(ZIG[0])? } else { artifact::cargo(None) };
        let target = if args.zig { format!("{}.{GLIBC}", args.target) } else { args.target.clone() };
        command.arg(if args.zig { "zigbuild" } else { "build" });
        command.args(["--locked", "--profile", "dist", "--target", &target, "-p", package]).current_dir(root);
        succeed(&mut command)?;
    }
    Ok(artifact::target_folder(root).join(&args.target).join("dist"))
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{:?}", command.get_program());
    let status = command.status().with_context(|| format!("could not start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns its output as text.
fn printed(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{:?}", command.get_program());
    let output = command.output().with_context(|| format!("could not start {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Makes `target/archives/vramlab-VERSION-TARGET.tar.gz` and its checksum.
///
/// # Errors
/// The build fails. The target's program does not run on this machine: it prints the pages and completions.
pub(crate) fn archive(root: &Path, args: &DistArgs) -> anyhow::Result<()> {
    let built = build(root, args)?;
    let name = stem(&args.target);
    let folder = artifact::target_folder(root).join("archives").join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let program = folder.join("bin").join(args.program());
    copy(&built.join(args.program()), &program)?;
    if args.is_linux() {
        copy(&built.join(LIBRARY), &folder.join("lib").join(LIBRARY))?;
    }
    for text in TEXTS {
        copy(&root.join(text), &folder.join(text))?;
    }
    fs::write(folder.join("LICENSES-OF-LIBRARIES.txt"), licences::text(root, &args.target)?)?;
    pages(&program, &folder.join("share"))?;
    let archive = folder.with_file_name(format!("{name}.tar.gz"));
    fs::write(&archive, packed(&folder, &name, time_of_commit(root))?)?;
    let sum = checksum(&fs::read(&archive)?);
    fs::write(folder.with_file_name(format!("{name}.tar.gz.sha256")), format!("{sum}  {name}.tar.gz\n"))?;
    println!("{}", archive.display());
    Ok(())
}

/// Name of a target's archive without its ending, and of the folder in it. `cargo binstall` knows it from cli/Cargo.toml.
fn stem(target: &str) -> String {
    format!("vramlab-{}-{target}", env!("CARGO_PKG_VERSION"))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Manual pages and completions, printed by the program.
fn pages(program: &Path, share: &Path) -> anyhow::Result<()> {
    succeed(Command::new(program).args(["man", "--write"]).arg(share.join("man/man1")))?;
    let completions = share.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, file) in [
        ("bash", "vramlab.bash"),
        ("zsh", "_vramlab"),
        ("fish", "vramlab.fish"),
        ("powershell", "vramlab.ps1"),
        ("elvish", "vramlab.elv"),
    ] {
        fs::write(completions.join(file), printed(Command::new(program).args(["completions", shell]))?)?;
    }
    Ok(())
}

/// Time of the commit in seconds since 1970, so the same commit gives the same archive.
fn time_of_commit(root: &Path) -> u64 {
    let git = printed(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
    git.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Packs a folder reproducibly: files in order of their names, all with the same time and owner.
fn packed(folder: &Path, name: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzBuilder::new().mtime(0).write(Vec::new(), Compression::best()));
    for path in all_files(folder)? {
        let contents = fs::read(&path)?;
        let relative = path.strip_prefix(folder)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(if relative.starts_with("bin") { 0o755 } else { 0o644 });
        header.set_mtime(time);
        archive.append_data(&mut header, Path::new(name).join(relative), contents.as_slice())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn all_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(all_files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

fn checksum(contents: &[u8]) -> String {
    Sha256::digest(contents).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Makes a wheel in `target/wheels` with maturin from PyPI. It is put there only if it is small enough and, in a zig build, needs no newer glibc than
/// its tag says.
///
/// # Errors
/// There is no Python, PyPI is not reachable, the build fails, or the wheel has a problem.
pub(crate) fn wheel(root: &Path, args: &DistArgs) -> anyhow::Result<()> {
    let packages: Vec<&str> = std::iter::once(MATURIN).chain(ZIG.into_iter().filter(|_| args.zig)).collect();
    let tools = tools(root, &packages)?;
    let built = build(root, args)?;
    let data = root.join(IN_WHEEL);
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    if args.is_linux() {
        copy(&built.join(LIBRARY), &data.join(LIBRARY))?;
    }
    let folder = artifact::target_folder(root).join("wheels");
    fs::create_dir_all(&folder)?;
    let fresh = folder.join("unchecked");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    let licences = root.join("LICENSES-OF-LIBRARIES.txt");
    fs::File::create(&licences)?.write_all(licences::text(root, &args.target)?.as_bytes())?;
    let mut maturin = tools.command(MATURIN)?;
    maturin.args(["build", "--locked", "--profile", "dist", "--target", &args.target, "--out"]).arg(&fresh);
    if args.zig {
        maturin.args(["--zig", "--compatibility", &format!("manylinux_{}", GLIBC.replace('.', "_"))]);
    }
    let made = succeed(maturin.current_dir(root));
    fs::remove_file(&licences)?;
    made?;
    for wheel in all_files(&fresh)? {
        small_enough(&wheel, LARGEST)?;
        if args.zig {
            succeed(Command::new(tools.python()).arg(root.join("scripts/glibc.py")).arg(GLIBC).arg(&wheel))?;
        }
        let kept = folder.join(wheel.file_name().context("a wheel without a name")?);
        fs::rename(&wheel, &kept)?;
        println!("{}", kept.display());
    }
    Ok(fs::remove_dir(&fresh)?)
}

fn small_enough(wheel: &Path, largest: u64) -> anyhow::Result<()> {
    let size = fs::metadata(wheel)?.len();
    println!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    if size > largest {
        bail!("{} has {size} bytes; a wheel may have {largest}", wheel.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
    }

    /// Targets that the workflow of a release builds.
    fn released() -> Vec<String> {
        let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
        let lines = workflow.lines().filter_map(|line| line.trim().strip_prefix("- { target: "));
        lines.map(|line| line.split(',').next().unwrap().to_string()).collect()
    }

    #[test]
    fn binstall_looks_for_the_archives_that_are_made() {
        let words = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
        let said = printed(artifact::cargo(None).args(words).current_dir(root())).unwrap();
        let metadata: serde_json::Value = serde_json::from_str(&said).unwrap();
        let package = metadata["packages"].as_array().unwrap().iter().find(|one| one["name"] == "vramlab-cli").unwrap();
        let binstall = &package["metadata"]["binstall"];
        let released = released();
        assert!(released.len() >= 5, "{released:?}");
        for target in released {
            let args = DistArgs { target, zig: false };
            let filled = |key: &str| {
                let mut text = binstall[key].as_str().unwrap().to_string();
                let extension = args.program().strip_prefix("vramlab").unwrap();
                for (name, value) in [
                    ("repo", "REPO"),
                    ("version", package["version"].as_str().unwrap()),
                    ("target", &args.target),
                    ("archive-suffix", ".tar.gz"),
                    ("bin", "vramlab"),
                    ("binary-ext", extension),
                ] {
                    text = text.replace(&format!("{{ {name} }}"), value);
                }
                text
            };
            let (stem, version) = (stem(&args.target), env!("CARGO_PKG_VERSION"));
            assert_eq!(filled("pkg-url"), format!("REPO/releases/download/v{version}/{stem}.tar.gz"));
            assert_eq!(filled("bin-dir"), format!("{stem}/bin/{}", args.program()));
        }
        // The ending is one of those that this format stands for.
        assert_eq!(binstall["pkg-fmt"], "tgz");
        assert!(
            package["targets"]
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one["kind"][0] == "bin" && one["name"] == "vramlab")
        );
    }

    #[test]
    fn the_same_files_are_the_same_archive() {
        let folder = std::env::temp_dir().join(format!("vramlab-dist-{}", std::process::id()));
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/vramlab"), "program").unwrap();
        fs::write(folder.join("README.md"), "text").unwrap();
        let first = packed(&folder, "vramlab-1", 7).unwrap();
        fs::write(folder.join("README.md"), "text").unwrap();
        assert_eq!(packed(&folder, "vramlab-1", 7).unwrap(), first);
        fs::write(folder.join("README.md"), "another").unwrap();
        assert_ne!(packed(&folder, "vramlab-1", 7).unwrap(), first);
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(first.as_slice()));
        let entries = archive.entries().unwrap().map(|entry| entry.unwrap());
        let named: Vec<_> = entries
            .map(|entry| (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap()))
            .collect();
        assert_eq!(named, [("vramlab-1/README.md".into(), 0o644), ("vramlab-1/bin/vramlab".into(), 0o755)]);
        assert_eq!(checksum(b"abc")[..16], *"ba7816bf8f01cfea");
        assert!(small_enough(&folder.join("README.md"), 7).is_ok());
        assert!(small_enough(&folder.join("README.md"), 6).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
