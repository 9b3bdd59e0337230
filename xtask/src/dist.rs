//! What is given to others: the program and its library in an archive with pages, completions and licences; the same in a wheel for Python.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};

use crate::{checks, licences};

/// The oldest C library that a build by zig runs with.
const GLIBC: &str = "2.28";

/// What is cargo's name for the library, and where it lies in a wheel.
const LIBRARY: &str = "libvramlab_rehearsal.so";
const IN_WHEEL: &str = "python/vramlab.data/data/lib/vramlab";

/// Files that go as they are.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// How to build what is given to others.
#[derive(Args)]
pub(crate) struct DistArgs {
    /// The target, as rustc names it.
    #[arg(long, default_value = "x86_64-unknown-linux-gnu")]
    target: String,
    /// Link by zig against glibc 2.28, with `cargo-zigbuild` and `ziglang` of PyPI on the path; else what is built here runs only with this machine's
    /// C library or a newer one.
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

/// Builds the program and the library for a target; returns the folder that they are in.
fn build(root: &Path, args: &DistArgs) -> anyhow::Result<PathBuf> {
    let mut packages = vec!["vramlab-cli"];
    packages.extend(args.is_linux().then_some("rehearsal"));
    // One after the other, as maturin builds the first: together they would be built with other features.
    for package in packages {
        let mut command = if args.zig { Command::new("cargo-zigbuild") } else { checks::cargo(None) };
        let target = if args.zig { format!("{}.{GLIBC}", args.target) } else { args.target.clone() };
        command.arg(if args.zig { "zigbuild" } else { "build" });
        command.args(["--locked", "--profile", "dist", "--target", &target, "-p", package]).current_dir(root);
        succeed(&mut command)?;
    }
    Ok(target_folder(root).join(&args.target).join("dist"))
}

fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{:?}", command.get_program());
    let status = command.status().with_context(|| format!("could not start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// The text that a command prints.
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
/// The build's; a target whose programs do not run here, since they print the pages and completions.
pub(crate) fn archive(root: &Path, args: &DistArgs) -> anyhow::Result<()> {
    let built = build(root, args)?;
    let name = format!("vramlab-{}-{}", env!("CARGO_PKG_VERSION"), args.target);
    let folder = target_folder(root).join("archives").join(&name);
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

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Pages of the manual and completions, as the program prints them.
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

/// Seconds since 1970: the same commit gives the same archive.
fn time_of_commit(root: &Path) -> u64 {
    let git = printed(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root));
    git.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A folder as an archive that depends on nothing but the files: in the order of their names, with one time and one owner.
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

/// Makes a wheel in `target/wheels`, by maturin of PyPI; one by zig is looked at for what it needs of the C library.
///
/// # Errors
/// The build's; a wheel that needs a newer C library than it says.
pub(crate) fn wheel(root: &Path, args: &DistArgs) -> anyhow::Result<()> {
    let built = build(root, args)?;
    let data = root.join(IN_WHEEL);
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    if args.is_linux() {
        copy(&built.join(LIBRARY), &data.join(LIBRARY))?;
    }
    let licences = root.join("LICENSES-OF-LIBRARIES.txt");
    fs::File::create(&licences)?.write_all(licences::text(root, &args.target)?.as_bytes())?;
    let folder = target_folder(root).join("wheels");
    let mut maturin = Command::new("maturin");
    maturin.args(["build", "--locked", "--profile", "dist", "--target", &args.target, "--out"]).arg(&folder);
    if args.zig {
        maturin.args(["--zig", "--compatibility", &format!("manylinux_{}", GLIBC.replace('.', "_"))]);
    }
    succeed(maturin.current_dir(root))?;
    fs::remove_file(&licences)?;
    if args.zig {
        let wheels = all_files(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "whl"));
        succeed(Command::new("python3").arg(root.join("scripts/glibc.py")).arg(GLIBC).args(wheels))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        fs::remove_dir_all(&folder).unwrap();
    }
}
