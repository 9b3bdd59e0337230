//! Software adapters, so that the wgpu backend is tested on machines without a graphics card.
//!
//! Mesa's lavapipe is installed where that is allowed; SwiftShader, a second and independent implementation, is taken out of
//! Debian's package of Chromium into `target/`, without installing it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The packages of lavapipe and of the loader that finds it.
const LAVAPIPE: [&str; 2] = ["mesa-vulkan-drivers", "libvulkan1"];

/// Directories of descriptions of Vulkan drivers.
const DRIVERS: [&str; 3] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// Makes sure that a Vulkan driver is there. `Err` says why it is not, and what to do.
pub(crate) fn ensure_driver() -> Result<(), String> {
    if !cfg!(target_os = "linux") || has_driver() {
        // Elsewhere the system brings its own interface.
        return Ok(());
    }
    let hint = format!("install one, as by: apt-get install {}", LAVAPIPE.join(" "));
    println!("==> no Vulkan driver; trying to install {}", LAVAPIPE.join(" "));
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(LAVAPIPE);
    if !(succeeds("apt-get", &install) || (succeeds("apt-get", &["update"]) && succeeds("apt-get", &install))) {
        return Err(format!("no Vulkan driver, and none could be installed: {hint}"));
    }
    if has_driver() { Ok(()) } else { Err(format!("no Vulkan driver: {hint}")) }
}

fn has_driver() -> bool {
    DRIVERS.iter().any(|directory| std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()))
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// SwiftShader's driver description, unpacked below `target`. `Err` says why it is not there.
pub(crate) fn swiftshader(target: &Path) -> Result<PathBuf, String> {
    let directory = target.join("swiftshader");
    let driver = directory.join("usr/lib/chromium/vk_swiftshader_icd.json");
    if driver.is_file() {
        return Ok(driver);
    }
    std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let in_directory = |program: &str, args: &[&str]| {
        let status = Command::new(program).args(args).current_dir(&directory).stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !in_directory("apt-get", &["download", "chromium-common"]) {
        return Err("SwiftShader: apt-get download chromium-common failed".into());
    }
    let package = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name.ends_with(".deb"));
    let unpacked = package.is_some_and(|name| in_directory("dpkg-deb", &["-x", &name, "."]));
    if unpacked && driver.is_file() { Ok(driver) } else { Err("SwiftShader: the package could not be unpacked".into()) }
}
