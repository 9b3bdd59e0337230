//! Programs and kernels, compiled at first use.

use std::collections::HashMap;

use memcore::Result;
use opencl3::context::Context;
use opencl3::kernel::Kernel;
use portable_kernels::{Language, Launch, Program};

use crate::device::Found;
use crate::failed;

/// Programs and kernels compiled so far.
pub(crate) struct Programs {
    options: String,
    doubles: bool,
    programs: HashMap<Program, opencl3::program::Program>,
    kernels: HashMap<(Program, &'static str), Kernel>,
}

impl Programs {
    pub(crate) fn new(found: &Found) -> Self {
        let exact = if found.exact_division { " -cl-fp32-correctly-rounded-divide-sqrt" } else { "" };
        Self {
            options: format!("-cl-std=CL1.2{exact}"),
            doubles: found.doubles,
            programs: HashMap::new(),
            kernels: HashMap::new(),
        }
    }

    /// Returns the kernel of a launch, and compiles it at first use.
    ///
    /// # Errors
    /// The compiler's own message.
    pub(crate) fn kernel(&mut self, context: &Context, launch: &Launch) -> Result<&Kernel> {
        let key = (launch.program, launch.function);
        if !self.kernels.contains_key(&key) {
            if !self.programs.contains_key(&launch.program) {
                let source = launch.program.source(Language::opencl(self.doubles));
                let built = opencl3::program::Program::create_and_build_from_source(context, &source, &self.options)
                    .map_err(|log| failed(&format!("{} for {}", launch.function, launch.program.dtype()), log))?;
                self.programs.insert(launch.program, built);
            }
            let kernel = Kernel::create(&self.programs[&launch.program], launch.function);
            self.kernels.insert(key, kernel.map_err(|error| failed(launch.function, error))?);
        }
        Ok(&self.kernels[&key])
    }
}
