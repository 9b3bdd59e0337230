//! Compilation of CUDA C to machine code.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;
use memcore::Error;

use crate::driver::NAME;
use crate::libraries::{self, Version, functions};

/// Compiles a kernel file to a module for one architecture.
///
/// A trait so that tests can run the kernels on the host: `Nvrtc` is the only compiler for users.
pub trait Compiler: Send + Sync {
    /// Name and version: part of the cache's key.
    fn version(&self) -> String;

    /// Compiles `source` (the file `name`, which includes `headers` by name) for compute capability `major.minor`.
    ///
    /// # Errors
    /// The compiler's log.
    fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        capability: (u32, u32),
    ) -> Result<Vec<u8>, String>;
}

/// NVIDIA's run-time compiler, straight to machine code.
///
/// It does not compile to PTX, because a driver older than the compiler would refuse that.
#[derive(Clone, Copy)]
pub(crate) struct Nvrtc {
    library: &'static Functions,
    version: Version,
}

/// Language options for all files. Generic lambdas are device functions.
pub(crate) const LANGUAGE: [&str; 2] = ["--std=c++17", "--device-as-default-execution-space"];

/// Compiles on all processors, because the user is waiting: a third less time on two processors. Older compilers do not
/// know the option.
const ON_ALL_PROCESSORS: &str = "--split-compile=0";

/// Status code of the compiler: 0 is success.
type Code = u32;

/// `NVRTC_ERROR_INVALID_OPTION`.
const INVALID_OPTION: Code = 5;

/// Handle of a program in the compiler.
type Handle = *mut c_void;

functions! {
    /// Functions that are called.
    Functions {
        nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Code;
        nvrtcGetErrorString(code: Code) -> *const c_char;
        nvrtcGetNumSupportedArchs(count: *mut c_int) -> Code;
        nvrtcGetSupportedArchs(architectures: *mut c_int) -> Code;
        nvrtcCreateProgram(program: *mut Handle, source: *const c_char, name: *const c_char, headers: c_int,
            texts: *const *const c_char, names: *const *const c_char) -> Code;
        nvrtcCompileProgram(program: Handle, count: c_int, options: *const *const c_char) -> Code;
        nvrtcGetCUBINSize(program: Handle, bytes: *mut usize) -> Code;
        nvrtcGetCUBIN(program: Handle, to: *mut c_char) -> Code;
        nvrtcGetProgramLogSize(program: Handle, bytes: *mut usize) -> Code;
        nvrtcGetProgramLog(program: Handle, to: *mut c_char) -> Code;
        nvrtcDestroyProgram(program: *mut Handle) -> Code;
    }
}

impl Nvrtc {
    /// Finds the newest compiler whose code a driver of CUDA `newest` can run. The first search of a process determines
    /// the answer.
    ///
    /// # Errors
    /// No compiler was found; with how to get one.
    pub(crate) fn load(newest: u32) -> Result<Self, Error> {
        static FOUND: OnceLock<Result<(Functions, Version), String>> = OnceLock::new();
        match FOUND.get_or_init(|| libraries::find("nvrtc", newest, open)) {
            Ok((library, version)) => Ok(Self { library, version: *version }),
            Err(what) => {
                let (releases, package) = if newest > 12 { ("12 or 13", "") } else { ("12", "-cu12") };
                let text = format!(
                    "{what}; the kernels are compiled for the GPU at hand by NVRTC of CUDA {releases}: activate the Python \
                     environment that has PyTorch, or pip install nvidia-cuda-nvrtc{package} and put its lib folder on \
                     LD_LIBRARY_PATH, or install the CUDA toolkit"
                );
                Err(Error::backend(NAME, text))
            }
        }
    }

    /// The newest machine code of the device's generation that the compiler knows. It runs on every later device of
    /// that generation.
    fn architecture(&self, (major, minor): (u32, u32)) -> Result<String, String> {
        let mut count = 0;
        // SAFETY: a place to write a number to.
        self.answer(unsafe { (self.library.nvrtcGetNumSupportedArchs)(&mut count) })?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: room for as many numbers as the compiler said.
        self.answer(unsafe { (self.library.nvrtcGetSupportedArchs)(known.as_mut_ptr()) })?;
        newest_for(&known, (major, minor)).map(|sm| format!("sm_{sm}")).ok_or_else(|| {
            let most = known.iter().max().copied().unwrap_or(0);
            format!(
                "it knows no compute capability {major}.{minor} yet, at most {}.{}: a newer NVRTC is needed",
                most / 10,
                most % 10
            )
        })
    }

    fn answer(&self, code: Code) -> Result<(), String> {
        if code == 0 { Ok(()) } else { Err(text_of(self.library, code)) }
    }
}

/// Of the known compute capabilities (`10·major + minor`), the newest one of the device's generation that is not above
/// the device's.
fn newest_for(known: &[c_int], (major, minor): (u32, u32)) -> Option<c_int> {
    let device = c_int::try_from(10 * major + minor).ok()?;
    known.iter().copied().filter(|&sm| sm <= device && sm / 10 == device / 10).max()
}

/// The compiler's text for a code.
fn text_of(library: &Functions, code: Code) -> String {
    // SAFETY: the compiler has a text for every number, which lives as long as the library.
    unsafe { CStr::from_ptr((library.nvrtcGetErrorString)(code)) }.to_string_lossy().into_owned()
}

/// Looks up the compiler's functions and its version.
fn open(library: Library) -> Result<(Functions, Version), String> {
    let library = Functions::from_library(library)
        .map_err(|why| format!("the NVRTC library that was found is too old: {why}"))?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two places to write numbers to.
    match unsafe { (library.nvrtcVersion)(&mut major, &mut minor) } {
        0 => Ok((library, (major.unsigned_abs(), minor.unsigned_abs()))),
        code => Err(format!("NVRTC does not start: {}", text_of(&library, code))),
    }
}

/// The assembler's figures about the kernels of a file: for checks without a GPU.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Name of the file.
    pub file: &'static str,
    /// Number of kernels.
    pub kernels: usize,
    /// Maximum number of registers per thread of a kernel.
    pub registers: u32,
    /// Bytes of machine code.
    pub bytes: usize,
    /// Kernels that spill registers to memory, with the bytes that they store.
    pub spills: Vec<(String, u32)>,
}

impl Nvrtc {
    /// Compiles a file and reads the assembler's figures.
    pub(crate) fn report(
        &self,
        (file, source): (&'static str, &str),
        headers: &[(&str, &str)],
        (major, minor): (u32, u32),
    ) -> Result<Report, String> {
        let program = Program::new(*self, file, source, headers)?;
        let architecture = format!("--gpu-architecture=sm_{major}{minor}");
        let options = [&LANGUAGE[..], &[&architecture, "--ptxas-options=-v"]].concat();
        program.told(program.build(&options)).map_err(|log| format!("{file}: {log}"))?;
        let mut report = Report { file, bytes: program.cubin()?.len(), ..Report::default() };
        let (log, mut kernel) = (program.log(), String::new());
        for line in log.lines() {
            // "… Compiling entry function 'NAME' for 'sm_80'"
            if let Some((_, rest)) = line.split_once("entry function '") {
                kernel = rest.split('\'').next().unwrap_or_default().to_string();
                report.kernels += 1;
            }
            // "N bytes stack frame, N bytes spill stores, N bytes spill loads"; "Used N registers, …"
            let number = |text: &str| text.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(0);
            if let Some((before, _)) = line.split_once(" bytes spill stores") {
                let stored = number(before);
                if stored > 0 {
                    report.spills.push((kernel.clone(), stored));
                }
            }
            if let Some((before, _)) = line.split_once(" registers") {
                report.registers = report.registers.max(number(before));
            }
        }
        Ok(report)
    }
}

impl Compiler for Nvrtc {
    fn version(&self) -> String {
        format!("nvrtc-{}.{}", self.version.0, self.version.1)
    }

    fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        capability: (u32, u32),
    ) -> Result<Vec<u8>, String> {
        let architecture = format!("--gpu-architecture={}", self.architecture(capability)?);
        let options = [&LANGUAGE[..], &[&architecture]].concat();
        let mut program = Program::new(*self, name, source, headers)?;
        let mut built = program.build(&[&options[..], &[ON_ALL_PROCESSORS]].concat());
        if built == INVALID_OPTION {
            program = Program::new(*self, name, source, headers)?;
            built = program.build(&options);
        }
        program.told(built)?;
        program.cubin()
    }
}

/// A program of the compiler, destroyed on drop.
struct Program {
    compiler: Nvrtc,
    handle: Handle,
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a zero byte in a source file".to_string())
}

impl Program {
    fn new(compiler: Nvrtc, name: &str, source: &str, headers: &[(&str, &str)]) -> Result<Self, String> {
        let (name, source) = (text(name)?, text(source)?);
        let texts = headers.iter().map(|(_, body)| text(body)).collect::<Result<Vec<_>, _>>()?;
        let names = headers.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let (count, mut handle) = (headers.len() as c_int, std::ptr::null_mut());
        let create = compiler.library.nvrtcCreateProgram;
        // SAFETY: strings that end with 0 and live during the call, and two arrays of `count` of them.
        let code =
            unsafe { create(&mut handle, source.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr()) };
        compiler.answer(code)?;
        Ok(Self { compiler, handle })
    }

    fn build(&self, options: &[&str]) -> Code {
        let options: Vec<CString> = options.iter().filter_map(|option| CString::new(*option).ok()).collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live; the options are strings that live during the call.
        unsafe { (self.compiler.library.nvrtcCompileProgram)(self.handle, pointers.len() as c_int, pointers.as_ptr()) }
    }

    /// Turns a build's status code into a result, with the log on failure.
    fn told(&self, built: Code) -> Result<(), String> {
        self.compiler.answer(built).map_err(|text| format!("{text}\n{}", self.log()))
    }

    fn cubin(&self) -> Result<Vec<u8>, String> {
        let library = self.compiler.library;
        let mut size = 0;
        // SAFETY: the program is live; a place to write a number to.
        self.compiler.answer(unsafe { (library.nvrtcGetCUBINSize)(self.handle, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that the compiler said.
        self.compiler.answer(unsafe { (library.nvrtcGetCUBIN)(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn log(&self) -> String {
        let library = self.compiler.library;
        let mut size = 0;
        // SAFETY: the program is live; a place to write a number to.
        if unsafe { (library.nvrtcGetProgramLogSize)(self.handle, &mut size) } != 0 {
            return String::new();
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that the compiler said.
        if unsafe { (library.nvrtcGetProgramLog)(self.handle, bytes.as_mut_ptr().cast()) } != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { (self.compiler.library.nvrtcDestroyProgram)(&mut self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_code_of_its_own_generation() {
        let known = [75, 80, 86, 89, 90, 100];
        assert_eq!(newest_for(&known, (9, 0)), Some(90));
        assert_eq!(newest_for(&known, (8, 7)), Some(86));
        assert_eq!(newest_for(&known, (10, 3)), Some(100));
        assert_eq!(newest_for(&known, (12, 0)), None);
        assert_eq!(newest_for(&[], (8, 0)), None);
    }
}
