//! Software adapters, so that the backends for GPUs are tested on machines without a graphics card.
//!
//! PoCL, an OpenCL implementation for processors, is installed where that is allowed, and so is Oclgrind, which
//! interprets kernels and checks each access. Mesa's lavapipe is installed where that is allowed. SwiftShader, a second
//! and independent implementation, is extracted from Debian's package of Chromium into `target/`, without installing
//! it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

/// The packages of lavapipe and of the loader that finds it.
const LAVAPIPE: [&str; 2] = ["mesa-vulkan-drivers", "libvulkan1"];

/// The packages of PoCL and of the loader that finds it.
const POCL: [&str; 2] = ["pocl-opencl-icd", "ocl-icd-libopencl1"];

/// Folders with descriptions of OpenCL drivers.
const OPENCL_DRIVERS: [&str; 1] = ["/etc/OpenCL/vendors"];

/// Folders with descriptions of Vulkan drivers.
const DRIVERS: [&str; 3] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// Makes sure that a Vulkan driver is installed. `Err` holds the reason if it is not, and a remedy.
pub(crate) fn ensure_driver() -> Result<(), String> {
    // On other systems the system provides its own interface.
    if cfg!(target_os = "linux") { ensure("Vulkan", &LAVAPIPE, || has_entries(&DRIVERS)) } else { Ok(()) }
}

/// True if the system shows a graphics card, which a suite then runs on.
pub(crate) fn has_card() -> bool {
    ["/dev/dri", "/dev/nvidia0"].iter().any(|path| Path::new(path).exists())
}

/// Makes sure that an OpenCL driver is installed. `Err` holds the reason if it is not, and a remedy.
pub(crate) fn ensure_opencl() -> Result<(), String> {
    if cfg!(target_os = "linux") {
        ensure("OpenCL", &POCL, || has_entries(&OPENCL_DRIVERS))
    } else {
        Err("no software driver for OpenCL is known for this system".into())
    }
}

/// Returns a folder below `target` that contains only Oclgrind's description, for `OCL_ICD_VENDORS`. `Err` holds the
/// reason if it is missing.
pub(crate) fn oclgrind(target: &Path) -> Result<PathBuf, String> {
    const LIBRARY: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";
    ensure("Oclgrind", &["oclgrind"], || Path::new(LIBRARY).is_file())?;
    let directory = target.join("oclgrind");
    std::fs::create_dir_all(&directory)
        .and_then(|()| std::fs::write(directory.join("oclgrind.icd"), LIBRARY))
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(directory)
}

/// The environment in which only Oclgrind is found, searches for data races and writes its findings to `log`. It ends
/// no process at an error.
pub(crate) fn strict(vendors: PathBuf, log: &Path) -> [(&'static str, OsString); 4] {
    [
        ("OCL_ICD_VENDORS", vendors.into()),
        ("OCLGRIND_DATA_RACES", "1".into()),
        ("OCLGRIND_LOG", log.into()),
        ("REQUIRE_DEVICE", "opencl".into()),
    ]
}

/// The variables by which lavapipe and PoCL keep what they compiled below `target`, without those that are set. Compiling is nearly all that
/// the suites take on these drivers, and every change of our own code runs them again.
///
/// # Errors
/// A folder cannot be made.
pub(crate) fn caches(target: &Path) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let caches = [("MESA_SHADER_CACHE_DIR", "mesa-cache"), ("POCL_CACHE_DIR", "pocl-cache")];
    let unset = caches.into_iter().filter(|(variable, _)| std::env::var_os(variable).is_none());
    unset
        .map(|(variable, name)| {
            // The drivers make only the last folder of a path.
            let folder = target.join(name);
            std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            Ok((variable, folder.into()))
        })
        .collect()
}

/// Makes sure that a driver is installed, by installing packages where that is allowed.
fn ensure(what: &str, packages: &[&str], is_there: impl Fn() -> bool) -> Result<(), String> {
    if is_there() {
        return Ok(());
    }
    let hint = format!("install one, as by: apt-get install {}", packages.join(" "));
    println!("==> no {what} driver; trying to install {}", packages.join(" "));
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(packages);
    if !(succeeds("apt-get", &install) || (succeeds("apt-get", &["update"]) && succeeds("apt-get", &install))) {
        return Err(format!("no {what} driver, and none could be installed: {hint}"));
    }
    if is_there() { Ok(()) } else { Err(format!("no {what} driver: {hint}")) }
}

fn has_entries(directories: &[&str]) -> bool {
    directories.iter().any(|directory| std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()))
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns SwiftShader's driver description, unpacked below `target`. `Err` holds the reason if it is missing.
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
