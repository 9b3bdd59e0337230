//! Pipelines and bind groups, created once and kept.

use memcore::backend::SegmentId;
use memcore::error::Result;
use rustc_hash::FxHashMap;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry,
    BindingResource, BindingType, Buffer, BufferBinding, BufferBindingType, BufferSize, ComputePipeline,
    ComputePipelineDescriptor, ErrorFilter, PipelineCompilationOptions, PipelineLayout, PipelineLayoutDescriptor,
    ShaderModuleDescriptor, ShaderRuntimeChecks, ShaderSource, ShaderStages,
};

use crate::gpu::Gpu;
use crate::key::Key;
use crate::queue::SLOT_BYTES;

/// Maximum number of operands that one dispatch binds: every adapter allows that many.
pub(crate) const MAX_BINDINGS: usize = 8;

/// Maximum number of bind groups kept; beyond it all are dropped and created again at need.
const MAX_BIND_GROUPS: usize = 16_384;

/// A binding: a segment (`None` for the dummy), and a range of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Binding {
    pub(crate) segment: Option<SegmentId>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

type BindKey = (u8, [Binding; MAX_BINDINGS]);

/// Layouts, pipelines, bind groups.
pub(crate) struct Pipelines {
    /// By number of bindings, from 1.
    layouts: Vec<(BindGroupLayout, PipelineLayout)>,
    by_key: FxHashMap<Key, usize>,
    pipelines: Vec<ComputePipeline>,
    bind_groups: FxHashMap<BindKey, BindGroup>,
    /// Bind group of the parameters, whose slot is a dynamic offset.
    pub(crate) params: BindGroup,
}

impl Pipelines {
    pub(crate) fn new(gpu: &Gpu, params: &Buffer) -> Self {
        let device = &gpu.device;
        let uniform = BindingType::Buffer {
            ty: BufferBindingType::Uniform,
            has_dynamic_offset: true,
            min_binding_size: BufferSize::new(SLOT_BYTES),
        };
        let params_layout = device.create_bind_group_layout(&BindGroupLayoutDescriptor {
            label: Some("parameters"),
            entries: &[entry(0, uniform)],
        });
        // A buffer that is bound twice must be read-write at every binding, whatever the ranges: so all bindings are.
        let storage = BindingType::Buffer {
            ty: BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        };
        let layouts = (1..=MAX_BINDINGS as u32)
            .map(|count| {
                let entries: Vec<_> = (0..count).map(|i| entry(i, storage)).collect();
                let group = device.create_bind_group_layout(&BindGroupLayoutDescriptor {
                    label: Some("operands"),
                    entries: &entries,
                });
                let pipeline = device.create_pipeline_layout(&PipelineLayoutDescriptor {
                    label: Some("kernel"),
                    bind_group_layouts: &[Some(&group), Some(&params_layout)],
                    immediate_size: 0,
                });
                (group, pipeline)
            })
            .collect();
        let slot = BufferBinding { buffer: params, offset: 0, size: BufferSize::new(SLOT_BYTES) };
        let params = device.create_bind_group(&BindGroupDescriptor {
            label: Some("parameters"),
            layout: &params_layout,
            entries: &[BindGroupEntry { binding: 0, resource: BindingResource::Buffer(slot) }],
        });
        let (by_key, bind_groups) = (FxHashMap::default(), FxHashMap::default());
        Self { layouts, by_key, pipelines: Vec::new(), bind_groups, params }
    }

    /// Number of pipelines created so far.
    pub(crate) fn len(&self) -> usize {
        self.pipelines.len()
    }

    /// Returns the index of a kernel's pipeline, if it was built before.
    pub(crate) fn known(&mut self, gpu: &Gpu, key: Key) -> Option<usize> {
        if let Some(&index) = self.by_key.get(&key) {
            return Some(index);
        }
        let pipeline = gpu.compiled(key.name, key.variant)?;
        Some(self.keep(key, pipeline))
    }

    fn keep(&mut self, key: Key, pipeline: ComputePipeline) -> usize {
        self.pipelines.push(pipeline);
        self.by_key.insert(key, self.pipelines.len() - 1);
        self.pipelines.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> &ComputePipeline {
        &self.pipelines[index]
    }

    /// Builds a kernel's pipeline and returns its index.
    pub(crate) fn build(&mut self, gpu: &Gpu, key: Key, bindings: usize, source: &str) -> Result<usize> {
        let scope = gpu.device.push_error_scope(ErrorFilter::Validation);
        let enable = if source.contains("f16(") { "enable f16;\n" } else { "" };
        let source = &format!("{enable}{}{source}", crate::element::quads(gpu.by_64));
        let descriptor = ShaderModuleDescriptor { label: Some(key.name), source: ShaderSource::Wgsl(source.into()) };
        // SAFETY: the shaders are this crate's own. Their indices lie within the operands' layouts, which core has checked against the
        // regions that are bound, and those that come from memory are compared with the sizes; their loops are counted ones.
        let module = unsafe { gpu.device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) };
        let pipeline = gpu.device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(key.name),
            layout: Some(&self.layouts[bindings - 1].1),
            module: &module,
            entry_point: Some("main"),
            compilation_options: PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        match pollster::block_on(scope.pop()) {
            None => {
                gpu.keep_compiled(key.name, key.variant, &pipeline);
                Ok(self.keep(key, pipeline))
            }
            Some(error) => {
                let error = if cfg!(debug_assertions) { format!("{error}\n{source}") } else { error.to_string() };
                Err(gpu.error(format!("kernel {} ({:#x}) does not compile: {error}", key.name, key.variant)))
            }
        }
    }

    /// Returns the bind group of these ranges.
    pub(crate) fn bind<'b>(
        &mut self,
        gpu: &Gpu,
        bindings: &[Binding],
        buffer_of: impl Fn(&Binding) -> Result<&'b Buffer>,
    ) -> Result<&BindGroup> {
        let mut key: BindKey = (bindings.len() as u8, [Binding::default(); MAX_BINDINGS]);
        key.1[..bindings.len()].copy_from_slice(bindings);
        if self.bind_groups.len() >= MAX_BIND_GROUPS {
            self.bind_groups.clear();
        }
        match self.bind_groups.entry(key) {
            std::collections::hash_map::Entry::Occupied(found) => Ok(found.into_mut()),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let mut entries = Vec::with_capacity(bindings.len());
                for (i, binding) in bindings.iter().enumerate() {
                    let size = BufferSize::new(binding.size);
                    let range = BufferBinding { buffer: buffer_of(binding)?, offset: binding.offset, size };
                    entries.push(BindGroupEntry { binding: i as u32, resource: BindingResource::Buffer(range) });
                }
                let layout = &self.layouts[bindings.len() - 1].0;
                let descriptor = BindGroupDescriptor { label: None, layout, entries: &entries };
                Ok(vacant.insert(gpu.device.create_bind_group(&descriptor)))
            }
        }
    }

    /// Drops every bind group of a segment: a bind group would keep the buffer alive.
    pub(crate) fn forget(&mut self, id: SegmentId) {
        self.bind_groups.retain(|(count, bindings), _| {
            bindings[..*count as usize].iter().all(|binding| binding.segment != Some(id))
        });
    }
}

fn entry(binding: u32, ty: BindingType) -> BindGroupLayoutEntry {
    BindGroupLayoutEntry { binding, visibility: ShaderStages::COMPUTE, ty, count: None }
}
