//! Modules: the loaded kernels of each family, with their functions, loaded at first use.

use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUfunction};
use memcore::{Error, Result};

use crate::cache;
use crate::compile::{Compiler, LANGUAGE};
use crate::driver::{Driver, DriverError, NAME, driven};
use crate::figures;
use crate::kernel::{Family, Kernel, Spec, Tag};
use crate::queue::Queue;

/// The oldest driver that can report the size of a kernel's argument: CUDA 12.4.
const PARAMETER_INFO_VERSION: i32 = 12_040;

/// A loaded family: its functions by index in the table, then by type and form. A look-up uses two indices.
struct Module {
    handle: sys::CUmodule,
    /// Memory that the driver took for it.
    held_bytes: u64,
    functions: Box<[Box<[CUfunction]>]>,
}

/// The kernels of each family, in the order of the families.
pub(crate) type Tables = [&'static [Spec]; Family::ALL.len()];

/// The families of a device, each loaded at first use.
pub(crate) struct Modules {
    driver: Driver,
    capability: (u32, u32),
    compiler: Box<dyn Compiler>,
    /// The kernels of each family.
    tables: Tables,
    /// The headers that their files include.
    headers: Vec<(&'static str, &'static str)>,
    loaded: [OnceLock<Module>; Family::ALL.len()],
    /// Held while a family is compiled, so that two threads that need it do not both compile it.
    loading: Mutex<()>,
}

// SAFETY: handles of modules and functions, which the driver lets any thread use that has the context.
unsafe impl Send for Modules {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Modules {}

/// A module with its functions.
type Loaded = (sys::CUmodule, Box<[Box<[CUfunction]>]>);

/// The reason why a module was not opened.
enum Refused {
    /// The driver does not accept the machine code.
    Image(DriverError),
    /// The driver accepts it, but has no room for it, or a function differs from its description.
    Function(Error),
}

impl Modules {
    pub(crate) fn new(
        driver: Driver,
        capability: (u32, u32),
        compiler: Box<dyn Compiler>,
        tables: Tables,
        headers: Vec<(&'static str, &'static str)>,
    ) -> Self {
        let loaded = std::array::from_fn(|_| OnceLock::new());
        Self { driver, capability, compiler, tables, headers, loaded, loading: Mutex::default() }
    }

    /// Returns the function of a kernel for a type and a form. Loads the family if it is not loaded yet.
    pub(crate) fn function<A>(&self, queue: &Queue, kernel: Kernel<A>, tag: Tag, form: usize) -> Result<CUfunction> {
        let spec = kernel.spec;
        let module = match self.loaded[spec.family as usize].get() {
            Some(module) => module,
            None => self.load(queue, spec.family)?,
        };
        let at = spec.tags.iter().position(|&t| t == tag).map(|t| t * spec.forms.len() + form);
        at.and_then(|at| module.functions[kernel.place].get(at).copied())
            .ok_or_else(|| Error::backend(NAME, format!("there is no kernel {} for {tag:?}", spec.name)))
    }

    /// Loads every family: otherwise a first step would do that.
    pub(crate) fn load_all(&self, queue: &Queue) -> Result<()> {
        Family::ALL.into_iter().try_for_each(|family| match self.loaded[family as usize].get() {
            Some(_) => Ok(()),
            None => self.load(queue, family).map(|_| ()),
        })
    }

    fn load(&self, queue: &Queue, family: Family) -> Result<&Module> {
        let _turn = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &self.loaded[family as usize];
        if let Some(module) = slot.get() {
            return Ok(module);
        }
        queue.bind()?;
        let key = self.key(family);
        let opened = match cache::load(&key).map(|image| self.open(queue, family, &image)) {
            // The file may be damaged, for example by a full disk.
            None | Some(Err(Refused::Image(_))) => self.open(queue, family, &self.compile(family, &key)?),
            Some(opened) => opened,
        };
        let ((handle, functions), held_bytes) = opened.map_err(|refused| match refused {
            Refused::Image(error) => {
                let what = format!("{} by {}", family.source().0, self.compiler.version());
                error.while_at(&what)
            }
            Refused::Function(error) => error,
        })?;
        Ok(slot.get_or_init(|| Module { handle, held_bytes, functions }))
    }

    /// Returns the module, its functions, and the memory that the driver took for it. A driver may load a function only
    /// when it is looked up: both are one step.
    fn open(&self, queue: &Queue, family: Family, image: &[u8]) -> std::result::Result<(Loaded, u64), Refused> {
        figures::measured(queue, || {
            let mut handle = std::ptr::null_mut();
            driven!(cuModuleLoadData(&mut handle, image.as_ptr().cast())).map_err(|error| match error {
                full if full.is_out_of_memory() => Refused::Function(full.into()),
                error => Refused::Image(error),
            })?;
            Ok((handle, self.resolve(handle, family).map_err(Refused::Function)?))
        })
    }

    /// Number of files that the compiler has still to compile; 0 if the cache is off.
    pub(crate) fn not_compiled(&self) -> usize {
        Family::ALL.into_iter().filter(|&family| cache::lacks(&self.key(family))).count()
    }

    /// The loaded files, with the memory that the driver took for each.
    pub(crate) fn held(&self) -> Vec<(&'static str, u64)> {
        let file = |family: Family| Some((family.source().0, self.loaded[family as usize].get()?.held_bytes));
        Family::ALL.into_iter().filter_map(file).collect()
    }

    fn architecture(&self) -> String {
        let (major, minor) = self.capability;
        format!("sm_{major}{minor}")
    }

    /// The cache key of the family's machine code.
    fn key(&self, family: Family) -> String {
        let (name, source) = family.source();
        let (architecture, version) = (self.architecture(), self.compiler.version());
        let parts = [name, source, &architecture, &version].into_iter().chain(LANGUAGE);
        let sum = cache::fingerprint(parts.chain(self.headers.iter().flat_map(|(name, text)| [*name, *text])));
        format!("{}-{architecture}-{sum}.cubin", name.trim_end_matches(".cu"))
    }

    /// Compiles the family and stores its machine code in the cache.
    fn compile(&self, family: Family, key: &str) -> Result<Vec<u8>> {
        let (name, source) = family.source();
        let image = self.compiler.compile(name, source, &self.headers, self.capability).map_err(|log| {
            let (version, architecture) = (self.compiler.version(), self.architecture());
            Error::backend(NAME, format!("{version} does not compile {name} for {architecture}: {log}"))
        })?;
        cache::store(key, &image);
        Ok(image)
    }

    /// Looks up every function of the family, and compares the size of its argument with ours if the driver reports it.
    fn resolve(&self, module: sys::CUmodule, family: Family) -> Result<Box<[Box<[CUfunction]>]>> {
        let found = |spec: &Spec| spec.names().map(|name| self.find(module, &name, spec.args_bytes)).collect();
        self.tables[family as usize].iter().map(found).collect()
    }

    fn find(&self, module: sys::CUmodule, name: &str, args_bytes: usize) -> Result<CUfunction> {
        let symbol = CString::new(name).map_err(|error| Error::backend(NAME, error))?;
        let mut function = std::ptr::null_mut();
        driven!(cuModuleGetFunction(&mut function, module, symbol.as_ptr()))
            .map_err(|error| Error::backend(NAME, format!("kernel {name}: {error}")))?;
        if self.driver.version >= PARAMETER_INFO_VERSION {
            let (mut offset, mut bytes) = (0, 0);
            driven!(cuFuncGetParamInfo(function, 0, &mut offset, &mut bytes))?;
            if bytes != args_bytes {
                let text = format!("kernel {name} takes {bytes} bytes of arguments, not {args_bytes}");
                return Err(Error::backend(NAME, text));
            }
        }
        Ok(function)
    }

    /// Unloads everything; the context must be current.
    pub(crate) fn unload(&mut self) {
        for slot in &mut self.loaded {
            if let Some(module) = slot.take() {
                // The device may be lost; then its modules are lost too.
                let _ = driven!(cuModuleUnload(module.handle));
            }
        }
    }
}
