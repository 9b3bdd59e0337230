//! From CUDA C to what a device runs.

use std::ffi::CString;

use cudarc::nvrtc::sys::{self, nvrtcResult};
use memcore::Error;

use crate::driver::NAME;

/// Makes a module for one architecture out of a kernel file.
///
/// A seam for tests, which run the kernels on the host: [`Nvrtc`] is the only compiler that a user gets.
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
/// Not to PTX, which a driver older than the compiler would refuse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nvrtc {
    major: i32,
    minor: i32,
}

/// What all files are compiled as. Lambdas that take any argument are the device's own.
const LANGUAGE: [&str; 2] = ["--std=c++17", "--device-as-default-execution-space"];

/// Somebody waits for these kernels: a third less time on two processors. Older compilers do not know it.
const ON_ALL_PROCESSORS: &str = "--split-compile=0";

/// Every symbol of the compiler that is called here.
const SYMBOLS: &[&str] = &[
    "nvrtcVersion",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcDestroyProgram",
];

impl Nvrtc {
    /// Finds the library.
    ///
    /// # Errors
    /// Says that it is missing, and how to get it.
    pub(crate) fn load() -> Result<Self, Error> {
        let help = |what: &str| {
            let text = format!(
                "{what}; the kernels are compiled for the GPU at hand by NVRTC, CUDA 12: pip install \
                 nvidia-cuda-nvrtc-cu12 and put its lib folder on LD_LIBRARY_PATH, or install the CUDA toolkit"
            );
            Error::backend(NAME, text)
        };
        // SAFETY: only tries to open the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(help("libnvrtc.so.12 was not found"));
        }
        // SAFETY: the library was found just now, so that this does not panic.
        let library = unsafe { sys::culib() };
        for symbol in SYMBOLS {
            // SAFETY: the symbol is looked up and not called.
            if unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
                return Err(help(&format!("the NVRTC library that was found is too old: it has no {symbol}")));
            }
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two places to write numbers to.
        let code = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
        if code != nvrtcResult::NVRTC_SUCCESS {
            return Err(help(&format!("NVRTC does not start ({code:?})")));
        }
        Ok(Self { major, minor })
    }
}

/// What the assembler says of the kernels of a file: for checks that need no GPU.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The file.
    pub file: &'static str,
    /// How many kernels it has.
    pub kernels: usize,
    /// The most registers that a thread of one takes.
    pub registers: u32,
    /// Bytes of machine code.
    pub bytes: usize,
    /// Kernels that keep registers in memory, with the bytes that they store.
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
        let program = Program::new(file, source, headers)?;
        let architecture = format!("--gpu-architecture=sm_{major}{minor}");
        let options = [&LANGUAGE[..], &[&architecture, "--ptxas-options=-v"]].concat();
        program.build(&options).map_err(|code| format!("{file}: {code:?}\n{}", program.log()))?;
        let mut report =
            Report { file, bytes: program.cubin().map_err(|code| format!("{code:?}"))?.len(), ..Report::default() };
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
        format!("nvrtc-{}.{}", self.major, self.minor)
    }

    fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        (major, minor): (u32, u32),
    ) -> Result<Vec<u8>, String> {
        let architecture = format!("--gpu-architecture=sm_{major}{minor}");
        let options = [&LANGUAGE[..], &[&architecture]].concat();
        let mut program = Program::new(name, source, headers)?;
        let mut built = program.build(&[&options[..], &[ON_ALL_PROCESSORS]].concat());
        if built == Err(nvrtcResult::NVRTC_ERROR_INVALID_OPTION) {
            program = Program::new(name, source, headers)?;
            built = program.build(&options);
        }
        built.map_err(|code| format!("{code:?}\n{}", program.log()))?;
        program.cubin().map_err(|code| format!("{code:?}"))
    }
}

/// A program of the compiler's, destroyed when this goes.
struct Program(sys::nvrtcProgram);

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "a zero byte in a source file".to_string())
}

fn answer(code: nvrtcResult) -> Result<(), nvrtcResult> {
    if code == nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(code) }
}

impl Program {
    fn new(name: &str, source: &str, headers: &[(&str, &str)]) -> Result<Self, String> {
        let (name, source) = (text(name)?, text(source)?);
        let texts = headers.iter().map(|(_, body)| text(body)).collect::<Result<Vec<_>, _>>()?;
        let names = headers.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let (count, mut program) = (headers.len() as i32, std::ptr::null_mut());
        // SAFETY: strings that end with 0 and live during the call, and two arrays of `count` of them.
        let code = unsafe {
            sys::nvrtcCreateProgram(&mut program, source.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        answer(code).map_err(|code| format!("{code:?}"))?;
        Ok(Self(program))
    }

    fn build(&self, options: &[&str]) -> Result<(), nvrtcResult> {
        let options: Vec<CString> = options.iter().filter_map(|option| CString::new(*option).ok()).collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live; the options are strings that live during the call.
        answer(unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as i32, pointers.as_ptr()) })
    }

    fn cubin(&self) -> Result<Vec<u8>, nvrtcResult> {
        let mut size = 0;
        // SAFETY: the program is live; a place to write a number to.
        answer(unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that the compiler said.
        answer(unsafe { sys::nvrtcGetCUBIN(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program is live; a place to write a number to.
        if answer(unsafe { sys::nvrtcGetProgramLogSize(self.0, &mut size) }).is_err() {
            return String::new();
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that the compiler said.
        if answer(unsafe { sys::nvrtcGetProgramLog(self.0, bytes.as_mut_ptr().cast()) }).is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is live, and nobody has it after this. Nothing can be done about a failure.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}
