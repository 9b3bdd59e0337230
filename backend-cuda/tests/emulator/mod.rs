//! Builds the emulator and starts the test again with the emulator as its driver.
//!
//! `g++` compiles the kernel files and the stand-in driver into a `libcuda.so.1`, once per change, in cargo's folder
//! for integration tests; the header of the kernels' arguments is written there first. A process finds the library by
//! `LD_LIBRARY_PATH`, which must be set when it starts: so the test runs itself again as its own child.
//! `CUDA_EMULATOR=address` builds it with AddressSanitizer. `CUDA_EMULATOR=races` makes it find unsynchronised accesses
//! of threads to the same memory. `CUDA_EMULATOR=blas` adds stand-ins for cuBLASLt, cuDNN and NVML: without them the
//! backend's own products and convolutions run, and memory in use before the context is unknown. `CUDA_EMULATOR=turing` makes the device
//! one of compute capability 7.5, whose tensor cores multiply only f16.

mod flags;

use std::ffi::{CStr, CString, OsString, c_char};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use backend_cuda::{Compiler, Cuda};

/// Set in the child; holds the parent's choice.
const CHILD: &str = "CUDA_EMULATOR_CHILD";

/// `address` for AddressSanitizer, `races` for races, `blas` for the stand-ins of libraries, `turing` for an older
/// device.
const MODE: &str = "CUDA_EMULATOR";

/// The compiler of the emulator: everything is compiled already, and a token identifies it.
struct Emulated;

impl Compiler for Emulated {
    fn version(&self) -> String {
        "emulator".into()
    }

    fn compile(&self, name: &str, _: &str, _: &[(&str, &str)], _: (u32, u32)) -> Result<Vec<u8>, String> {
        Ok(format!("emulated:{name}\0").into_bytes())
    }
}

/// True if this process has the emulator as its driver.
pub(crate) fn is_here() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Opens the emulated device.
pub(crate) fn open() -> Result<Cuda, String> {
    Cuda::open_for_test(0, Box::new(Emulated)).map_err(|error| error.to_string())
}

/// The names of all kernels in the emulator.
///
/// # Errors
/// This process has another driver.
#[allow(dead_code, reason = "not every test asks")]
pub(crate) fn kernel_names() -> Result<Vec<String>, String> {
    // SAFETY: the library is in this process already; opening it again only finds it.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
    // SAFETY: the function has this type; see `driver.cpp`.
    let count = unsafe { library.get::<unsafe extern "C" fn() -> usize>(b"emulator_kernel_count") };
    // SAFETY: as above.
    let name = unsafe { library.get::<unsafe extern "C" fn(usize) -> *const c_char>(b"emulator_kernel_name") };
    let (count, name) = (count.map_err(|error| error.to_string())?, name.map_err(|error| error.to_string())?);
    // SAFETY: numbers below the count have a name, a string that ends with 0 and lives as long as the library.
    let names = (0..unsafe { count() }).map(|i| unsafe { CStr::from_ptr(name(i)) }.to_string_lossy().into_owned());
    Ok(names.collect())
}

/// Number of launches on the device: of a kernel, a library's product, or a graph.
///
/// # Errors
/// This process has another driver.
#[allow(dead_code, reason = "not every test asks")]
pub(crate) fn launches() -> Result<usize, String> {
    // SAFETY: the library is in this process already; opening it again only finds it.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
    // SAFETY: the function has this type; see `launches.cpp`.
    let count = unsafe { library.get::<unsafe extern "C" fn() -> usize>(b"emulator_launches") };
    let count = count.map_err(|error| error.to_string())?;
    // SAFETY: it only reads.
    Ok(unsafe { count() })
}

/// Bytes of the emulated device that `part` uses: `others`, `context`, `blas`, `dnn`, `staging`, or a kernel file.
///
/// # Errors
/// This process has another driver.
#[allow(dead_code, reason = "not every test asks")]
pub(crate) fn part(part: &str) -> Result<u64, String> {
    ask(b"emulator_part", part).map(|bytes| bytes as u64)
}

/// How often a stand-in for a library noted `what`.
///
/// # Errors
/// This process has another driver.
#[allow(dead_code, reason = "not every test asks")]
pub(crate) fn noted(what: &str) -> Result<usize, String> {
    ask(b"emulator_noted", what)
}

/// Calls a function of the emulator's that takes a name: `emulator_part` or `emulator_noted`.
fn ask(function: &[u8], name: &str) -> Result<usize, String> {
    let name = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: the library is in this process already; opening it again only finds it.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
    // SAFETY: both functions have this type; see `driver.cpp`.
    let function = unsafe { library.get::<unsafe extern "C" fn(*const c_char) -> usize>(function) };
    let function = function.map_err(|error| error.to_string())?;
    // SAFETY: a string that ends with 0 and lives during the call.
    Ok(unsafe { function(name.as_ptr()) })
}

/// Runs this process again, with the same arguments and the emulator as its driver.
///
/// # Errors
/// The emulator cannot be built.
#[allow(dead_code, reason = "not every test takes what the environment says")]
pub(crate) fn run_again() -> Result<ExitCode, String> {
    run_again_with(has_mode("blas"))
}

/// Like [`run_again`]; with `libraries`, the stand-ins of libraries are there whatever the environment says.
///
/// # Errors
/// The emulator cannot be built.
pub(crate) fn run_again_with(libraries: bool) -> Result<ExitCode, String> {
    let library = build()?;
    let folder = library.parent().ok_or("the emulator has no folder")?;
    let itself = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut path = OsString::from(folder);
    if libraries {
        path.push(":");
        path.push(build_libraries(&library)?);
    }
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
        path.push(":");
        path.push(rest);
    }
    let mut child = Command::new(itself);
    child.args(std::env::args_os().skip(1)).env(CHILD, "1").env("LD_LIBRARY_PATH", path);
    // Nothing is compiled, so there is nothing to store.
    child.env("VRAMLAB_KERNEL_CACHE", "");
    if has_mode("turing") {
        child.env("EMULATED_CAPABILITY", "75");
    }
    if sanitized() {
        child.env("LD_PRELOAD", sanitizer()?).env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0");
    }
    let status = child.status().map_err(|error| error.to_string())?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn has_mode(mode: &str) -> bool {
    std::env::var_os(MODE).is_some_and(|chosen| chosen == mode)
}

fn sanitized() -> bool {
    has_mode("address")
}

fn finds_races() -> bool {
    has_mode("races")
}

/// The stand-ins for libraries, each under the name that is searched for first.
const LIBRARIES: [(&str, &str); 4] = [
    ("blaslt.cpp", "libcublasLt.so.12"),
    ("cudnn.cpp", "libcudnn.so.9"),
    ("nvml.cpp", "libnvidia-ml.so.1"),
    ("nvrtc.cpp", "libnvrtc.so.12"),
];

/// Compiles the stand-ins for libraries, which use the emulator; returns their folder.
fn build_libraries(emulator: &Path) -> Result<PathBuf, String> {
    let folder = emulator.with_file_name("libraries");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator/libraries");
    let headers = newest(&[&sources], &["h"])?;
    for (source, library) in LIBRARIES {
        let source = sources.join(source);
        let library = folder.join(library);
        if modified(&library) > modified(&source).max(modified(emulator)).max(headers) {
            continue;
        }
        let partial = folder.join(format!("{}.so", std::process::id()));
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-o"]).arg(&partial);
        let status = compiler.arg(&source).arg(emulator).status().map_err(|error| format!("g++: {error}"))?;
        if !status.success() {
            return Err(format!("{} does not compile", source.display()));
        }
        std::fs::rename(&partial, &library).map_err(|error| error.to_string())?;
    }
    Ok(folder)
}

/// Path of g++'s library for AddressSanitizer: it must be the first one in the process.
fn sanitizer() -> Result<String, String> {
    let output = Command::new("g++").arg("-print-file-name=libasan.so").output().map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Compiles changed files; returns the library.
fn build() -> Result<PathBuf, String> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (kernels, emulator) = (crate_folder.join("kernels"), crate_folder.join("tests/emulator"));
    let mode = if sanitized() {
        "emulator-address"
    } else if finds_races() {
        "emulator-races"
    } else {
        "emulator"
    };
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(mode);
    std::fs::create_dir_all(&out).map_err(|error| error.to_string())?;
    let _turn = Lock::take(&out)?;
    write_changed(&out.join("arguments.cuh"), backend_cuda::kernel_arguments())?;
    let headers = newest(&[&kernels, &emulator, &out], &["cuh", "h"])?;
    let mut sources = files(&kernels, "cu")?;
    sources.extend(files(&emulator, "cpp")?);
    let library = out.join("libcuda.so.1");
    let mut objects = Vec::new();
    let mut running = Vec::new();
    let mut changed = false;
    for source in &sources {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let object = out.join(format!("{name}.o"));
        if modified(&object) <= modified(source).max(headers) {
            changed = true;
            running.push((name.to_string(), compile(source, &object, &[&kernels, &emulator, &out])?));
            if running.len() >= 2 {
                finish(running.remove(0))?;
            }
        }
        objects.push(object);
    }
    running.into_iter().try_for_each(finish)?;
    if changed || !library.exists() {
        let partial = out.join("partial.so");
        let mut link = Command::new("g++");
        link.args(["-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&partial).args(&objects);
        if sanitized() {
            link.arg("-fsanitize=address");
        }
        let status = link.status().map_err(|error| format!("g++: {error}"))?;
        if !status.success() {
            return Err("the emulator does not link".into());
        }
        std::fs::rename(&partial, &library).map_err(|error| error.to_string())?;
    }
    // The name that is searched for first, so that a real driver on the machine is not found before it.
    let first = out.join("libcuda.so");
    if !first.exists() {
        std::os::unix::fs::symlink("libcuda.so.1", &first).map_err(|error| error.to_string())?;
    }
    Ok(library)
}

fn compile(source: &Path, object: &Path, includes: &[&Path]) -> Result<std::process::Child, String> {
    let mut command = Command::new("g++");
    // No -ffast-math; contraction does not matter either way, because results are compared with tolerances.
    command.args(flags::HOST).args(["-fPIC", "-Wall", "-Wextra", "-Werror"]);
    // The compiler warns about a variable that is set and read under the same condition, if the emulator is called in
    // between.
    command.args(["-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-maybe-uninitialized"]);
    if sanitized() {
        // Stacks are not instrumented: fibres switch between them, which the sanitizer does not know.
        command.args(["-fsanitize=address", "--param", "asan-stack=0"]);
    }
    if finds_races() && source.extension().is_some_and(|extension| extension == "cu") {
        command.args(flags::RACES);
    }
    for include in includes {
        command.arg("-I").arg(include);
    }
    command.args(["-x", "c++", "-c"]).arg(source).arg("-o").arg(object);
    command.spawn().map_err(|error| format!("g++, which compiles the kernels for the host: {error}"))
}

fn finish((name, mut child): (String, std::process::Child)) -> Result<(), String> {
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{name} does not compile for the host")) }
}

/// Writes a file unless it has this text already, so that its time is that of the last change.
fn write_changed(file: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn modified(file: &Path) -> std::time::SystemTime {
    std::fs::metadata(file).and_then(|data| data.modified()).unwrap_or(std::time::UNIX_EPOCH)
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    Ok(found)
}

fn newest(folders: &[&PathBuf], extensions: &[&str]) -> Result<std::time::SystemTime, String> {
    let mut newest = std::time::UNIX_EPOCH;
    for folder in folders {
        for extension in extensions {
            newest = files(folder, extension)?.iter().map(|file| modified(file)).fold(newest, std::cmp::max);
        }
    }
    Ok(newest)
}

/// Allows one build at a time, though several tests start at once: only one process can create the folder.
struct Lock(PathBuf);

impl Lock {
    fn take(out: &Path) -> Result<Self, String> {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);
        let folder = out.join("building");
        loop {
            match std::fs::create_dir(&folder) {
                Ok(()) => return Ok(Self(folder)),
                // Left over from a process that was killed.
                Err(_) if modified(&folder).elapsed().is_ok_and(|age| age > PATIENCE) => {
                    let _ = std::fs::remove_dir(&folder);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
